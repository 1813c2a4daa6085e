"""Heuristics as lists: what each does, what it needs, where it is from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ppsolve.models.documents.printable import printable
from ppsolve.solver.heuristics.heuristic import Heuristic
from ppsolve.solver.render.tables import indented

Row = tuple[Heuristic, Sequence[str]]  # a heuristic and the lines beside its name


def catalogue(heuristics: Iterable[Heuristic]) -> RenderableType:
    """Return all heuristics, by what they are made for, with what they need and their source."""
    groups: dict[str, list[Row]] = {}
    for one in heuristics:
        needs = [f"needs {', '.join(one.needs)}"] if one.needs else []
        groups.setdefault(one.made_for, []).append((one, [one.summary, *needs, _source(one)]))
    return Group(
        *(part for words, rows in groups.items() for part in _section(f"for {words}", rows))
    )


def applicable(
    name: str, heuristics: Sequence[Heuristic], obstacles: Sequence[str | None]
) -> RenderableType:
    """Return the heuristics that apply to an instance, and the reasons why others do not.

    Parameters
    ----------
    name : str
    heuristics : sequence of Heuristic
    obstacles : sequence of str or None
        Why each cannot be run; None where it can.

    Returns
    -------
    RenderableType
    """
    pairs = list(zip(heuristics, obstacles, strict=True))
    able = [(one, [one.summary, _source(one)]) for one, obstacle in pairs if obstacle is None]
    others: dict[str, list[str]] = {}
    for one, obstacle in pairs:
        if obstacle is not None:
            others.setdefault(obstacle, []).append(one.name)
    return Group(*_section(f"apply to {name}", able), *_reasons(others))


def _section(title: str, rows: Sequence[Row]) -> Iterator[RenderableType]:
    if not rows:
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for heuristic, (summary, *more) in rows:
        lines = Text("\n").join(
            [Text(printable(summary)), *(Text(printable(line), style="dim") for line in more)]
        )
        grid.add_row(Text(printable(heuristic.name), style="bold"), lines)
    yield Text(printable(title), style="bold")
    yield indented(grid)
    yield Text()


def _reasons(names_by_reason: Mapping[str, Sequence[str]]) -> Iterator[RenderableType]:
    if names_by_reason:
        yield Text("do not apply", style="bold")
    for reason, names in names_by_reason.items():
        yield indented(Text(f"{printable(reason)}:", style="dim"))
        yield indented(indented(Text(", ".join(map(printable, names)))))


def _source(heuristic: Heuristic) -> str:
    return f"from {heuristic.source}"
