"""Rows as data frames of pandas."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.documents.display import counts_of
from ppsolve.models.documents.errors import ErrorCode, InputError, PpsolveError
from ppsolve.models.instances import Instance
from ppsolve.models.studies.curve import Curve
from ppsolve.models.studies.plan.result import Plan
from ppsolve.models.studies.what_if import WhatIf
from ppsolve.solver.views.curve import curve_report
from ppsolve.solver.views.drawings import drawing_of
from ppsolve.solver.views.figures import figure, percent, shorten
from ppsolve.solver.views.html import html, text
from ppsolve.solver.views.line_chart import has_matplotlib, styled
from ppsolve.solver.views.plan import plan_report
from ppsolve.solver.views.plot.pictures import drawn_of
from ppsolve.solver.views.plot.schedule import schedule_figure
from ppsolve.solver.views.plot.sheet import PAPER, SHEET, png_of
from ppsolve.solver.views.reports import report
from ppsolve.solver.views.tables import FactList
from ppsolve.solver.views.what_if import what_if_report

if TYPE_CHECKING:
    from pandas import DataFrame

ROWS, LETTERS = 30, 200  # rows of a table, characters of a text


def html_of(document: object) -> str | None:
    """Return a document as static HTML without scripts, for a notebook.

    Other documents give None: a notebook shows them by `repr`.
    """
    if isinstance(document, Result):
        return _cell(report(document, verbose=True), document)
    if isinstance(document, HeuristicEntry):
        rows = [
            ("value", figure(document.value)),
            ("over the best", percent(document.gap)),
        ]
        rows += [("reason", document.reason)] if document.reason else []
        return _cell(_about(document.name, document.status.value, rows), document)
    if isinstance(document, Plan):
        return _cell(plan_report(document, verbose=True), document)
    if isinstance(document, Curve | WhatIf):
        told = (
            curve_report(document)
            if isinstance(document, Curve)
            else what_if_report(document)
        )
        return f"<div>{html(told)}</div>"
    if isinstance(document, Instance):
        shape = drawing_of(document.kind).shape(document)
        counts = ((n, figure(v)) for n, v in counts_of(document) if isinstance(v, int))
        about = [("description", document.description)] if document.description else []
        return _cell(
            _about(document.name, document.kind, [*about, *(list(shape) or counts)])
        )
    return None


def _about(name: str, summary: str, rows: Iterable[tuple[str, str]]) -> Group:
    return Group(Text(f"{name}: {summary}"), FactList(rows))


def _cell(report: Group, source: Result | HeuristicEntry | Plan | None = None) -> str:
    title, *body = report.renderables
    chart = "" if source is None else _chart(source)
    head = text(shorten(str(title), LETTERS))
    return f"<div><strong>{head}</strong><br>{chart}{html(Group(*body), ROWS, LETTERS)}</div>"


def _chart(source: Result | HeuristicEntry | Plan) -> str:
    if not has_matplotlib():
        return ""
    try:
        drawn = drawn_of(source)
        with styled(PAPER):
            data = b64encode(
                png_of(schedule_figure(drawn, "", SHEET.page_inches))
            ).decode()
    except PpsolveError:
        return ""
    alt = text(drawn.caption)
    return (
        f"<style>{DARK}</style>"
        f'<img class="ppsolve-chart" style="max-width:100%" alt="{alt}" '
        f'src="data:image/png;base64,{data}">'
    )


# Dark themes of Jupyter, Colab, pages of Sphinx and VS Code; that of the system may be another.
_THEMES = (
    '[data-jp-theme-light="false"]',
    '[theme="dark"]',
    '[data-theme="dark"]',
    ".vscode-dark",
)
DARK = f"{', '.join(f'{theme} .ppsolve-chart' for theme in _THEMES)} "
DARK += "{filter: invert(.9) hue-rotate(180deg)}"


# Columns of whole numbers, some of which may be missing.
COUNTED = ("stage", "device", "microbatch", "slice", "replica")


def frame_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> DataFrame:
    """Return rows as a data frame, which has its columns also where there are no rows.

    Stages, devices, micro-batches, slices and replicas are ``Int64``, which knows missing values.
    An `InputError` says that pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise InputError(
            "needs pandas, which is not installed: pip install pandas",
            code=ErrorCode.NOT_INSTALLED,
        ) from None
    frame = pandas.DataFrame(rows, columns=list(columns))
    return frame.astype({name: "Int64" for name in COUNTED if name in frame.columns})
