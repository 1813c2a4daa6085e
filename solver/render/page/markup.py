"""HTML written from plain values: everything that is not markup is escaped here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from ppsolve.models.documents.printable import printable


def text(value: str) -> str:
    """Return a text as HTML shows it, control characters written out."""
    return escape(printable(value))


def embedded(data: Any) -> str:
    """Return data as JSON that no element around it can mistake for markup.

    A script element ends at the first ``</``, whatever the JSON says; U+2028 and U+2029 end lines
    of older scripts.
    """
    written = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str, words: Sequence[int] = (0,)
) -> str:
    """Return a table.

    Parameters
    ----------
    heads : sequence of str
        Names of the columns.
    rows : iterable of sequence of str
        Cells as text.
    caption : str
        What it shows.
    words : sequence of int
        Columns of words, from 0; the others hold numbers.

    Returns
    -------
    str
        The element, in a box that scrolls sideways where it is too wide.
    """
    shown = "".join(_row(row, "td", words) for row in rows)
    return (
        f'<div class="wide" tabindex="0"><table><caption>{text(caption)}</caption>'
        f"<thead>{_row(heads, 'th', words)}</thead><tbody>{shown}</tbody></table></div>\n"
    )


def _row(cells: Sequence[str], tag: str, words: Sequence[int]) -> str:
    inner = []
    for number, cell in enumerate(cells):
        kind = ' class="word"' if number in words else ""
        scope = ' scope="col"' if tag == "th" else ""
        inner.append(f"<{tag}{kind}{scope}>{text(cell)}</{tag}>")
    return f"<tr>{''.join(inner)}</tr>"


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and values."""
    items = "".join(f"<div><dt>{text(n)}</dt><dd>{text(v)}</dd></div>" for n, v in rows)
    return f"<dl>{items}</dl>\n"
