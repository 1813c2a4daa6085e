"""Times below which no schedule of an outlined pipeline is, in about half a millisecond each."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.plan.outline import Outline, links_of


def makespan_floor(shown: Outline) -> int:
    """Return the larger of the floors by work and by memory, in ticks."""
    return max(work_floor(shown), memory_floor(shown))


def work_floor(shown: Outline) -> int:
    """Return a lower bound on the makespan in ticks: per device least head + load + least tail.

    As micro-batches are alike, heads and tails are those of one of them.
    """
    head, tail = _head(shown), _least_tail(shown)
    load = shown.duration.sum(axis=0) * shown.microbatches
    devices = range(len(shown.room))
    floors = (
        head[shown.device == d].min()
        + load[shown.device == d].sum()
        + tail[shown.device == d].min()
        for d in devices
    )
    return int(max(floors))


def memory_floor(shown: Outline) -> int:
    """Return a lower bound on the makespan in ticks, by what devices hold and how long they do.

    A stage holds the activation of a micro-batch while that passes all later stages and comes
    back. Per device, amounts times times of all micro-batches are at most its room times the time
    between its least head and its least tail. Where whole activations come and go, what is in use
    is a multiple of their greatest common divisor, and the room is rounded down to one.
    """
    head, tail = _head(shown), _least_tail(shown)
    share = _late_share(shown)
    products = _byte_ticks(shown, share)
    floors = [0]
    for device in range(len(shown.room)):
        mine = np.flatnonzero(shown.device == device)
        unit = int(np.gcd.reduce(shown.held[mine]))
        room = int(shown.room[device])
        # Amounts in parts of a grain are at most a grain above what is counted.
        room = room // max(unit, 1) * unit if share.denominator == 1 else room + 1
        if unit and room > 0:
            total = shown.microbatches * sum(products[stage] for stage in mine.tolist())
            floors.append(int(head[mine].min()) - (-total // room) + int(tail[mine].min()))
    return max(floors)


def _late_share(shown: Outline) -> Fraction:
    """Return the share of an activation that the weight gradient gives back."""
    if len(shown.duration) == 2:
        return Fraction(0)
    return Fraction(shown.pipeline.request.model.released_by_backward_weight)


def _byte_ticks(shown: Outline, share: Fraction) -> list[int]:
    """Return the least amount times time that one micro-batch takes of each stage's memory."""
    weight = shown.duration[2].tolist() if len(shown.duration) == 3 else [0] * len(shown.device)
    held = shown.held.tolist()
    late = (amount * share.numerator // share.denominator for amount in held)
    trips = _round_trips(shown).tolist()
    return [
        amount * trip + part * time
        for amount, trip, part, time in zip(held, trips, late, weight, strict=True)
    ]


def _round_trips(shown: Outline) -> IntArray:
    """Return the least time from the start of a forward to the end of its backward: int64[S]."""
    there, back = links_of(shown)
    own = shown.duration[:2].sum(axis=0)
    own[:-1] += there[:-1] + back[1:]
    trips: IntArray = np.cumsum(own[::-1])[::-1]
    return trips


def _head(shown: Outline) -> IntArray:
    """Return the earliest start of each stage: int64[S]."""
    there, _ = links_of(shown)
    return np.concatenate([[0], np.cumsum(shown.duration[0] + there)[:-1]])


def _least_tail(shown: Outline) -> IntArray:
    """Return the least time from the end of any last op of each stage to the end: int64[S]."""
    _, back = links_of(shown)
    rows, stages = shown.duration.shape
    ends = [part for part in (shown.allreduce, shown.optimizer) if part is not None]
    after: IntArray = np.sum(ends, axis=0) if ends else np.zeros(stages, dtype=np.int64)
    weight = shown.duration[2] if rows == 3 else np.zeros(stages, dtype=np.int64)
    tail = weight + after  # of backwards, from their ends
    for stage in range(1, stages):
        path = back[stage] + shown.duration[1, stage - 1] + tail[stage - 1]
        tail[stage] = max(tail[stage], path)
    return np.minimum(tail, after) if rows == 3 else tail
