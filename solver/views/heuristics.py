"""Heuristics as lists: what each does, what it needs, where it is from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.documents.printable import printable
from ppsolve.solver.heuristics.heuristic import Heuristic
from ppsolve.solver.views.tables import FactList, indented


def catalogue(heuristics: Iterable[Heuristic]) -> RenderableType:
    """Return all heuristics, by what they are made for, with what they need and their source."""
    groups: dict[str, list[Heuristic]] = {}
    for one in heuristics:
        groups.setdefault(one.made_for, []).append(one)
    return Group(*(_section(f"for {words}", found) for words, found in groups.items()))


def applicable(
    name: str, heuristics: Sequence[Heuristic], obstacles: Sequence[str | None]
) -> RenderableType:
    """Return the heuristics that apply to an instance, and the reasons why others do not.

    `obstacles`: why each cannot be run; None where it can.
    """
    able, others = [], defaultdict[str, list[str]](list)
    for one, obstacle in zip(heuristics, obstacles, strict=True):
        if obstacle is None:
            able.append(one)
        else:
            others[obstacle].append(one.name)
    parts = [_section(f"apply to {name}", able, says_needs=False)] if able else []
    head = [Text("do not apply", style="bold")] if others else []
    reasons = (
        indented(
            Group(
                Text(f"{printable(why)}:", style="dim"),
                indented(Text(", ".join(names))),
            )
        )
        for why, names in others.items()
    )
    return Group(*parts, *head, *reasons)


def _section(
    title: str, rows: Sequence[Heuristic], *, says_needs: bool = True
) -> RenderableType:
    facts = []
    for one in rows:
        needs = [f"needs {', '.join(one.needs)}"] if one.needs and says_needs else []
        lines = [one.summary, *needs, f"from {one.source}"]
        facts += [
            (one.name if not place else "", line) for place, line in enumerate(lines)
        ]
    return Group(Text(title, "bold"), FactList(facts), Text())
