"""A report as tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.solver.bench.report.report import Report
from ppsolve.solver.render.bench.sections import FOOTER, headline, origin, sections
from ppsolve.solver.render.bench.sheets import Section, SortableTable
from ppsolve.solver.render.tables import TableColumn, table

WRAPPED = frozenset(
    {"reason", "remark", "contradiction", "processor", "worst on", "instance", "before", "after"}
)
"""Columns of texts without a known length: they go on below instead of widening the table."""


def terminal_report(report: Report, *, verbose: bool = False) -> RenderableType:
    """Return a report for the terminal.

    Parameters
    ----------
    report : Report
        The figures.
    verbose : bool
        Show the tables of every single family too.

    Returns
    -------
    RenderableType
        A title, tables one below the other, and the words used in them.
    """
    return Group(*_parts(report, verbose))


def _parts(report: Report, verbose: bool) -> Iterator[RenderableType]:
    yield Text(headline(report), "bold")
    yield Text(origin(report), "dim")
    hidden = False
    for section in sections(report):
        if section.family is not None and not verbose:
            hidden = True
        elif section.sheet is not None or section.notes:
            yield from _section(section)
    yield Text()
    if hidden:
        yield Text("--verbose shows the methods and bounds of every family", "dim")
    yield from (Text(line, "dim") for line in FOOTER)


def _section(section: Section) -> Iterator[RenderableType]:
    yield Text()
    yield Text(section.title, "bold red" if section.is_alarm else "bold")
    yield from (Text(note) for note in section.notes)
    if section.sheet is not None:
        yield _table(section.sheet)


def _table(sheet: SortableTable) -> RenderableType:
    return table(
        *(
            TableColumn(
                heading.name.replace(", ", ",\n").replace("mean ", "mean\n"),
                [row[place].text for row in sheet.rows],
                is_text=heading.is_text,
                wraps=heading.name in WRAPPED,
                expendable=heading.expendable,
            )
            for place, heading in enumerate(sheet.headings)
        )
    )
