"""The best configurations: against all there are, against the published search, and limits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.goodput.params import GradParams
from ppsolve.solver.studies.goodput import search as goodput_search
from ppsolve.solver.studies.goodput.model import GoodputModel
from tests.marks import examples, first
from tests.studies.goodput.cases import MODEL, PERF, Search, random_search, searches

NAN = float("nan")


def all_configurations(search: Search) -> np.ndarray:
    """Return the allowed micro-batch sizes and micro-batches per step, int64[2, n]."""
    model, (_, replicas), most, (low, high), accumulation = search
    each = most // replicas
    sizes = np.arange(low, min(high, each) + 1)
    steps = np.arange(1, (each // low if accumulation else 1) + 1)
    size, step = (grid.ravel() for grid in np.meshgrid(sizes, steps))
    batch = replicas * size * step
    allowed = (batch <= most) & (batch >= model.init_batch_size)
    if accumulation and replicas == 1:
        allowed &= (step > 1) | (batch <= math.ceil(model.init_batch_size))
    return np.array([size[allowed], step[allowed]])


def brute_force(search: Search) -> float:
    """Return the best goodput of all allowed configurations, 0 if there is none."""
    size, step = all_configurations(search)
    model, allocation, *_ = search
    return float(np.max(model.evaluate(*allocation, size, step - 1), initial=0.0))


def found_by(search: Search, **options: Any) -> tuple[float, int, int]:
    model, allocation, most, sizes, accumulation = search
    return model.optimize(*allocation, most, sizes, accumulation, **options)


def assert_exact(search: Search) -> None:
    best, found = brute_force(search), found_by(search)
    assert found[0] == pytest.approx(best, rel=1e-11, abs=0)
    if best == 0:
        assert found == (0.0, 0, 0)


@pytest.mark.parametrize("seed", first(48, range(120)))
def test_nothing_allowed_is_better_in_extreme_jobs(seed: int) -> None:
    assert_exact(random_search(seed))


@examples(10)
@given(searches())
def test_nothing_allowed_is_better(search: Search) -> None:
    assert_exact(search)


@examples(10)
@given(searches())
def test_limits_hold(search: Search) -> None:
    model, (nodes, replicas), most, (low, high), accumulation = search
    goodput, atomic, accum = found_by(search)
    if goodput:
        assert goodput == pytest.approx(
            model(nodes, replicas, atomic, accum), rel=1e-12
        )
        assert low <= atomic <= high
        assert model.init_batch_size <= replicas * atomic * (accum + 1) <= most
        assert accumulation or accum == 0


def plain_optimum(search: Search) -> float:
    """Best goodput by the published rule, one configuration after the other."""
    model, (nodes, replicas), most, (low, high), accumulation = search
    least = model.init_batch_size
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


@examples(10)
@given(searches())
def test_compat_is_the_published_search(search: Search) -> None:
    model, allocation, *_ = search
    found, atomic, accum = found_by(search, compat=True)
    assert found == pytest.approx(plain_optimum(search), rel=1e-9)
    assert found == 0 or found == pytest.approx(
        model.evaluate(*allocation, atomic, accum)
    )


@examples(10)
@given(searches())
def test_the_published_answer_is_no_better_where_it_is_allowed(search: Search) -> None:
    _, (_, replicas), most, sizes, _ = search
    published, exact = found_by(search, compat=True), found_by(search)
    if published[0] > 0 and replicas * published[1] * (published[2] + 1) <= most:
        assert exact[0] >= published[0] * (1 - 1e-12)
    if published[0] == 0 and sizes[0] * replicas > most:
        assert exact == (0.0, 0, 0)


@pytest.mark.parametrize("most_sizes", [2, 16])
def test_some_sizes_only(monkeypatch: pytest.MonkeyPatch, most_sizes: int) -> None:
    params = goodput_search.GoodputParams(most_sizes=most_sizes)
    monkeypatch.setattr(goodput_search, "PARAMS", params)
    for seed in range(40):
        search = random_search(seed)
        best, (found, *_) = brute_force(search), found_by(search)
        assert (found > 0) == (best > 0)
        assert found >= best * (1 - 1 / most_sizes)


def test_cases_are_evaluated_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    eager = GoodputModel((0, 0.01, 0.1, 0.01, 0.2, 0.01, 1), (1, 30), 61)
    nodes, replicas = np.repeat([1, 2], 30), np.tile(np.arange(2, 32), 2)
    whole = eager.optimize(nodes, replicas, 4001, (1, 40), True)
    monkeypatch.setattr(
        goodput_search, "PARAMS", goodput_search.GoodputParams(at_once=64)
    )
    for one, other in zip(
        eager.optimize(nodes, replicas, 4001, (1, 40), True), whole, strict=True
    ):
        assert one.tolist() == other.tolist()


def test_the_largest_micro_batch_is_tried() -> None:
    eager = GoodputModel(PERF, GradParams(1, 1e9), 128)
    for most, high in ((4096, 64), (4095, 333)):
        assert eager.optimize(2, 5, most, (1, high))[1] == high
        assert eager.optimize(2, 5, most, (1, high), compat=True)[1] < high


def test_three_by_three_is_found() -> None:
    # Nothing but 3 micro-batches of 3 samples is allowed, and none of 50 steps leads there.
    model = GoodputModel(PERF, GradParams(1, 1), 9)
    assert model.optimize(1, 1, 9, (3, 4), accumulation=True)[1:] == (3, 2)
    assert GoodputModel(PERF, (1, 1), 26).optimize(1, 3, 29, (3, 4), True)[1:] == (3, 2)


def test_more_steps_than_needed_where_they_divide_a_better_batch() -> None:
    # 15 samples a replica are best, and 2 micro-batches of 7 or 8 are farther from it than 3 of 5.
    model = GoodputModel((1e-6, 1, 0, 0, 15, 0, 1), (1, 30), 1)
    assert model.optimize(1, 2, 200, (1, 10), accumulation=True)[1:] == (5, 2)


def test_the_largest_batch_is_a_limit_where_the_least_micro_batches_exceed_it() -> None:
    published = MODEL.optimize(1, 16, 256, (32, 64), compat=True)
    assert published[0] > 0
    assert 16 * published[1] > 256
    assert MODEL.optimize(1, 16, 256, (32, 64)) == (0.0, 0, 0)
    exact = MODEL.optimize(1, 8, 256, (32, 64))
    assert exact == pytest.approx(MODEL.optimize(1, 8, 256, (32, 64), compat=True))


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


def test_one_replica_takes_few_large_micro_batches_where_its_steps_are_fast() -> None:
    # Its exchange takes 1e-8, all compute less: 15 samples are best, as 3 micro-batches of 5. The
    # single micro-batch that one replica may run is no larger than the initial batch of 1.
    fast = GoodputModel((1e-11, 1e-11, 0, 0, 0, 0, 1), (1, 1e9), 1)
    goodput = {(5, 3): 0.0, (7, 2): 0.0, (3, 5): 0.0}
    for size, steps in goodput:
        goodput[size, steps] = float(fast.evaluate(1, 1, size, steps - 1))
    assert goodput[5, 3] > goodput[3, 5] > goodput[7, 2]
    assert fast.optimize(1, 1, 15, (3, 9), accumulation=True) == (goodput[5, 3], 5, 2)


def test_huge_limits() -> None:
    model = GoodputModel(PERF, GradParams(1, 1), 1)
    for compat in (True, False):
        found = model.optimize(1, 1, 1000, (1, 1e15), accumulation=True, compat=compat)
        assert found[0] > 0
        assert found[2] >= 0
    free = GoodputModel((0, 1, 0, 0, 1e6, 0, 1), (1e-300, 1e300), 1)
    for replicas in (1, 2, 1e15):
        assert free.optimize(1, replicas, 1e15, (1, 1e15), accumulation=True)[0] > 0
        assert free.optimize(1, replicas, 1e15, (1, 1e5), accumulation=True)[0] > 0
    # A large prime number of micro-batches of 2 samples is all there is.
    narrow = GoodputModel(PERF, GradParams(1, 1), 2_000_006)
    assert narrow.optimize(1, 1, 2_000_006, (2, 1e6), accumulation=True)[1:] == (
        2,
        1_000_002,
    )


def test_ends_of_the_range_may_be_open() -> None:
    full = MODEL.optimize(1, 4, 1024)
    for sizes in ((None, None), (1, None), (None, 1024), [None, None]):
        assert MODEL.optimize(1, 4, 1024, sizes) == full
    assert MODEL.optimize(1, 1) == pytest.approx((MODEL.evaluate(1, 1, 128, 0), 128, 0))


def test_limits_between_whole_numbers() -> None:
    assert (
        MODEL.optimize(1, 1, 300.5, (1.5, 200.5))[1:]
        == MODEL.optimize(1, 1, 300, (2, 200))[1:]
    )
    assert MODEL.optimize(1, 1, 300.5, (150.2, 150.8)) == (0.0, 0, 0)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            (64, None),
            "max_batch_size: expected at least the initial batch size 128, got 64",
        ),
        ((NAN, None), "max_batch_size: expected a number > 0, got nan"),
        (([256, 512], None), "max_batch_size: expected one number, got 2"),
        ((256, (0, 64)), r"atomic_bsz_range\[0\]: expected a number >= 1, got 0"),
        ((256, (None, NAN)), r"atomic_bsz_range\[1\]: expected a number >= 1, got nan"),
        (
            (256, (64, 32)),
            r"atomic_bsz_range: expected \(least, greatest\), got \(64, 32\)",
        ),
        (
            (256, (1, 2, 3)),
            r"atomic_bsz_range: expected a pair \(least, greatest\), got a list of",
        ),
        ((256, 64), r"atomic_bsz_range: expected a pair \(least, greatest\), got 64"),
        (
            (256, (512, None)),
            r"atomic_bsz_range\[0\]: expected at most the largest batch size 256",
        ),
        (
            (None, (129, 200)),
            r"atomic_bsz_range\[0\]: expected at most the largest batch size 128",
        ),
    ],
)
def test_limits_that_exclude_everything(limits: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        MODEL.optimize(1, 1, *limits)


def test_wrong_allocations() -> None:
    with pytest.raises(
        InputError, match=r"^num_nodes: expected at most as many nodes as replicas"
    ):
        MODEL.optimize(2, 1)
