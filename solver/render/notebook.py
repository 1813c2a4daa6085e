"""Rows as data frames of pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result
from ppsolve.models.curve import Curve
from ppsolve.models.documents.display import counts_of
from ppsolve.models.documents.errors import InputError, PpsolveError
from ppsolve.models.documents.printable import printable
from ppsolve.models.instances import Instance
from ppsolve.models.plan.result import Plan
from ppsolve.solver.render.curve import curve_report
from ppsolve.solver.render.drawing import distances
from ppsolve.solver.render.drawings import drawing_of, drawn_of
from ppsolve.solver.render.figures import figure, figures, percent, shorten
from ppsolve.solver.render.page.tables import plain, plan_part, table, text
from ppsolve.solver.render.plan import goodput_text
from ppsolve.solver.render.reports import ranked
from ppsolve.solver.render.svg_chart import svg_of
from ppsolve.solver.render.wording import unit_of

if TYPE_CHECKING:
    from pandas import DataFrame

_ROWS = 30  # rows of a table: heuristics, configurations. A note counts the others

_LETTERS = 200  # characters of one text


def html_of(document: object) -> str | None:
    """Return a document as HTML, for a notebook.

    Parameters
    ----------
    document : Result, HeuristicEntry, Plan, Curve or Instance

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
    ran = [e for e in ranked(result.heuristics) if e.status is not HeuristicStatus.NOT_APPLICABLE]
    if not ran:
        return ""
    shown = ran[:_ROWS]
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
    few = plan.model_copy(update={"table": plan.table[:_ROWS]})
    more = len(plan.table) - _ROWS
    note = f"<p>{more:,} more configurations are not listed</p>" if more > 0 else ""
    chart = _chart(plan) if plan.result is not None else ""
    folded = f"<details><summary>Configurations</summary>{plan_part(few)}{note}</details>"
    known = _facts([("goodput", goodput_text(plan.goodput))])
    return _cell(f"{plan.request}: {plan.status.value}", chart, known, folded)


def _instance(instance: Instance) -> str:
    shape = list(drawing_of(instance.kind).shape(instance))
    known = shape or [
        (name, figure(value)) for name, value in counts_of(instance) if isinstance(value, int)
    ]
    about = [("description", instance.description)] if instance.description else []
    return _cell(f"{instance.name}: {instance.kind}", _facts([*about, *known]))


def _chart(found: Result | HeuristicEntry | Plan) -> str:
    try:
        drawn = drawn_of(found)
        return svg_of(drawn.chart, drawn.bound)
    except PpsolveError:
        return ""


def _facts(rows: Iterable[tuple[str, str]]) -> str:
    cells = [
        f'<tr><th style="text-align:left">{text(name)}</th>'
        f'<td style="text-align:left">{text(shorten(" ".join(value.split()), _LETTERS))}</td></tr>'
        for name, value in rows
    ]
    return f"<table>{''.join(cells)}</table>" if cells else ""


def _cell(head: str, *parts: str) -> str:
    title = f"<strong>{text(shorten(printable(head), _LETTERS))}</strong>"
    return f"<div>{title}<br>{''.join(parts)}</div>"


# Columns of whole numbers, some of which may be missing.
COUNTED = ("stage", "device", "microbatch", "replica")


def frame_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> DataFrame:
    """Return rows as a data frame.

    Parameters
    ----------
    rows : sequence of mapping
    columns : sequence of str
        The columns, also where there are no rows.

    Returns
    -------
    DataFrame
        Stages, devices, micro-batches and replicas are ``Int64``, which knows missing values.

    Raises
    ------
    InputError
        pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise InputError("needs pandas, which is not installed: pip install pandas") from None
    found = pandas.DataFrame(rows, columns=list(columns))
    return found.astype({name: "Int64" for name in COUNTED if name in found.columns})
