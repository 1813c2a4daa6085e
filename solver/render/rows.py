"""From a schedule to the rows of a chart: one row per device, link or stream."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import SHOWN_TRANSFER, ScheduleDocument, ScheduledOp
from ppsolve.models.kfac.labels import KIND_OF, STEP_KIND
from ppsolve.solver.render.kfac.ids import RefreshId
from ppsolve.solver.render.looks import (
    COLLECTIVES,
    GENERIC_KIND,
    KFAC,
    PIPELINE,
    WAIT_KIND,
    letter_of,
)

SYNC_KINDS = (KIND_OF["sync", "A"], KIND_OF["sync", "B"])
COMPUTE_KINDS = (*PIPELINE, *(kind for kind in KFAC if kind not in SYNC_KINDS))
COMMUNICATION_KINDS = frozenset({SHOWN_TRANSFER, *COLLECTIVES, *SYNC_KINDS})


@dataclass(frozen=True)
class Bar:
    """One op in a row, times in the schedule's unit.

    Parameters
    ----------
    start, end : float
        Times.
    kind : str
        Op kind, which decides the colour.
    letter, label : str
        What fits into one cell, and what is written where there is room.
    shade : int
        Tells virtual stages of one device (or neighbouring generic ops) apart.
    short : str
        What is written where there is room for it, but not for the label.
    """

    start: float
    end: float
    kind: str
    letter: str
    label: str
    shade: int = 0
    short: str = ""

    def text(self, width: int) -> str:
        """Return the longest of its names that fits into `width` cells, else its letter."""
        names = (self.label, self.short)
        return next((name for name in names if name and len(name) <= width), self.letter)


@dataclass
class Row:
    """A named row; `is_device` rows come first and count for bubbles.

    From `end` on nothing is known of the row, and what is idle there is no bubble.
    """

    name: str
    is_device: bool
    bars: list[Bar] = field(default_factory=list)
    end: float | None = None

    @property
    def busy(self) -> float:
        """Sum of the lengths of the bars, without waits."""
        return sum(bar.end - bar.start for bar in self.bars if bar.kind != WAIT_KIND)


def chart_rows(
    document: ScheduleDocument,
    problem: Problem | None = None,
    *,
    links: bool = False,
    beside: Container[str | None] = COMMUNICATION_KINDS,
) -> list[Row]:
    """Return the rows of a chart, devices first, in the order of their numbers.

    Parameters
    ----------
    document : ScheduleDocument
        The schedule.
    problem : Problem or None
        Gives every resource its row and name; without it rows follow the ops' device labels.
    links : bool
        Also return links, NICs and communication streams.
    beside : container of str
        Kinds of ops that keep no device busy, where the problem does not tell.

    Returns
    -------
    list of Row
        Rows with bars in the schedule's unit.
    """
    if problem is not None:
        rows = _rows_of_resources(document, problem)
    else:
        rows = _rows_of_labels(document, beside)
    return [row for row in rows if row.is_device or (links and row.bars)]


def _rows_of_resources(document: ScheduleDocument, problem: Problem) -> list[Row]:
    devices = set(problem.span_resources.tolist())
    rows = [Row(name, number in devices) for number, name in enumerate(problem.resource_names)]
    names = problem.op_names(range(problem.num_ops))
    number_of = {name: op for op, name in enumerate(names)}
    chunks = _chunks(document)
    for position, op in enumerate(document.ops):
        bar = _bar(op, position, chunks)
        if op.id in number_of:
            for resource in problem.resources_of(number_of[op.id]).tolist():
                rows[resource].bars.append(bar)
    return sorted(rows, key=lambda row: not row.is_device)


def _rows_of_labels(document: ScheduleDocument, beside: Container[str | None]) -> list[Row]:
    rows: dict[tuple[int, int, str], Row] = {}
    chunks = _chunks(document)
    for position, op in enumerate(document.ops):
        if op.device is None or op.kind == STEP_KIND:
            continue
        is_device = op.kind not in beside
        stream = op.id[:2] if op.id[:2] in _STREAMS and not is_device else ""
        key = (int(not is_device), op.device, stream)
        name = f"device {op.device}" if is_device else f"{_STREAMS.get(stream, 'comm')} {op.device}"
        row = rows.setdefault(key, Row(name, is_device))
        row.bars.append(_bar(op, position, chunks))
    return [rows[key] for key in sorted(rows)]


_Chunks = dict[tuple[int | None, int | None], int]
_STREAMS = {"TF": "send fwd", "TB": "send bwd"}


def _chunks(document: ScheduleDocument) -> _Chunks:
    """Return the chunk of each (device, stage): 0 for the lowest stage that the device holds."""
    held: dict[int, set[int]] = {}
    for op in document.ops:
        if op.device is not None and op.stage is not None and op.kind in COMPUTE_KINDS:
            held.setdefault(op.device, set()).add(op.stage)
    return {
        (device, stage): chunk
        for device, stages in held.items()
        for chunk, stage in enumerate(sorted(stages))
    }


def _bar(op: ScheduledOp, position: int, chunks: _Chunks) -> Bar:
    kind = op.kind or GENERIC_KIND
    if kind == GENERIC_KIND:
        return Bar(op.start, op.end, kind, op.id[:1], op.id, position)
    refresh = RefreshId.of(op)
    chunk = refresh.pipe if refresh else chunks.get((op.device, op.stage), 0)
    if kind == SHOWN_TRANSFER:
        letter = "<" if op.id.startswith("TB") else ">"
    else:
        letter = letter_of(kind)
        letter = letter.lower() if chunk % 2 else letter
    number = op.stage if op.microbatch is None and refresh is None else op.microbatch
    return Bar(op.start, op.end, kind, letter, f"{letter}{'' if number is None else number}", chunk)


def kinds_of(rows: list[Row]) -> list[str]:
    """Return the kinds that occur, compute kinds first, in their usual order."""
    present = dict.fromkeys(bar.kind for row in rows for bar in row.bars)
    usual = [*COMPUTE_KINDS, *SYNC_KINDS, *sorted(COMMUNICATION_KINDS - set(SYNC_KINDS))]
    return [kind for kind in usual if kind in present] + [k for k in present if k not in usual]


def has_chunks(rows: list[Row]) -> bool:
    """Return True if a device holds more than one stage."""
    bars = (bar for row in rows for bar in row.bars)
    return any(bar.shade > 0 for bar in bars if bar.kind in COMPUTE_KINDS)
