"""Orders of slices against transcriptions of their rules, written for the tests alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import count
from typing import Any

import pytest

from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.api.registry import all_heuristics
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.kinds.pipeline.sliced import (
    interleaved_seq1f1b,
    seq1f1b,
    seq1f1b_zb,
    slimpipe,
)
from tests.marks import first
from tests.running import run_heuristic

Step = tuple[int, str, int]
"""Stage, kind, and slice counted over all micro-batches."""


class SpQueue:
    """Seq1F1B's queue of two stages: the first micro-batch first, its last slice first."""

    def __init__(self, splits: int) -> None:
        self.splits, self.queues, self.filled = splits, [[]], 0

    def append(self, unit: int) -> None:
        self.queues[-1].append(unit)
        self.filled += 1
        if self.filled == self.splits:
            self.queues.append([])
            self.filled = 0

    def pop(self) -> int:
        unit = self.queues[0].pop()
        if not self.queues[0] and len(self.queues) > 1:
            self.queues.pop(0)
        return unit


def run_rank(ranks: int, rank: int, batches: int, splits: int) -> Iterator[Step]:
    """`forward_backward_pipelining_without_interleaving` of Seq1F1B's repository, on one rank."""
    total = batches * splits
    warmup = min(ranks - rank + splits - 2, total)
    queue, unit = SpQueue(splits), count()

    def forward() -> Step:
        number = next(unit)
        queue.append(number)
        return rank, "F", number

    for _ in range(warmup):
        yield forward()
    for _ in range(total - warmup):
        yield forward()
        yield rank, "B", queue.pop()
    for _ in range(warmup):
        yield rank, "B", queue.pop()


def run_chunks(
    ranks: int, rank: int, chunks: int, batches: int, splits: int
) -> Iterator[Step]:
    """`forward_backward_pipelining_with_interleaving` of the same, on one rank."""
    total = batches * chunks * splits
    warmup = (chunks - 1) * ranks + (ranks - rank - 1) * 2 + splits - 1
    warmup = total if batches == ranks else min(warmup, total)
    queues, units = (
        [SpQueue(splits) for _ in range(chunks)],
        [count() for _ in range(chunks)],
    )

    def forward(step: int) -> Step:
        chunk = step % (ranks * chunks) // ranks
        number = next(units[chunk])
        queues[chunk].append(number)
        return chunk * ranks + rank, "F", number

    def backward(step: int) -> Step:
        chunk = chunks - step % (ranks * chunks) // ranks - 1
        return chunk * ranks + rank, "B", queues[chunk].pop()

    for step in range(warmup):
        yield forward(step)
    for step in range(total - warmup):
        yield forward(warmup + step)
        yield backward(step)
    for step in range(total - warmup, total):
        yield backward(step)


def steps_of(orders: Sequence[Any]) -> list[list[Step]]:
    return [[(a.stage, a.kind, a.microbatch) for a in order] for order in orders]


@pytest.mark.parametrize("splits", range(4, 17))
@pytest.mark.parametrize("batches", [1, 2, 5])
def test_seq1f1b_is_what_its_repository_runs(splits: int, batches: int) -> None:
    expected = [list(run_rank(8, rank, batches, splits)) for rank in range(8)]
    assert steps_of(seq1f1b(8, 1, batches, splits)) == expected


@pytest.mark.parametrize("splits", [2, 4, 8])
@pytest.mark.parametrize(("chunks", "batches"), [(2, 8), (2, 16), (4, 16)])
def test_interleaved_seq1f1b_is_what_its_repository_runs(
    splits: int, chunks: int, batches: int
) -> None:
    expected = [list(run_chunks(8, rank, chunks, batches, splits)) for rank in range(8)]
    assert steps_of(interleaved_seq1f1b(8, chunks, batches, splits)) == expected


def most_held(steps: Sequence[Step]) -> int:
    """Return the most slices whose forwards have begun and whose backwards have not ended."""
    held = most = 0
    for _, kind, _ in steps:
        most = max(most, held + 1)
        held += {"F": 1, "B": -1}.get(kind, 0)
    return most - 1


