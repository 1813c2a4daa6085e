"""Fit of step time parameters to observations (AdaptDL's objective, analytic slopes)."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ppsolve.models.core.arrays import Floats
from ppsolve.models.studies.goodput.params import Fit, Observations, PerfParams
from ppsolve.solver.studies.goodput.identify import (
    ALPHA_C,
    ALPHA_N,
    ALPHA_R,
    BETA_C,
    BETA_N,
    BETA_R,
    FIT,
    GAMMA,
    Design,
    ParameterBounds,
    unidentified,
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
        least = FIT.multi_node_factor * params[[ALPHA_R, BETA_R]]
        raised[[ALPHA_N, BETA_N]] = np.maximum(params[[ALPHA_N, BETA_N]], least)
    numbers: list[float] = raised.tolist()
    return numbers


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

        Parameters
        ----------
        params : float64[7]
            In the order of `PerfParams`.
        smoothing : float
            Its square is added to the mean squares, which rounds off the kinks at no error.

        Returns
        -------
        float
            Without unit.
        """
        accum, optim = self.errors(params)
        ratios = params[[BETA_N, BETA_R]] / params[[ALPHA_N, ALPHA_R]]
        prior = FIT.gamma_weight * (params[GAMMA] - 1) ** 2 + FIT.ratio_weight * (ratios @ ratios)
        return _norm(accum, smoothing) + _norm(optim, smoothing) + float(prior)

    def model(self, params: Floats, smoothing: float = 0.0) -> tuple[float, Floats, Floats]:
        """Return the objective with its gradient and an approximate curvature.

        At a perfect fit, where the gradient of a norm is not defined, that norm adds nothing.

        Parameters
        ----------
        params, smoothing
            As for `value`.

        Returns
        -------
        value, gradient, curvature : float, float64[7], float64[7, 7]
            The curvature is that of Gauss-Newton.
        """
        predicted = self.design.predict(params)
        accum = predicted.accum - self.log_accum
        optim = predicted.optim - self.log_optim
        value, gradient, curvature = _priors(params)
        for error, slopes in ((accum, predicted.accum_slopes), (optim, predicted.optim_slopes)):
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
    descents = [_descend(objective, start, FIT.smoothing[-1], FIT.rough) for start in candidates]
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


def _line(places: Floats, times: Floats) -> Floats:
    # Start and slope of a line through times, of least relative error, both above 0.
    ones, scaled = 1 / times, places / times
    normal = np.array([[ones @ ones, ones @ scaled], [ones @ scaled, scaled @ scaled]])
    determinant = normal[0, 0] * normal[1, 1] - normal[0, 1] ** 2
    start, slope = float(np.median(times)), 0.0
    # Below this the places are alike, and a slope would be rounding.
    if determinant > 1e-12 * normal[0, 0] * normal[1, 1]:
        start, slope = np.linalg.solve(normal, [np.sum(ones), np.sum(scaled)]).tolist()
    # Keeps both above 0, as their bounds demand, where the best line is not.
    least = 0.1 * float(np.min(times))
    return np.array([max(start, least), max(slope, 1e-3 * least / float(np.max(places)))])


def _descend(
    objective: FitObjective, start: Floats, smoothing: float, rest: float
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
            if gain <= rest:
                return params, True
            value, gradient, curvature = objective.model(params, smoothing)
        elif damping > 1e10:
            return params, True
        else:
            damping = max(4 * damping, 1e-10)
    return params, False


def _step(
    box: ParameterBounds, params: Floats, gradient: Floats, curvature: Floats, damping: float
) -> Floats:
    # A damped step [7] of the parameters that no bound holds back.
    held = ((params <= box.lower) & (gradient >= 0)) | ((params >= box.upper) & (gradient <= 0))
    moving = np.flatnonzero(~held & (box.lower < box.upper))
    scale = 1 / np.sqrt(np.maximum(np.diag(curvature)[moving], 1e-300))
    matrix = curvature[np.ix_(moving, moving)] * np.outer(scale, scale)
    step = np.zeros_like(params)
    damped = matrix + damping * np.eye(len(moving))
    step[moving] = -scale * np.linalg.solve(damped, scale * gradient[moving])
    return step
