"""The whole page: one file that needs no network."""

from __future__ import annotations

import re
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

# Modules of the chart, in the order in which they build on each other.
SCRIPTS = (
    "data.js",
    "lanes.js",
    "view.js",
    "marks.js",
    "draw.js",
    "trace.js",
    "controls.js",
)

NO_SCRIPT = (
    "<noscript><p>The chart needs a script; "
    "all figures are in the tables below.</p></noscript>\n"
)


def page(
    schedules: Sequence[PageSchedule],
    studies: Sequence[tuple[str, RenderableType]] = (),
    head: Sequence[tuple[str, RenderableType]] = (),
    title: str = "",
) -> str:
    """Return the page of schedules and studies: an HTML document that loads nothing.

    Schedules are drawn one below the other on one time axis. Sections of `head`, titles and
    contents, stand above all others; the title is by default the names of what is shown. An
    `InputError` says that no factor leads from one time unit to another.
    """
    schedules = in_one_unit(schedules)
    names = [name for name, _ in studies] or list(
        dict.fromkeys(e.instance.name for e in schedules)
    )
    title = title or (
        ", ".join(names) if studies or len(names) > 1 else schedules[0].shape
    )
    script = _script()
    return tables.asset("page.html").format(
        title=text(title),
        policy=_policy(script),
        style=tables.asset("page.css"),
        chart="".join(_section(*section) for section in head)
        + (_chart(schedules, title) if schedules else ""),
        tables="".join(
            [*(_section(*study) for study in studies), *_sections(schedules)]
        ),
        script=f"<script>{script}</script>" if schedules else "",
    )


def _script() -> str:
    """Join the chart's modules: names of all of them are unique, so that none imports another."""
    modules = "\n".join(tables.asset(name) for name in SCRIPTS)
    joined = re.sub(r"^import [^;]*;\n|^export ", "", modules, flags=re.MULTILINE)
    start = 'show(JSON.parse(document.getElementById("data").textContent));'
    return f'(() => {{\n"use strict";\n{joined}\n{start}\n}})();\n'


def _policy(script: str) -> str:
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def _chart(schedules: Sequence[PageSchedule], title: str) -> str:
    data = {
        "unit": printable(schedules[0].result.time_unit),
        "titles": [printable(schedule.title) for schedule in schedules],
        "shown": [schedule.columns() for schedule in schedules],
    }
    chart = (
        tables.asset("chart.html")
        + NO_SCRIPT
        + f'<script type="application/json" id="data">{tables.embedded(data)}</script>\n'
    )
    first = [schedule for schedule in schedules if schedule.entry is None]
    heads = (
        f"<h2>{text(schedule.shape)}</h2>" * (schedule.shape != title)
        for schedule in first
    )
    return "".join(map(str.__add__, heads, map(tables.headlines, first))) + chart


def _sections(schedules: Sequence[PageSchedule]) -> list[str]:
    sections = (
        [f"<section>{html(tables.overview(schedules))}</section>"]
        if len(schedules) > 1
        else []
    )
    for schedule in schedules:
        body: list[RenderableType] = []
        if schedule.entry is None:
            body.append(
                report(schedule.result, verbose=True, instance=schedule.instance)
            )
        body += (
            [tables.idle_table(schedule), Text(tables.IDLE_NOTE)]
            if schedule.idle
            else []
        )
        body += (
            [tables.memory_table(schedule)] if schedule.schedule.problem.pools else []
        )
        sections.append(_section(schedule.title, *body))
    return sections


def _section(title: str, *content: RenderableType) -> str:
    return f"<section><h2>{text(title)}</h2>{html(Group(*content))}</section>\n"
