"""Results, plans, curves and instances as parts of a notebook: static, escaped, bounded."""

from __future__ import annotations

from collections.abc import Iterable

from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result
from ppsolve.models.curve.document import Curve
from ppsolve.models.documents.display import counts_of
from ppsolve.models.documents.errors import PpsolveError
from ppsolve.models.documents.printable import printable
from ppsolve.models.instances import Instance
from ppsolve.models.plan.result import Plan
from ppsolve.solver.render.beside import distances
from ppsolve.solver.render.curve import curve_report
from ppsolve.solver.render.drawings import drawing_of
from ppsolve.solver.render.figures import ABSENT, figure, figures, percent, shorten
from ppsolve.solver.render.notebook.svg import svg_of
from ppsolve.solver.render.page.markup import table, text
from ppsolve.solver.render.page.tables import plain, plan_part
from ppsolve.solver.render.plot.drawn import drawn_of
from ppsolve.solver.render.reports import ranked
from ppsolve.solver.render.wording import unit_of, with_unit

MOST_ROWS = 30
"""Rows of a table: heuristics, configurations. A note counts the others."""

LONGEST = 200
"""Characters of one text."""


def html_of(document: object) -> str | None:
    """Return a document as HTML, for a notebook.

    Parameters
    ----------
    document : Result, HeuristicEntry, Plan, Curve or Instance
        What is shown.

    Returns
    -------
    str or None
        Static HTML without scripts; None for other documents, which a notebook shows by `repr`.
    """
    if isinstance(document, Result):
        return _result(document)
    if isinstance(document, HeuristicEntry):
        return _entry(document)
    if isinstance(document, Plan):
        return _plan(document)
    if isinstance(document, Curve):
        return f"<div>{plain(curve_report(document))}</div>"
    if isinstance(document, Instance):
        return _instance(document)
    return None


def _result(result: Result) -> str:
    head = f"{result.instance}: {result.status.value}"
    rows = drawing_of(result.kind).facts(result, None)
    return _cell(head, _chart(result), _facts(rows), _heuristics(result))


def _heuristics(result: Result) -> str:
    """Return the table of heuristics, folded up: what ran, and how far it is over the best."""
    ran = [e for e in ranked(result.heuristics) if e.status is not HeuristicStatus.NOT_APPLICABLE]
    if not ran:
        return ""
    shown = ran[:MOST_ROWS]
    columns = distances(shown, result)
    cells = [figures(*(e.value for e in shown)), *(column.cells or () for column in columns)]
    rows = [[e.name, *row] for e, row in zip(shown, zip(*cells, strict=True), strict=True)]
    heads = [
        "heuristic",
        unit_of(result),
        *(column.header.replace("\n", " ") for column in columns),
    ]
    inner = table(heads, rows, f"{len(shown)} of {len(ran)}")
    return f"<details><summary>{len(ran)} heuristics</summary>{inner}</details>"


def _entry(entry: HeuristicEntry) -> str:
    rows = [("value", figure(entry.value)), ("over the best", percent(entry.gap))]
    rows += [("reason", entry.reason)] if entry.reason else []
    return _cell(f"{entry.name}: {entry.status.value}", _chart(entry), _facts(rows))


def _plan(plan: Plan) -> str:
    few = plan.model_copy(update={"table": plan.table[:MOST_ROWS]})
    more = len(plan.table) - MOST_ROWS
    note = f"<p>{more:,} more configurations are not listed</p>" if more > 0 else ""
    chart = _chart(plan) if plan.result is not None else ""
    folded = f"<details><summary>Configurations</summary>{plan_part(few)}{note}</details>"
    goodput = ABSENT
    if plan.goodput is not None:
        low, high = figures(plan.goodput.low, plan.goodput.high)
        goodput = with_unit(low if low == high else f"{low} to {high}", "samples/s")
    return _cell(
        f"{plan.request}: {plan.status.value}", chart, _facts([("goodput", goodput)]), folded
    )


def _instance(instance: Instance) -> str:
    shape = list(drawing_of(instance.kind).shape(instance))
    known = shape or [
        (name, figure(value)) for name, value in counts_of(instance) if isinstance(value, int)
    ]
    about = [("description", instance.description)] if instance.description else []
    return _cell(f"{instance.name}: {instance.kind}", _facts([*about, *known]))


def _chart(found: Result | HeuristicEntry | Plan) -> str:
    """Return the chart of a schedule; empty where there is none that can be drawn."""
    try:
        drawn = drawn_of(found)
        return svg_of(drawn.chart, drawn.bound)
    except PpsolveError:
        return ""


def _facts(rows: Iterable[tuple[str, str]]) -> str:
    cells = [
        f'<tr><th style="text-align:left">{text(name)}</th>'
        f'<td style="text-align:left">{text(shorten(" ".join(value.split()), LONGEST))}</td></tr>'
        for name, value in rows
    ]
    return f"<table>{''.join(cells)}</table>" if cells else ""


def _cell(head: str, *parts: str) -> str:
    title = f"<strong>{text(shorten(printable(head), LONGEST))}</strong>"
    return f"<div>{title}<br>{''.join(parts)}</div>"
