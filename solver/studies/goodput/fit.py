"""Fit of step time parameters to observations (AdaptDL's objective, analytic slopes).

First what observations say: predictions, their slopes, and what stays unknown; then the fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ppsolve.models.core.arrays import Floats
from ppsolve.models.studies.goodput.params import (
    LEAST_TIME,
    Fit,
    Observations,
    PerfParams,
    further_replicas,
)

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
        extra = further_replicas(replicas)
        several, single = self.several_nodes.astype(float), self.one_node.astype(float)
        self.compute = np.column_stack([np.ones_like(atomic), atomic])
        self.network = np.column_stack(
            [several, several * extra, single, single * extra]
        )
        self.floor = np.where(replicas > 1, 0.0, LEAST_TIME + LEAST_TIME * extra)
        self.further = extra

    def times(self, params: Floats) -> tuple[Floats, Floats]:
        """Return the times [n] of a micro-batch and of the gradient exchange."""
        return self.compute @ params[:ALPHA_N], self.network @ params[
            ALPHA_N:GAMMA
        ] + self.floor

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
        return Prediction(
            np.log(accum), np.log(longer) + extra, accum_slopes, optim_slopes
        )


@dataclass(frozen=True)
class ParameterBounds:
    """Bounds [7] of the parameters; where they meet the parameter is fixed, `fixed` says why."""

    lower: Floats
    upper: Floats
    fixed: dict[str, str]

    @classmethod
    def of(cls, design: Design, accum_times: Floats) -> ParameterBounds:
        """Return the published bounds for observations (AdaptDL).

        Parameters that no observation depends on are fixed at their lower bound, alpha_c at half of
        the mean time if there is one micro-batch size only.

        `accum_times`: float64[n], observed times of an accumulation step.
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


