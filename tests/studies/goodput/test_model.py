"""Goodput of data-parallel jobs: properties, limits that hold, and errors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.goodput.params import GradParams, PerfParams, gamma_norm
from ppsolve.solver.studies.goodput.model import GoodputModel
from tests.marks import examples
from tests.studies.goodput.cases import MODEL, PERF, allocations, amounts, models


@examples(10)
@given(models(), amounts(1, 1e6), amounts(1, 1e6))
def test_efficiency_never_grows_with_the_batch(
    model: GoodputModel, one: float, two: float
) -> None:
    small, large = model.efficiency(sorted((one, two)))
    assert small >= large * (1 - 1e-12)
    assert model.efficiency(model.init_batch_size) == pytest.approx(1)


@examples(10)
@given(models(), allocations(), amounts(1, 1e4), amounts(1, 1e4), st.integers(0, 9))
def test_throughput_grows_and_is_concave_in_the_micro_batch(
    model: GoodputModel, allocation: tuple[int, int], one: float, two: float, accum: int
) -> None:
    sizes = np.array([min(one, two), (one + two) / 2, max(one, two)])
    low, middle, high = model.throughput(*allocation, sizes, accum)
    assert low <= high * (1 + 1e-9)
    assert middle >= (low + high) / 2 * (1 - 1e-9)


@examples(10)
@given(models(), allocations(), st.integers(1, 1000), st.integers(0, 9))
def test_goodput_is_throughput_times_efficiency(
    model: GoodputModel, allocation: tuple[int, int], atomic: int, accum: int
) -> None:
    batch = allocation[1] * atomic * (accum + 1)
    assume(batch >= model.init_batch_size)
    parts = model.throughput(*allocation, atomic, accum) * model.efficiency(batch)
    assert model.evaluate(*allocation, atomic, accum) == pytest.approx(parts, rel=1e-12)
    step = accum * model.perf.accum_time(atomic) + model.perf.optim_time(
        *allocation, atomic
    )
    assert model.perf.step_time(*allocation, atomic, accum) == pytest.approx(
        step, rel=1e-12
    )


def test_gamma_norm_is_between_the_longer_time_and_their_sum() -> None:
    for gamma in (1.0, 2.0, 10.0, 1e3, 1e15):
        model = GoodputModel((1e-9, 1e9, 1e9, 0, 1e-9, 0, gamma), (1, 1), 1)
        accum, network = model.perf.accum_time(1), model.perf.network_time(2, 2)
        assert (
            max(accum, network)
            <= model.perf.optim_time(2, 2, 1)
            <= (accum + network) * (1 + 1e-15)
        )


def test_gamma_norm_of_no_time_and_of_extreme_times() -> None:
    assert gamma_norm(0.0, 0.0, 2.0) == 0
    assert gamma_norm(3.0, [4.0, 0.0], 2.0).tolist() == [5, 3]
    with np.errstate(all="raise", under="ignore"):
        assert gamma_norm([1e300, 1e-300], 1e300, 10.0) == pytest.approx(
            [2**0.1 * 1e300, 1e300]
        )


def test_gamma_one_adds_the_times() -> None:
    model = GoodputModel((0.5, 0.25, 3, 0.5, 1, 0.125, 1), (1, 1), 1)
    assert model.perf.network_time(1, 1) == pytest.approx(1e-8)
    assert model.perf.network_time(1, 6) == 1.5
    assert model.perf.optim_time(2, 6, 4) == 1.5 + 5
    assert model.perf.step_time(2, 6, 4, 2) == 2 * 1.5 + 6.5


def test_lists_arrays_and_scalars_mix() -> None:
    expected = [MODEL.optimize(1, replicas, 1024) for replicas in (1, 2, 4)]
    for nodes, replicas in (
        (1, [1, 2, 4]),
        ([1], np.array([1, 2, 4])),
        ([1, 1, 1], (1, 2, 4)),
    ):
        found = MODEL.optimize(nodes, replicas, 1024)
        np.testing.assert_allclose(np.transpose(found), expected, rtol=1e-12)
    grid = MODEL.optimize([[1], [2]], [2, 4, 8], 1024)[0]
    assert grid.shape == (2, 3)
    assert grid[1, 2] == pytest.approx(MODEL.optimize(2, 8, 1024)[0])
    assert [len(values) for values in MODEL.optimize([], [], 1024)] == [0, 0, 0]
    assert MODEL.throughput(
        np.int32(1), Decimal(2), np.float32(64), 0
    ) == MODEL.throughput(1, 2, 64, 0)


def test_statistics_of_any_size_are_safe() -> None:
    for scale in (1e-300, 1.0, 1e300):
        model = GoodputModel(PERF, GradParams(scale, 3 * scale), 100)
        assert model.efficiency(300) == pytest.approx(4 / 6)
    assert GoodputModel(PERF, GradParams(0, 1e-320), 100).efficiency(
        [100, 1e15]
    ).tolist() == [1, 1]


def test_efficiency_by_scale() -> None:
    grad = GradParams(0.0002, 0.09)
    model = GoodputModel(PERF, grad, 128)
    assert grad.efficiency([1, 2.5]).tolist() == model.efficiency([128, 320]).tolist()
    assert grad.efficiency(1) == 1
    assert isinstance(grad.efficiency(1), float)
    assert GradParams(0, 0).efficiency([1, 4]).tolist() == [1, 0.25]
    assert GradParams(0, 1).efficiency([1, 4]).tolist() == [1, 1]
    assert (grad.normalised.var, GradParams(0, 0).normalised) == (1, GradParams(1, 0))
    with pytest.raises(InputError, match=r"^scale\[1\]: expected a number > 0, got 0$"):
        grad.efficiency([1, 0])


def test_parameters_are_plain_frozen_numbers() -> None:
    assert tuple(PERF) == (0.0213, 0.00187, 0.116, 0.0071, 0.0132, 0.0009, 2.75)
    assert PerfParams(*PERF) == PERF
    assert len(PERF) == len(list(PERF)) == 7
    assert np.array(PERF).tolist() == list(PERF)
    assert tuple(GradParams(1, Decimal("0.5"))) == (1.0, 0.5)
    assert GoodputModel(tuple(PERF), [1, 2], 128) == GoodputModel(
        PERF, GradParams(1, 2), 128
    )
    with pytest.raises(FrozenInstanceError):
        PERF.gamma = 2.0
    with pytest.raises(FrozenInstanceError):
        MODEL.perf = PERF


def test_threads_agree() -> None:
    def search(seed: int) -> list[Any]:
        replicas = np.arange(1, 40) + seed
        return [
            values.tolist()
            for values in MODEL.optimize(1, replicas, 4096, (8, 64), True)
        ]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(search, range(12))) == [search(seed) for seed in range(12)]


NAN = float("nan")


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((-1, 1, 0, 0, 0, 0, 1), "alpha_c: expected a number >= 0, got -1"),
        ((1, NAN, 0, 0, 0, 0, 1), "beta_c: expected a number >= 0, got nan"),
        (
            (1, 1, float("inf"), 0, 0, 0, 1),
            "alpha_n: expected a number >= 0 and at most 1e15, got inf",
        ),
        ((1, 1, 0, "1", 0, 0, 1), 'beta_n: expected a number, got the text "1"'),
        ((1, 1, 0, 0, True, 0, 1), "alpha_r: expected a number, got true"),
        (
            (1, 1, 0, 0, 0, 1e16, 1),
            r"beta_r: expected a number >= 0 and at most 1e15, got 1e\+16",
        ),
        ((1, 1, 0, 0, 0, 0, 0.99), "gamma: expected a number >= 1, got 0.99"),
        ((0, 0, 0, 0, 0, 0, 1), r"alpha_c: expected alpha_c \+ beta_c >= 1e-30, got 0"),
    ],
)
def test_wrong_step_times(numbers: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        PerfParams(*numbers)
    with pytest.raises(InputError, match=rf"^perf\.{message}"):
        GoodputModel(numbers, (1, 1), 128)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((-1, 1), "sqr: expected a number >= 0, got -1"),
        ((1, NAN), "var: expected a number >= 0, got nan"),
        (
            (1, float("inf")),
            r"var: expected a number >= 0 and at most 1.79769e308, got inf",
        ),
        (("1", 1), 'sqr: expected a number, got the text "1"'),
        ((1, None), "var: expected a number, got null"),
        ((True, 1), "sqr: expected a number, got true"),
        ((10**400, 1), "sqr: expected a number >= 0 and at most 1.79769e308, got inf"),
    ],
)
def test_wrong_statistics(numbers: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        GradParams(*numbers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ((1, 2), (1, 1), 1),
            "perf: expected PerfParams or the numbers alpha_c, .* a list of 2",
        ),
        ((3, (1, 1), 1), "perf: expected PerfParams or the numbers .*, got 3"),
        (
            (PERF, "ab", 1),
            'grad: expected GradParams or the numbers sqr, var, got the text "ab"',
        ),
        ((PERF, {1: 1, 2: 2}, 1), "grad: expected GradParams .*, got an object"),
        ((PERF, (1, 1), 0), "init_batch_size: expected a number > 0, got 0"),
        ((PERF, (1, 1), NAN), "init_batch_size: expected a number > 0, got nan"),
        ((PERF, (1, 1), None), "init_batch_size: expected a number, got null"),
        ((PERF, (1, 1), [1, 2]), "init_batch_size: expected one number, got 2"),
    ],
)
def test_wrong_models(arguments: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        GoodputModel(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, 1, 0), "num_nodes: expected a whole number >= 1, got 0"),
        (
            (1, [1, 2.5], 1, 0),
            r"num_replicas\[1\]: expected a whole number >= 1, got 2.5",
        ),
        (
            (1, [[1, NAN]], 1, 0),
            r"num_replicas\[0\]\[1\]: expected a whole number >= 1, got nan",
        ),
        (
            (2, [2, 1], 1, 0),
            r"num_nodes\[1\]: expected at most as many nodes as replicas, got 2",
        ),
        ((1, 1, 0, 0), "atomic_bsz: expected a number > 0, got 0"),
        (
            (1, 1, 1e16, 0),
            r"atomic_bsz: expected a number > 0 and at most 1e15, got 1e\+16",
        ),
        (
            (1, 1, 10**400, 0),
            "atomic_bsz: expected a number > 0 and at most 1e15, got inf",
        ),
        (
            (1, 1, [1, float("inf")], 0),
            r"atomic_bsz\[1\]: expected .* at most 1e15, got inf",
        ),
        ((1, 1, 1, [0, -1]), r"accum_steps\[1\]: expected a number >= 0, got -1"),
        ((1, 1, 1, [0, "1"]), r'accum_steps\[1\]: expected a number, got the text "1"'),
        ((1, 1, 1, [0, True]), r"accum_steps\[1\]: expected a number, got true"),
        ((1, 1, True, 0), "atomic_bsz: expected a number, got true"),
        ((1, 1, None, 0), "atomic_bsz: expected a number, got null"),
        ((1, 1, 1j, 0), "atomic_bsz: expected a number, got 1j"),
        ((1, 1, [[1], [1, 2]], 0), "atomic_bsz: expected numbers that form an array"),
        (
            (1, 1, [np.ones(1), np.ones((2, 1))], 0),
            "atomic_bsz: expected numbers that form an arr",
        ),
        (
            ([1, 1], [1, 1, 1], 1, 0),
            "num_nodes, num_replicas: expected shapes that broadcast toge",
        ),
        (
            (1, [1, 1], [1, 1, 1], 0),
            r"num_nodes, .*, accum_steps: .*, got \(2,\), \(2,\), \(3,\), ",
        ),
    ],
)
def test_wrong_configurations(arguments: Any, message: str) -> None:
    for method in (MODEL.throughput, MODEL.evaluate, PERF.step_time):
        with pytest.raises(InputError, match=f"^{message}"):
            method(*arguments)


def test_batches_below_the_initial_one_are_named() -> None:
    with pytest.raises(
        InputError,
        match=r"^atomic_bsz\[1\]: .* of at least the initial batch size 128, got 126$",
    ):
        MODEL.evaluate(1, 2, [64, 63], 0)
    with pytest.raises(InputError, match=r"^batch_size: expected a number > 0, got 0$"):
        MODEL.efficiency(0)
