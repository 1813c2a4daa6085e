"""Goodput of data-parallel jobs: properties, limits that hold, and errors."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ppsolve.models.errors import InputError
from ppsolve.models.goodput import GoodputModel, GradParams, PerfParams

PERF = PerfParams(0.0213, 0.00187, 0.116, 0.0071, 0.0132, 0.0009, 2.75)
MODEL = GoodputModel(PERF, GradParams(0.0002, 0.09), 128)


def amounts(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False)


@st.composite
def models(draw: st.DrawFn) -> GoodputModel:
    perf = [draw(amounts(1e-6, 10)) for _ in range(6)]
    grad = [draw(st.just(0.0) | amounts(1e-9, 1e6)) for _ in range(2)]
    gamma = draw(amounts(1, 10))
    return GoodputModel(PerfParams(*perf, gamma), GradParams(*grad), draw(st.integers(1, 500)))


@st.composite
def placements(draw: st.DrawFn) -> tuple[int, int]:
    nodes = draw(st.integers(1, 20))
    return nodes, draw(st.integers(nodes, 40))


@st.composite
def searches(draw: st.DrawFn) -> tuple[GoodputModel, tuple[int, int], int, tuple[int, int], bool]:
    model = draw(models())
    most = draw(st.integers(model.init_batch_size, 3000))
    low = draw(st.integers(1, min(most, 200)))
    high = draw(st.integers(low, 400))
    return model, draw(placements()), most, (low, high), draw(st.booleans())


def plain_optimum(
    model: GoodputModel,
    placement: tuple[int, int],
    most: int,
    sizes: tuple[int, int],
    accumulation: bool,
) -> float:
    """Best goodput by the published rule, one configuration after the other."""
    (nodes, replicas), (low, high), least = placement, sizes, model.init_batch_size
    first, best = max(least, low * replicas), 0.0
    for step in range(50):
        local = first * (most / first) ** (step / 49) / replicas
        accum = 0
        if accumulation:
            accum = math.ceil(local / high - 1e-8) - 1
            if replicas == 1 and local > least + 1e-8:
                accum = max(accum, 1)
        atomic = math.ceil(local / (accum + 1) - 1e-8)
        if low <= atomic <= high:
            best = max(best, model.evaluate(nodes, replicas, atomic, accum))
    return best


@settings(max_examples=60, deadline=None)
@given(searches())
def test_compat_is_the_published_search(search: Any) -> None:
    model, placement, most, sizes, accumulation = search
    found, atomic, accum = model.optimize(*placement, most, sizes, accumulation, compat=True)
    assert found == pytest.approx(plain_optimum(*search), rel=1e-9)
    assert found == 0 or found == pytest.approx(model.evaluate(*placement, atomic, accum))


@settings(max_examples=150, deadline=None)
@given(searches())
def test_limits_hold(search: Any) -> None:
    model, (nodes, replicas), most, (low, high), accumulation = search
    found = model.optimize(nodes, replicas, most, (low, high), accumulation)
    goodput, atomic, accum = found
    if goodput == 0:
        assert found == (0.0, 0, 0)
    else:
        assert goodput == pytest.approx(model(nodes, replicas, atomic, accum), rel=1e-12)
        assert low <= atomic <= high
        assert model.init_batch_size <= replicas * atomic * (accum + 1) <= most
        assert accumulation or accum == 0


@settings(max_examples=100, deadline=None)
@given(searches())
def test_without_accumulation_something_is_found_wherever_something_is_allowed(search: Any) -> None:
    model, (nodes, replicas), most, (low, high), _ = search
    least = model.init_batch_size
    allowed = [b for b in range(low, high + 1) if least <= replicas * b <= most]
    assert (model.optimize(nodes, replicas, most, (low, high))[0] > 0) == bool(allowed)


@settings(max_examples=100, deadline=None)
@given(searches())
def test_repaired_limits_change_nothing_where_the_published_answer_keeps_them(search: Any) -> None:
    model, (nodes, replicas), most, sizes, accumulation = search
    published = model.optimize(nodes, replicas, most, sizes, accumulation, compat=True)
    repaired = model.optimize(nodes, replicas, most, sizes, accumulation)
    if published[0] > 0 and replicas * published[1] * (published[2] + 1) <= most:
        assert repaired[0] >= published[0] * (1 - 1e-12)
    if published[0] == 0 and sizes[0] * replicas > most:
        assert repaired == (0.0, 0, 0)


@settings(max_examples=60, deadline=None)
@given(models(), amounts(1, 1e6), amounts(1, 1e6))
def test_efficiency_never_grows_with_the_batch(model: GoodputModel, one: float, two: float) -> None:
    small, large = model.efficiency(sorted((one, two)))
    assert small >= large * (1 - 1e-12)
    assert model.efficiency(model.init_batch_size) == pytest.approx(1)


@settings(max_examples=100, deadline=None)
@given(models(), placements(), amounts(1, 1e4), amounts(1, 1e4), st.integers(0, 9))
def test_throughput_grows_and_is_concave_in_the_micro_batch(
    model: GoodputModel, placement: tuple[int, int], one: float, two: float, accum: int
) -> None:
    sizes = np.array([min(one, two), (one + two) / 2, max(one, two)])
    low, middle, high = model.throughput(*placement, sizes, accum)
    assert low <= high * (1 + 1e-9)
    assert middle >= (low + high) / 2 * (1 - 1e-9)


@settings(max_examples=100, deadline=None)
@given(models(), placements(), st.integers(1, 1000), st.integers(0, 9))
def test_goodput_is_throughput_times_efficiency(
    model: GoodputModel, placement: tuple[int, int], atomic: int, accum: int
) -> None:
    batch = placement[1] * atomic * (accum + 1)
    assume(batch >= model.init_batch_size)
    parts = model.throughput(*placement, atomic, accum) * model.efficiency(batch)
    assert model.evaluate(*placement, atomic, accum) == pytest.approx(parts, rel=1e-12)
    step = accum * model.accum_time(atomic) + model.optim_time(*placement, atomic)
    assert model.step_time(*placement, atomic, accum) == pytest.approx(step, rel=1e-12)


def test_gamma_norm_is_between_the_longer_time_and_their_sum() -> None:
    for gamma in (1.0, 2.0, 10.0, 1e3, 1e15):
        model = GoodputModel((1e-9, 1e9, 1e9, 0, 1e-9, 0, gamma), (1, 1), 1)
        accum, network = model.accum_time(1), model.network_time(2, 2)
        assert max(accum, network) <= model.optim_time(2, 2, 1) <= (accum + network) * (1 + 1e-15)


def test_gamma_one_adds_the_times() -> None:
    model = GoodputModel((0.5, 0.25, 3, 0.5, 1, 0.125, 1), (1, 1), 1)
    assert model.network_time(1, 1) == pytest.approx(1e-8)
    assert model.network_time(1, 6) == 1.5
    assert model.optim_time(2, 6, 4) == 1.5 + 5
    assert model.step_time(2, 6, 4, 2) == 2 * 1.5 + 6.5


def test_lists_arrays_and_scalars_mix() -> None:
    expected = [MODEL.optimize(1, replicas, 1024) for replicas in (1, 2, 4)]
    for nodes, replicas in ((1, [1, 2, 4]), ([1], np.array([1, 2, 4])), ([1, 1, 1], (1, 2, 4))):
        found = MODEL.optimize(nodes, replicas, 1024)
        np.testing.assert_allclose(np.transpose(found), expected, rtol=1e-12)
    grid = MODEL.optimize([[1], [2]], [2, 4, 8], 1024)[0]
    assert grid.shape == (2, 3)
    assert grid[1, 2] == pytest.approx(MODEL.optimize(2, 8, 1024)[0])
    assert [len(values) for values in MODEL.optimize([], [], 1024)] == [0, 0, 0]
    assert MODEL.throughput(np.int32(1), Decimal(2), np.float32(64), 0) == MODEL.throughput(
        1, 2, 64, 0
    )


def test_the_largest_batch_is_a_limit_where_the_least_micro_batches_exceed_it() -> None:
    published = MODEL.optimize(1, 16, 256, (32, 64), compat=True)
    assert published[0] > 0
    assert 16 * published[1] > 256
    assert MODEL.optimize(1, 16, 256, (32, 64)) == (0.0, 0, 0)
    assert MODEL.optimize(1, 8, 256, (32, 64)) == MODEL.optimize(1, 8, 256, (32, 64), compat=True)


def test_the_largest_batch_is_a_limit_to_rounding_up() -> None:
    eager = GoodputModel(PERF, GradParams(1, 1e9), 100)
    assert eager.optimize(1, 3, 1000, compat=True)[1:] == (334, 0)
    goodput, atomic, accum = eager.optimize(1, 3, 1000)
    assert (atomic, accum) == (333, 0)
    assert goodput == pytest.approx(eager.evaluate(1, 3, 333, 0))
    assert eager.optimize(1, 3, 100) == (0.0, 0, 0)
    split = GoodputModel(PERF, GradParams(1, 1e9), 995)
    assert split.optimize(1, 3, 1000, (1, 300), True, compat=True)[1:] == (167, 1)
    assert split.optimize(1, 3, 1000, (1, 300), True)[1:] == (166, 1)


def test_where_nothing_is_valid_compat_reports_the_first_candidate() -> None:
    assert MODEL.optimize(1, 1, 1024, (1, 64), compat=True) == (0.0, 128, 0)
    assert MODEL.optimize(1, 1, 1024, (1, 64)) == (0.0, 0, 0)
    assert MODEL.optimize(1, 1, None, (256, 512), compat=True)[1:] == (256, 0)


def test_one_replica_accumulates_beyond_the_initial_batch_size() -> None:
    eager = GoodputModel(PERF, GradParams(1, 1e9), 128)
    for compat in (True, False):
        assert eager.optimize(1, 1, 1024, accumulation=True, compat=compat)[2] == 1
        assert eager.optimize(1, 1, 128, accumulation=True, compat=compat)[2] == 0
        assert eager.optimize(1, 2, 1024, accumulation=True, compat=compat)[2] == 0


def test_a_huge_upper_end_never_asks_for_negative_accumulation() -> None:
    model = GoodputModel(PERF, GradParams(1, 1), 1)
    found = model.optimize(1, 1, 1000, (1, 1e15), accumulation=True)
    assert found[0] > 0
    assert found[2] >= 0


def test_ends_of_the_range_may_be_open() -> None:
    full = MODEL.optimize(1, 4, 1024)
    for sizes in ((None, None), (1, None), (None, 1024), [None, None]):
        assert MODEL.optimize(1, 4, 1024, sizes) == full
    assert MODEL.optimize(1, 1) == pytest.approx((MODEL.evaluate(1, 1, 128, 0), 128, 0))


def test_statistics_of_any_size_are_safe() -> None:
    for scale in (1e-300, 1.0, 1e300):
        model = GoodputModel(PERF, GradParams(scale, 3 * scale), 100)
        assert model.efficiency(300) == pytest.approx(4 / 6)
    assert GoodputModel(PERF, GradParams(0, 1e-320), 100).efficiency([100, 1e15]).tolist() == [1, 1]


def test_parameters_are_plain_frozen_numbers() -> None:
    assert tuple(PERF) == (0.0213, 0.00187, 0.116, 0.0071, 0.0132, 0.0009, 2.75)
    assert PerfParams(*PERF) == PERF
    assert tuple(GradParams(1, Decimal("0.5"))) == (1.0, 0.5)
    assert GoodputModel(tuple(PERF), [1, 2], 128) == GoodputModel(PERF, GradParams(1, 2), 128)
    with pytest.raises(FrozenInstanceError):
        PERF.gamma = 2.0
    with pytest.raises(FrozenInstanceError):
        MODEL.perf = PERF


def test_threads_agree() -> None:
    def search(seed: int) -> list[Any]:
        replicas = np.arange(1, 40) + seed
        return [values.tolist() for values in MODEL.optimize(1, replicas, 4096, (8, 64), True)]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(search, range(32))) == [search(seed) for seed in range(32)]


def test_unknown_names_are_unknown() -> None:
    from ppsolve.models import goodput

    with pytest.raises(AttributeError, match="fitt"):
        goodput.fitt  # noqa: B018


NAN = float("nan")


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((-1, 1, 0, 0, 0, 0, 1), "alpha_c: expected a number >= 0, got -1"),
        ((1, NAN, 0, 0, 0, 0, 1), "beta_c: expected a finite number, got NaN"),
        ((1, 1, float("inf"), 0, 0, 0, 1), "alpha_n: expected a finite number, got Infinity"),
        ((1, 1, 0, "1", 0, 0, 1), 'beta_n: expected a number, got the text "1"'),
        ((1, 1, 0, 0, True, 0, 1), "alpha_r: expected a number, got true"),
        ((1, 1, 0, 0, 0, 1e16, 1), "beta_r: expected at most 1E\\+15, got 1.0"),
        ((1, 1, 0, 0, 0, 0, 0.99), "gamma: expected a number >= 1, got 0.99"),
        ((0, 0, 0, 0, 0, 0, 1), r"alpha_c: expected alpha_c \+ beta_c > 0, got 0"),
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
        ((-1, 1), "sqr: expected a finite number >= 0, got -1"),
        ((1, NAN), "var: expected a finite number >= 0, got nan"),
        ((1, float("inf")), "var: expected a finite number >= 0, got inf"),
        (("1", 1), 'sqr: expected a finite number >= 0, got the text "1"'),
        ((1, None), "var: expected a finite number >= 0, got null"),
        ((True, 1), "sqr: expected a finite number >= 0, got true"),
        ((10**400, 1), "sqr: expected a finite number >= 0, got 1.0"),
    ],
)
def test_wrong_statistics(numbers: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        GradParams(*numbers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((1, 2), (1, 1), 1), "perf: expected PerfParams or the numbers alpha_c, .* a list of 2"),
        ((3, (1, 1), 1), "perf: expected PerfParams or the numbers .*, got 3"),
        ((PERF, "ab", 1), 'grad: expected GradParams or the numbers sqr, var, got the text "ab"'),
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
        ((1, [1, 2.5], 1, 0), r"num_replicas\[1\]: expected a whole number >= 1, got 2.5"),
        ((1, [[1, NAN]], 1, 0), r"num_replicas\[0\]\[1\]: expected a whole number >= 1, got nan"),
        ((2, [2, 1], 1, 0), r"num_nodes\[1\]: expected at most as many nodes as replicas, got 2"),
        ((1, 1, 0, 0), "atomic_bsz: expected a number > 0, got 0"),
        ((1, 1, 1e16, 0), r"atomic_bsz: expected a number > 0 and at most 1e15, got 1e\+16"),
        ((1, 1, 10**400, 0), "atomic_bsz: expected numbers that form an array"),
        ((1, 1, [1, float("inf")], 0), r"atomic_bsz\[1\]: expected .* at most 1e15, got inf"),
        ((1, 1, 1, [0, -1]), r"accum_steps\[1\]: expected a number >= 0, got -1"),
        ((1, 1, 1, [0, "1"]), r'accum_steps\[1\]: expected a number, got the text "1"'),
        ((1, 1, 1, [0, True]), r"accum_steps\[1\]: expected a number, got true"),
        ((1, 1, True, 0), "atomic_bsz: expected a number, got true"),
        ((1, 1, None, 0), "atomic_bsz: expected a number, got null"),
        ((1, 1, 1j, 0), "atomic_bsz: expected a number, got 1j"),
        ((1, 1, [[1], [1, 2]], 0), "atomic_bsz: expected numbers that form an array"),
        ((1, 1, [np.ones(1), np.ones((2, 1))], 0), "atomic_bsz: expected numbers that form an arr"),
        (([1, 1], [1, 1, 1], 1, 0), "num_nodes, num_replicas: expected shapes that broadcast toge"),
        ((1, [1, 1], [1, 1, 1], 0), r"num_nodes, .*, accum_steps: .*, got \(\), \(2,\), \(3,\), "),
    ],
)
def test_wrong_configurations(arguments: Any, message: str) -> None:
    for method in (MODEL.throughput, MODEL.evaluate, MODEL.step_time):
        with pytest.raises(InputError, match=f"^{message}"):
            method(*arguments)


def test_batches_below_the_initial_one_are_named() -> None:
    with pytest.raises(
        InputError, match=r"^atomic_bsz\[1\]: .* of at least the initial batch size 128, got 126$"
    ):
        MODEL.evaluate(1, 2, [64, 63], 0)
    with pytest.raises(InputError, match=r"^batch_size: expected a number > 0, got 0$"):
        MODEL.efficiency(0)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ((64, None), "max_batch_size: expected at least the initial batch size 128, got 64"),
        ((NAN, None), "max_batch_size: expected a number > 0, got nan"),
        (([256, 512], None), "max_batch_size: expected one number, got 2"),
        ((256, (0, 64)), r"atomic_bsz_range\[0\]: expected a number >= 1, got 0"),
        ((256, (None, NAN)), r"atomic_bsz_range\[1\]: expected a number >= 1, got nan"),
        ((256, (64, 32)), r"atomic_bsz_range: expected \(least, greatest\), got \(64, 32\)"),
        ((256, (1, 2, 3)), r"atomic_bsz_range: expected a pair \(least, greatest\), got a list of"),
        ((256, 64), r"atomic_bsz_range: expected a pair \(least, greatest\), got 64"),
        ((256, (512, None)), r"atomic_bsz_range\[0\]: expected at most the largest batch size 256"),
        ((None, (129, 200)), r"atomic_bsz_range\[0\]: expected at most the largest batch size 128"),
    ],
)
def test_limits_that_exclude_everything(limits: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        MODEL.optimize(1, 1, *limits)


def test_wrong_placements() -> None:
    with pytest.raises(InputError, match=r"^num_nodes: expected at most as many nodes as replicas"):
        MODEL.optimize(2, 1)