@pytest.mark.parametrize(
    ("ranks", "chunks", "splits"), [(4, 1, 4), (4, 2, 8), (8, 2, 8)]
)
def test_slimpipe_holds_what_its_paper_says(
    ranks: int, chunks: int, splits: int
) -> None:
    # 1 + 2 (p - 1) / (n v) micro-batches on the first rank: n v + 2 (p - 1) slices of its chunks.
    orders = steps_of(slimpipe(ranks, chunks, 4, splits))
    assert most_held(orders[0]) == splits * chunks + 2 * (ranks - 1)
    assert most_held(orders[-1]) == splits * chunks


def test_zero_bubble_by_slices_defers_weight_gradients_as_far_as_the_warm_up_is_longer() -> (
    None
):
    orders = steps_of(seq1f1b_zb(2, 1, 2, 2))
    assert [f"{kind}{unit}" for _, kind, unit in orders[0]] == (
        ["F0", "F1", "F2", "I1", "W1", "F3", "I0", "W0", "I3", "W3", "I2", "W2"]
    )
    assert [f"{kind}{unit}" for _, kind, unit in orders[1]] == (
        ["F0", "F1", "I1", "F2", "I0", "W1", "F3", "I3", "W0", "I2", "W3", "W2"]
    )


def makespan(instance: PipelineInstance, orders: list[list[Step]]) -> Fraction:
    """Run orders of F and B step by step, each as soon as what it waits for has ended."""
    stages, slices = instance.num_stages, instance.num_slices
    numbers = instance.in_numbers().times
    end: dict[Step, Fraction] = {}
    free, place = [Fraction(0)] * len(orders), [0] * len(orders)
    while any(place[d] < len(order) for d, order in enumerate(orders)):
        before = len(end)
        for device, order in enumerate(orders):
            if place[device] == len(order):
                continue
            stage, kind, unit = step = order[place[device]]
            move = -1 if kind == "F" else 1
            needs = [(stage, "F", unit)] if kind == "B" else []
            needs += [(stage + move, kind, unit)] if 0 <= stage + move < stages else []
            if (unit + move) // slices == unit // slices and unit + move >= 0:
                needs.append((stage, kind, unit + move))
            if all(need in end for need in needs):
                entry: Any = (numbers.forward if kind == "F" else numbers.backward)[
                    stage
                ]
                time = Fraction(entry[unit] if isinstance(entry, tuple) else entry)
                end[step] = max([free[device], *(end[need] for need in needs)]) + time
                free[device] = end[step]
                place[device] += 1
        assert len(end) > before, "the orders wait for each other"
    return max(end.values())


def causal(slices: int, microbatches: int = 2) -> PipelineInstance:
    """Return 8 stages and uniform slices of 64 tokens."""
    costs = {"per_token": 1, "per_square": 0.02}, {"per_token": 2, "per_square": 0.05}
    return PipelineInstance(
        num_devices=8,
        num_microbatches=microbatches,
        slices=(64,) * slices,
        times={"forward": [costs[0]] * 8, "backward": [costs[1]] * 8},
    )


@pytest.mark.parametrize("slices", first(3, range(4, 17)))
def test_seq1f1b_takes_as_long_as_its_orders_do(slices: int) -> None:
    instance = causal(slices)
    found = run_heuristic("seq1f1b", instance, lower(instance))
    assert isinstance(found.schedule, Schedule)
    orders = [list(run_rank(8, rank, 2, slices)) for rank in range(8)]
    schedule = found.schedule
    assert schedule.problem.scale.tick * schedule.makespan == makespan(instance, orders)


SHAPES = [
    {"num_devices": 3, "num_microbatches": 6},
    {"num_devices": 2, "num_microbatches": 4, "placement": "interleaved"},
    {"num_devices": 2, "num_microbatches": 4, "placement": "vshape"},
]


@pytest.mark.parametrize("shape", SHAPES)
def test_no_published_order_waits_for_itself(shape: dict[str, Any]) -> None:
    times = {"forward": 2, "backward_input": 3, "backward_weight": 1}
    instance = PipelineInstance(**shape, slices=2, times=times, p2p={"latency": 1})
    problem = lower(instance)
    able = [one for one in all_heuristics().values() if one.made_for == "a pipeline"]
    able = [one for one in able if not one.is_search and one.obstacle(instance) is None]
    assert len(able) >= 3
    for heuristic in able:
        found = run_heuristic(heuristic.name, instance, problem)
        assert found.status is HeuristicStatus.FEASIBLE, (heuristic.name, found.reason)
        assert found.schedule is not None
        assert check_schedule(problem, found.schedule) == []
