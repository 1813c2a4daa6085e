"""Tables on the terminal, and lists of names and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ppsolve.models.documents.printable import LONGEST_PART, printable, printable_lines
from ppsolve.solver.render.figures import shorten
from ppsolve.solver.render.terminal import WIDER, TerminalConsole


@dataclass(frozen=True)
class TableColumn:
    """A column of a `FittingTable`."""

    header: str  # its name, of one or more lines
    cells: Sequence[str] | None = None  # its cells, for `table`
    is_text: bool = False  # left-aligned; numbers are right-aligned
    wraps: bool = False  # long cells are continued on the next line instead of widening the table
    # Long cells are cut to what the other columns leave; for one column of a table.
    is_cut: bool = False
    # Columns with the largest number are left out first where space is short; 0 stays.
    expendable: int = 0


class FittingTable:
    """A table that leaves out its most expendable columns where the terminal is narrow.

    A line below says which, and from which width on all are shown.
    """

    def __init__(self, *columns: TableColumn) -> None:
        self._columns = [
            replace(c, header=printable_lines(c.header, LONGEST_PART)) for c in columns
        ]
        self._rows: list[tuple[tuple[str, ...], str]] = []

    def add_row(self, *cells: str, style: str = "") -> None:
        """Add one cell for each column.

        Parameters
        ----------
        *cells : str
        style : str
        """
        self._rows.append((tuple(map(printable, cells)), style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table with the columns that fit."""
        shown = self._shown(options.max_width)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
        for number in shown:
            column = self._columns[number]
            table.add_column(
                column.header,
                justify="left" if column.is_text else "right",
                no_wrap=not column.wraps,
                overflow="fold" if column.wraps else "ellipsis",
            )
        spare = options.max_width - self._width(shown)
        for cells, style in self._rows:
            table.add_row(*(self._cut(cells[n], n, spare) for n in shown), style=style)
        yield table
        hidden = [n for n in range(len(self._columns)) if n not in shown]
        if hidden:
            room = console.width - options.max_width + self._width(range(len(self._columns)))
            wider = console.wider if isinstance(console, TerminalConsole) else WIDER
            shows_all = wider.format(room)
            yield Text(self._left_out(hidden, shows_all), "dim", overflow="fold")

    def _shown(self, room: int) -> list[int]:
        shown = list(range(len(self._columns)))
        while self._width(shown) > room:
            last = max(shown, key=lambda number: self._columns[number].expendable)
            if not self._columns[last].expendable:
                break
            shown.remove(last)
        return shown

    def _left_out(self, hidden: Sequence[int], shows_all: str) -> str:
        headers = [self._columns[number].header for number in hidden]
        names = ", ".join(t.replace("-\n", "-").replace("\n", " ") or "bars" for t in headers)
        return f"left out: {names} ({shows_all} shows all)"

    def _cut(self, cell: str, number: int, spare: int) -> str:
        if not self._columns[number].is_cut:
            return cell
        return shorten(cell, self._wanted(number) + spare)

    def _width(self, shown: Iterable[int]) -> int:
        return sum(self._wanted(number) + 3 for number in shown) - 3

    def _wanted(self, number: int) -> int:
        lengths = [len(cells[number]) for cells, _ in self._rows]
        widest = max([*map(len, self._columns[number].header.split("\n")), *lengths])
        column = self._columns[number]
        if column.is_cut:
            return min(widest, 36)  # before other columns are left out
        return min(widest, 24) if column.wraps else widest


def facts(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Return a borderless list of names and values."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(printable(name), printable(value))
    return indented(grid)


def table(*columns: TableColumn, styles: Sequence[str] | None = None) -> FittingTable:
    """Return a table of columns with their cells; those without any are left out.

    Parameters
    ----------
    *columns : TableColumn
    styles : sequence of str, optional

    Returns
    -------
    FittingTable
    """
    found = FittingTable(*(column for column in columns if column.cells is not None))
    rows = list(zip(*(column.cells for column in columns if column.cells is not None), strict=True))
    for row, style in zip(rows, styles or [""] * len(rows), strict=True):
        found.add_row(*row, style=style)
    return found


def each(values: Iterable[Any] | None, show: Callable[[Any], str]) -> list[str] | None:
    """Return the cells of a column, or None where its values are not known.

    Parameters
    ----------
    values : iterable, optional
    show : callable
        Returns the cell of a value.

    Returns
    -------
    list of str or None
    """
    return None if values is None else [show(value) for value in values]


def indented(renderable: RenderableType) -> RenderableType:
    """Return `renderable` two columns further right."""
    return Padding(renderable, (0, 0, 0, 2), expand=False)
