"""Buckets of collectives on the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.studies.buckets import BucketAdvice
from ppsolve.solver.views.figures import figure, percent
from ppsolve.solver.views.tables import FittingTable, TableColumn, indented


def buckets_report(advice: BucketAdvice) -> RenderableType:
    """Return a sentence, a table of fixed sizes and the buckets found, and what they hold."""
    best, rows = advice.rows[0].makespan, advice.rows
    over = [
        percent(row.makespan / best - 1) if row.makespan and best else "-"
        for row in rows
    ]
    table = FittingTable(
        TableColumn("buckets", [row.name for row in rows], is_text=True),
        TableColumn("collectives", [str(row.collectives) for row in rows]),
        TableColumn(
            f"makespan ({advice.time_unit})", [figure(row.makespan) for row in rows]
        ),
        TableColumn("over best", over),
        TableColumn(
            "peak bytes", [figure(row.peak_live_bytes) for row in rows], expendable=1
        ),
    )
    held = [
        Text("  " + ", ".join(bucket), overflow="fold") for bucket in advice.buckets
    ]
    title = (
        f"{advice.name}: {figure(best)} {advice.time_unit} with {rows[0].collectives} collectives, "
        f"no buckets take less than {figure(advice.bound)} {advice.time_unit}"
    )
    return Group(Text(title, "bold"), Text(), indented(table), Text(), *held)
