"""A report as tables on the terminal, as Markdown, as CSV, and as one HTML page."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.documents.printable import printable
from ppsolve.solver.studies.bench.report.report import FamilyFigures, Report
from ppsolve.solver.studies.bench.report.rows import FamilyRow, MethodRow
from ppsolve.solver.views.bench.pictures import Picture
from ppsolve.solver.views.bench.sections import (
    FOOTER,
    Section,
    about,
    headline,
    origin,
    sections,
)
from ppsolve.solver.views.html import table_html, text
from ppsolve.solver.views.page.tables import asset
from ppsolve.solver.views.tables import FittingTable


def terminal_report(report: Report, *, verbose: bool = False) -> RenderableType:
    """Return a report for the terminal."""
    return Group(*_parts(report, verbose))


def _parts(report: Report, verbose: bool) -> Iterator[RenderableType]:
    yield Text(headline(report), "bold")
    yield Text(f"{origin(report)}: {about(report)}", "dim")
    all_sections = list(sections(report))
    visible = [section for section in all_sections if verbose or section.family is None]
    for section in visible:
        if section.sheet is not None or section.notes:
            yield from _section(section)
    yield Text()
    if len(visible) < len(all_sections):
        yield Text("--verbose shows the methods of every family", "dim")
    yield from (Text(line, "dim") for line in FOOTER)


def _section(section: Section) -> Iterator[RenderableType]:
    yield Text()
    yield Text(section.title, "bold red" if section.is_alarm else "bold")
    yield from (Text(note) for note in section.notes)
    if section.sheet is not None:
        yield section.sheet


_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#&$])")


def markdown_report(report: Report) -> str:
    """Return a report as GitHub-flavoured Markdown."""
    return "\n".join(_lines(report)) + "\n"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", printable(text))


def _lines(report: Report) -> Iterator[str]:
    yield f"# Benchmark report: {_escaped(about(report))}"
    yield ""
    yield _escaped(origin(report))
    yield ""
    yield f"**{_escaped(headline(report))}**"
    for section in sections(report):
        if section.sheet is not None or section.notes:
            yield from _markdown_section(section)
    yield ""
    yield "## Words"
    yield ""
    yield from (f"- {_escaped(line)}" for line in FOOTER)


def _markdown_section(section: Section) -> Iterator[str]:
    yield ""
    yield f"{'##' if section.family is None else '###'} {_escaped(section.title)}"
    for note in section.notes:
        yield ""
        yield _escaped(note)
    if section.sheet is not None:
        yield ""
        yield from _markdown_table(section.sheet)


def _markdown_table(sheet: FittingTable) -> Iterator[str]:
    yield _markdown_row(column.title for column in sheet.columns)
    yield f"| {' | '.join('---' if column.is_text else '---:' for column in sheet.columns)} |"
    yield from map(_markdown_row, sheet.rows)


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


# Beginnings that spreadsheets take for formulas; such names get an apostrophe in front.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_report(report: Report) -> str:
    """Return a report as CSV with a header line; shares are plain numbers, times seconds."""
    rows = [row for family in (report.every, *report.families) for row in _rows(family)]
    fields = list(dict.fromkeys(key for row in rows for key in row))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fields, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _plain(value) for key, value in row.items()} for row in rows)
    return stream.getvalue()


def _rows(family: FamilyFigures) -> Iterator[dict[str, Any]]:
    for row in family.methods:
        total = _flat(family.total) if row.method.role == "ours" else {}
        named = {"family": family.total.family, "role": row.method.role.value}
        yield {**named, "name": row.method.name, **total, **_flat(row)}


def _flat(row: FamilyRow | MethodRow) -> dict[str, Any]:
    """Return the figures of a row; those of a spread are named for both."""
    flat: dict[str, Any] = {}
    for key, value in asdict(row).items():
        if key != "method" and isinstance(value, dict):
            flat |= {f"{key}_{name}": figure for name, figure in value.items()}
        elif key != "method":
            flat[key] = value
    return flat


def _plain(value: Any) -> Any:
    return (
        f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
    )


# A browser loads nothing for the page but what stands in it.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def html_report(report: Report, pictures: Mapping[str, Picture] | None = None) -> str:
    """Return a report as an HTML page; its tables can be sorted where scripts run.

    `pictures` are by name; None where they cannot be drawn.
    """
    return "\n".join(_page(report, pictures)) + "\n"


def _page(report: Report, pictures: Mapping[str, Picture] | None) -> Iterator[str]:
    head = text(f"Benchmark report: {about(report)}")
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{head}</title><style>\n{asset('benchmarks.css')}</style></head><body>"
    yield f'<header><h1>{head}</h1><p class="dim">{text(origin(report))}</p></header>'
    yield f"<p><strong>{text(headline(report))}</strong></p>"
    if pictures is None:
        yield '<p class="dim">No pictures: they need matplotlib, the extra "plot".</p>'
    yield from _page_sections(report, pictures or {})
    yield "<footer><h2>Words</h2>"
    yield from (f"<p>{text(line)}</p>" for line in FOOTER)
    yield f"</footer><script>\n{asset('benchmarks.js')}</script></body></html>"


def _page_sections(report: Report, pictures: Mapping[str, Picture]) -> Iterator[str]:
    heading = "<h2>Single families</h2>"
    for family, group in groupby(sections(report), lambda section: section.family):
        if family is not None:
            yield f"{heading}<details><summary>{text(family)}</summary>"
            heading = ""
        for section in group:
            picture = pictures.get(section.picture) if section.picture else None
            if picture is not None or section.sheet is not None or section.notes:
                yield from _page_section(section, picture)
        if family is not None:
            yield "</details>"


def _page_section(section: Section, picture: Picture | None) -> Iterator[str]:
    level = 2 if section.family is None else 3
    yield '<section class="alarm">' if section.is_alarm else "<section>"
    yield f"<h{level}>{text(section.title)}</h{level}>"
    yield from (f"<p>{text(note)}</p>" for note in section.notes)
    if picture is not None:
        yield f'<figure><img alt="{text(picture.title)}" src="{picture.address}"></figure>'
    if section.sheet is not None:
        yield table_html(section.sheet)
    yield "</section>"
