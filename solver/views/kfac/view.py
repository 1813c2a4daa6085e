"""A refresh around a pinned pipeline on the terminal: several iterations, device by device."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import RenderableType

from ppsolve.models.core.result import ScheduleDocument, ScheduledOp
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.result import (
    RefreshEntry,
    RefreshFigures,
    RefreshResult,
    broken_rules,
)
from ppsolve.solver.views.chart import SYNC_KINDS, Chart, Row, chart_rows, kinds_of
from ppsolve.solver.views.figures import ABSENT, figure
from ppsolve.solver.views.kfac.ids import RefreshId
from ppsolve.solver.views.schedule_view import (
    HIDDEN_SYNCS,
    ScheduleReport,
    ScheduleView,
    ViewOptions,
    Window,
)
from ppsolve.solver.views.tables import FittingTable, TableColumn, each, indented
from ppsolve.solver.views.wording import ITERATIONS, with_unit


@dataclass(frozen=True)
class PipelineRepeats:
    """How often the pipeline of each device is repeated, and after what time."""

    counts: dict[int, int]  # iterations of each device
    period: float  # length of an iteration, in the schedule's unit

    @property
    def most(self) -> int:
        """Iterations that are drawn."""
        return max(self.counts.values())

    @property
    def starts(self) -> list[float]:
        """When iterations begin."""
        return [number * self.period for number in range(self.most)]

    def end_of(self, device: int) -> float:
        """Return when the last iteration of a device ends."""
        return self.counts.get(device, 1) * self.period


def repeats_of(document: ScheduleDocument, period: float | None = None) -> PipelineRepeats | None:
    """Return the repeats of the pipeline of a schedule; None if it is of another kind.

    Parameters
    ----------
    document : ScheduleDocument
    period : float, optional
        Length of an iteration, where the instance is known. Otherwise it is how much later an op
        of the pipeline starts in the next iteration, or the whole schedule if there is only one.

    Returns
    -------
    PipelineRepeats or None
        Iterations by device, and the period in the schedule's unit.
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
    return PipelineRepeats(counts, period or float(whole) or 1.0)


def report_of_refresh(shown: ScheduleView, repeats: PipelineRepeats) -> ScheduleReport:
    """Return the report on a refresh, its iterations side by side.

    Parameters
    ----------
    shown : ScheduleView
        Without the problem ops are grouped by the devices that their names begin with.
    repeats : PipelineRepeats

    Returns
    -------
    ScheduleReport

    Raises
    ------
    InputError
        Iterations are asked for that are not there.
    """
    source, links = shown.source, shown.frame.links
    figures = source if isinstance(source, RefreshResult | RefreshEntry) else None
    rows = _rows(shown, repeats, figures)
    devices = [row for row in rows if row.is_device]
    hidden = set(kinds_of(rows)) - set(kinds_of(devices))
    known = figures if figures and figures.iterations_of is not None else None
    chart = Chart(
        [row for row in rows if row.is_device or (links and row.bars)],
        max(repeats.most * repeats.period, shown.end),
        shown.unit,
        _window(shown.frame, repeats),
        iterations=repeats.starts,
        small_letters="the second pipe",
    )
    return ScheduleReport(
        shown.title,
        chart,
        list(_facts(shown, repeats)),
        device_table(known or _figures(devices, repeats), shown.unit),
        [HIDDEN_SYNCS] if not links and set(SYNC_KINDS) & hidden else [],
    )


def _window(frame: ViewOptions, repeats: PipelineRepeats) -> Window:
    if frame.iterations is None:
        return frame.window
    first, last = frame.iterations
    if last >= repeats.most:
        raise InputError(
            f"expected iterations from 0 to {repeats.most - 1}, got {last}", field="--iteration"
        )
    return first * repeats.period, (last + 1) * repeats.period


def _rows(
    shown: ScheduleView, repeats: PipelineRepeats, figures: RefreshFigures | None
) -> list[Row]:
    if shown.problem is not None:
        rows = chart_rows(shown.document, shown.problem, links=True)
    else:
        document = _by_device(shown.document)
        beside = SYNC_KINDS if _has_streams(document, repeats, figures) else ()
        rows = chart_rows(document, links=True, beside=beside)
    for row in rows:
        if row.is_device:
            row.end = repeats.end_of(int(row.name.split()[-1]))
    return rows


