"""``ppsolve diagnose``: how far from optimal a recorded run was, and what would help."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import say
from ppsolve.solver.cli.output import print_json, stdout_console
from ppsolve.solver.cli.traces import Format, Tolerance, nanoseconds
from ppsolve.solver.render.diagnosis import diagnosis_report
from ppsolve.solver.traces.detect import read_trace
from ppsolve.solver.traces.diagnosis.diagnose import TIME_LIMIT, diagnose

Files = Annotated[
    list[str], typer.Argument(metavar="TRACE", help="Files of one run, or folders of them.")
]
TimeLimit = Annotated[
    float,
    typer.Option(
        "--time-limit",
        "-t",
        metavar="S",
        min=0,
        help="Wall seconds in all, shared by the steps.",
        rich_help_panel=opt.LIMITS,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    summary = "Say how far from optimal a recorded run was."
    app.command("diagnose", short_help=summary)(diagnose_command)


def diagnose_command(
    files: Files,
    time_limit: TimeLimit = TIME_LIMIT,
    format: Format = "auto",
    tolerance: Tolerance = None,
    as_json: opt.Json = False,
) -> None:
    """Say how far from optimal a recorded run was, and what would help.

    For every step: as recorded, the recorded order replayed, the best order inside each replica
    and with micro-batches exchanged, both with a proved bound. Then where devices wait, and what
    changes would save, each computed.
    """
    began = time.monotonic()
    paths = [Path(file) for file in files]
    trace = read_trace(paths, format, tolerance=nanoseconds(tolerance))
    for warning in trace.notes.warnings:
        say(f"warning: {warning}")
    found = diagnose(trace, time_limit, began)
    if as_json:
        print_json(found.document())
    else:
        stdout_console().print(diagnosis_report(found))
