"""The whole page: one file that needs no network."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.documents.printable import printable
from ppsolve.solver.views.html import html, text
from ppsolve.solver.views.page import tables
from ppsolve.solver.views.page.schedules import PageSchedule, in_one_unit
from ppsolve.solver.views.reports import report

# Parts of the script, in the order in which they build on each other.
SCRIPTS = (
    "data.js",
    "lanes.js",
    "view.js",
    "marks.js",
    "draw.js",
    "trace.js",
    "controls.js",
)


def page(
    shown: Sequence[PageSchedule],
    studies: Sequence[tuple[str, RenderableType]] = (),
    head: Sequence[tuple[str, RenderableType]] = (),
    title: str = "",
) -> str:
    """Return the page of schedules and studies: an HTML document that loads nothing.

    `shown`: drawn one below the other on one time axis.
    `studies`: a title, and what stands below it.
    `head`: titles and contents of sections above all others.
    `title`: title of the page; by default the names of what it shows.
    Raises `InputError`: time units that no factor leads from one to the other.
    """
    shown = in_one_unit(shown)
    names = [name for name, _ in studies] or list(
        dict.fromkeys(e.instance.name for e in shown)
    )
    title = title or (", ".join(names) if studies or len(names) > 1 else shown[0].shape)
    scripts = "\n".join(tables.asset(name) for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{scripts}\n}})();\n'
    return tables.asset("page.html").format(
        title=text(title),
        policy=_policy(script),
        style=tables.asset("page.css"),
        chart="".join(_section(*part) for part in head)
        + (_chart(shown, title) if shown else ""),
        tables="".join([*(_section(*study) for study in studies), *_sections(shown)]),
        script=f"<script>{script}</script>" if shown else "",
    )


def _policy(script: str) -> str:
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def _chart(shown: Sequence[PageSchedule], title: str) -> str:
    data = {
        "unit": printable(shown[0].result.time_unit),
        "titles": [printable(each.title) for each in shown],
        "shown": [each.columns() for each in shown],
    }
    chart = tables.asset("chart.html").replace("{data}", tables.embedded(data))
    first = [each for each in shown if each.entry is None]
    heads = (f"<h2>{text(each.shape)}</h2>" * (each.shape != title) for each in first)
    return "".join(map(str.__add__, heads, map(tables.headlines, first))) + chart


def _sections(shown: Sequence[PageSchedule]) -> list[str]:
    parts = (
        [f"<section>{html(tables.overview(shown))}</section>"] if len(shown) > 1 else []
    )
    for each in shown:
        body: list[RenderableType] = []
        if each.entry is None:
            body.append(report(each.result, verbose=True, instance=each.instance))
        body += [tables.idle_table(each), Text(tables.IDLE_NOTE)] if each.idle else []
        body += [tables.memory_table(each)] if each.schedule.problem.pools else []
        parts.append(_section(each.title, *body))
    return parts


def _section(title: str, *parts: RenderableType) -> str:
    return f"<section><h2>{text(title)}</h2>{html(Group(*parts))}</section>\n"
