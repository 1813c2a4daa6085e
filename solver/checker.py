"""Independent check of a schedule against every rule of its problem; knows no solver.

The rules: starts at or after 0 and the release time, pinned starts kept, starts within the
allowed windows, precedences with lag, one op at a time on a resource, and exact memory use
within the limit at every instant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.core.problem import FREE, IntArray, Pool, Problem, most_in_use
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation, excess_text

INT64_SAFE = 2**62
"""Sums below this leave one bit of int64 spare, so that none of them wraps around."""


def check_schedule(problem: Problem, schedule: Schedule) -> list[Violation]:
    """Return every violation of a rule of the problem by the schedule; none if it is valid.

    A zero-length op occupies nothing and may lie inside another op. In use of a pool at time t is
    its initial amount + acquires of ops with start <= t - releases of ops with end <= t, counted
    exactly; the allowed excess is that of `Pool.limit`.

    There is one violation per op (start, release, pin), per precedence, per op that starts while an
    earlier one still runs on a resource, and per maximal interval in which a pool is over its
    limit. A `ValueError` says that the schedule has not exactly one start per op.
    """
    start = np.asarray(schedule.start)
    if start.shape != (problem.num_ops,) or start.dtype.kind not in "iu":
        raise ValueError(
            f"expected {problem.num_ops} integer starts, got {start.shape}"
        )
    return _Check(problem, start.astype(np.int64)).run()


class _Check:
    def __init__(self, problem: Problem, start: IntArray) -> None:
        self.problem = problem
        self.start = start
        self.end = start + problem.duration

    def run(self) -> list[Violation]:
        return [
            *self._starts(),
            *self._releases(),
            *self._pins(),
            *self._windows(),
            *self._precedences(),
            *self._overlaps(),
            *self._points(),
            *(
                violation
                for pool in self.problem.pools
                for violation in self._memory(pool)
            ),
        ]

    def _time(self, ticks: Any) -> str:
        return f"{self.problem.scale.time(int(ticks))} {self.problem.scale.unit}"

    def _starts(self) -> Iterator[Violation]:
        for op in np.flatnonzero(self.start < 0).tolist():
            name = self.problem.op_name(op)
            yield Violation(
                "start",
                f"{name} starts at {self._time(self.start[op])}, before 0",
                (name,),
            )

    def _releases(self) -> Iterator[Violation]:
        release = self.problem.release
        for op in np.flatnonzero((release > 0) & (self.start < release)).tolist():
            name = self.problem.op_name(op)
            yield Violation(
                "release",
                f"{name} starts at {self._time(self.start[op])}, before its release time "
                f"{self._time(release[op])}",
                (name,),
            )

    def _pins(self) -> Iterator[Violation]:
        pinned = self.problem.pinned
        for op in np.flatnonzero((pinned != FREE) & (self.start != pinned)).tolist():
            name = self.problem.op_name(op)
            yield Violation(
                "pin",
                f"{name} starts at {self._time(self.start[op])}, it is pinned to "
                f"{self._time(pinned[op])}",
                (name,),
            )

    def _windows(self) -> Iterator[Violation]:
        for op, allowed in self.problem.windows.items():
            start = int(self.start[op])
            if np.any((allowed[:, 0] <= start) & (start <= allowed[:, 1])):
                continue
            name = self.problem.op_name(op)
            yield Violation(
                "window",
                f"{name} starts at {self._time(start)}, which is in no hole that has room for it",
                (name,),
            )

    def _precedences(self) -> Iterator[Violation]:
        problem = self.problem
        earliest = self.end[problem.before] + problem.lag
        for edge in np.flatnonzero(self.start[problem.after] < earliest).tolist():
            before, after = int(problem.before[edge]), int(problem.after[edge])
            names = (problem.op_name(before), problem.op_name(after))
            lag = problem.lag[edge]
            yield Violation(
                "precedence",
                f"{names[1]} starts at {self._time(self.start[after])}, before {names[0]} ends at "
                f"{self._time(self.end[before])}"
                + (f" + lag {self._time(lag)}" if lag else ""),
                names,
            )

    def _overlaps(self) -> Iterator[Violation]:
        """Compare every op with the latest end before it on the same resource.

        Ends are replaced by their ranks, so that one running maximum serves all resources
        without overflow, and its value tells which op still runs.
        """
        problem = self.problem
        op = np.repeat(np.arange(problem.num_ops), np.diff(problem.resource_ptr))
        resource = problem.resource_idx
        busy = problem.duration[op] > 0
        op, resource = op[busy], resource[busy]
        order = np.lexsort((self.start[op], resource))
        op, resource = op[order], resource[order]
        same = resource[1:] == resource[:-1]
        # Where no op starts before the end of its neighbour, ends rise: none is left to compare.
        if not np.any(same & (self.start[op[1:]] < self.end[op[:-1]])):
            return
        size = len(op)
        by_end = np.argsort(self.end[op], kind="stable")
        rank = np.empty(size, dtype=np.int64)
        rank[by_end] = np.arange(size)
        latest = by_end[np.maximum.accumulate(resource * size + rank) % size]
        running = op[latest[:-1]]
        clash = same & (self.start[op[1:]] < self.end[running])
        for row in np.flatnonzero(clash).tolist():
            yield self._overlap(int(running[row]), int(op[row + 1]), int(resource[row]))

    def _overlap(self, first: int, second: int, resource: int) -> Violation:
        names = (self.problem.op_name(first), self.problem.op_name(second))
        return Violation(
            "overlap",
            f"{names[1]} starts at {self._time(self.start[second])} on "
            f"{self.problem.resource_names[resource]}, where {names[0]} runs until "
            f"{self._time(self.end[first])}",
            names,
        )

    def _points(self) -> Iterator[Violation]:
        """Report every op that runs across a point of its resource."""
        problem = self.problem
        for op in problem.points.tolist():
            for resource in problem.resources_of(op).tolist():
                users = problem.ops_by_resource[resource]
                across = users[
                    (self.start[users] < self.start[op])
                    & (self.start[op] < self.end[users])
                ]
                for crossing in across.tolist():
                    yield self._overlap(crossing, op, resource)

    def _memory(self, pool: Pool) -> Iterator[Violation]:
        unit, amounts, available = _whole_amounts(pool)
        times = np.concatenate((self.end[pool.release_op], self.start[pool.acquire_op]))
        changes = np.concatenate(
            (-amounts[pool.release_amount], amounts[pool.acquire_amount])
        )
        order = np.argsort(times, kind="stable")
        usage = np.cumsum(changes[order])
        # The uses after every moment are among these; as releases come first, none is above them.
        if available >= 0 and np.all(usage <= available):
            return
        times = times[order]
        # What counts is the use after the last of the events of a moment.
        is_last = np.append(times[1:] != times[:-1], True)[: len(times)]
        moments = times[is_last]
        # What is in use before any op must fit too: use i is that after i moments.
        usage = np.concatenate(([0], usage[is_last]))
        over = np.concatenate(
            ([False], np.asarray(usage > available, dtype=np.bool_), [False])
        )
        edges = np.diff(over.astype(np.int8))
        rises, falls = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        for rise, fall in zip(rises.tolist(), falls.tolist(), strict=True):
            top = rise + int(np.argmax(usage[rise:fall]))
            peak = pool.initial + int(usage[top]) * unit
            yield self._excess(pool, peak, moments, (rise, top, fall))

    def _excess(
        self, pool: Pool, peak: Fraction, moments: IntArray, steps: tuple[int, int, int]
    ) -> Violation:
        rise, top, fall = steps
        since = self._time(moments[rise - 1]) if rise else "the beginning"
        until = self._time(moments[fall - 1]) if fall <= len(moments) else "the end"
        when, takers = "the beginning", pool.acquire_op[:0]
        if top:
            when = self._time(moments[top - 1])
            takers = np.unique(
                pool.acquire_op[self.start[pool.acquire_op] == moments[top - 1]]
            )
        excess = f"{pool.name} {excess_text(peak, pool.capacity, pool.unit)}"
        return Violation(
            "memory",
            f"{excess} at {when} (too much from {since} to {until})",
            tuple(self.problem.op_names(takers)),
            pool.key,
            excess,
        )


def _whole_amounts(pool: Pool) -> tuple[Fraction, NDArray[Any], int]:
    """Return a unit, the pool's amounts and the available memory as whole multiples of it.

    The array holds Python ints only where sums of int64 could overflow.
    """
    unit, multiples, available = _multiples(pool.amounts, pool.capacity, pool.initial)
    events = len(pool.acquire_op) + len(pool.release_op)
    small = max(max(multiples, default=0) * events, abs(available)) < INT64_SAFE
    return unit, np.array(multiples, dtype=np.int64 if small else object), available


@lru_cache(maxsize=64)
def _multiples(
    amounts: tuple[Fraction, ...], capacity: Fraction, initial: Fraction
) -> tuple[Fraction, tuple[int, ...], int]:
    """Return a unit, amounts and available memory as its multiples.

    Pools of equal devices differ in their ops alone, and so do those of the steps of a training
    run: fractions are most of the time of a check of few ops.
    """
    denominator = math.lcm(*(amount.denominator for amount in amounts))
    multiples = [int(amount * denominator) for amount in amounts]
    divisor = math.gcd(*multiples) or 1
    unit = Fraction(divisor, denominator)
    available = math.floor((most_in_use(capacity) - initial) / unit)
    return unit, tuple(amount // divisor for amount in multiples), available
