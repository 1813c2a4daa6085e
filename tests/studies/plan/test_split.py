"""Splits of layers into stages, against every split there is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.documents.errors import InputError, PpsolveError
from ppsolve.solver.studies.plan.split import (
    Split,
    SplitParams,
    SplitProblem,
    SplitUndecidedError,
    best_split,
    even_split,
    quick_split,
    slowest_device_bound,
)
from tests.marks import examples

Boundaries = tuple[int, ...]


def problem_of(times: Any, stage_to_device: Any, **fields: Any) -> SplitProblem:
    given = {
        "static": (0,) * len(times),
        "activation": (0,) * len(times),
        "capacity": None,
        "in_flight": ((1,) * len(stage_to_device),),
    }
    return SplitProblem(
        times=tuple(times), stage_to_device=tuple(stage_to_device), **(given | fields)
    )


def interleaved(devices: int, chunks: int) -> Boundaries:
    return tuple(range(devices)) * chunks


def wave(devices: int, chunks: int) -> Boundaries:
    down = tuple(range(devices))
    return tuple(
        d for chunk in range(chunks) for d in (down[::-1] if chunk % 2 else down)
    )


TRANSFORMER = (3, *(10,) * 48, 17)


def all_splits(layers: int, stages: int) -> list[Boundaries]:
    inner = itertools.combinations(range(1, layers), stages - 1)
    return [(0, *places, layers) for places in inner]


def figures(
    problem: SplitProblem, boundaries: Boundaries
) -> tuple[int, int, int] | None:
    """Slowest device, slowest stage, sum of squares; None where a device is too small."""
    work, stages = [0] * problem.num_devices, []
    moments = [[0] * problem.num_devices for _ in problem.in_flight]
    for stage, device in enumerate(problem.stage_to_device):
        layers = range(boundaries[stage], boundaries[stage + 1])
        stages.append(sum(problem.times[layer] for layer in layers))
        work[device] += stages[-1]
        for layer in layers:
            for counts, held in zip(problem.in_flight, moments, strict=True):
                held[device] += (
                    problem.static[layer] + counts[stage] * problem.activation[layer]
                )
    held = [max(amounts) for amounts in zip(*moments, strict=True)]
    room = problem.capacity or held
    if any(needed > most for needed, most in zip(held, room, strict=True)):
        return None
    return max(work), max(stages), sum(time**2 for time in stages)


def brute_force(problem: SplitProblem) -> tuple[int, int, int] | None:
    if problem.num_layers < problem.num_stages:
        return None
    every = (
        figures(problem, b) for b in all_splits(problem.num_layers, problem.num_stages)
    )
    return min((found for found in every if found), default=None)


def assert_is_optimal(problem: SplitProblem) -> Split | None:
    split, best = best_split(problem), brute_force(problem)
    if best is None:
        assert split is None
        return None
    assert split is not None
    assert split.proved
    assert split.boundaries in all_splits(problem.num_layers, problem.num_stages)
    reached = figures(problem, split.boundaries)
    assert reached is not None
    assert (split.slowest_device, split.slowest_stage) == reached[:2] == best[:2]
    if problem.has_one_stage_per_device:
        assert reached == best
    assert slowest_device_bound(problem) <= best[0]
    return split


def random_problem(seed: int, *, shared: bool) -> SplitProblem:
    rng = np.random.default_rng(seed)
    stages, layers = int(rng.integers(1, 6)), int(rng.integers(1, 10))
    devices = int(rng.integers(1, stages + 1)) if shared else stages
    owners = [*range(devices), *rng.integers(0, devices, stages - devices).tolist()]
    kinds = rng.integers(0, 20, (3, int(rng.integers(1, layers + 1))))
    which = np.sort(rng.integers(0, kinds.shape[1], layers))
    times, static, activation = (tuple(row.tolist()) for row in kinds[:, which])
    in_flight = rng.integers(0, 5, (int(rng.integers(1, 4)), stages))
    needed = (sum(static) + int(in_flight.mean() * sum(activation))) / devices
    room = rng.uniform(0.8, 2.5, devices) * needed
    return SplitProblem(
        times=times,
        static=static,
        activation=activation,
        stage_to_device=tuple(rng.permutation(owners).tolist()),
        capacity=None if rng.random() < 0.3 else tuple(int(r) for r in room),
        in_flight=tuple(map(tuple, in_flight.tolist())),
    )


@pytest.mark.parametrize("seed", range(12))
def test_one_stage_per_device_is_optimal(seed: int) -> None:
    for index in range(25):
        assert_is_optimal(random_problem(1000 * seed + index, shared=False))


@pytest.mark.parametrize("seed", range(12))
def test_shared_devices_are_optimal(seed: int) -> None:
    for index in range(12):
        assert_is_optimal(random_problem(1000 * seed + index, shared=True))


def test_random_problems_cover_every_outcome() -> None:
    problems = [
        random_problem(1000 * s + i, shared=True) for s in range(12) for i in range(12)
    ]
    misfits = [
        p
        for p in problems
        if p.num_layers >= p.num_stages and p.capacity and not brute_force(p)
    ]
    shared = [p for p in problems if not p.has_one_stage_per_device and brute_force(p)]
    assert len(misfits) > 10
    assert len(shared) > 40


@examples(14)
@given(st.integers(0, 2**32 - 1))
def test_mirrored_and_relabelled_problems_have_the_same_optimum(seed: int) -> None:
    problem = random_problem(seed, shared=True)
    last = problem.num_devices - 1
    turned = SplitProblem(
        problem.times[::-1],
        problem.static[::-1],
        problem.activation[::-1],
        tuple(last - device for device in problem.stage_to_device[::-1]),
        problem.capacity and problem.capacity[::-1],
        tuple(counts[::-1] for counts in problem.in_flight),
    )
    assert objectives(best_split(problem)) == objectives(best_split(turned))


def objectives(split: Split | None) -> tuple[int, int] | None:
    return split and (split.slowest_device, split.slowest_stage)


@examples(9)
@given(st.integers(0, 2**32 - 1), st.integers(0, 30))
def test_more_memory_is_never_slower(seed: int, more: int) -> None:
    problem = random_problem(seed, shared=True)
    wider = replace(
        problem, capacity=problem.capacity and tuple(c + more for c in problem.capacity)
    )
    before, after = objectives(best_split(problem)), objectives(best_split(wider))
    assert before is None or (after is not None and after <= before)


@examples(9)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_every_amount_may_be_huge(seed: int, shared: bool) -> None:
    """Squares of these times exceed an int64, and the bytes have no unit in common."""
    small = random_problem(seed, shared=shared)
    factor = 2**20 + 1 if shared else 2**40 + 1
    large = replace(
        small,
        times=tuple(time * factor for time in small.times),
        static=tuple(amount * (10**11 + 3) for amount in small.static),
        activation=tuple(amount * (10**11 + 3) for amount in small.activation),
        capacity=small.capacity
        and tuple(room * (10**11 + 3) for room in small.capacity),
    )
    expected = objectives(best_split(small))
    found = objectives(best_split(large))
    assert found == (expected and tuple(time * factor for time in expected))
    if found and not shared:
        assert_is_optimal(large)


def test_times_too_long_for_the_search_are_refused() -> None:
    """CP-SAT calls 43 x 2^30 optimal here, 40 x 2^30 is possible."""
    wrong = SplitProblem(
        times=tuple(time * 2**30 for time in (2, 19, 19, 19, 19, 5, 5)),
        static=(0, 15, 15, 15, 15, 5, 5),
        activation=(16, 15, 15, 15, 15, 14, 14),
        stage_to_device=(0, 2, 1, 1, 2),
        capacity=(65, 150, 95),
        in_flight=((0, 1, 1, 2, 2),),
    )
    with pytest.raises(
        InputError, match="at most 2147483648 ticks in total where devices hold"
    ):
        best_split(wrong)
    assert objectives(best_split(replace(wrong, times=(2, 19, 19, 19, 19, 5, 5)))) == (
        40,
        40,
    )


@pytest.mark.parametrize("devices", [2, 5, 7, 12, 16])
@pytest.mark.parametrize("chunks", [2, 3])
@pytest.mark.parametrize("placement", [interleaved, wave])
def test_transformer_is_proved(devices: int, chunks: int, placement: Any) -> None:
    problem = problem_of(TRANSFORMER, placement(devices, chunks))
    split = best_split(problem)
    assert split is not None
    assert split.proved
    assert figures(problem, split.boundaries) is not None
    assert split.slowest_device == max(problem.device_times(split.boundaries))


def test_transformer_on_two_interleaved_devices() -> None:
    """Embedding and head are on different devices, so neither can have exactly half (250)."""
    split = best_split(problem_of(TRANSFORMER, interleaved(2, 2)))
    assert split is not None
    assert objectives(split) == (253, 130)
    folded = best_split(problem_of(TRANSFORMER, wave(2, 2)))
    assert objectives(folded) == (250, 130)


def test_memory_moves_the_boundaries() -> None:
    """Early stages hold more micro-batches, so they get fewer layers than speed asks for."""
    free = problem_of(
        (10,) * 12, range(4), activation=(1,) * 12, in_flight=((4, 3, 2, 1),)
    )
    tight = replace(free, capacity=(8,) * 4)
    assert best_split(free) == Split((0, 3, 6, 9, 12), 30, 30, proved=True)
    assert best_split(tight) == Split((0, 2, 4, 8, 12), 40, 40, proved=True)
    assert best_split(replace(free, capacity=(4,) * 4)) is None


def test_layers_move_from_the_device_that_is_full_at_any_moment() -> None:
    """Device 0 holds 3 of stage 0 at one moment, one of stage 2 at the other, and has room for 4.

    Evenly split it holds 6 at the first moment; a layer of stage 0 moved away leaves 3.
    """
    problem = problem_of(
        (1,) * 8,
        (0, 1, 0, 1),
        activation=(1,) * 8,
        capacity=(4, 8),
        in_flight=((3, 1, 0, 1), (0, 1, 1, 1)),
    )
    split = quick_split(problem)
    assert split is not None
    assert split.boundaries[1] == 1


def test_joint_memory_of_a_device_is_kept() -> None:
    """Each stage fits alone; together they fit only where device 0 has two layers of each."""
    problem = problem_of((1,) * 8, (0, 1, 0, 1), static=(1,) * 8, capacity=(3, 5))
    split = assert_is_optimal(problem)
    assert objectives(split) == (5, 3)
    assert best_split(replace(problem, capacity=(3, 4))) is None


@pytest.mark.parametrize("layers", [64, 65, 200])
def test_many_layers_and_stages(layers: int) -> None:
    rng = np.random.default_rng(layers)
    problem = problem_of(
        rng.integers(10**9, 10**10, layers).tolist(),
        rng.permutation(64).tolist(),
        static=(10**11,) * layers,
        capacity=(10**12,) * 64,
    )
    split = best_split(problem)
    assert split is not None
    assert split.proved
    assert (
        slowest_device_bound(problem)
        <= split.slowest_device
        <= 2 * slowest_device_bound(problem)
    )


def unlike_layers() -> SplitProblem:
    rng = np.random.default_rng(0)
    return problem_of(rng.integers(9800, 10200, 50).tolist(), interleaved(9, 3))


@pytest.mark.parametrize("limit", [0, 0.02])
def test_answers_repeat_even_where_the_limit_is_reached(limit: float) -> None:
    problem = unlike_layers()
    first, again = (
        best_split(problem, SplitParams(seconds=limit)),
        best_split(problem, SplitParams(seconds=limit)),
    )
    assert first == again
    assert first is not None
    assert not first.proved
    assert objectives(first) == figures(problem, first.boundaries)[:2]  # type: ignore[index]


def test_nearly_equal_layers_are_counted_out_first() -> None:
    """50 layers on 10 devices: 5 each, which stages that are even one by one do not give."""
    rng = np.random.default_rng(3)
    problem = problem_of(rng.integers(9800, 10200, 50).tolist(), interleaved(10, 3))
    split = best_split(problem, SplitParams(seconds=0.02))
    assert split is not None
    assert split.slowest_device < 1.02 * slowest_device_bound(problem)


def test_undecided_is_neither_a_split_nor_none() -> None:
    problem = problem_of(
        (1,) * 8, (0, 1, 0, 1), static=(2, 5, 2, 6, 1, 3, 6, 4), capacity=(15, 14)
    )
    assert best_split(problem) is not None
    with pytest.raises(
        SplitUndecidedError, match="nor proved impossible, within 0 determ"
    ):
        best_split(problem, SplitParams(seconds=0))
    assert issubclass(SplitUndecidedError, PpsolveError)


def test_fewer_layers_than_stages_have_no_split() -> None:
    assert best_split(problem_of((1, 2), (0, 1, 2))) is None
    assert best_split(problem_of((), (0,))) is None


WRONG = [
    (
        {"times": (SplitParams.most_ticks, 1, 0)},
        "times: expected at most .* ticks .*; use a coarser tick",
    ),
    (
        {"activation": (SplitParams.most_bytes, 0, 1)},
        "activation: expected at most .* bytes",
    ),
]


@pytest.mark.parametrize(("fields", "message"), WRONG)
def test_wrong_problems_are_named(fields: dict[str, Any], message: str) -> None:
    right = problem_of((1, 2, 3), (0, 1))
    with pytest.raises(InputError, match=message):
        replace(right, **fields)


def test_slowest_device_bound() -> None:
    assert slowest_device_bound(problem_of((9, 1, 1), (0, 1))) == 9
    assert slowest_device_bound(problem_of((2, 3, 4), (0, 1))) == 5
    # Seven equal layers on three devices: one device has three of them.
    assert slowest_device_bound(problem_of((10,) * 7, (0, 1, 2))) == 30
    assert slowest_device_bound(problem_of((), (0,))) == 0


def test_even_split() -> None:
    assert even_split(10, 4) == (0, 3, 6, 8, 10)
    assert even_split(3, 3) == (0, 1, 2, 3)
    with pytest.raises(InputError, match="expected 1 to 3 stages"):
        even_split(3, 4)
    with pytest.raises(InputError, match="expected 1 to 3 stages"):
        even_split(3, 0)
