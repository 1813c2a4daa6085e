"""The spread of makespans on the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.stress import StressEntry, StressReport
from ppsolve.solver.render.figures import ABSENT, figure, percent
from ppsolve.solver.render.tables import FittingTable, TableColumn, indented


def stress_report(found: StressReport) -> RenderableType:
    """Return a sentence, and a table of all schedules, soonest 95th percentile first."""
    best, *others = found.entries
    ordered = [best, *sorted(others, key=lambda entry: (entry.p95, entry.mean))]
    table = FittingTable(
        TableColumn(f"schedule ({found.time_unit})", is_text=True, is_cut=True),
        TableColumn("planned"),
        TableColumn("mean"),
        TableColumn("p5", expendable=3),
        TableColumn("p95"),
        TableColumn("p99", expendable=2),
        TableColumn("worst", expendable=4),
        TableColumn("best is\nnot later"),
        TableColumn("p5 ━ mean ● p99", is_text=True, expendable=1),
    )
    low, high = min(e.p5 for e in ordered), max(e.p99 for e in ordered)
    for entry in ordered:
        figures = (entry.mean, entry.p5, entry.p95, entry.p99, entry.worst)
        ahead = ABSENT if entry.stays_ahead is None else percent(entry.stays_ahead)
        cells = (figure(entry.planned), *map(figure, figures), ahead, _bar(entry, low, high))
        table.add_row(entry.name, *cells, style="bold" if entry is best else "")
    return Group(_sentence(found), Text(), indented(table))


def _sentence(found: StressReport) -> Text:
    best = found.entries[0]
    spread = ", ".join(
        f"{percent(value)}" + ("" if kind == "*" else f" of {kind}")
        for kind, value in found.jitter.items()
    )
    slow = "".join(f", device {device} x {factor:g}" for device, factor in found.slow.items())
    later = best.mean / best.planned - 1 if best.planned else 0.0
    way = "longer" if later >= 0 else "less"
    return Text(
        f"{found.instance}: {found.runs:,} runs, jitter {spread}{slow}. {best.name} takes "
        f"{percent(abs(later))} {way} than planned on average; 95 % of its runs end by "
        f"{figure(best.p95)} {found.time_unit}.",
        "bold",
    )


def _bar(entry: StressEntry, low: float, high: float, width: int = 24) -> str:
    def place(value: float) -> int:
        share = (value - low) / (high - low) if high > low else 0.0
        return round(share * (width - 1))

    cells = [" "] * width
    for column in range(place(entry.p5), place(entry.p99) + 1):
        cells[column] = "━"
    cells[place(entry.mean)] = "●"
    return "".join(cells).rstrip()
