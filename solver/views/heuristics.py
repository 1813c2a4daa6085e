"""Heuristics as lists: what each does, what it needs, where it is from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.documents.printable import printable
from ppsolve.solver.heuristics.heuristic import Heuristic
from ppsolve.solver.views.tables import FactList, indented


def catalogue(heuristics: Iterable[Heuristic]) -> RenderableType:
    """Return all heuristics, by what they are made for, with what they need and their source."""
    groups: dict[str, list[Heuristic]] = {}
    for heuristic in heuristics:
        groups.setdefault(heuristic.made_for, []).append(heuristic)
    return Group(
        *(_section(f"for {words}", members) for words, members in groups.items())
    )


def applicable(
    name: str, heuristics: Sequence[Heuristic], obstacles: Sequence[str | None]
) -> RenderableType:
    """Return the heuristics that apply to an instance, and the reasons why others do not.

    `obstacles` says why each cannot be run; None where it can.
    """
    able, by_obstacle = [], defaultdict[str, list[str]](list)
    for heuristic, obstacle in zip(heuristics, obstacles, strict=True):
        if obstacle is None:
            able.append(heuristic)
        else:
            by_obstacle[obstacle].append(heuristic.name)
    sections = [_section(f"apply to {name}", able, says_needs=False)] if able else []
    head = [Text("do not apply", style="bold")] if by_obstacle else []
    reasons = (
        indented(
            Group(
                Text(f"{printable(why)}:", style="dim"),
                indented(Text(", ".join(names))),
            )
        )
        for why, names in by_obstacle.items()
    )
    return Group(*sections, *head, *reasons)


def heuristic_rows(
    heuristics: Sequence[Heuristic], obstacles: Sequence[str | None] | None = None
) -> list[dict[str, Any]]:
    """Return heuristics as plain data; `obstacles` as for `applicable`, where they are known."""
    names = ("name", "summary", "made_for", "needs", "source", "is_search")
    rows = [
        {name: getattr(heuristic, name) for name in names} for heuristic in heuristics
    ]
    for row, obstacle in zip(rows, obstacles or (), strict=False):
        row |= {"applies": obstacle is None, "reason": obstacle}
    return rows


def _section(
    title: str, rows: Sequence[Heuristic], *, says_needs: bool = True
) -> RenderableType:
    facts = []
    for heuristic in rows:
        needs = (
            [f"needs {', '.join(heuristic.needs)}"]
            if heuristic.needs and says_needs
            else []
        )
        lines = [heuristic.summary, *needs, f"from {heuristic.source}"]
        facts += [
            (heuristic.name if not index else "", line)
            for index, line in enumerate(lines)
        ]
    return Group(Text(title, "bold"), FactList(facts), Text())
