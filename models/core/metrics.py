"""Figures of a schedule: bubbles and memory use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from ppsolve.models.core.problem import IntArray, Objective, Pool
from ppsolve.models.core.schedule import Schedule


@dataclass(frozen=True)
class Metrics:
    """Figures of one schedule."""

    bubble_ratio: float  # idle share of makespan x devices
    span_bubble_ratio: float  # idle share of device span x devices
    bubble_over_compute: float  # idle time over compute time within the makespan
    peak_memory: tuple[Fraction, ...]  # highest use of each pool

    def bubble_of(self, objective: Objective) -> float:
        """Return the bubble ratio of the device span if that is minimised, else of the makespan."""
        is_span = objective is Objective.DEVICE_SPAN
        return self.span_bubble_ratio if is_span else self.bubble_ratio


def measure(schedule: Schedule) -> Metrics:
    """Return the figures of a schedule; memory in the pools' unit."""
    problem, devices = schedule.problem, len(schedule.problem.span_resources)
    computes = (
        problem.ops_by_resource[int(resource)] for resource in problem.span_resources
    )
    work = sum(int(problem.duration[ops].sum()) for ops in computes)
    total = schedule.makespan * devices
    return Metrics(
        bubble_ratio=_idle_share(work, total),
        span_bubble_ratio=_idle_share(work, schedule.device_span * devices),
        bubble_over_compute=(total - work) / work if work else 0.0,
        peak_memory=tuple(peak_usage(schedule, pool)[0] for pool in problem.pools),
    )


def _idle_share(work: int, total: int) -> float:
    return (total - work) / total if total else 0.0


def peak_usage(schedule: Schedule, pool: Pool) -> tuple[Fraction, int]:
    """Return the highest amount of a pool in use and the first tick at which it is reached."""
    unit, times, held = _changes(schedule, pool)
    top = int(np.argmax(held)) if len(held) else 0
    if not len(held) or held[top] < 0:
        return pool.initial, 0
    return pool.initial + int(held[top]) * unit, int(times[top])


def usage(schedule: Schedule, pool: Pool) -> list[tuple[int, Fraction]]:
    """Return the use of a pool over time: ticks, the first at most 0, and amounts from then on."""
    unit, times, held = _changes(schedule, pool)
    # Few levels repeat; arithmetic of fractions takes long.
    levels = {level: pool.initial + level * unit for level in set(held.tolist())}
    changes = zip(times.tolist(), held.tolist(), strict=True)
    steps = [(tick, levels[level]) for tick, level in changes]
    return steps if steps and steps[0][0] <= 0 else [(0, pool.initial), *steps]


def _changes(schedule: Schedule, pool: Pool) -> tuple[Fraction, IntArray, IntArray]:
    """Return a unit of amounts, the ticks at which the use changes, and the use above the first."""
    unit, amounts = _common_unit(pool)
    times = np.concatenate(
        (schedule.end[pool.release_op], schedule.start[pool.acquire_op])
    )
    changes = np.concatenate(
        (-amounts[pool.release_amount], amounts[pool.acquire_amount])
    )
    if not len(times):
        return unit, times, changes
    order = np.argsort(times, kind="stable")
    times = times[order]
    last = np.append(np.flatnonzero(times[1:] != times[:-1]), len(times) - 1)
    return unit, times[last], np.cumsum(changes[order])[last]


def _common_unit(pool: Pool) -> tuple[Fraction, IntArray]:
    """Return a unit and the pool's amounts as multiples of it; Python ints where int64 is short."""
    denominator, multiples = _multiples(pool.amounts)
    events = len(pool.acquire_op) + len(pool.release_op)
    # Below 2**62 no sum of all events wraps around in int64.
    small = max(multiples, default=0) * max(events, 1) < 2**62
    return Fraction(1, denominator), np.array(
        multiples, dtype=np.int64 if small else object
    )


@lru_cache(maxsize=64)
def _multiples(amounts: tuple[Fraction, ...]) -> tuple[int, tuple[int, ...]]:
    """Return the units in 1 and the amounts in units; pools of equal devices have the same ones."""
    denominator = math.lcm(*(amount.denominator for amount in amounts))
    return denominator, tuple(int(amount * denominator) for amount in amounts)
