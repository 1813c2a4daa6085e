"""The traces of all ranks of a run: which device and replica each is, on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.documents.errors import InputError
from ppsolve.models.trace.table import COLUMNS, KINDS, Notes, Trace
from ppsolve.solver.traces.kineto.events import RankEvents, read_rank
from ppsolve.solver.traces.kineto.ops import Op, ops_of, unexplained_share


def read_kineto(paths: Sequence[str | Path]) -> Trace:
    """Read the profiler traces of a run, one file per rank, plain or gzipped, streaming.

    Ops are ranges ``PP:<stage><F|B|I|W><micro-batch>``; the step is that of ``ProfilerStep#``
    around them. Ranks with the same stages are replicas of each other, by rising rank. Clocks are
    aligned by ``baseTimeNanoseconds``.

    Raises
    ------
    InputError
        A file is damaged or another's rank, or only some files have a base time; names the file.
    """
    ranks = [_read(path) for path in paths]
    _refuse_same_rank(ranks)
    _refuse_missing_ranks(ranks)
    bases = _bases(ranks)
    places = _places(ranks)
    columns: dict[str, list[int]] = {name: [] for name in (*COLUMNS, "origin")}
    worked: list[int] = []
    for origin, rank in enumerate(ranks):
        replica, device = places[origin]
        chunks = {stage: number for number, stage in enumerate(rank.stages)}
        for op in rank.ops:
            row = (
                op.step,
                replica,
                op.stage,
                chunks[op.stage],
                KINDS.index(op.kind),
                op.microbatch,
                op.start + bases[origin],
                op.end + bases[origin],
                device,
                origin,
            )
            for name, value in zip((*COLUMNS, "origin"), row, strict=True):
                columns[name].append(value)
            worked.append((op.start if op.worked_from is None else op.worked_from) + bases[origin])
    warnings = [text for rank in ranks for text in rank.warnings]
    if ranks[0].world is not None and ranks[0].world > len(ranks):
        warnings.append(
            f"{len(ranks)} of the {ranks[0].world} ranks are given; they are taken for whole "
            "replicas of the pipeline"
        )
    trace = Trace.of(
        columns,
        unit="us",
        sources=[rank.source for rank in ranks],
        format="kineto",
        notes=Notes(_unexplained(ranks), tuple(warnings)),
    )
    return _zeroed(_without_waits(trace, np.array(worked, dtype=np.int64)))


@dataclass(frozen=True)
class _Rank:
    """What is kept of one file."""

    source: str
    rank: int | None
    world: int | None
    base: int | None
    beside: dict[int, str]
    ops: list[Op]
    share: float | None
    warnings: list[str]

    @property
    def stages(self) -> tuple[int, ...]:
        return tuple(sorted({op.stage for op in self.ops}))


def _read(path: str | Path) -> _Rank:
    events: RankEvents = read_rank(path)
    ops, warnings = ops_of(events)
    share = unexplained_share(events, ops)
    if share is None:
        warnings.append(
            f"{events.source}: no kernels or ops beside the ranges, so that nothing says how much "
            "work they leave out"
        )
    return _Rank(
        events.source, events.rank, events.world, events.base, events.beside, ops, share, warnings
    )


def _refuse_same_rank(ranks: Sequence[_Rank]) -> None:
    first: dict[int, str] = {}
    for one in ranks:
        if one.rank is None:
            if len(ranks) > 1:
                raise InputError(
                    "expected the rank of the process, there is none",
                    source=one.source,
                    field="distributedInfo.rank",
                )
            continue
        if one.rank in first:
            raise InputError(
                f"rank {one.rank} is also in {first[one.rank]}; are two runs mixed?",
                source=one.source,
                field="distributedInfo.rank",
            )
        first[one.rank] = one.source


def _refuse_missing_ranks(ranks: Sequence[_Rank]) -> None:
    """Refuse files that cannot be all stages: without the last one the others look whole."""
    there = {stage for one in ranks for stage in one.stages}
    for one in ranks:
        absent = next((stage for stage in sorted(one.beside) if stage not in there), None)
        if absent is not None:
            raise InputError(
                f"is a transfer with stage {absent}, of which no op is given: is the file of its "
                "rank missing?",
                source=one.source,
                field=one.beside[absent],
            )
        if one.world is not None and (one.world < len(ranks) or one.world % len(ranks)):
            raise InputError(
                f"the run has {one.world} ranks, {len(ranks)} files are given: are files missing, "
                "or two runs mixed?",
                source=one.source,
                field="distributedInfo.world_size",
            )


def _bases(ranks: Sequence[_Rank]) -> list[int]:
    given = [one.base is not None for one in ranks]
    if any(given) and not all(given):
        source = ranks[given.index(False)].source
        raise InputError(
            "expected a base time as in the other files, so that clocks can be aligned",
            source=source,
            field="baseTimeNanoseconds",
        )
    return [one.base or 0 for one in ranks]


def _places(ranks: Sequence[_Rank]) -> list[tuple[int, int]]:
    """Return replica and device of each file: devices count by their first stage."""
    groups = sorted({one.stages for one in ranks})
    by_rank = sorted(range(len(ranks)), key=lambda number: ranks[number].rank or 0)
    seen: dict[tuple[int, ...], int] = {}
    places = [(0, 0)] * len(ranks)
    for number in by_rank:
        stages = ranks[number].stages
        places[number] = (seen.get(stages, 0), groups.index(stages))
        seen[stages] = seen.get(stages, 0) + 1
    return places


def _unexplained(ranks: Sequence[_Rank]) -> dict[str, float]:
    return {
        one.source if one.rank is None else f"rank {one.rank}": one.share
        for one in ranks
        if one.share is not None
    }


def _without_waits(trace: Trace, worked_from: IntArray) -> Trace:
    """Let ops whose range was open before their input was made begin with their computation.

    torch.distributed.pipelining waits for a receive inside the range of the op that needs it.
    """
    ends = {
        (step, replica, KINDS[kind], stage, microbatch): end
        for step, replica, kind, stage, microbatch, end in zip(
            *(
                getattr(trace, name).tolist()
                for name in ("step", "replica", "kind", "stage", "microbatch", "end")
            ),
            strict=True,
        )
    }
    start, count = trace.start.copy(), 0
    for row, key in enumerate(ends):
        step, replica, kind, stage, microbatch = key
        before = {"F": stage - 1, "B": stage + 1, "I": stage + 1}.get(kind)
        made = None if before is None else ends.get((step, replica, kind, before, microbatch))
        if made is not None and start[row] < made <= trace.end[row]:
            start[row] = max(made, int(worked_from[row]))
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
    return replace(trace, start=trace.start - zero[number], end=trace.end - zero[number])
