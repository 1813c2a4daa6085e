"""``ppsolve bestknown``: re-verify or improve the best-known file of a directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ppsolve.models.documents.printable import printable
from ppsolve.solver.cli.guard import ExitCode, say

if TYPE_CHECKING:
    from ppsolve.solver.bestknown.entries import Entry

Directory = Annotated[Path, typer.Argument(metavar="[DIR]", help="Directory of instances.")]
TimeLimit = Annotated[float, typer.Option(min=0.0, help="Seconds per instance.")]
Only = Annotated[str | None, typer.Option(help='Only files that match, e.g. "uniform/*".')]
Workers = Annotated[int | None, typer.Option(min=1, help="Search workers.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the search.")]
Again = Annotated[bool, typer.Option("--again", help="Solve closed instances too.")]


def register(app: typer.Typer) -> None:
    """Add the command group to `app`."""
    group = typer.Typer(no_args_is_help=True, help="The best-known bounds of a set of instances.")
    group.command("verify")(verify_command)
    group.command("update")(update_command)
    app.add_typer(group, name="bestknown")


def verify_command(directory: Directory = Path("instances")) -> None:
    """Prove every upper bound again with the checker.

    Exit codes: 0 all proven, 5 anything is wrong, 2 the files cannot be used.
    """
    from ppsolve.solver.bestknown.verification import verify

    total = wrong = 0
    for verified in verify(directory):
        total += 1
        wrong += bool(verified.problems)
        for problem in verified.problems:
            typer.echo(printable(f"WRONG {verified.name}: {problem}"))
        if not verified.problems:
            typer.echo(printable(f"ok    {verified.name}: {_summary(verified.entry)}"))
    typer.echo(f"{total - wrong} of {total} verified" + (f", {wrong} wrong" if wrong else ""))
    if wrong:
        raise typer.Exit(ExitCode.CHECK_FAILED)


def update_command(
    directory: Directory = Path("instances"),
    time_limit: TimeLimit = 60.0,
    only: Only = None,
    workers: Workers = None,
    seed: Seed = 0,
    again: Again = False,
) -> None:
    """Solve open instances and keep every better bound.

    Exit codes: 0 done, 5 a result contradicts what is known, 2 the files cannot be used.
    """
    from ppsolve.solver.bestknown.updating import update

    wrong = 0
    outcomes = update(
        directory, time_limit=time_limit, only=only, workers=workers, seed=seed, again=again
    )
    for outcome in outcomes:
        if outcome.problem is not None:
            wrong += 1
            say(f"WRONG {outcome.name}: {outcome.problem}")
            continue
        word = "same  " if outcome.after == outcome.before else "better"
        typer.echo(printable(f"{word} {outcome.name}: {_summary(outcome.after)}"))
    if wrong:
        raise typer.Exit(ExitCode.CHECK_FAILED)


def _summary(entry: Entry | None) -> str:
    if entry is None:
        return "nothing known"
    upper = "none" if entry.upper is None else f"{entry.upper.value} ({entry.upper.method})"
    lower = "none" if entry.lower is None else f"{entry.lower.value} ({entry.lower.method})"
    unit = "iterations" if entry.objective == "iterations" else entry.time_unit
    return f"{entry.status}, upper {upper}, lower {lower} {unit}"
