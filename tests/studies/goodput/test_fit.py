"""Fits of step times: slopes, minima, what the observations leave open, and errors."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ppsolve
from ppsolve.models.core.arrays import Floats
from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.goodput.params import Fit, Observations, PerfParams
from ppsolve.solver.studies.goodput.fit import Design, FitObjective, fit_goodput
from ppsolve.solver.studies.goodput.model import GoodputModel
from tests.marks import examples, first

TRUTH = (0.0213, 0.00187, 0.116, 0.0071, 0.0132, 0.0009, 2.75)
GRID = [
    (nodes, replicas, atomic)
    for nodes, replicas in ((1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (4, 16))
    for atomic in (16, 32, 64)
]


def observe(
    where: Any, truth: Any = TRUTH, noise: float = 0.0, unit: float = 1.0, seed: int = 0
) -> Observations:
    """Measure steps in `where` (nodes, replicas, micro-batch size) of a job known to us."""
    nodes, replicas, atomic = np.array(where, dtype=float).T
    model = GoodputModel(PerfParams(*truth), (1, 1), 1)
    factors = (
        np.exp(noise * np.random.default_rng(seed).normal(size=(2, len(nodes)))) * unit
    )
    accum = np.asarray(model.perf.accum_time(atomic)) * factors[0]
    optim = np.asarray(model.perf.optim_time(nodes, replicas, atomic)) * factors[1]
    return Observations(nodes, replicas, atomic, accum, optim)


def fitted(observed: Observations, **options: Any) -> Fit:
    return fit_goodput(*observed.columns(), **options)


def objective_of(observed: Observations) -> FitObjective:
    return FitObjective(observed, np.arange(len(observed)))


PARAMS = st.tuples(
    *[st.floats(1e-3, 1e3) for _ in range(6)],
    st.floats(1, 10),
).map(np.array)


@examples(9)
@given(PARAMS, st.sampled_from([0.0, 0.1]))
def test_slopes_are_those_of_central_differences(
    params: Floats, smoothing: float
) -> None:
    objective = objective_of(observe(GRID, noise=0.1))
    value, gradient, _ = objective.model(params, smoothing)
    assert value == pytest.approx(objective.value(params, smoothing), rel=1e-12)
    for index, step in enumerate(1e-5 * params):
        shift = np.eye(7)[index] * step
        ends = [objective.value(params + sign * shift, smoothing) for sign in (1, -1)]
        expected = (ends[0] - ends[1]) / (2 * step)
        scale = abs(expected) + 1e-4 * value / params[index]
        assert abs(gradient[index] - expected) <= 1e-4 * scale


def test_curvature_is_positive_semidefinite() -> None:
    objective = objective_of(observe(GRID, noise=0.1))
    curvature = objective.model(np.array(TRUTH))[2]
    np.testing.assert_allclose(curvature, curvature.T)
    scale = 1 / np.sqrt(np.diag(curvature))
    assert np.linalg.eigvalsh(curvature * np.outer(scale, scale)).min() > -1e-12


def test_the_gradient_at_a_perfect_fit_is_that_of_the_priors() -> None:
    observed = Observations([1, 1], [1, 1], [1, 1], [2, 2], [2, 2])
    objective = objective_of(observed)
    params = np.array([1, 1, 1, 0.5, 2, 0.5, 3.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value, gradient, curvature = objective.model(params)
    assert np.all(objective.errors(params)[0] == 0)
    assert np.all(np.isfinite(curvature))
    prior = [0, 0, -2e-2 * 0.25, 2e-2 * 0.5, -2e-2 * 0.25**2 / 2, 2e-2 * 0.25 / 2, 4e-3]
    np.testing.assert_allclose(gradient, prior, atol=1e-7)
    assert value == pytest.approx(1e-3 * 4 + 1e-2 * (0.25 + 0.0625), abs=1e-7)


def test_the_design_is_the_model() -> None:
    nodes, replicas, atomic = (np.array(column) for column in zip(*GRID, strict=True))
    params = PerfParams(*TRUTH)
    design = Design(*(np.append(column, 1.0) for column in (nodes, replicas, atomic)))
    accum, network = design.times(np.array(TRUTH))
    found = np.exp(design.predict(np.array(TRUTH))[:2])
    where = np.append(nodes, 1), np.append(replicas, 1), np.append(atomic, 1)
    np.testing.assert_allclose(accum, params.accum_time(where[2]), rtol=1e-13)
    np.testing.assert_allclose(network, params.network_time(*where[:2]), rtol=1e-13)
    np.testing.assert_allclose(found[1], params.optim_time(*where), rtol=1e-13)


@examples(6)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1e-6, 1.0, 1e3]),
    st.sampled_from([0.0, 0.02, 0.3]),
    st.integers(1, len(GRID)),
)
def test_no_known_point_is_better(
    seed: int, unit: float, noise: float, number: int
) -> None:
    random = np.random.default_rng(seed)
    truth = np.array(
        [
            *(np.array(TRUTH[:6]) * np.exp(random.normal(size=6))),
            1 + 5 * random.random(),
        ]
    )
    chosen = random.choice(len(GRID), number, replace=False)
    observed = observe([GRID[index] for index in chosen], truth, noise, unit, seed)
    objective = objective_of(observed)
    found = fitted(observed)
    known = objective.box.clip(np.array([*(truth[:6] * unit), truth[6]]))
    assert found.objective <= objective.value(known) + 1e-7
    nearby = np.array(tuple(found.raw_params))
    for _ in range(20):
        moved = objective.box.clip(nearby * np.exp(0.01 * random.normal(size=7)))
        assert found.objective <= objective.value(moved) + 1e-6
    assert found.objective == pytest.approx(
        objective.value(nearby), rel=1e-9, abs=1e-15
    )


@pytest.mark.parametrize("seed", first(2, range(4)))
def test_never_worse_than_the_published_method(seed: int) -> None:
    from scipy.optimize import Bounds, minimize

    observed = observe(GRID[seed::3], noise=0.05 * seed, seed=seed)
    objective = objective_of(observed)
    bounds = Bounds(objective.box.lower, objective.box.upper)
    start = objective.box.clip(np.array([0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001]))
    published = minimize(
        lambda params: objective.model(params)[:2],
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
    )
    assert fitted(observed).objective <= published.fun + 1e-9


def test_a_known_job_is_recovered() -> None:
    found = fitted(observe(GRID))
    assert found.converged
    assert (found.fixed, found.warnings) == ({}, ())
    assert found.params == found.raw_params
    assert np.max(np.abs(found.residuals)) < 0.01


def test_a_perfect_fit_to_one_observation() -> None:
    found = fit_goodput([2], [4], [16], [0.1], [0.3])
    np.testing.assert_allclose(found.residuals, 0, atol=1e-9)
    assert found.objective == pytest.approx(1e-2, abs=1e-6)


@examples(2)
@given(st.permutations(range(len(GRID))))
def test_the_order_of_observations_does_not_matter(order: list[int]) -> None:
    columns = observe(GRID, noise=0.1).columns()
    first = fit_goodput(*columns)
    second = fit_goodput(*(column[order] for column in columns))
    assert (first.params, first.objective) == (second.params, second.objective)
    assert (first.fixed, first.warnings) == (second.fixed, second.warnings)
    np.testing.assert_array_equal(first.residuals[order], second.residuals)


def test_residuals_are_logarithmic_errors_in_the_order_given() -> None:
    observed = observe(GRID[::-1], noise=0.1)
    found = fitted(observed)
    model = GoodputModel(found.raw_params, (1, 1), 1)
    where = observed.num_nodes, observed.num_replicas, observed.atomic_bsz
    accum = np.log(
        np.asarray(model.perf.accum_time(where[2])) / observed.accum_step_time
    )
    optim = np.log(np.asarray(model.perf.optim_time(*where)) / observed.optim_step_time)
    np.testing.assert_allclose(
        found.residuals, np.column_stack([accum, optim]), atol=1e-12
    )


def test_lists_are_taken_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    columns = observe(GRID).columns()
    assert fit_goodput(*(column.tolist() for column in columns)) is not None
    with pytest.raises(InputError):
        fit_goodput([1, None], [1], [1], [1], [1])
    assert fit_goodput(*columns).converged
    assert list(tmp_path.iterdir()) == []


def test_threads_agree() -> None:
    observed = observe(GRID, noise=0.05)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: fitted(observed).params, range(8)))
    assert set(found) == {fitted(observed).params}


NO_NODES = "no observation with more than one node"
NO_LOCAL = "no observation with one node and more than one replica"
NO_FURTHER = "no observation with more than two replicas"
ONE_SIZE = "one micro-batch size only: half of the mean accumulation step time"
LEFT_OPEN = "the observations do not identify it"

DESIGNS: list[tuple[Any, dict[str, str], tuple[str, ...]]] = [
    (GRID, {}, ()),
    (
        [(1, 1, 16), (1, 1, 32)],
        {
            "alpha_n": NO_NODES,
            "beta_n": NO_NODES,
            "alpha_r": NO_LOCAL,
            "beta_r": NO_LOCAL,
        },
        ("gamma",),
    ),
    (
        [(1, 1, 16)],
        {
            "alpha_c": ONE_SIZE,
            **{
                "alpha_n": NO_NODES,
                "beta_n": NO_NODES,
                "alpha_r": NO_LOCAL,
                "beta_r": NO_LOCAL,
            },
        },
        ("gamma",),
    ),
    (
        [(1, 2, 16), (1, 2, 32), (2, 2, 16), (2, 2, 64)],
        {"beta_n": NO_FURTHER, "beta_r": NO_FURTHER},
        (),
    ),
    (
        [(1, 2, 16), (1, 4, 64), (1, 8, 16), (2, 2, 16), (2, 2, 128)],
        {},
        ("beta_n",),
    ),
    (
        [(2, 4, 16), (2, 8, 64), (2, 16, 16), (1, 2, 16), (1, 2, 128)],
        {},
        ("beta_r",),
    ),
    (
        [(2, 4, 16), (2, 4, 64), (2, 4, 256)],
        {"alpha_r": NO_LOCAL, "beta_r": NO_LOCAL},
        ("alpha_n", "beta_n"),
    ),
    (
        [(1, 2, 16)],
        {
            "alpha_c": ONE_SIZE,
            **{"alpha_n": NO_NODES, "beta_n": NO_NODES, "beta_r": NO_FURTHER},
        },
        ("alpha_r", "gamma"),
    ),
    (
        [(2, 4, 16)],
        {"alpha_c": ONE_SIZE, "alpha_r": NO_LOCAL, "beta_r": NO_LOCAL},
        ("alpha_n", "beta_n", "gamma"),
    ),
]


@pytest.mark.parametrize(("where", "fixed", "warned"), DESIGNS)
def test_what_the_observations_leave_open(
    where: Any, fixed: dict[str, str], warned: tuple[str, ...]
) -> None:
    found = fitted(observe(where))
    assert found.fixed == fixed
    assert found.warnings == tuple(f"{name}: {LEFT_OPEN}" for name in warned)


def test_fixed_parameters_stay_where_the_rules_put_them() -> None:
    found = fit_goodput([1, 1], [2, 4], [16, 16], [0.1, 0.3], [0.2, 0.4])
    assert found.raw_params.alpha_c == 0.1
    assert (found.raw_params.alpha_n, found.raw_params.beta_n) == (1e-8, 1e-8)
    assert found.params.alpha_n == pytest.approx(1.1 * found.params.alpha_r, rel=1e-15)
    assert found.params.beta_n == pytest.approx(1.1 * found.params.beta_r, rel=1e-15)
    assert found.params.alpha_r == found.raw_params.alpha_r > 1e-3


def test_the_prior_on_nodes_is_for_nodes_that_were_not_observed() -> None:
    found = fitted(observe(GRID, (0.02, 0.002, 0.001, 0.0001, 0.1, 0.01, 1.5)))
    assert found.params == found.raw_params
    assert found.params.alpha_n < found.params.alpha_r


def test_a_parameter_that_hardly_matters_is_named() -> None:
    where = [(1, 2, size) for size in (16, 32, 64)] + [
        (1, 4, size) for size in (16, 32, 64)
    ]
    found = fitted(observe(where, (0.02, 0.002, 0, 0, 1e-7, 1e-9, 1)))
    assert any(text.endswith(LEFT_OPEN) for text in found.warnings)


def test_times_near_the_lower_bound_are_named() -> None:
    found = fitted(observe(GRID, unit=1e-6))
    assert found.warnings[-1].startswith("accum_step_time: times as short as ")
    assert found.warnings[-1].endswith("; give them in a smaller unit")
    assert fitted(observe(GRID, unit=1e3)).warnings == ()


@pytest.mark.parametrize("time", [1e-30, 1e-12, 1e12, 1e15])
def test_absurd_times_are_fitted_without_a_foreign_error(time: float) -> None:
    found = fit_goodput(
        [1, 1, 2], [1, 2, 4], [1, 10**15, 3], [time, 1, 1], [1, time, 1]
    )
    assert np.isfinite(found.objective)
    assert np.all(np.isfinite(found.residuals))


GOOD: dict[str, Any] = {
    "num_nodes": [1, 1, 2],
    "num_replicas": [1, 2, 4],
    "atomic_bsz": [8, 16, 8],
    "accum_step_time": [0.1, 0.2, 0.1],
    "optim_step_time": [0.1, 0.3, 0.4],
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {name: [] for name in GOOD},
            "num_nodes: expected at least one observation, got none",
        ),
        (
            {"atomic_bsz": [8, 16]},
            "atomic_bsz: expected 3 values like num_nodes, got 2",
        ),
        ({"num_nodes": 1}, "num_nodes: expected a list of numbers"),
        ({"num_nodes": [[1, 1, 2]]}, "num_nodes: expected a list of numbers"),
        (
            {"num_nodes": [1, 0, 2]},
            r"num_nodes\[1\]: expected a whole number >= 1, got 0",
        ),
        (
            {"num_nodes": [1, 1, 5]},
            r"num_nodes\[2\]: expected at most as many nodes as replicas",
        ),
        (
            {"num_replicas": [1, 2.5, 4]},
            r"num_replicas\[1\]: expected a whole number >= 1, got 2.5",
        ),
        ({"atomic_bsz": [8, 16, 0]}, r"atomic_bsz\[2\]: expected a number > 0, got 0"),
        (
            {"accum_step_time": [0, 1, 1]},
            r"accum_step_time\[0\]: expected a number > 0, got 0",
        ),
        (
            {"accum_step_time": [1, -1, 1]},
            r"accum_step_time\[1\]: expected a number > 0, got -1",
        ),
        (
            {"optim_step_time": [1, 1, np.nan]},
            r"optim_step_time\[2\]: expected .* > 0, got nan",
        ),
        (
            {"optim_step_time": [1, np.inf, 1]},
            r"optim_step_time\[1\]: expected .* got inf",
        ),
        (
            {"optim_step_time": [1, "1", 1]},
            r"optim_step_time\[1\]: expected a number, got the te",
        ),
    ],
)
def test_errors(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        fit_goodput(**{**GOOD, **changed})


def test_the_package_itself_offers_the_fit() -> None:
    assert ppsolve.fit_goodput is fit_goodput
    assert ppsolve.PerfParams is PerfParams
