"""Reports of the terminal as HTML: the same sentences, facts and tables."""

from __future__ import annotations

from html import escape

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ppsolve.models.documents.printable import LONGEST_PART, printable
from ppsolve.solver.views.figures import counted, shorten
from ppsolve.solver.views.line_chart import LineChart
from ppsolve.solver.views.tables import FactList, FittingTable, TableColumn

LEFT = ' style="text-align:left"'  # where there is no style sheet, as in notebooks


def text(value: str) -> str:
    """Return a text as HTML shows it, control characters written out."""
    return escape(printable(value))


def html(
    part: RenderableType, most: int | None = None, letters: int = LONGEST_PART
) -> str:
    """Return a part of a report.

    `part`: a text, facts, a table, or a group of them.
    `most`: rows of a table, which is folded then. A note counts the others.
    `letters`: most letters of a fact.
    """
    if isinstance(part, LineChart):
        part = part.__rich__()
    if isinstance(part, Group):
        return "".join(html(each, most, letters) for each in part.renderables)
    if isinstance(part, Padding):
        return html(part.renderable, most, letters)
    if isinstance(part, FactList):
        return _facts(part, most, letters)
    if isinstance(part, FittingTable):
        return table_html(part, most)
    assert isinstance(part, Text), part
    shown = text(part.plain)
    for style, tag in (("bold", "strong"), ("code", "code")):
        shown = f"<{tag}>{shown}</{tag}>" if style in str(part.style) else shown
    return f"<p>{shown}</p>\n" if shown.strip() else ""


def _facts(found: FactList, most: int | None, letters: int) -> str:
    cells = [
        f"<tr><th{LEFT}>{text(name)}</th>"
        f"<td{LEFT}>{text(shorten(' '.join(value.split()), letters))}</td></tr>"
        for name, value in found.rows[:most]
    ]
    return f'<table class="list">{"".join(cells)}</table>\n' if cells else ""


def table_html(found: FittingTable, most: int | None = None) -> str:
    """Return a table in a box that scrolls sideways where it is too wide.

    `most`: rows of a folded table.
    """
    caption = f"<caption>{text(found.caption)}</caption>" if found.caption else ""
    heads = "".join(
        f'<th scope="col"{_class(c, "")}>{text(c.title)}</th>' for c in found.columns
    )
    body = ""
    for place, row in enumerate(found.rows[:most]):
        cells = (
            _cell(c, place, cell) for c, cell in zip(found.columns, row, strict=True)
        )
        body += f"<tr>{''.join(cells)}</tr>"
    shown = (
        f'<div class="wide" tabindex="0"><table>{caption}'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>\n"
    )
    if most is None or not found.rows:
        return shown
    more = (
        f", {len(found.rows) - most:,} more are not listed"
        if len(found.rows) > most
        else ""
    )
    summary = counted(len(found.rows[:most]), text(found.columns[0].title)) + more
    return f"<details><summary>{summary}</summary>{shown}</details>\n"


def _cell(column: TableColumn, place: int, cell: str) -> str:
    order = column.order[place] if column.order else None
    sort = f' data-order="{float(order)!r}"' if isinstance(order, int | float) else ""
    shown = text(cell).replace("/", "/<wbr>" if column.wraps else "/")
    return f"<td{_class(column, cell)}{sort}>{shown}</td>"


def _class(column: TableColumn, cell: str) -> str:
    if not column.is_text:
        return ""
    return ' class="text long"' if column.wraps or len(cell) > 40 else ' class="text"'
