"""Tables on the terminal, and lists of names and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.containers import Lines
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ppsolve.models.documents.printable import LONGEST_PART, printable, printable_lines
from ppsolve.solver.views.figures import ABSENT
from ppsolve.solver.views.terminal import WIDER, TerminalConsole


@dataclass(frozen=True)
class TableColumn:
    """A column of a table."""

    header: str  # its name, of one or more lines
    cells: Sequence[str] | None = None  # None: the column is left out
    is_text: bool = False  # left-aligned; numbers are right-aligned
    wraps: bool = (
        False  # long cells are continued on the next line instead of widening the table
    )
    wrap_at: int = (
        24  # columns that a column of long cells has before others are left out
    )
    # Columns with the largest number are left out first where space is short; 0 stays.
    expendable: int = 0
    order: Sequence[float | None] | None = (
        None  # figures by which readers may sort the rows
    )

    @property
    def title(self) -> str:
        """Its name on one line."""
        return self.header.replace("-\n", "-").replace("\n", " ")


class _FoldedText(Text):
    """Goes on in the next line behind a blank or one of ``-/_:``, if one is near."""

    def wrap(self, console: Console, width: int, **options: Any) -> Lines:
        rows = rf".{{1,{width}}}(?:(?<=\w[-/_:])| |$)|.{{{width}}}"
        return Text("\n".join(re.findall(rows, self.plain))).wrap(
            console, width, **options
        )


class FittingTable:
    """A table that leaves out its most expendable columns where the terminal is narrow.

    A line below says which, and from which width on all are shown. Pages and Markdown show all.
    """

    def __init__(
        self, *columns: TableColumn, styles: Sequence[str] = (), caption: str = ""
    ) -> None:
        kept = [
            (c, list(map(printable, c.cells))) for c in columns if c.cells is not None
        ]
        self.columns = [
            replace(c, header=printable_lines(c.header, LONGEST_PART), cells=cells)
            for c, cells in kept
        ]
        self.rows = list(zip(*(cells for _, cells in kept), strict=True))
        self.styles = styles or [""] * len(self.rows)
        self.caption = caption  # on pages

    def kept(self, names: Sequence[str]) -> FittingTable | None:
        """Return the table with its first column and those that begin with one of the names.

        They stand in the order of the names and are never left out; None where there are none.
        """
        chosen = {
            column.title: replace(column, expendable=0)
            for name in names
            for column in self.columns[1:]
            if column.title.lower().startswith(name.lower())
        }
        if not chosen:
            return None
        columns = (self.columns[0], *chosen.values())
        return FittingTable(*columns, styles=self.styles, caption=self.caption)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        """Yield the table with the columns that fit."""
        visible = self._shown(options.max_width)
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold"
        )
        for number in visible:
            column = self.columns[number]
            table.add_column(
                column.header,
                justify="left" if column.is_text else "right",
                no_wrap=not column.wraps,
                overflow="fold" if column.wraps else "ellipsis",
            )
        for cells, style in zip(self.rows, self.styles, strict=True):
            table.add_row(*(self._cell(cells[n], n) for n in visible), style=style)
        yield table
        hidden = [n for n in range(len(self.columns)) if n not in visible]
        if hidden:
            room = (
                console.width
                - options.max_width
                + self._width(range(len(self.columns)))
            )
            wider = console.wider if isinstance(console, TerminalConsole) else WIDER
            names = ", ".join(self.columns[number].title for number in hidden)
            text = f"left out: {names} ({wider.format(room)} shows all)"
            yield Text(text, "dim", overflow="fold")

    def _shown(self, room: int) -> list[int]:
        visible = list(range(len(self.columns)))
        while self._width(visible) > room:
            last = max(visible, key=lambda number: self.columns[number].expendable)
            if not self.columns[last].expendable:
                break
            visible.remove(last)
        return visible

    def _cell(self, cell: str, number: int) -> RenderableType:
        return _FoldedText(cell) if self.columns[number].wraps else cell

    def _width(self, visible: Iterable[int]) -> int:
        return sum(self._wanted(number) + 3 for number in visible) - 3

    def _wanted(self, number: int) -> int:
        lengths = [len(cells[number]) for cells in self.rows]
        widest = max([*map(len, self.columns[number].header.split("\n")), *lengths])
        column = self.columns[number]
        return min(widest, column.wrap_at) if column.wraps else widest


class FactList:
    """Names and values, one below the other."""

    def __init__(self, rows: Iterable[tuple[str, str]]) -> None:
        self.rows = [(printable(name), printable(value)) for name, value in rows]

    def __rich__(self) -> RenderableType:
        """Return a borderless list."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for row in self.rows:
            grid.add_row(*row)
        return indented(grid)


Row = TypeVar("Row")


@dataclass(frozen=True)
class Field(Generic[Row]):
    """A column of a table of rows: its heading, what it shows of a row, how figures are written."""

    header: str
    get: Callable[[Row], Any]
    expendable: int = 0
    show: Callable[[Any], str] | None = None  # of figures; columns of texts have none
    wraps: bool = False

    def column(self, rows: Sequence[Row]) -> TableColumn:
        """Return the column with the cells of rows."""
        values = [self.get(row) for row in rows]
        cells, show = values, self.show
        if show is not None:
            cells = [ABSENT if value is None else show(value) for value in values]
        return TableColumn(
            self.header,
            cells,
            is_text=show is None,
            wraps=self.wraps,
            expendable=self.expendable,
            order=None if show is None else values,
        )


def table_of(
    rows: Sequence[Row],
    *fields: Field[Row],
    styles: Sequence[str] = (),
    caption: str = "",
) -> FittingTable:
    """Return a table with a row, and a style if there are any, for each of some things."""
    return FittingTable(
        *(f.column(rows) for f in fields), styles=styles, caption=caption
    )


def each(values: Iterable[Any] | None, show: Callable[[Any], str]) -> list[str] | None:
    """Return the cells that `show` makes of values, or None where they are not known."""
    return None if values is None else [show(value) for value in values]


def indented(renderable: RenderableType) -> RenderableType:
    """Return `renderable` two columns further right."""
    return Padding(renderable, (0, 0, 0, 2), expand=False)
