"""``ppsolve optimize``: the best schedule, its bound, and every heuristic beside it."""

from __future__ import annotations

import typer

from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.output import check_writable, deliver, stdout_console
from ppsolve.solver.cli.solving import exit_code, solve


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("optimize")(optimize_command)


def optimize_command(
    file: opt.InstanceFile,
    time_limit: opt.TimeLimit = 60.0,
    gap: opt.Gap = 0.0,
    fail_on_gap: opt.FailOnGap = None,
    deterministic_limit: opt.DeterministicLimit = None,
    deterministic: opt.Deterministic = False,
    workers: opt.Workers = None,
    seed: opt.Seed = 0,
    heuristics: opt.Heuristics = None,
    round_up: opt.RoundUp = False,
    as_json: opt.Json = False,
    output: opt.Output = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> None:
    """Find the best schedule of an instance and prove how good it is.

    Exit codes: 0 schedule found, 2 wrong input, 3 proven infeasible, 4 limit reached without a
    schedule, 6 --fail-on-gap exceeded, 130 interrupted (best schedule so far printed and saved).
    """
    check_writable(output, file)
    options = opt.SolveOptions(
        time_limit,
        gap,
        deterministic_limit,
        deterministic,
        workers,
        seed,
        opt.split_names(heuristics),
        round_up,
    )
    from ppsolve.models.instances import load_instance

    result = solve(file, load_instance(file), options, quiet=quiet, verbose=verbose)
    if not deliver(result, output, as_json=as_json):
        from ppsolve.solver.render.reports import report, summary_line

        shown = summary_line(result) if quiet else report(result, verbose=verbose)
        stdout_console().print(shown, soft_wrap=quiet)
    raise typer.Exit(exit_code(result, fail_on_gap))
