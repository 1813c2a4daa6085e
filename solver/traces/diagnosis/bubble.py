"""Where the idle time of recorded devices comes from, by replays of what might have been."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.models.trace.table import KINDS, Trace
from ppsolve.solver.bounds.memory_time import memory_time
from ppsolve.solver.flow.flow import Paths
from ppsolve.solver.traces.clocks import op_table
from ppsolve.solver.traces.diagnosis.steps import DiagnosedStep, Variant, replayed
from ppsolve.solver.traces.diagnosis.verdict import mean_of
from ppsolve.solver.traces.fits import one_way_of
from ppsolve.solver.traces.replay import Recorded, least_span


@dataclass(frozen=True)
class Transfers:
    """Times of transfers between devices."""

    latency: int  # nanoseconds of a transfer that was not recorded
    # dict of (int, int) to int64[kinds, stages, micro-batches]: nanoseconds of those that were, by
    # step and replica; `FREE` where there is none
    recorded: dict[tuple[int, int], IntArray]

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """Take the transfers of a trace, and half of its fastest round trips for all others."""
        tables = {}
        for step, replica, part in trace.parts():
            if not np.all(part.is_compute):
                rows = op_table(part)
                tables[step, replica] = np.where(rows == FREE, FREE, part.duration[rows])
        parts = [part.where(part.is_compute) for _, _, part in trace.parts()]
        return cls(max(0, round(one_way_of(parts) or 0)), tables)

    def lags(self, one: Recorded) -> IntArray:
        """Return the nanoseconds between ops that follow one another, int64[edges]."""
        problem, device = one.problem, one.part.device[one.row]
        sender = problem.before
        away = device[sender] != device[problem.after]
        lags = np.full(len(sender), self.latency, dtype=np.int64)
        table = self.recorded.get((int(one.part.step[0]), int(one.part.replica[0])))
        if table is not None:
            is_forward = problem.kind[sender] == problem.kinds.index("F")
            way = np.where(is_forward, KINDS.index("TF"), KINDS.index("TB"))
            known = table[way, problem.stage[sender], problem.microbatch[sender]]
            lags = np.where(known == FREE, lags, known)
        return np.where(away, lags, 0)


def bubble_of(
    steps: Sequence[DiagnosedStep], variant: Variant, transfers: Transfers
) -> dict[str, float]:
    """Return the mean idle time of a device of the slowest replica of each step, in parts.

    Each part is the difference between two runs of the recorded order, the second of which lacks
    one reason to wait: as recorded; replayed with transfers; with none (transfers); every
    micro-batch as long as the mean of its stage and kind (unequal); every stage as long as the mean
    of all (imbalance); the least that any order of those takes in the memory that there is (order),
    and in any (memory); the mean work of a device (fill and drain).

    Parameters
    ----------
    steps : sequence of DiagnosedStep
        Recorded steps.
    variant : Variant
        The run as it is.
    transfers : Transfers
        Times of its transfers.

    Returns
    -------
    dict of str to float
        Nanoseconds by part, which sum to recorded span - mean work; single ones may be negative.
    """
    slowest = [max(step.parts, key=lambda one: one.span) for step in steps]
    parts = [_parts(one, variant, transfers.lags(one)) for one in slowest]
    return {name: mean_of(part[name] for part in parts) for name in parts[0]}


def _parts(one: Recorded, variant: Variant, lags: IntArray) -> dict[str, float]:
    duration = one.problem.duration
    linked, free = replayed(one, duration, lags), replayed(one, duration)
    stages = _means(duration, one.problem.kind, one.problem.stage)
    equal = replayed(one, stages)
    evened = _means(stages, one.problem.kind)
    even = replayed(one, evened)
    lengths = np.zeros_like(evened)
    lengths[one.row] = evened
    part = replace(one.part, start=np.zeros_like(lengths), end=lengths)
    least = least_span(part)
    (flow,) = variant.flows(DiagnosedStep(0, (0,), (Recorded.of(part, "ns"),)), is_free=False)
    roomy = max(least, memory_time(Paths(flow)))
    work = float(duration.sum()) / one.instance.num_devices
    return {
        "fill and drain": least - work,
        "imbalance": equal - even,
        "unequal": free - equal,
        "memory": roomy - least,
        "order": even - roomy,
        "transfers": linked - free,
        "unexplained": one.span - linked,
    }


def _means(duration: IntArray, *keys: IntArray) -> IntArray:
    """Return durations with the mean of all ops with the same keys in place of each."""
    _, group = np.unique(np.stack(keys), axis=1, return_inverse=True)
    group = group.ravel()
    means = np.bincount(group, weights=duration) / np.bincount(group)
    return np.rint(means[group]).astype(np.int64)
