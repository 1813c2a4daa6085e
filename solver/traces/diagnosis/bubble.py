"""Where the idle time of recorded devices comes from, by replays of what might have been."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.trace.table import Trace
from ppsolve.solver.structure.timing import time_orders
from ppsolve.solver.traces.diagnosis.steps import Step
from ppsolve.solver.traces.diagnosis.verdict import mean_of
from ppsolve.solver.traces.replay import Recorded, least_span

PARTS = ("fill and drain", "imbalance", "unequal", "memory", "transfers", "unexplained")
"""Parts of a bubble; they sum to it."""


def bubble_of(steps: Sequence[Step], latency: int) -> dict[str, float]:
    """Return the mean idle time of a device of the slowest replica of each step, in parts.

    Each part is the difference between two runs of the recorded order, the second of which lacks
    one reason to wait: as recorded; replayed with transfers; with none (transfers); every
    micro-batch as long as the mean of its stage and kind (unequal); every stage as long as the mean
    of all (imbalance); the least that any order of those takes (memory: what an order that holds
    fewer micro-batches waits for); the mean work of a device (fill and drain).

    Parameters
    ----------
    steps : sequence of Step
        Recorded steps.
    latency : int
        Nanoseconds of a transfer between two devices.

    Returns
    -------
    dict of str to float
        Nanoseconds by part, which sum to recorded span - mean work; single ones may be negative.
    """
    slowest = [max(step.parts, key=lambda one: one.span) for step in steps]
    parts = [_parts(one, latency) for one in slowest]
    return {name: mean_of(part[name] for part in parts) for name in PARTS}


def _parts(one: Recorded, latency: int) -> dict[str, float]:
    duration = one.problem.duration
    linked = replayed(one, duration, latency)
    free = replayed(one, duration)
    stages = _means(duration, one.problem.kind, one.problem.stage)
    equal = replayed(one, stages)
    evened = _means(stages, one.problem.kind)
    even = replayed(one, evened)
    least = least_span(_with_durations(one, evened))
    work = float(duration.sum()) / one.instance.num_devices
    return {
        "fill and drain": least - work,
        "imbalance": equal - even,
        "unequal": free - equal,
        "memory": even - least,
        "transfers": linked - free,
        "unexplained": one.span - linked,
    }


def replayed(one: Recorded, duration: IntArray, latency: int = 0) -> int:
    """Return the makespan of the recorded order with other durations.

    Parameters
    ----------
    one : Recorded
        A replica-step in nanoseconds, n ops.
    duration : int64[n]
        Nanoseconds of each op.
    latency : int
        Nanoseconds between ops on different devices that follow one another.

    Returns
    -------
    int
        Nanoseconds.
    """
    problem, device = one.problem, one.part.device[one.row]
    away = device[problem.before] != device[problem.after]
    changed = replace(problem, duration=duration, lag=problem.lag + latency * away)
    return time_orders(changed, one.orders).makespan


def _means(duration: IntArray, *keys: IntArray) -> IntArray:
    """Return durations with the mean of all ops with the same keys in place of each."""
    _, group = np.unique(np.stack(keys), axis=1, return_inverse=True)
    group = group.ravel()
    means = np.bincount(group, weights=duration) / np.bincount(group)
    return np.rint(means[group]).astype(np.int64)


def _with_durations(one: Recorded, duration: IntArray) -> Trace:
    lengths = np.zeros_like(duration)
    lengths[one.row] = duration
    return replace(one.part, start=np.zeros_like(lengths), end=lengths)
