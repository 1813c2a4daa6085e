"""A report as Markdown, its data escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ppsolve.models.documents.printable import printable
from ppsolve.solver.bench.report.report import Report
from ppsolve.solver.render.bench.sections import FOOTER, headline, origin, sections
from ppsolve.solver.render.bench.sheets import Section, SortableTable

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#&$])")


def markdown_report(report: Report) -> str:
    """Return a report as GitHub-flavoured Markdown."""
    return "\n".join(_lines(report)) + "\n"


def escaped(text: str) -> str:
    """Return a text of any origin so that Markdown shows it as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def _lines(report: Report) -> Iterator[str]:
    yield "# Benchmark report"
    yield ""
    yield escaped(origin(report))
    yield ""
    yield f"**{escaped(headline(report))}**"
    for section in sections(report):
        if section.sheet is not None or section.notes:
            yield from _section(section)
    yield ""
    yield "## Words"
    yield ""
    yield from (f"- {escaped(line)}" for line in FOOTER)


def _section(section: Section) -> Iterator[str]:
    yield ""
    yield f"{'##' if section.family is None else '###'} {escaped(section.title)}"
    for note in section.notes:
        yield ""
        yield escaped(note)
    if section.sheet is not None:
        yield ""
        yield from _table(section.sheet)


def _table(sheet: SortableTable) -> Iterator[str]:
    yield _row(heading.name for heading in sheet.headings)
    yield f"| {' | '.join('---' if one.is_text else '---:' for one in sheet.headings)} |"
    for row in sheet.rows:
        yield _row(cell.text for cell in row)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"
