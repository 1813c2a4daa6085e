"""``ppsolve optimize``: the best schedule, its bound, and every heuristic beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ppsolve.models.core.result import Result
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.instances import Instance
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.doubts import question_units
from ppsolve.solver.cli.guard import say
from ppsolve.solver.cli.orders import expect_orders, order_of, print_order
from ppsolve.solver.cli.output import check_writable, deliver, stdout_console
from ppsolve.solver.cli.solving import exit_code, solve
from ppsolve.solver.optimize.kinds import load_instance
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
