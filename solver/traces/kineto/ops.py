"""From the events of a rank to its ops: steps, moments of work, and time that no op explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.traces.kineto.events import Intervals, OpRange, RankEvents


@dataclass(frozen=True)
class Op:
    """An op of a rank; moments in nanoseconds on the clock of its file.

    `worked_from` is the start of the first computation in a range on the CPU, which may begin with
    waiting; None where the ops in the range were not recorded.
    """

    step: int
    stage: int
    kind: str
    microbatch: int
    start: int
    end: int
    worked_from: int | None = None


def ops_of(events: RankEvents) -> tuple[list[Op], list[str]]:
    """Return the ops of a rank and warnings about how they were found.

    An op runs on the GPU from the first to the last of its kernels: those under the GPU's own
    range, and those that were launched, by whatever thread, while its range on the CPU was open
    (autograd launches backwards from a thread of its own). Without either it is the range on the
    CPU.

    Raises
    ------
    InputError
        An op is recorded more often than others of the rank, or twice in a profiled step.
    """
    cpu = sorted(one for one in events.ranges if not one.is_gpu)
    ranges = cpu or _merged(_working(events))
    numbered, warnings = _numbered(ranges, events, is_gpu=not cpu)
    on_gpu = _on_gpu(ranges, events) if cpu else {}
    ops, started = [], _sorted_work(events.work)
    for number, (step, one) in enumerate(zip(numbered, ranges, strict=True)):
        if step is None:
            continue
        start, end = on_gpu.get(number, (one.start, one.end))
        first = None if number in on_gpu or not cpu else _first_within(started, one)
        ops.append(Op(step, one.stage, one.kind, one.microbatch, start, end, first))
    if 0 < len(on_gpu) < len(ranges):
        count = len(ranges) - len(on_gpu)
        warnings.append(
            f"{events.source}: {count} of {len(ranges)} ops have no kernels, their times are those "
            "of the CPU"
        )
    return ops, warnings


def unexplained_share(events: RankEvents, ops: Sequence[Op]) -> float | None:
    """Return the share of its working time that a rank spends outside all ops.

    Parameters
    ----------
    events : RankEvents
        Kernels, or ops on the CPU where there are no kernels: what counts as work.
    ops : sequence of Op
        The ops found.

    Returns
    -------
    float or None
        0 to 1; None where no work was recorded.
    """
    begin, end = _union(events.kernels if len(events.kernels.start) else events.work)
    total = int((end - begin).sum())
    if not total:
        return None
    before = np.concatenate([[0], np.cumsum(end - begin)])

    def covered(moment: int) -> int:
        at = int(np.searchsorted(begin, moment))
        return int(before[at]) - (max(0, int(end[at - 1]) - moment) if at else 0)

    inside = sum(covered(op.end) - covered(op.start) for op in ops)
    return max(0.0, 1 - inside / total)


def _union(intervals: Intervals) -> tuple[IntArray, IntArray]:
    begin = np.frombuffer(intervals.start, dtype=np.int64)
    end = np.frombuffer(intervals.end, dtype=np.int64)
    if not len(begin):
        return begin, end
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    cut = np.flatnonzero(begin[1:] > end[:-1]) + 1
    return begin[np.concatenate([[0], cut])], end[np.concatenate([cut - 1, [len(end) - 1]])]


def _working(events: RankEvents) -> list[OpRange]:
    """Return the ranges on the GPU, without those on streams that only communicate."""
    silent = events.waiting - events.busy
    return [one for one in events.ranges if one.is_gpu and one.thread not in silent]


def _merged(ranges: Sequence[OpRange]) -> list[OpRange]:
    """Return ranges of the GPU sorted; one op has a range on each stream that it uses."""
    merged: list[OpRange] = []
    last: dict[str, int] = {}
    for one in sorted(ranges):
        at = last.get(one.name)
        if at is not None and merged[at].thread != one.thread and one.start <= merged[at].end:
            merged[at] = replace(merged[at], end=max(merged[at].end, one.end))
        else:
            last[one.name] = len(merged)
            merged.append(one)
    return merged


def _numbered(
    ranges: Sequence[OpRange], events: RankEvents, *, is_gpu: bool
) -> tuple[list[int | None], list[str]]:
    """Return the step of each range: the profiled step around it, or its count of occurrences."""
    steps = sorted(step for step in events.steps if step[3] == is_gpu) or sorted(events.steps)
    if not steps:
        return [*_counted(ranges, events.source)], []
    begins = np.array([step[0] for step in steps])
    found: list[int | None] = []
    for one in ranges:
        at = int(np.searchsorted(begins, one.start, side="right")) - 1
        found.append(steps[at][2] if at >= 0 and one.start <= steps[at][1] else None)
    _refuse_twice(ranges, found, events.source)
    outside = found.count(None)
    if outside == len(ranges):
        raise InputError(
            "expected the ranges of ops inside profiled steps (ProfilerStep#), none is",
            source=events.source,
        )
    text = f"{events.source}: {outside} ranges lie outside all profiled steps and are left out"
    return found, [text] if outside else []


def _refuse_twice(ranges: Sequence[OpRange], steps: Sequence[int | None], source: str) -> None:
    keys = [(step, one.name) for step, one in zip(steps, ranges, strict=True) if step is not None]
    for (step, name), count in Counter(keys).items():
        if count > 1:
            raise InputError(
                f"is there {count} times in step {step}; expected each op once",
                source=source,
                field=name,
            )


def _counted(ranges: Sequence[OpRange], source: str) -> list[int]:
    times = Counter(one.name for one in ranges)
    usual = Counter(times.values()).most_common(1)[0][0]
    for name, count in times.items():
        if count != usual:
            raise InputError(
                f"is there {count} times, other ops {usual} times; expected each op once in a step",
                source=source,
                field=name,
            )
    seen: Counter[str] = Counter()
    numbers = []
    for one in ranges:
        numbers.append(seen[one.name])
        seen[one.name] += 1
    return numbers


def _on_gpu(ranges: Sequence[OpRange], events: RankEvents) -> dict[int, tuple[int, int]]:
    """Return the first and last moment on the GPU of the CPU ranges that have any, by number."""
    found: dict[int, tuple[int, int]] = {}

    def widen(number: int, start: int, end: int) -> None:
        before = found.get(number, (start, end))
        found[number] = (min(before[0], start), max(before[1], end))

    for number, start, end in _launched(ranges, events):
        widen(number, start, end)
    places: dict[str, list[int]] = {}
    for number, one in enumerate(ranges):
        places.setdefault(one.name, []).append(number)
    seen: Counter[str] = Counter()
    for one in _merged(_working(events)):
        # The k-th range of a name on the GPU belongs to the k-th on the CPU.
        here = places.get(one.name, [])
        if seen[one.name] < len(here):
            widen(here[seen[one.name]], one.start, one.end)
        seen[one.name] += 1
    return found


def _launched(ranges: Sequence[OpRange], events: RankEvents) -> list[tuple[int, int, int]]:
    """Return number of the range, start and end of every kernel launched within a range."""
    begins = np.array([one.start for one in ranges], dtype=np.int64)
    ends = np.array([one.end for one in ranges], dtype=np.int64)
    moments = np.array(
        [events.launches.get(number, -(2**62)) for number in events.correlation], dtype=np.int64
    )
    if not len(moments):
        return []
    at = np.searchsorted(begins, moments, side="right") - 1
    inside = (at >= 0) & (moments <= ends[at])
    start = np.frombuffer(events.kernels.start, dtype=np.int64)[inside]
    end = np.frombuffer(events.kernels.end, dtype=np.int64)[inside]
    return list(zip(at[inside].tolist(), start.tolist(), end.tolist(), strict=True))


def _sorted_work(work: Intervals) -> IntArray:
    return np.sort(np.frombuffer(work.start, dtype=np.int64))


def _first_within(started: IntArray, one: OpRange) -> int | None:
    at = int(np.searchsorted(started, one.start))
    return int(started[at]) if at < len(started) and started[at] <= one.end else None
