"""A refresh around a pinned pipeline on the terminal: several iterations, device by device."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import ScheduleDocument, ScheduledOp
from ppsolve.models.kfac.result import RefreshFigures
from ppsolve.solver.render.figures import figure
from ppsolve.solver.render.gantt import Gantt
from ppsolve.solver.render.kfac.ids import RefreshId
from ppsolve.solver.render.kfac.report import device_table
from ppsolve.solver.render.rows import SYNC_KINDS, Row, chart_rows, kinds_of
from ppsolve.solver.render.schedule_view import Window
from ppsolve.solver.render.tables import facts, indented
from ppsolve.solver.render.wording import ITERATIONS, with_unit


@dataclass(frozen=True)
class Repeats:
    """How often the pipeline of each device is repeated, and after what time.

    Parameters
    ----------
    counts : dict of int to int
        Iterations of each device.
    period : float
        Length of an iteration, in the schedule's unit.
    """

    counts: dict[int, int]
    period: float

    @property
    def most(self) -> int:
        """Iterations that are drawn."""
        return max(self.counts.values())

    @property
    def starts(self) -> list[float]:
        """When iterations begin."""
        return [number * self.period for number in range(self.most)]

    def window(self, first: int, last: int) -> tuple[float, float]:
        """Return the time from the start of one iteration to the end of another."""
        return first * self.period, (last + 1) * self.period


def repeats_of(document: ScheduleDocument, period: float | None = None) -> Repeats | None:
    """Return how the pipeline of a schedule is repeated; None if it is of another kind.

    Parameters
    ----------
    document : ScheduleDocument
        The schedule.
    period : float, optional
        Length of an iteration, where the instance is known. Otherwise it is how much later an op
        of the pipeline starts in the next iteration, or the whole schedule if there is only one.
    """
    counts: dict[int, int] = {}
    starts: dict[tuple[tuple[int, ...], str], dict[int, float]] = defaultdict(dict)
    for op in document.ops:
        found = RefreshId.of(op)
        if found is None or found.iteration is None:
            continue
        for device in found.devices:
            counts[device] = max(counts.get(device, 1), found.iteration + 1)
        starts[found.devices, op.id.rpartition("@")[0]][found.iteration] = op.start
    if not counts:
        return None
    # Starts are cut off at 0 where a clock runs ahead, so the latest op tells the period best.
    latest = max(starts.values(), key=lambda times: (1 in times and 0 in times, times.get(0, 0)))
    if period is None and {0, 1} <= latest.keys():
        period = latest[1] - latest[0]
    whole = max((op.end for op in document.ops), default=0)
    return Repeats(counts, period or float(whole) or 1.0)


@dataclass(frozen=True)
class RefreshView:
    """All that is shown of one refresh; printing it draws it.

    Parameters
    ----------
    title : str
        First line.
    document : ScheduleDocument
        The schedule.
    repeats : Repeats
        Its iterations.
    problem : Problem or None
        Names the resources; without it ops are grouped by the devices that their names begin with.
    figures : RefreshFigures or None
        What its file says of devices.
    links : bool
        Also draw communication streams.
    window : (float, float or None)
        Part of the time axis to draw; ``None`` is its end.
    """

    title: str
    document: ScheduleDocument
    repeats: Repeats
    problem: Problem | None = None
    figures: RefreshFigures | None = None
    links: bool = False
    window: Window = (0, None)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield title, chart, figures and the table of devices."""
        rows = self._rows()
        unit, repeats = self.document.time_unit, self.repeats
        whole = repeats.most * repeats.period
        yield Text(self.title, "bold", overflow="fold")
        yield Gantt(
            [row for row in rows if row.is_device or (self.links and row.bars)],
            max(whole, float(max((op.end for op in self.document.ops), default=0))),
            unit,
            self.window,
            iterations=repeats.starts,
            small_letters="the second pipe",
        )
        devices = [row for row in rows if row.is_device]
        if not self.links and set(SYNC_KINDS) & (set(kinds_of(rows)) - set(kinds_of(devices))):
            yield Text(" syncs are not drawn; --links draws them", "dim", overflow="fold")
        yield Text()
        yield facts(self._facts())
        yield Text()
        yield self._device_table(devices)

    def _rows(self) -> list[Row]:
        if self.problem is not None:
            rows = chart_rows(self.document, self.problem, links=True)
        else:
            document = _by_device(self.document)
            beside = SYNC_KINDS if self._has_streams(document) else ()
            rows = chart_rows(document, links=True, beside=beside)
        for row in rows:
            if row.is_device:
                number = int(row.name.split()[-1])
                row.end = self.repeats.counts.get(number, 1) * self.repeats.period
        return rows

    def _has_streams(self, document: ScheduleDocument) -> bool:
        """Return whether syncs run beside the other ops of their devices, on streams."""
        usage = self.figures.usage_of if self.figures else None
        if not usage:
            return _syncs_overlap(document.ops)
        counts = self.repeats.counts
        shares = (
            share / 100 * counts.get(device, 1) * self.repeats.period
            for device, share in enumerate(usage)
        )
        busy = sum(shares)
        used = sum(op.end - op.start for op in document.ops)
        syncs = sum(op.end - op.start for op in document.ops if op.kind in SYNC_KINDS)
        return abs(used - syncs - busy) < abs(used - busy)

    def _facts(self) -> Iterator[tuple[str, str]]:
        unit, repeats = self.document.time_unit, self.repeats
        yield ITERATIONS, figure(repeats.most)
        yield "iteration", f"{figure(repeats.period)} {unit}"
        ends = max((op.end for op in self.document.ops if _is_work(op)), default=None)
        if ends is not None:
            last = with_unit(figure(math.floor(100 * ends / repeats.period) / 100), ITERATIONS)
            yield "K-FAC work", f"done at {figure(ends)} {unit}, after {last}"

    def _device_table(self, rows: list[Row]) -> RenderableType:
        found = self.figures
        if found is None or found.iterations_of is None:
            counts = [self.repeats.counts.get(number, 1) for number in range(len(rows))]
            ends = [count * self.repeats.period for count in counts]
            found = RefreshFigures(
                iterations_of=counts,
                usage_of=[100 * row.busy / end for row, end in zip(rows, ends, strict=True)],
                bubbles_of=[end - row.busy for row, end in zip(rows, ends, strict=True)],
            )
        return indented(device_table(found, self.document.time_unit))


def _is_work(op: ScheduledOp) -> bool:
    found = RefreshId.of(op)
    return found is not None and found.iteration is None


def _by_device(document: ScheduleDocument) -> ScheduleDocument:
    """Return a schedule with each op once for every device that its name begins with."""
    ops = [
        op.model_copy(update={"device": device})
        for op in document.ops
        if (found := RefreshId.of(op)) is not None
        for device in found.devices
    ]
    return document.model_copy(update={"ops": tuple(ops)})


def _syncs_overlap(ops: Iterable[ScheduledOp]) -> bool:
    """Return whether a sync runs beside another op of its device, on a communication stream."""
    latest: dict[int | None, ScheduledOp] = {}
    for op in sorted(ops, key=lambda op: (op.start, op.end)):
        before = latest.get(op.device)
        overlaps = before is not None and op.start < before.end and op.end > op.start
        if before is not None and overlaps and {op.kind, before.kind} & set(SYNC_KINDS):
            return True
        if before is None or op.end > before.end:
            latest[op.device] = op
    return False
