"""``ppsolve plan``: the configuration with the highest goodput, and why all others lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import source_name
from ppsolve.models.documents.text import instance_text
from ppsolve.models.plan.request import load_request
from ppsolve.models.plan.result import Plan
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.charts import Chart, check_chart, check_outputs, write_chart
from ppsolve.solver.cli.guard import ExitCode, say
from ppsolve.solver.cli.output import deliver, json_text, save, stdout_console
from ppsolve.solver.plan import api
from ppsolve.solver.render.plan import plan_chart, plan_line, plan_report
from ppsolve.solver.render.progress import plan_progress

in_limits = partial(typer.Option, rich_help_panel=opt.LIMITS)
in_output = partial(typer.Option, rich_help_panel=opt.OUTPUT)

RequestFile = Annotated[
    Path,
    typer.Argument(metavar="REQUEST", help="Plan request (JSON); - is stdin.", show_default=False),
]
SECONDS = (
    "Wall seconds, from the first winner on; with --deterministic or --exhaustive those "
    "of each exact search."
)
TimeLimit = Annotated[float, opt.time_limit(SECONDS)]
Finalists = Annotated[
    int, in_limits(metavar="N", min=0, help="Configurations given to the exact solver at most.")
]
LEAVE = "Leave configurations that may be better by at most this share."
Gap = Annotated[float, in_limits(metavar="G", min=0, max=1, help=LEAVE)]
NO_BOUNDS = "Prune nothing by bounds: all go to the exact solver."
Exhaustive = Annotated[
    bool, typer.Option("--exhaustive", help=NO_BOUNDS, rich_help_panel=opt.SEARCH)
]
InstanceOut = Annotated[
    Path | None, in_output(metavar="FILE", help="Write the winner's pipeline instance here.")
]
ResultOut = Annotated[
    Path | None, in_output(metavar="FILE", help="Write the winner's result with its schedule here.")
]
ROWS = "Rows of the table [10; all with --verbose]."
Top = Annotated[int | None, in_output(metavar="N", min=0, help=ROWS, show_default=False)]

OPTION_OF = {"time_limit": "--time-limit", "finalists": "--finalists", "gap": "--gap"}
"""Options by the names that the library gives them in errors."""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    summary = "Choose the configuration with the highest goodput."
    app.command("plan", short_help=summary)(plan_command)


def plan_command(
    request: RequestFile,
    time_limit: TimeLimit = 45.0,
    finalists: Finalists = 12,
    gap: Gap = 0.0,
    exhaustive: Exhaustive = False,
    deterministic: opt.Deterministic = False,
    workers: opt.Workers = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    output: opt.Output = None,
    instance_out: InstanceOut = None,
    result_out: ResultOut = None,
    chart: Chart = None,
    top: Top = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Choose how to train: pipeline depth, replicas, placement, micro-batches, schedule.

    Of all configurations of the request the one with the highest goodput is found, by bounds,
    heuristics and the exact solver, and why every other one lost. Exit codes: 0 found, 2 wrong
    input, 3 proved that none fits the memory, 4 no schedule found, 130 interrupted (best so far
    printed and saved).
    """
    options = {
        "time_limit": time_limit,
        "finalists": finalists,
        "gap": gap,
        "workers": workers,
        "seed": seed,
        "deterministic": deterministic,
        "exhaustive": exhaustive,
    }
    winner = {"--instance-out": instance_out, "--result-out": result_out}
    check_outputs({"--output": output, **winner, "--chart": chart}, request)
    check_chart(chart)
    plan = _plan(request, options, quiet=quiet, verbose=verbose)
    _write_winner(plan, instance_out, result_out)
    if chart is not None:
        drawn = plan_chart(plan)
        write_chart(chart, [] if drawn is None else [drawn])
    if not deliver(plan, output, as_json=as_json):
        _print(plan, top=top, quiet=quiet, verbose=verbose)
    raise typer.Exit(_exit_code(plan))


def _plan(path: Path, options: dict[str, Any], *, quiet: bool, verbose: bool) -> Plan:
    """Make the plan of a request with progress on stderr."""
    request = load_request(path)
    limit = options["time_limit"]
    shown = plan_progress(request.name, time_limit=limit, quiet=quiet, everything=verbose)
    with _about_request(path), shown as listener:
        return api.plan(request, on_progress=listener, **options)


@contextmanager
def _about_request(path: Path) -> Iterator[None]:
    """Let errors of the planner name the option, or the file of the request."""
    try:
        yield
    except InputError as error:
        if error.field in OPTION_OF:
            raise InputError(error.message, field=OPTION_OF[error.field]) from None
        raise error.located(source_name(path)) from None


def _write_winner(plan: Plan, instance_out: Path | None, result_out: Path | None) -> None:
    """Write the winner's instance and its result; says so where there is no winner."""
    for path, document in ((instance_out, plan.instance), (result_out, plan.result)):
        if path is not None and document is None:
            say(f"warning: {path}: not written, there is no winner")
    if instance_out is not None and plan.instance is not None:
        save(instance_out, instance_text(plan.instance))
    if result_out is not None and plan.result is not None:
        save(result_out, json_text(plan.result))


def _print(plan: Plan, *, top: int | None, quiet: bool, verbose: bool) -> None:
    shown = plan_line(plan) if quiet else plan_report(plan, top=top, verbose=verbose)
    stdout_console().print(shown, soft_wrap=quiet)


def _exit_code(plan: Plan) -> ExitCode:
    if plan.interrupted:
        return ExitCode.INTERRUPTED
    if plan.status is Status.INFEASIBLE:
        return ExitCode.INFEASIBLE
    return ExitCode.FOUND if plan.winner is not None else ExitCode.NOTHING_FOUND
