"""``ppsolve optimize`` and ``compare``: best schedules and bounds, of one or many instances."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.options import argument, value


@opt.with_option_groups
def optimize_command(
    file: opt.InstanceFile,
    options: opt.SolveOptions,
    reporting: opt.Reporting,
    fail_on_gap: opt.FailOnGap = None,
    start: Annotated[
        Path | None,
        value(
            "RESULT",
            "Begin with the schedule of this result; the answer is never worse.",
        ),
    ] = None,
    placements: Annotated[
        str | None,
        value(
            "A,B",
            "Compare placements, the best first: linear,vshape,interleaved:4 (4 per device).",
        ),
    ] = None,
) -> None:
    """Find the best schedule of an instance and prove how good it is.

    Exit codes: 0 schedule found, 2 wrong input, 3 proven infeasible, 4 limit reached without a
    schedule, 6 --fail-on-gap exceeded, 130 interrupted (best schedule so far printed and saved).
    """
    began = time.monotonic()
    from ppsolve.solver.cli.comparing import optimize_file

    code = optimize_file(
        file,
        options,
        reporting,
        fail_on_gap=fail_on_gap,
        start=start,
        placements=placements,
        began=began,
    )
    raise typer.Exit(code)


@opt.with_option_groups
def compare_command(
    files: Annotated[
        list[str],
        argument("FILE...", "Instances: files, quoted globs, directories; - is stdin."),
    ],
    options: opt.SolveOptions,
    reporting: opt.Reporting,
    fail_on_gap: opt.FailOnGap = None,
) -> None:
    """Solve every instance and compare each heuristic with the best schedule.

    All files are read before the first is solved. --json prints a list of results. The exit
    code is the worst one: 130 interrupted, 1 a solve crashed, 4, 3, 6, else 0 (see optimize).
    """
    from ppsolve.solver.cli.comparing import compare_files

    raise typer.Exit(compare_files(files, options, reporting, fail_on_gap))
