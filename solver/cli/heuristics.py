"""``ppsolve heuristics``: every heuristic, what it needs, and which apply to an instance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ppsolve.models.instances import Instance
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.output import print_json, stdout_console
from ppsolve.solver.heuristics.heuristic import Heuristic
from ppsolve.solver.optimize.kinds import kind_of, load_instance
from ppsolve.solver.optimize.registry import all_heuristics
from ppsolve.solver.render.heuristics import applicable, catalogue

Example = Annotated[
    Path | None,
    typer.Argument(
        metavar="[INSTANCE]",
        help="Say which apply to this instance, and why others do not; - is stdin.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("heuristics")(heuristics_command)


def heuristics_command(file: Example = None, as_json: opt.Json = False) -> None:
    """List heuristics: what each does, needs, and is from.

    One that applies may still refuse or fail when it is run, which `ppsolve simulate` shows.
    """
    known = list(all_heuristics().values())
    instance = None if file is None else load_instance(file)
    obstacles = None if instance is None else [_obstacle(one, instance) for one in known]
    if as_json:
        print_json([_row(one, number, obstacles) for number, one in enumerate(known)])
    elif instance is None or obstacles is None:
        stdout_console().print(catalogue(known))
    else:
        stdout_console().print(applicable(instance.name, known, obstacles))


def _obstacle(heuristic: Heuristic, instance: Instance) -> str | None:
    return kind_of(instance).obstacle(heuristic, instance)


def _row(heuristic: Heuristic, number: int, obstacles: list[str | None] | None) -> dict[str, Any]:
    """Return a heuristic as JSON data."""
    row: dict[str, Any] = {
        "name": heuristic.name,
        "summary": heuristic.summary,
        "made_for": heuristic.made_for,
        "needs": list(heuristic.needs),
        "source": heuristic.source,
        "is_search": heuristic.is_search,
    }
    if obstacles is not None:
        row |= {"applies": obstacles[number] is None, "reason": obstacles[number]}
    return row