def _has_streams(
    document: ScheduleDocument, repeats: PipelineRepeats, figures: RefreshFigures | None
) -> bool:
    usage = figures.usage_of if figures else None
    if not usage:
        return _syncs_overlap(document.ops)
    busy = sum(share / 100 * repeats.end_of(device) for device, share in enumerate(usage))
    used = sum(op.end - op.start for op in document.ops)
    syncs = sum(op.end - op.start for op in document.ops if op.kind in SYNC_KINDS)
    return abs(used - syncs - busy) < abs(used - busy)


def _facts(shown: ScheduleView, repeats: PipelineRepeats) -> Iterator[tuple[str, str]]:
    yield ITERATIONS, figure(repeats.most)
    yield "iteration", f"{figure(repeats.period)} {shown.unit}"
    found = ((op.end, RefreshId.of(op)) for op in shown.document.ops)
    ends = max((end for end, id in found if id and id.iteration is None), default=None)
    if ends is not None:
        last = with_unit(figure(math.floor(100 * ends / repeats.period) / 100), ITERATIONS)
        yield "K-FAC work", f"done at {figure(ends)} {shown.unit}, after {last}"


def _figures(devices: list[Row], repeats: PipelineRepeats) -> RefreshFigures:
    ends = [repeats.end_of(number) for number in range(len(devices))]
    return RefreshFigures(
        iterations_of=[repeats.counts.get(number, 1) for number in range(len(devices))],
        usage_of=[100 * row.busy / end for row, end in zip(devices, ends, strict=True)],
        bubbles_of=[end - row.busy for row, end in zip(devices, ends, strict=True)],
    )


def _by_device(document: ScheduleDocument) -> ScheduleDocument:
    ops = [
        op.model_copy(update={"device": device})
        for op in document.ops
        if (found := RefreshId.of(op)) is not None
        for device in found.devices
    ]
    return document.model_copy(update={"ops": tuple(ops)})


def _syncs_overlap(ops: Iterable[ScheduledOp]) -> bool:
    latest: dict[int | None, ScheduledOp] = {}
    for op in sorted(ops, key=lambda op: (op.start, op.end)):
        before = latest.get(op.device)
        overlaps = before is not None and op.start < before.end and op.end > op.start
        if before is not None and overlaps and {op.kind, before.kind} & set(SYNC_KINDS):
            return True
        if before is None or op.end > before.end:
            latest[op.device] = op
    return False


def device_table(known: RefreshFigures, unit: str) -> RenderableType:
    """Return the table of devices of a result or a heuristic; unknown figures have no column.

    Parameters
    ----------
    known : RefreshFigures
    unit : str
        Unit of times.

    Returns
    -------
    RenderableType
    """
    proved = known if isinstance(known, RefreshResult) else None
    bounds = proved and proved.bound_of
    devices = range(len(known.iterations_of or bounds or ()))
    proofs = (proved and proved.bounds_by) or [""] * len(devices)
    breaks = known.breaks_of if isinstance(known, RefreshEntry) else None
    ages = each(known.oldest_of, lambda age: ABSENT if age is None else f"{figure(age)} it.")
    found = FittingTable(
        TableColumn("device", each(devices, str)),
        TableColumn(ITERATIONS, each(known.iterations_of, figure)),
        TableColumn(
            "bound by",
            None if bounds is None else list(map("{} {}".format, bounds, proofs)),
            is_text=True,
        ),
        TableColumn("usage", each(known.usage_of, "{:.2f} %".format)),
        TableColumn(f"bubbles\nleft ({unit})", each(known.bubbles_of, figure), expendable=1),
        TableColumn("peak\nsaved", each(known.peak_saved_of, figure), expendable=3),
        TableColumn("oldest\ninverse", ages, expendable=2),
        TableColumn(
            "breaks",
            each(breaks, lambda rules: broken_rules(rules) or ABSENT),
            is_text=True,
            wraps=True,
        ),
    )
    return indented(found)
