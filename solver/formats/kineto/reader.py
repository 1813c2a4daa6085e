"""The traces of all ranks of a run: which device and replica each is, on one clock."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.documents.errors import (
    ErrorCode,
    InputError,
    errors_about,
    errors_in,
)
from ppsolve.models.studies.trace.table import COLUMNS, KINDS, Notes, Trace
from ppsolve.solver.formats.kineto.calls import number_calls, schedule_of
from ppsolve.solver.formats.kineto.events import (
    Intervals,
    OpRange,
    RankEvents,
    read_rank,
)
from ppsolve.solver.kinds.pipeline.actions import Order


def read_kineto(paths: Sequence[str | Path], chunks: int | None = None) -> Trace:
    """Read the profiler traces of a run, one file per rank, plain or gzipped, streaming.

    Ops are ranges ``PP:<stage><F|B|I|W><micro-batch>``, or calls of Megatron-LM by the order of
    its schedules; the step is that of ``ProfilerStep#`` around them. Ranks with the same stages are
    replicas of each other, by rising rank. Clocks are aligned by ``baseTimeNanoseconds``. Raises
    `InputError` where a file is damaged or another's rank, or only some files have a base time;
    names the file.
    """
    ranks = [_read(path) for path in paths]
    _refuse_same_rank(ranks)
    _refuse_missing_ranks(ranks)
    without = [rank.source for rank in ranks if rank.base is None]
    if 0 < len(without) < len(ranks):
        text = (
            "expected a base time as in the other files, so that clocks can be aligned"
        )
        raise InputError(
            text,
            source=without[0],
            field="baseTimeNanoseconds",
            code=ErrorCode.CONFLICT,
        )
    ranks, warnings = _with_places_of_calls(ranks, chunks)
    coordinates = _places(ranks)
    rows: list[tuple[int, ...]] = []
    for origin, (rank, (replica, device)) in enumerate(
        zip(ranks, coordinates, strict=True)
    ):
        base = rank.base or 0
        for op in rank.ops:
            chunk, kind = rank.stages.index(op.stage), KINDS.index(op.kind)
            names = op.step, replica, op.stage, chunk, kind, op.microbatch
            worked = op.start if op.worked_from is None else op.worked_from
            rows.append(
                (*names, op.start + base, op.end + base, device, origin, worked + base)
            )
    table = np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS) + 2).T
    warnings += [text for rank in ranks for text in rank.warnings]
    if ranks[0].world is not None and ranks[0].world > len(ranks):
        warnings.append(
            f"{len(ranks)} of the {ranks[0].world} ranks are given; they are taken for whole "
            "replicas of the pipeline"
        )
    trace = Trace.of(
        dict(zip((*COLUMNS, "origin"), table, strict=False)),
        unit="us",
        sources=tuple(rank.source for rank in ranks),
        format="kineto",
        notes=Notes(
            {rank.title: rank.share for rank in ranks if rank.share is not None},
            tuple(warnings),
        ),
    )
    return _zeroed(_without_waits(trace, table[-1]))


@dataclass(frozen=True)
class _Op:
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


@dataclass(frozen=True)
class _Rank:
    source: str
    rank: int | None
    world: int | None
    base: int | None
    beside: dict[int, str]
    ops: list[_Op]
    share: float | None
    warnings: list[str]
    is_called: bool  # its ops are calls: stages and micro-batches are not known yet
    pipeline: int | None  # ranks of its pipeline, if the file says so

    @cached_property
    def stages(self) -> tuple[int, ...]:
        return tuple(sorted({op.stage for op in self.ops}))

    @property
    def title(self) -> str:
        return self.source if self.rank is None else f"rank {self.rank}"


def _read(path: str | Path) -> _Rank:
    events = read_rank(path)
    is_called = not events.ranges
    with errors_in(events.source):
        if is_called:
            number_calls(events)
        ops, warnings = _ops_of(events)
    share = _unexplained_share(events, ops)
    if share is None:
        warnings.append(
            f"{events.source}: no kernels or ops beside the ranges, so that nothing says how much "
            "work they leave out"
        )
    about = events.rank, events.world, events.base, events.beside
    return _Rank(
        events.source, *about, ops, share, warnings, is_called, events.pipeline
    )


def _with_places_of_calls(
    ranks: list[_Rank], chunks: int | None
) -> tuple[list[_Rank], list[str]]:
    """Give calls the stages and micro-batches of the schedule in which they come, and say which."""
    named = next((rank.source for rank in ranks if not rank.is_called), None)
    if all(not rank.is_called for rank in ranks):
        return ranks, []
    if named is not None:
        source = next(rank.source for rank in ranks if rank.is_called)
        raise InputError(
            f"expected named ranges as in {named}",
            source=source,
            code=ErrorCode.MISSING,
        )
    ranks = sorted(ranks, key=lambda rank: rank.rank or 0)
    placed: list[list[_Op]] = [[] for _ in ranks]
    names: dict[str, None] = {}
    for step in sorted({op.step for rank in ranks for op in rank.ops}):
        calls = [[op for op in rank.ops if op.step == step] for rank in ranks]
        letters = ("".join(op.kind for op in row) for row in calls)
        by_file = dict(zip((rank.source for rank in ranks), letters, strict=True))
        with errors_about(f"step {step}"):
            schedule = schedule_of(by_file, ranks[0].pipeline, chunks)
        names[schedule.name] = None
        for row, order, ops in zip(calls, schedule.orders, placed, strict=True):
            ops += _at(order, row)
    text = "; ".join(names)
    return [replace(rank, ops=ops) for rank, ops in zip(ranks, placed, strict=True)], [
        "forward_step and backward_step say no micro-batch; the k-th call of a rank is taken for "
        f"the k-th op of its order in Megatron's {text}"
    ]


def _at(order: Order, calls: Sequence[_Op]) -> list[_Op]:
    rows = zip(calls, order.stage.tolist(), order.microbatch.tolist(), strict=True)
    return [replace(op, stage=stage, microbatch=number) for op, stage, number in rows]


def _refuse_same_rank(ranks: Sequence[_Rank]) -> None:
    first: dict[int, str] = {}
    for rank in ranks:
        if rank.rank is None and len(ranks) > 1:
            text = "expected the rank of the process, there is none"
            raise InputError(
                text,
                source=rank.source,
                field="distributedInfo.rank",
                code=ErrorCode.MISSING,
            )
        if rank.rank in first:
            text = (
                f"rank {rank.rank} is also in {first[rank.rank]}; are two runs mixed?"
            )
            raise InputError(text, source=rank.source, field="distributedInfo.rank")
        if rank.rank is not None:
            first[rank.rank] = rank.source


def _refuse_missing_ranks(ranks: Sequence[_Rank]) -> None:
    """Refuse files that cannot be all stages: without the last one the others look whole."""
    there = {stage for rank in ranks for stage in rank.stages}
    for rank in ranks:
        absent = next(
            (stage for stage in sorted(rank.beside) if stage not in there), None
        )
        if absent is not None:
            raise InputError(
                f"is a transfer with stage {absent}, of which no op is given: is the file of its "
                "rank missing?",
                source=rank.source,
                field=rank.beside[absent],
            )
        if rank.world is not None and (
            rank.world < len(ranks) or rank.world % len(ranks)
        ):
            raise InputError(
                f"the run has {rank.world} ranks, {len(ranks)} files are given: are files missing, "
                "or two runs mixed?",
                source=rank.source,
                field="distributedInfo.world_size",
            )


def _places(ranks: Sequence[_Rank]) -> list[tuple[int, int]]:
    """Return replica and device of each file: devices count by their first stage."""
    groups = sorted({rank.stages for rank in ranks})
    seen: Counter[tuple[int, ...]] = Counter()
    coordinates = [(0, 0)] * len(ranks)
    for number in sorted(range(len(ranks)), key=lambda number: ranks[number].rank or 0):
        stages = ranks[number].stages
        coordinates[number] = (seen[stages], groups.index(stages))
        seen[stages] += 1
    return coordinates


def _without_waits(trace: Trace, worked_from: IntArray) -> Trace:
    """Let ops whose range was open before their input was made begin with their computation.

    torch.distributed.pipelining waits for a receive inside the range of the op that needs it.
    """
    names = ("step", "replica", "kind", "stage", "microbatch")
    keys = list(zip(*(getattr(trace, name).tolist() for name in names), strict=True))
    end_of = dict(zip(keys, trace.end.tolist(), strict=True))
    start, count = trace.start.copy(), 0
    for row, (step, replica, kind, stage, microbatch) in enumerate(keys):
        before = {"F": stage - 1, "B": stage + 1, "I": stage + 1}.get(KINDS[kind])
        arrival = (
            None
            if before is None
            else end_of.get((step, replica, kind, before, microbatch))
        )
        if arrival is not None and start[row] < arrival <= trace.end[row]:
            start[row] = max(arrival, int(worked_from[row]))
            count += 1
    if not count:
        return trace
    text = (
        f"{count} of {len(trace)} ops waited for a receive inside their range; they count from "
        "their first computation after it"
    )
    return replace(trace, start=start).warn(text)


def _zeroed(trace: Trace) -> Trace:
    """Return the trace with time 0 at the first start of every step."""
    steps, number = np.unique(trace.step, return_inverse=True)
    zero = np.full(len(steps), np.iinfo(np.int64).max)
    np.minimum.at(zero, number, trace.start)
    return replace(
        trace, start=trace.start - zero[number], end=trace.end - zero[number]
    )


def _ops_of(events: RankEvents) -> tuple[list[_Op], list[str]]:
    """Return the ops of a rank and warnings about how they were found.

    An op runs on the GPU from the first to the last of its kernels: those under the GPU's own
    range, and those that were launched, by whatever thread, while its range on the CPU was open
    (autograd launches backwards from a thread of its own). Without either it is the range on the
    CPU.
    """
    cpu = sorted(op for op in events.ranges if not op.is_gpu)
    ranges = cpu or _merged(events)
    numbered, warnings = _numbered(ranges, events, is_gpu=not cpu)
    on_gpu = _on_gpu(ranges, events) if cpu else {}
    ops, started = [], np.sort(_array(events.work.start))
    for number, (step, op) in enumerate(zip(numbered, ranges, strict=True)):
        if step is None:
            continue
        start, end = on_gpu.get(number, (op.start, op.end))
        first = None
        if cpu and number not in on_gpu:
            within = started[np.searchsorted(started, op.start) :][:1]
            first = int(within[0]) if len(within) and within[0] <= op.end else None
        ops.append(_Op(step, op.stage, op.kind, op.microbatch, start, end, first))
    if 0 < len(on_gpu) < len(ranges):
        count = len(ranges) - len(on_gpu)
        warnings.append(
            f"{events.source}: {count} of {len(ranges)} ops have no kernels, their times are those "
            "of the CPU"
        )
    return ops, warnings


def _unexplained_share(events: RankEvents, ops: Sequence[_Op]) -> float | None:
    """Return the share of its working time that a rank spends outside all ops, None without work.

    Work are kernels, or ops on the CPU where there are no kernels.
    """
    begin, end = _union(events.kernels if len(events.kernels.start) else events.work)
    total = int((end - begin).sum())
    if not total:
        return None
    before = np.concatenate([[0], np.cumsum(end - begin)])

    def covered(moment: int) -> int:
        index = int(np.searchsorted(begin, moment))
        return int(before[index]) - (
            max(0, int(end[index - 1]) - moment) if index else 0
        )

    inside = sum(covered(op.end) - covered(op.start) for op in ops)
    return max(0.0, 1 - inside / total)


def _array(numbers: array[int]) -> IntArray:
    return np.frombuffer(numbers, dtype=np.int64)


def _union(intervals: Intervals) -> tuple[IntArray, IntArray]:
    begin, end = _array(intervals.start), _array(intervals.end)
    if not len(begin):
        return begin, end
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    cut = np.flatnonzero(begin[1:] > end[:-1]) + 1
    return begin[np.concatenate([[0], cut])], end[
        np.concatenate([cut - 1, [len(end) - 1]])
    ]


def _merged(events: RankEvents) -> list[OpRange]:
    """Return ranges of the GPU sorted; one op has a range on each stream that it uses.

    Streams that only communicate do not count.
    """
    merged: list[OpRange] = []
    last: dict[str, int] = {}
    silent = events.waiting - events.busy
    for op in sorted(
        op for op in events.ranges if op.is_gpu and op.thread not in silent
    ):
        index = last.get(op.name)
        if (
            index is not None
            and merged[index].thread != op.thread
            and op.start <= merged[index].end
        ):
            merged[index] = replace(merged[index], end=max(merged[index].end, op.end))
        else:
            last[op.name] = len(merged)
            merged.append(op)
    return merged


def _numbered(
    ranges: Sequence[OpRange], events: RankEvents, *, is_gpu: bool
) -> tuple[list[int | None], list[str]]:
    """Return the step of each range: the profiled step around it, or its count of occurrences."""
    steps = sorted(step for step in events.steps if step[3] == is_gpu) or sorted(
        events.steps
    )
    if not steps:
        return [*_counted(ranges)], []
    begins = np.array([step[0] for step in steps])
    numbers: list[int | None] = []
    for op in ranges:
        index = int(np.searchsorted(begins, op.start, side="right")) - 1
        numbers.append(
            steps[index][2] if index >= 0 and op.start <= steps[index][1] else None
        )
    _refuse_twice(ranges, numbers)
    outside = numbers.count(None)
    if outside == len(ranges):
        raise InputError(
            "expected the ranges of ops inside profiled steps (ProfilerStep#), none is"
        )
    text = f"{events.source}: {outside} ranges lie outside all profiled steps and are left out"
    return numbers, [text] if outside else []


def _refuse_twice(ranges: Sequence[OpRange], steps: Sequence[int | None]) -> None:
    keys = [
        (step, op.name)
        for step, op in zip(steps, ranges, strict=True)
        if step is not None
    ]
    for (step, name), count in Counter(keys).items():
        if count > 1:
            text = f"is there {count} times in step {step}; expected each op once"
            raise InputError(text, field=name)


def _counted(ranges: Sequence[OpRange]) -> list[int]:
    times = Counter(op.name for op in ranges)
    usual = Counter(times.values()).most_common(1)[0][0]
    for name, count in times.items():
        if count != usual:
            text = (
                f"is there {count} times, other ops {usual} times; expected each op once in "
                "a step"
            )
            raise InputError(text, field=name)
    return [number for _, number in _occurrences(ranges)]


def _occurrences(ranges: Sequence[OpRange]) -> list[tuple[str, int]]:
    """Return the name of each range, and how many of that name come before it."""
    seen: Counter[str] = Counter()
    keys = []
    for op in ranges:
        keys.append((op.name, seen[op.name]))
        seen[op.name] += 1
    return keys


def _on_gpu(
    ranges: Sequence[OpRange], events: RankEvents
) -> dict[int, tuple[int, int]]:
    """Return the first and last moment on the GPU of the CPU ranges that have any, by number."""
    moments: dict[int, tuple[int, int]] = {}

    def widen(number: int, start: int, end: int) -> None:
        before = moments.get(number, (start, end))
        moments[number] = (min(before[0], start), max(before[1], end))

    for number, start, end in _launched(ranges, events):
        widen(number, start, end)
    # The k-th range of a name on the GPU belongs to the k-th on the CPU.
    numbers = {key: number for number, key in enumerate(_occurrences(ranges))}
    on_gpu = _merged(events)
    for op, key in zip(on_gpu, _occurrences(on_gpu), strict=True):
        if key in numbers:
            widen(numbers[key], op.start, op.end)
    return moments


def _launched(
    ranges: Sequence[OpRange], events: RankEvents
) -> list[tuple[int, int, int]]:
    """Return number of the range, start and end of every kernel launched within a range."""
    begins = np.array([op.start for op in ranges], dtype=np.int64)
    ends = np.array([op.end for op in ranges], dtype=np.int64)
    moments = np.array(
        [events.launches.get(number, -(2**62)) for number in events.correlation],
        dtype=np.int64,
    )
    if not len(moments):
        return []
    index = np.searchsorted(begins, moments, side="right") - 1
    inside = (index >= 0) & (moments <= ends[index])
    start, end = (
        _array(column)[inside] for column in (events.kernels.start, events.kernels.end)
    )
    return list(zip(index[inside].tolist(), start.tolist(), end.tolist(), strict=True))
