"""Tables of texts that every output of a report shares, and how figures become their cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ppsolve.solver.render.figures import ABSENT, percent, seconds

Row = TypeVar("Row")


@dataclass(frozen=True)
class TableCell:
    """A cell of a table.

    Parameters
    ----------
    text : str
        What it shows.
    order : float, optional
        Figure by which readers may sort it; None where it is no figure.
    """

    text: str
    order: float | None = None


@dataclass(frozen=True)
class Heading:
    """The heading of a column; texts are left-aligned, and the most expendable leave first."""

    name: str
    is_text: bool = False
    expendable: int = 0


@dataclass(frozen=True)
class SortableTable:
    """A table: headings, and rows with a cell for each."""

    headings: tuple[Heading, ...]
    rows: tuple[tuple[TableCell, ...], ...]


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Parameters
    ----------
    title : str
        Its heading.
    notes : tuple of str
        Sentences below the heading.
    sheet : SortableTable, optional
        Its table.
    is_alarm : bool
        Something is wrong, which readers should see first.
    family : str, optional
        The family that it is about; None where it is about all of them.
    picture : str, optional
        Name of the picture that belongs to it.
    """

    title: str
    notes: tuple[str, ...] = ()
    sheet: SortableTable | None = None
    is_alarm: bool = False
    family: str | None = None
    picture: str | None = None


@dataclass(frozen=True)
class Field(Generic[Row]):
    """A column, by its heading and the cell that it makes of a row."""

    heading: Heading
    cell: Callable[[Row], TableCell]


def sheet(fields: Sequence[Field[Row]], rows: Sequence[Row]) -> SortableTable:
    """Return the table of some rows.

    Parameters
    ----------
    fields : sequence of Field
        Columns from left to right.
    rows : sequence
        What the rows are about.

    Returns
    -------
    SortableTable
        One row each.
    """
    cells = tuple(tuple(field.cell(row) for field in fields) for row in rows)
    return SortableTable(tuple(field.heading for field in fields), cells)


def texts(name: str, get: Callable[[Row], str], expendable: int = 0) -> Field[Row]:
    """Return a column of texts.

    Parameters
    ----------
    name : str
        Its heading.
    get : callable
        Returns the text of a row.
    expendable : int
        As `Heading` has it.

    Returns
    -------
    Field
        The column.
    """
    return Field(Heading(name, True, expendable), lambda row: TableCell(get(row)))


def counts(name: str, get: Callable[[Row], int], expendable: int = 0) -> Field[Row]:
    """Return a column of whole numbers; parameters as for `texts`.

    Parameters
    ----------
    name : str
        Its heading.
    get : callable
        Returns the number of a row.
    expendable : int
        As `Heading` has it.

    Returns
    -------
    Field
        The column.
    """
    return figures(name, get, expendable, lambda value: f"{value:,}")


def shares(name: str, get: Callable[[Row], float | None], expendable: int = 0) -> Field[Row]:
    """Return a column of shares, written as percentages.

    Parameters
    ----------
    name : str
        Its heading.
    get : callable
        Returns the share of a row, None where there is none.
    expendable : int
        As `Heading` has it.

    Returns
    -------
    Field
        The column.
    """
    return figures(name, get, expendable, percent)


def times(name: str, get: Callable[[Row], float | None], expendable: int = 0) -> Field[Row]:
    """Return a column of wall times in seconds.

    Parameters
    ----------
    name : str
        Its heading.
    get : callable
        Returns the seconds of a row, None where there are none.
    expendable : int
        As `Heading` has it.

    Returns
    -------
    Field
        The column.
    """
    return figures(name, get, expendable, seconds)


def figures(
    name: str,
    get: Callable[[Row], Any],
    expendable: int,
    show: Callable[[Any], str],
) -> Field[Row]:
    """Return a column of figures.

    Parameters
    ----------
    name : str
        Its heading.
    get : callable
        Returns the figure of a row, None where there is none.
    expendable : int
        As `Heading` has it.
    show : callable
        Returns the text of a figure.

    Returns
    -------
    Field
        The column.
    """

    def cell(row: Row) -> TableCell:
        value = get(row)
        return TableCell(ABSENT) if value is None else TableCell(show(value), float(value))

    return Field(Heading(name, False, expendable), cell)
