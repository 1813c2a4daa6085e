"""``ppsolve diagnose``: how far from optimal a recorded run was, and what would help."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json
from ppsolve.models.trace.layers import Layers
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import say
from ppsolve.solver.cli.output import print_json, stdout_console
from ppsolve.solver.cli.traces import Format, Tolerance, nanoseconds
from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.render.diagnosis import diagnosis_report
from ppsolve.solver.traces.diagnosis.diagnose import TIME_LIMIT, diagnose
from ppsolve.solver.traces.fits import unusual_steps

Files = Annotated[
    list[str], typer.Argument(metavar="TRACE", help="Files of one run, or folders of them.")
]
TimeLimit = Annotated[float, opt.time_limit("Wall seconds in all, shared by the steps.")]

Capacity = Annotated[
    str | None,
    typer.Option(
        "--capacity",
        metavar="N[,N...]",
        help="Activations that devices have room for, one number for all or one for each; what "
        "the run held by default.",
    ),
]
LayerFile = Annotated[
    Path | None,
    typer.Option(
        "--layers",
        metavar="FILE",
        help="Times of layers and layers of each stage (JSON), to compute another split.",
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
    capacity: Capacity = None,
    layers: LayerFile = None,
    as_json: opt.Json = False,
) -> None:
    """Say how far from optimal a recorded run was, and what would help.

    For every step: as recorded, the recorded order replayed, the best order inside each replica
    and with micro-batches exchanged, both with a proved bound. Then where devices wait, and what
    changes would save, each computed.
    """
    began = time.monotonic()
    paths = [Path(file) for file in files]
    room = None if capacity is None else _capacities(capacity)
    split = None if layers is None else Layers.parse(read_json(layers), str(layers))
    trace = read_trace(paths, format, tolerance=nanoseconds(tolerance))
    for warning in (*trace.notes.warnings, *unusual_steps(trace)):
        say(f"warning: {warning}")
    found = diagnose(trace, time_limit, began, capacity=room, layers=split)
    if as_json:
        print_json(found.document())
    else:
        stdout_console().print(diagnosis_report(found))


def _capacities(text: str) -> list[int]:
    """Return the numbers of a list with commas."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and len(word) <= 9 and int(word) for word in words):
        raise InputError(
            f'expected whole numbers from 1 such as 4 or 4,3,2,1, got "{text[:40]}"',
            field="--capacity",
        )
    return [int(word) for word in words]
