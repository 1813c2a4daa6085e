"""Rows of an overlap chart: the compute stream with its waits, and one row per comm stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ppsolve.models.core.result import ScheduleDocument, ScheduledOp
from ppsolve.models.overlap.instance import NodeKind, OverlapInstance
from ppsolve.models.overlap.lowering import LAUNCH_KIND, RELEASE_KIND
from ppsolve.solver.render.looks import COLLECTIVE_KIND, KERNEL_KIND, WAIT_KIND, letter_of
from ppsolve.solver.render.rows import Bar, Row

NODE_KINDS = frozenset(NodeKind)
OVERLAP_KINDS = NODE_KINDS | {LAUNCH_KIND, RELEASE_KIND}

_TYPES = {
    "reducescatter": "reduce-scatter",
    "scatter": "reduce-scatter",
    "allreduce": "all-reduce",
    "alltoall": "all-to-all",
    "gather": "all-gather",
}
"""Parts of the names of collectives, the more telling ones first."""


def is_overlap_document(document: ScheduleDocument) -> bool:
    """Return True if a schedule is one of kernels, collectives and waits."""
    kinds = {op.kind for op in document.ops}
    return bool(kinds & NODE_KINDS) and kinds <= OVERLAP_KINDS


def collective_kind(text: str) -> str:
    """Return the type of a collective: ``all_gather_into_tensor`` is an ``all-gather``."""
    letters = re.sub("[^a-z]", "", text.lower())
    found = (kind for part, kind in _TYPES.items() if part in letters)
    return next(found, COLLECTIVE_KIND)


def stream_rows(document: ScheduleDocument, instance: OverlapInstance | None = None) -> list[Row]:
    """Return the row of the compute stream, then one per comm stream; added ops are left out.

    Without the instance streams are not known: collectives that run at once get several rows.

    Parameters
    ----------
    document : ScheduleDocument
        The schedule.
    instance : OverlapInstance, optional
        Tells streams and types of collectives.

    Returns
    -------
    list of Row
        Rows with bars in the schedule's unit.
    """
    ops = sorted(document.ops, key=lambda op: (op.start, op.end))
    kernels = [_bar(op, KERNEL_KIND) for op in ops if op.kind == NodeKind.COMPUTE]
    moments = [op.end for op in ops if op.kind == NodeKind.WAIT]
    rows = [Row("compute", True, [*_shaded(kernels), *held(kernels, moments)])]
    collectives = [op for op in ops if op.kind == NodeKind.COMM]
    streams = _lanes(collectives) if instance is None else _streams(collectives, instance)
    types = {} if instance is None else {node.name: node.collective for node in instance.nodes}
    for name, own in streams.items():
        bars = _shaded(_collective(op, types.get(op.id)) for op in own)
        rows.append(Row(f"comm {name}" if len(streams) > 1 else "comm", True, list(bars)))
    return rows


def held(kernels: Sequence[Bar], moments: Iterable[float]) -> Iterator[Bar]:
    """Yield the time for which waits hold the compute stream.

    Parameters
    ----------
    kernels : sequence of Bar
        What runs on the stream, by start.
    moments : iterable of float
        When each wait lets the stream go on, ascending: in a program the stream is idle before
        such a moment only because of the wait.

    Yields
    ------
    Bar
        A wait, in the unit of the kernels.
    """
    clock, following = 0.0, 0
    for moment in moments:
        while following < len(kernels) and kernels[following].start < moment:
            clock = max(clock, kernels[following].end)
            following += 1
        if moment > clock:
            yield Bar(clock, moment, WAIT_KIND, "w", "w")
            clock = moment


def _streams(
    collectives: list[ScheduledOp], instance: OverlapInstance
) -> dict[str, list[ScheduledOp]]:
    rows: dict[str, list[ScheduledOp]] = {group: [] for group in instance.groups}
    for op in collectives:
        rows[instance.group_of(instance.index_of[op.id])].append(op)
    return rows


def _lanes(collectives: list[ScheduledOp]) -> dict[str, list[ScheduledOp]]:
    lanes: list[list[ScheduledOp]] = []
    for op in collectives:
        free = next((lane for lane in lanes if lane[-1].end <= op.start), None)
        if free is None:
            lanes.append(free := [])
        free.append(op)
    return {str(number): own for number, own in enumerate(lanes)}


def _collective(op: ScheduledOp, given: str | None) -> Bar:
    kind = collective_kind(given or op.id)
    return replace(_bar(op, kind), letter=letter_of(kind))


def _bar(op: ScheduledOp, kind: str) -> Bar:
    letter = next((char.upper() for char in op.id if char.isalnum()), "?")
    return Bar(op.start, op.end, kind, letter, op.id)


def _shaded(bars: Iterable[Bar]) -> Iterator[Bar]:
    """Yield bars with a short label, neighbours in different shades."""
    for number, bar in enumerate(bars):
        digits = re.search(r"\d.*", bar.label)
        short = bar.letter + (digits[0] if digits else "")
        yield replace(bar, short=short, shade=number % 2)
