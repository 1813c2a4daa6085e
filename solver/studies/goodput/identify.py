"""What observations say about step times: predictions, their slopes, and what stays unknown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.arrays import Floats
from ppsolve.models.studies.goodput.params import LEAST_TIME, PerfParams, further_replicas

NAMES = tuple(PerfParams.__dataclass_fields__)
ALPHA_C, BETA_C, ALPHA_N, BETA_N, ALPHA_R, BETA_R, GAMMA = range(7)


@dataclass(frozen=True)
class FitParams:
    """Bounds, priors and effort of a fit; "AdaptDL" marks values of the published program."""

    # Bounds of the times; AdaptDL has no upper one.
    lower: float = 1e-8
    upper: float = 1e15
    # Upper bound of gamma (AdaptDL): beyond it the longer time hides the shorter one completely.
    most_gamma: float = 10.0
    # Where AdaptDL's `fit_perf_params` begins.
    published_start: tuple[float, ...] = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
    # Overlaps that the first guesses from the data assume; each adds a start and its time.
    guessed_gammas: tuple[float, ...] = (1.001, 2.0, 5.0, 1.4)
    # Weights of the priors on gamma and on the two ratios of beta to alpha (AdaptDL).
    gamma_weight: float = 1e-3
    ratio_weight: float = 1e-2
    # Several nodes take this much longer than one at least, if none was observed (AdaptDL).
    multi_node_factor: float = 1.1
    # Steps that a descent may try.
    most_trials: int = 200
    # Gain of a step at which a descent is at rest; the second one of the last descents.
    rough: float = 1e-9
    fine: float = 1e-12
    # The last descents' smoothing, in turn: the objective has a kink at a perfect fit.
    smoothing: tuple[float, ...] = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)
    # A share of optim_step_time over accum_step_time below which noise does not explain it.
    shorter: float = 0.9
    # Relative singular value below which a direction changes no prediction: far above rounding.
    blind: float = 1e-6
    # A parameter is warned about if doubling it changes all predictions by less than this share.
    faint: float = 1e-4


FIT = FitParams()


class Prediction(NamedTuple):
    """Logarithms of the two times [n], and their slopes by the seven parameters [n, 7]."""

    accum: Floats
    optim: Floats
    accum_slopes: Floats
    optim_slopes: Floats


class Design:
    """Nodes, replicas and micro-batch sizes [n] of observations, as factors of parameters."""

    def __init__(self, nodes: Floats, replicas: Floats, atomic: Floats) -> None:
        self.several_nodes = nodes > 1
        self.one_node = (nodes == 1) & (replicas > 1)
        self.beyond_two = replicas > 2
        further = further_replicas(replicas)
        several, alone = self.several_nodes.astype(float), self.one_node.astype(float)
        self.compute = np.column_stack([np.ones_like(atomic), atomic])
        self.network = np.column_stack([several, several * further, alone, alone * further])
        self.floor = np.where(replicas > 1, 0.0, LEAST_TIME + LEAST_TIME * further)
        self.further = further

    def times(self, params: Floats) -> tuple[Floats, Floats]:
        """Return the times [n] of a micro-batch and of the gradient exchange."""
        return self.compute @ params[:ALPHA_N], self.network @ params[ALPHA_N:GAMMA] + self.floor

    def predict(self, params: Floats) -> Prediction:
        """Return the logarithms of both times and their slopes, in closed form."""
        accum, network = self.times(params)
        gamma = params[GAMMA]
        longer, shorter = np.maximum(accum, network), np.minimum(accum, network)
        ratio = shorter / longer
        power = ratio**gamma
        # Not the logarithm of gamma_norm: the overlap may be below the rounding of the sum.
        extra, minor = np.log1p(power) / gamma, power / (1 + power)
        share = np.where(accum >= network, 1 - minor, minor)
        accum_slopes, optim_slopes = np.zeros((2, len(accum), len(NAMES)))
        accum_slopes[:, :ALPHA_N] = self.compute / accum[:, None]
        optim_slopes[:, :ALPHA_N] = self.compute * (share / accum)[:, None]
        optim_slopes[:, ALPHA_N:GAMMA] = self.network * ((1 - share) / network)[:, None]
        optim_slopes[:, GAMMA] = (minor * np.log(ratio) - extra) / gamma
        return Prediction(np.log(accum), np.log(longer) + extra, accum_slopes, optim_slopes)


@dataclass(frozen=True)
class ParameterBounds:
    """Bounds [7] of the parameters; where they meet the parameter is fixed, `fixed` says why."""

    lower: Floats
    upper: Floats
    fixed: dict[str, str]

    @classmethod
    def of(cls, design: Design, accum_times: Floats) -> ParameterBounds:
        """Return the published bounds for observations (AdaptDL).

        Parameters
        ----------
        design : Design
            The configurations that were observed.
        accum_times : float64[n]
            Their times of an accumulation step.

        Returns
        -------
        ParameterBounds
            Parameters that no observation depends on are fixed at their lower bound, alpha_c at
            half of the mean time if there is one micro-batch size only.
        """
        lower = np.array([FIT.lower] * GAMMA + [1.0])
        upper = np.array([FIT.upper] * GAMMA + [FIT.most_gamma])
        fixed: dict[str, str] = {}
        for index, reason in _fixed(design):
            upper[index] = lower[index]
            fixed.setdefault(NAMES[index], reason)
        if np.all(design.compute[:, 1] == design.compute[0, 1]):
            lower[ALPHA_C] = upper[ALPHA_C] = np.mean(accum_times) / 2
            fixed[NAMES[ALPHA_C]] = (
                "one micro-batch size only: half of the mean accumulation step time"
            )
        return cls(lower, upper, {name: fixed[name] for name in NAMES if name in fixed})

    @property
    def free(self) -> list[int]:
        """Parameters that are not fixed."""
        return np.flatnonzero(self.lower < self.upper).tolist()

    def clip(self, params: Floats) -> Floats:
        """Return the nearest parameters within the bounds."""
        return np.clip(params, self.lower, self.upper)


def _fixed(design: Design) -> Iterator[tuple[int, str]]:
    if not np.any(design.several_nodes):
        reason = "no observation with more than one node"
        yield from ((ALPHA_N, reason), (BETA_N, reason))
    if not np.any(design.one_node):
        reason = "no observation with one node and more than one replica"
        yield from ((ALPHA_R, reason), (BETA_R, reason))
    if not np.any(design.beyond_two):
        reason = "no observation with more than two replicas"
        yield from ((BETA_N, reason), (BETA_R, reason))


def unidentified(design: Design, box: ParameterBounds, params: Floats) -> tuple[str, ...]:
    """Return a warning for each free parameter that the data leave open.

    They have a share in the null space of the slopes of all predicted logarithms by the logarithms
    of the parameters, at a point where no part of the times is negligible; or at `params`, away
    from their bounds, hardly any prediction moves.

    Parameters
    ----------
    design : Design
        The configurations that were observed.
    box : ParameterBounds
        The bounds, and which parameters are free.
    params : float64[7]
        The fitted parameters.

    Returns
    -------
    tuple of str
        Sentences that begin with the names of the parameters.
    """
    free = np.array(box.free, dtype=np.int64)
    slopes = _slopes(design, box.clip(_balanced(design, params)))[:, free]
    _, sizes, directions = np.linalg.svd(np.linalg.qr(slopes, mode="r"))
    seen = np.count_nonzero(sizes > FIT.blind * np.max(sizes, initial=0.0))
    is_open = np.sum(directions[seen:] ** 2, axis=0) > FIT.blind
    reach = np.max(np.abs(_slopes(design, params)), axis=0)
    is_faint = (box.lower < params) & (params < box.upper) & (reach < FIT.faint)
    return tuple(
        f"{NAMES[index]}: the observations do not identify it"
        for index in free[is_open | is_faint[free]].tolist()
    )


def _slopes(design: Design, params: Floats) -> Floats:
    # By the logarithms of the parameters: [2n, 7].
    prediction = design.predict(params)
    slopes: Floats = np.vstack([prediction.accum_slopes, prediction.optim_slopes]) * params
    return slopes


def _balanced(design: Design, params: Floats) -> Floats:
    # Parameters for which every part of the times is of the same order. The odd factors keep clear
    # of points where two slopes happen to be alike.
    size = np.median(design.compute[:, 1])
    time = params[ALPHA_C] + params[BETA_C] * size
    each = time / np.max(design.further)
    return np.array([0.6 * time, 0.4 * time / size, 0.7 * time, each, 0.8 * time, each, 2.3])
