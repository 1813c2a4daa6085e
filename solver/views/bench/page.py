"""A report as one HTML page that needs nothing else: no network, all data escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ppsolve.solver.studies.bench.report.report import Report
from ppsolve.solver.views.bench.pictures import Picture
from ppsolve.solver.views.bench.sections import FOOTER, Section, headline, origin, sections
from ppsolve.solver.views.html import table_html, text
from ppsolve.solver.views.page.tables import asset

# A browser loads nothing for the page but what stands in it.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def html_report(report: Report, pictures: Mapping[str, Picture] | None) -> str:
    """Return a report as an HTML page; its tables can be sorted where scripts run.

    Parameters
    ----------
    report : Report
    pictures : mapping of str to Picture, optional
        Pictures by name; None where they cannot be drawn.

    Returns
    -------
    str
    """
    return "\n".join(_page(report, pictures)) + "\n"


def _page(report: Report, pictures: Mapping[str, Picture] | None) -> Iterator[str]:
    title = text(f"Benchmark report: {report.source}")
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title><style>\n{asset('benchmarks.css')}</style></head><body>"
    yield f'<header><h1>Benchmark report</h1><p class="dim">{text(origin(report))}</p></header>'
    yield f"<p><strong>{text(headline(report))}</strong></p>"
    if pictures is None:
        yield '<p class="dim">No pictures: they need matplotlib, the extra "plot".</p>'
    yield from _sections(report, pictures or {})
    yield "<footer><h2>Words</h2>"
    yield from (f"<p>{text(line)}</p>" for line in FOOTER)
    yield f"</footer><script>\n{asset('benchmarks.js')}</script></body></html>"


def _sections(report: Report, pictures: Mapping[str, Picture]) -> Iterator[str]:
    family: str | None = None
    for section in sections(report):
        if section.family != family:
            if family is not None:
                yield "</details>"
            elif section.family is not None:
                yield "<h2>Single families</h2>"
            if section.family is not None:
                yield f"<details><summary>{text(section.family)}</summary>"
            family = section.family
        picture = pictures.get(section.picture) if section.picture else None
        if picture is not None or section.sheet is not None or section.notes:
            yield from _section(section, picture)
    if family is not None:
        yield "</details>"


def _section(section: Section, picture: Picture | None) -> Iterator[str]:
    level = 2 if section.family is None else 3
    yield f"<section{_class('alarm' if section.is_alarm else '')}>"
    yield f"<h{level}>{text(section.title)}</h{level}>"
    yield from (f"<p>{text(note)}</p>" for note in section.notes)
    if picture is not None:
        yield f'<figure><img alt="{text(picture.title)}" src="{picture.address}"></figure>'
    if section.sheet is not None:
        yield table_html(section.sheet)
    yield "</section>"


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""
