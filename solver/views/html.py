"""Reports of the terminal as HTML: the same sentences, facts and tables."""

from __future__ import annotations

import re
from html import escape

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ppsolve.models.documents.printable import LONGEST_PART, printable
from ppsolve.solver.views.figures import counted, shorten
from ppsolve.solver.views.line_chart import LineChart
from ppsolve.solver.views.tables import FactList, FittingTable, TableColumn

BREAK = re.compile(r"([/:_])(?=[\w.])")
"""Where names may go on in the next line, beside blanks and hyphens."""

LEFT = ' style="text-align:left"'  # where there is no style sheet, as in notebooks


def text(value: str) -> str:
    """Return a text as HTML shows it, control characters written out."""
    return escape(printable(value))


def html(
    renderable: RenderableType, limit: int | None = None, letters: int = LONGEST_PART
) -> str:
    """Return a part of a report: a text, facts, a table, or a group of them.

    A `limit` of rows folds a table, and a note counts the others. Facts have at most so many
    `letters`.
    """
    if isinstance(renderable, LineChart):
        renderable = renderable.__rich__()
    if isinstance(renderable, Group):
        return "".join(html(child, limit, letters) for child in renderable.renderables)
    if isinstance(renderable, Padding):
        return html(renderable.renderable, limit, letters)
    if isinstance(renderable, FactList):
        return _facts(renderable, limit, letters)
    if isinstance(renderable, FittingTable):
        return table_html(renderable, limit)
    assert isinstance(renderable, Text), renderable
    markup = text(renderable.plain)
    for style, tag in (("bold", "strong"), ("code", "code")):
        markup = (
            f"<{tag}>{markup}</{tag}>" if style in str(renderable.style) else markup
        )
    return f"<p>{markup}</p>\n" if markup.strip() else ""


def _facts(facts: FactList, limit: int | None, letters: int) -> str:
    cells = [
        f"<tr><th{LEFT}>{text(name)}</th>"
        f"<td{LEFT}>{text(shorten(' '.join(value.split()), letters))}</td></tr>"
        for name, value in facts.rows[:limit]
    ]
    return f'<table class="list">{"".join(cells)}</table>\n' if cells else ""


def table_html(table: FittingTable, limit: int | None = None) -> str:
    """Return a table in a box that scrolls sideways where it is too wide.

    A `limit` of rows folds it.
    """
    caption = f"<caption>{text(table.caption)}</caption>" if table.caption else ""
    heads = "".join(
        f'<th scope="col"{_class(c, "")}>{text(c.title)}</th>' for c in table.columns
    )
    body = ""
    for index, row in enumerate(table.rows[:limit]):
        cells = (
            _cell(c, index, cell) for c, cell in zip(table.columns, row, strict=True)
        )
        body += f"<tr>{''.join(cells)}</tr>"
    markup = (
        f'<div class="wide" tabindex="0"><table>{caption}'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>\n"
    )
    if limit is None or not table.rows:
        return markup
    suffix = (
        f", {len(table.rows) - limit:,} more are not listed"
        if len(table.rows) > limit
        else ""
    )
    summary = counted(len(table.rows[:limit]), text(table.columns[0].title)) + suffix
    return f"<details><summary>{summary}</summary>{markup}</details>\n"


def _cell(column: TableColumn, index: int, cell: str) -> str:
    order = column.order[index] if column.order else None
    sort = f' data-order="{float(order)!r}"' if isinstance(order, int | float) else ""
    markup = BREAK.sub(r"\1<wbr>", text(cell)) if column.is_text else text(cell)
    return f"<td{_class(column, cell)}{sort}>{markup}</td>"


def _class(column: TableColumn, cell: str) -> str:
    if not column.is_text:
        return ""
    return ' class="text long"' if column.wraps or len(cell) > 40 else ' class="text"'
