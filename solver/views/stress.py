"""The spread of makespans on the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.studies.stress import StressEntry, StressReport
from ppsolve.solver.views.figures import figure, percent
from ppsolve.solver.views.tables import Field, FittingTable, TableColumn, indented
from ppsolve.solver.views.time_units import readable_rate, scaled


def stress_report(report: StressReport) -> RenderableType:
    """Return a sentence, and a table of all schedules, soonest 95th percentile first."""
    report = _in_readable_unit(report)
    best, *contenders = report.entries
    ordered = [best, *sorted(contenders, key=lambda entry: (entry.p95, entry.mean))]
    unit = report.time_unit
    name = TableColumn(
        f"schedule ({unit})",
        [e.name for e in ordered],
        is_text=True,
        wraps=True,
        wrap_at=36,
    )
    fields: tuple[Field[StressEntry], ...] = (
        Field("planned", lambda e: e.planned, 0, figure),
        Field("mean", lambda e: e.mean, 0, figure),
        Field("p5", lambda e: e.p5, 3, figure),
        Field("p95", lambda e: e.p95, 0, figure),
        Field("p99", lambda e: e.p99, 2, figure),
        Field("worst", lambda e: e.worst, 4, figure),
        Field("best is\nnot later", lambda e: e.stays_ahead, 0, percent),
    )
    columns = (field.column(ordered) for field in fields)
    table = FittingTable(name, *columns, styles=["bold", *[""] * len(contenders)])
    return Group(_sentence(report), Text(), indented(table))


def _in_readable_unit(report: StressReport) -> StressReport:
    unit, factor = readable_rate(report.time_unit, (e.worst for e in report.entries))
    entries = tuple(scaled(entry, factor, *_TIMES) for entry in report.entries)
    return report.model_copy(update={"entries": entries, "time_unit": unit})


_TIMES = ("planned", "mean", "deviation", "p5", "p50", "p95", "p99", "worst")


def _sentence(report: StressReport) -> Text:
    best = report.entries[0]
    spread = ", ".join(
        f"{percent(value)}" + ("" if kind == "*" else f" of {kind}")
        for kind, value in report.jitter.items()
    )
    slow = "".join(
        f", device {device} x {factor:g}" for device, factor in report.slow.items()
    )
    later = best.mean / best.planned - 1 if best.planned else 0.0
    direction = "longer" if later >= 0 else "less"
    return Text(
        f"{report.instance}: {report.runs:,} runs, jitter {spread}{slow}. {best.name} takes "
        f"{percent(abs(later))} {direction} than planned on average; 95 % of its runs end by "
        f"{figure(best.p95)} {report.time_unit}.",
        "bold",
    )