def unidentified(
    design: Design, box: ParameterBounds, params: Floats
) -> tuple[str, ...]:
    """Return a warning for each free parameter that the data leave open, by its name.

    They have a share in the null space of the slopes of all predicted logarithms by the logarithms
    of the parameters, at a point where no part of the times is negligible; or at `params`, away
    from their bounds, hardly any prediction moves.

    `box`: the bounds, and which parameters are free.
    `params`: float64[7].
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
    return np.vstack([prediction.accum_slopes, prediction.optim_slopes]) * params


def _balanced(design: Design, params: Floats) -> Floats:
    # Parameters for which every part of the times is of the same order. The odd factors keep clear
    # of points where two slopes happen to be alike.
    size = np.median(design.compute[:, 1])
    time = params[ALPHA_C] + params[BETA_C] * size
    slope = time / np.max(design.further)
    return np.array(
        [0.6 * time, 0.4 * time / size, 0.7 * time, slope, 0.8 * time, slope, 2.3]
    )


def fit_goodput(
    num_nodes: ArrayLike,
    num_replicas: ArrayLike,
    atomic_bsz: ArrayLike,
    accum_step_time: ArrayLike,
    optim_step_time: ArrayLike,
) -> Fit:
    """Fit step times to observations; the same whatever their order.

    Minimises the root mean squares of the logarithmic errors of both times plus small priors, by
    damped Gauss-Newton steps from the published start and others that come from the data.
    (L-BFGS-B, which the published program uses, halts at the kink that the objective has at a
    perfect fit.)

    Parameters
    ----------
    num_nodes, num_replicas, atomic_bsz, accum_step_time, optim_step_time : array_like [n]
        As in `Observations`.

    Returns
    -------
    Fit
        The parameters, their errors, and warnings about parameters that the data leave open.

    Raises
    ------
    InputError
        As in `Observations`.
    """
    observed = Observations(
        *(num_nodes, num_replicas, atomic_bsz, accum_step_time, optim_step_time)  # type: ignore[arg-type]
    )
    order = np.lexsort(observed.columns())
    objective = FitObjective(observed, order)
    with np.errstate(all="ignore"):
        params, converged = _minimise(objective)
    errors = np.empty((len(observed), 2))
    errors[order] = np.column_stack(objective.errors(params))
    errors.setflags(write=False)
    return Fit(
        params=PerfParams(*_with_prior(params, objective.design)),
        objective=objective.value(params),
        raw_params=PerfParams(*params.tolist()),
        residuals=errors,
        fixed=MappingProxyType(objective.box.fixed),
        warnings=tuple(_warnings(objective, params)),
        converged=converged,
    )


def _with_prior(params: Floats, design: Design) -> list[float]:
    # Several nodes are no faster than one, where none were observed.
    raised = params.copy()
    if not np.any(design.several_nodes):
        floor = FIT.multi_node_factor * params[[ALPHA_R, BETA_R]]
        raised[[ALPHA_N, BETA_N]] = np.maximum(params[[ALPHA_N, BETA_N]], floor)
    return raised.tolist()


def _warnings(objective: FitObjective, params: Floats) -> Iterator[str]:
    shorter = int(np.count_nonzero(objective.optim < FIT.shorter * objective.accum))
    if 2 * shorter > len(objective.optim):
        yield (
            f"optim_step_time: shorter than accum_step_time in {shorter} of "
            f"{len(objective.optim)} observations; are the columns swapped?"
        )
    yield from unidentified(objective.design, objective.box, params)
    shortest, largest = np.min(objective.accum), np.max(objective.design.compute)
    if FIT.lower * largest > 0.1 * shortest:
        yield (
            f"accum_step_time: times as short as {shortest:g} are near the lower bound "
            f"{FIT.lower:g} of every parameter; give them in a smaller unit"
        )


class FitObjective:
    """The published objective over the seven parameters, for observations in one fixed order."""

    def __init__(self, observed: Observations, order: NDArray[np.intp]) -> None:
        nodes, replicas, atomic, self.accum, self.optim = (
            column[order] for column in observed.columns()
        )
        self.design = Design(nodes, replicas, atomic)
        self.box = ParameterBounds.of(self.design, self.accum)
        self.log_accum, self.log_optim = np.log(self.accum), np.log(self.optim)

    def errors(self, params: Floats) -> tuple[Floats, Floats]:
        """Return the logarithmic errors [n] of both times."""
        predicted = self.design.predict(params)
        return predicted.accum - self.log_accum, predicted.optim - self.log_optim

    def value(self, params: Floats, smoothing: float = 0.0) -> float:
        """Return the objective of AdaptDL: both root mean squares, and the priors.

        `params`: float64[7], in the order of `PerfParams`.
        `smoothing`: its square is added to the mean squares, which rounds off the kinks
            at no error.
        """
        accum, optim = self.errors(params)
        ratios = params[[BETA_N, BETA_R]] / params[[ALPHA_N, ALPHA_R]]
        prior = FIT.gamma_weight * (params[GAMMA] - 1) ** 2 + FIT.ratio_weight * (
            ratios @ ratios
        )
        return _norm(accum, smoothing) + _norm(optim, smoothing) + float(prior)

    def model(
        self, params: Floats, smoothing: float = 0.0
    ) -> tuple[float, Floats, Floats]:
        """Return the objective, its gradient float64[7] and Gauss-Newton's curvature float64[7, 7].

        At a perfect fit, where the gradient of a norm is not defined, that norm adds nothing.
        """
        predicted = self.design.predict(params)
        accum = predicted.accum - self.log_accum
        optim = predicted.optim - self.log_optim
        value, gradient, curvature = _priors(params)
        for error, slopes in (
            (accum, predicted.accum_slopes),
            (optim, predicted.optim_slopes),
        ):
            norm = _norm(error, smoothing)
            value += norm
            if norm > 0:
                weighted = slopes.T / (len(error) * norm)
                gradient += weighted @ error
                curvature += weighted @ slopes
        return value, gradient, curvature


def _norm(errors: Floats, smoothing: float) -> float:
    return float(np.sqrt(errors @ errors / len(errors) + smoothing**2))


def _priors(params: Floats) -> tuple[float, Floats, Floats]:
    roots = np.zeros((3, len(params)))
    alphas = params[[ALPHA_N, ALPHA_R]]
    ratios = params[[BETA_N, BETA_R]] / alphas
    scale = np.sqrt([FIT.gamma_weight, FIT.ratio_weight])
    roots[0, GAMMA] = scale[0]
    roots[[1, 2], [BETA_N, BETA_R]] = scale[1] / alphas
    roots[[1, 2], [ALPHA_N, ALPHA_R]] = -scale[1] * ratios / alphas
    root = np.array([scale[0] * (params[GAMMA] - 1), *(scale[1] * ratios)])
    return float(root @ root), 2 * root @ roots, 2 * roots.T @ roots


def _minimise(objective: FitObjective) -> tuple[Floats, bool]:
    candidates = [objective.box.clip(np.array(FIT.published_start))]
    candidates += [_guess(objective, gamma) for gamma in FIT.guessed_gammas]
    descents = [
        _descend(objective, start, FIT.smoothing[-1], FIT.rough) for start in candidates
    ]
    kept = min(descents, key=lambda descent: objective.value(descent[0]))
    current = kept
    for smoothing in FIT.smoothing:
        current = _descend(objective, current[0], smoothing, FIT.fine)
        kept = min(kept, current, key=lambda descent: objective.value(descent[0]))
    return kept


def _guess(objective: FitObjective, gamma: float) -> Floats:
    """Return lines through the observed times, and the exchange that fits them at `gamma`."""
    design, accum, optim = objective.design, objective.accum, objective.optim
    params = np.array(FIT.published_start)
    params[GAMMA] = gamma
    params[[ALPHA_C, BETA_C]] = _line(design.compute[:, 1], accum)
    if objective.box.lower[ALPHA_C] == objective.box.upper[ALPHA_C]:
        params[BETA_C] = objective.box.lower[ALPHA_C] / design.compute[0, 1]
    # An exchange that seems to cost nothing still gets a guess above 0.
    share = np.minimum(accum / optim, 0.999)
    network = optim * (1 - share**gamma) ** (1 / gamma)
    for alpha, beta, seen in (
        (ALPHA_N, BETA_N, design.several_nodes),
        (ALPHA_R, BETA_R, design.one_node),
    ):
        if np.any(seen):
            params[[alpha, beta]] = _line(design.further[seen], network[seen])
    return objective.box.clip(params)


def _line(positions: Floats, times: Floats) -> Floats:
    # Start and slope of a line through times, of least relative error, both above 0.
    ones, scaled = 1 / times, positions / times
    normal = np.array([[ones @ ones, ones @ scaled], [ones @ scaled, scaled @ scaled]])
    determinant = normal[0, 0] * normal[1, 1] - normal[0, 1] ** 2
    start, slope = float(np.median(times)), 0.0
    # Below this the positions are alike, and a slope would be rounding.
    if determinant > 1e-12 * normal[0, 0] * normal[1, 1]:
        start, slope = np.linalg.solve(normal, [np.sum(ones), np.sum(scaled)]).tolist()
    # Keeps both above 0, as their bounds demand, where the best line is not.
    floor = 0.1 * float(np.min(times))
    return np.array(
        [max(start, floor), max(slope, 1e-3 * floor / float(np.max(positions)))]
    )


def _descend(
    objective: FitObjective, start: Floats, smoothing: float, least_gain: float
) -> tuple[Floats, bool]:
    """Return where damped Gauss-Newton steps within the bounds end, and whether at rest."""
    # Marquardt's damping (1963): less after a step that gains, more after one that does not; where
    # even the shortest step gains nothing the descent is at rest.
    box, params, damping = objective.box, start, 1e-3
    value, gradient, curvature = objective.model(params, smoothing)
    for _ in range(FIT.most_trials):
        moved = box.clip(params + _step(box, params, gradient, curvature, damping))
        reached = objective.value(moved, smoothing)
        if reached < value:
            gain, params, damping = value - reached, moved, max(damping / 8, 1e-14)
            if gain <= least_gain:
                return params, True
            value, gradient, curvature = objective.model(params, smoothing)
        elif damping > 1e10:
            return params, True
        else:
            damping = max(4 * damping, 1e-10)
    return params, False


def _step(
    box: ParameterBounds,
    params: Floats,
    gradient: Floats,
    curvature: Floats,
    damping: float,
) -> Floats:
    # A damped step [7] of the parameters that no bound holds back.
    held = ((params <= box.lower) & (gradient >= 0)) | (
        (params >= box.upper) & (gradient <= 0)
    )
    moving = np.flatnonzero(~held & (box.lower < box.upper))
    scale = 1 / np.sqrt(np.maximum(np.diag(curvature)[moving], 1e-300))
    matrix = curvature[np.ix_(moving, moving)] * np.outer(scale, scale)
    step = np.zeros_like(params)
    damped = matrix + damping * np.eye(len(moving))
    step[moving] = -scale * np.linalg.solve(damped, scale * gradient[moving])
    return step
