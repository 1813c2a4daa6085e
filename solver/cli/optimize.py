"""``ppsolve optimize``: the best schedule, its bound, and every heuristic beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ppsolve.models.core.result import Result
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.instances import Instance
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.compare import NamedInstance, finish
from ppsolve.solver.cli.doubts import question_units
from ppsolve.solver.cli.guard import about_file, say
from ppsolve.solver.cli.orders import expect_orders, order_of, print_order
from ppsolve.solver.cli.output import check_writable, deliver, stdout_console
from ppsolve.solver.cli.solving import exit_code, solve
from ppsolve.solver.optimize.kinds import load_instance
from ppsolve.solver.plan.placements import NamedPlacement, placements_of
from ppsolve.solver.render.reports import report, summary_line

PrintOrder = Annotated[
    bool,
    typer.Option(
        "--print-order",
        help="Print only the new order: a line per name (kind overlap) or per device (pipeline).",
        rich_help_panel=opt.OUTPUT,
    ),
]


Start = Annotated[
    Path | None,
    typer.Option(
        "--start",
        metavar="RESULT",
        help="Begin with the schedule of this result; the answer is never worse.",
        rich_help_panel=opt.SEARCH,
    ),
]


Placements = Annotated[
    str | None,
    typer.Option(
        "--placements",
        metavar="A,B",
        help="Compare placements, the best first: linear,vshape,interleaved:4 (4 per device).",
        rich_help_panel=opt.SEARCH,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("optimize")(optimize_command)


@opt.with_solve_options
def optimize_command(
    file: opt.InstanceFile,
    options: opt.SolveOptions,
    fail_on_gap: opt.FailOnGap = None,
    as_json: opt.Json = False,
    output: opt.Output = None,
    prints_order: PrintOrder = False,
    start: Start = None,
    placements: Placements = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Find the best schedule of an instance and prove how good it is.

    Exit codes: 0 schedule found, 2 wrong input, 3 proven infeasible, 4 limit reached without a
    schedule, 6 --fail-on-gap exceeded, 130 interrupted (best schedule so far printed and saved).
    """
    began = time.monotonic()
    check_writable(output, file, *([start] if start else []))
    if prints_order:
        _refuse_json(output, as_json=as_json)
    instance = load_instance(file)
    question_units(instance, source_name(file))
    if placements is not None:
        _refuse_with_placements(start, prints_order=prints_order)
        cases, shared = _on_placements(file, instance, placements, options)
        kept = {"as_json": as_json, "quiet": quiet, "verbose": verbose}
        raise typer.Exit(finish(cases, shared, fail_on_gap, output, is_ranking=True, **kept))
    if prints_order:
        expect_orders(instance, file, "--print-order")
    with _about_start(start) as known:
        result = solve(
            file, instance, options, quiet=quiet, verbose=verbose, began=began, start=known
        )
    used_stdout = deliver(result, output, as_json=as_json)
    if prints_order:
        _print_order(result)
    elif not used_stdout:
        _print_report(result, instance, quiet=quiet, verbose=verbose)
    raise typer.Exit(exit_code(result, fail_on_gap))


def _on_placements(
    file: Path, instance: Instance, placements: str, options: opt.SolveOptions
) -> tuple[list[NamedInstance], opt.SolveOptions]:
    """Return a case for each placement, and options with an equal part of the time for each."""
    try:
        layouts = [NamedPlacement.read(text) for text in placements.split(",")]
    except InputError as error:
        raise InputError(error.message, field="--placements") from None
    with about_file(instance, file):
        made = placements_of(instance, layouts)
    share = replace(options, time_limit=options.time_limit / len(made))
    return [NamedInstance(str(file), each, each.name) for each in made], share


def _refuse_with_placements(start: Path | None, *, prints_order: bool) -> None:
    for option, is_given in (("--start", start is not None), ("--print-order", prints_order)):
        if is_given:
            raise InputError("expected no --placements with it", field=option)


@contextmanager
def _about_start(path: Path | None) -> Iterator[Any]:
    """Read the result that the search begins with, and let errors about it name its file."""
    if path is None:
        yield None
        return
    try:
        yield read_json(path)
    except InputError as error:
        raise error.located(source_name(path)) if error.field == "start" else error from None


def _refuse_json(output: Path | None, *, as_json: bool) -> None:
    if as_json or str(output) == "-":
        raise InputError("expected either JSON or the order on stdout", field="--print-order")


def _print_report(result: Result, instance: Instance, *, quiet: bool, verbose: bool) -> None:
    shown = summary_line(result) if quiet else report(result, verbose=verbose, instance=instance)
    stdout_console().print(shown, soft_wrap=quiet)


def _print_order(result: Result) -> None:
    """Print the order, or say on stderr what there is instead."""
    if order_of(result) is None:
        say(summary_line(result).plain)
    else:
        print_order(result, result.instance)
