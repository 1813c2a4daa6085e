"""``ppsolve convert trace``: recorded runs to instances, recorded schedules, and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import write_text
from ppsolve.models.documents.text import instance_text
from ppsolve.models.trace.table import Trace
from ppsolve.solver.cli.guard import say
from ppsolve.solver.cli.output import check_writable, json_text
from ppsolve.solver.formats.detect import files_of, read_trace
from ppsolve.solver.formats.table import write_table
from ppsolve.solver.traces.clocks import kept_steps
from ppsolve.solver.traces.fits import Fits, fit, unusual_steps
from ppsolve.solver.traces.replay import RecordedStep, median_instance, recorded_step

Files = Annotated[
    list[str], typer.Argument(metavar="FILES", help="Files of one run, or folders of them.")
]
Format = Annotated[
    str,
    typer.Option(
        "--format", metavar="NAME", help="auto, kineto, megatron, straggler or table (CSV, JSONL)."
    ),
]
Median = Annotated[
    bool, typer.Option("--median", help="Write one instance: medians by stage and kind of op.")
]
Table = Annotated[
    bool, typer.Option("--table", help="Write the ops as a table: CSV for .csv, else JSON Lines.")
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        metavar="SECONDS",
        help="Most by which times may be off; by default 0.0001, less for short ops, and what the "
        "numbers cannot tell apart.",
    ),
]
Output = Annotated[
    str,
    typer.Option("--output", "-o", metavar="PATH", help="Folder; file with --median or --table."),
]


def convert_trace_command(
    files: Files,
    output: Output,
    format: Format = "auto",
    median: Median = False,
    table: Table = False,
    tolerance: Tolerance = None,
) -> None:
    """Convert a recorded run to instances with the recorded durations.

    For every step and replica the folder gets step<S>-replica<R>.json, the instance, and
    step<S>-replica<R>.recorded.json, the recorded schedule as a result that `check` and `show`
    take. Warnings, time that no op explains, and unusual steps go to stderr.
    """
    if median and table:
        raise InputError("expected either --median or --table", field="--table")
    allowed = nanoseconds(tolerance)
    is_file = median or table
    sources = files_of([Path(file) for file in files])
    if is_file:
        check_writable(Path(output), *sources)
    else:
        _check_folder(Path(output))
    trace = read_trace([Path(file) for file in files], format, tolerance=allowed)
    if is_file:
        text = _table_text(trace, output) if table else _median_text(trace, output)
        write_text(output, text)
    else:
        trace = _write_steps(trace, Path(output), allowed)
    _tell(trace)


def nanoseconds(tolerance: float | None) -> int | None:
    """Return a tolerance in nanoseconds; None stays.

    Raises
    ------
    InputError
        It is no number of seconds up to an hour.
    """
    if tolerance is None:
        return None
    if not 0 <= tolerance <= 3600:
        raise InputError(f"expected seconds from 0 to 3600, got {tolerance:g}", field="--tolerance")
    return round(tolerance * 1e9)


def _check_folder(folder: Path) -> None:
    """Refuse a folder that could not be written to, before anything is read."""
    if str(folder) == "-":
        raise InputError("expected a folder, or --median or --table with a file", field="--output")
    if folder.exists() and not folder.is_dir():
        raise InputError("expected a folder, this is a file", source=str(folder), field="--output")
    if not folder.exists() and not folder.absolute().parent.is_dir():
        raise InputError(
            f"the directory {folder.absolute().parent} does not exist",
            source=str(folder),
            field="--output",
        )


def _table_text(trace: Trace, output: str) -> str:
    return write_table(trace, Path(output).suffix.lower())


def _median_text(trace: Trace, output: str) -> str:
    fits = fit(trace)
    _tell_fits(fits)
    name = "trace" if output == "-" else Path(output).stem
    return instance_text(median_instance(trace, fits, name))


def _write_steps(trace: Trace, folder: Path, tolerance: int | None) -> Trace:
    """Write two files for each replica-step; return the steps that are possible."""
    trace, steps = kept_steps(trace, lambda part: recorded_step(part, tolerance))
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", source=str(folder)) from None
    for step in steps:
        write_text(folder / f"{step.name}.json", instance_text(step.instance))
        write_text(folder / f"{step.name}.recorded.json", json_text(step.result))
    _tell_moves(trace, steps)
    return trace


def _tell_moves(trace: Trace, steps: list[RecordedStep]) -> None:
    moved = [step for step in steps if step.shift]
    if moved:
        most = max(moved, key=lambda step: step.shift)
        amount = f"{float(trace.times([most.shift])[0]):g} {trace.unit}"
        say(
            f"note: clocks are off: ops of {len(moved)} of {len(steps)} steps and replicas were "
            f"moved, at most by {amount} ({most.name}, {most.moved})"
        )


def _tell(trace: Trace) -> None:
    for warning in (*trace.notes.warnings, *unusual_steps(trace)):
        say(f"warning: {warning}")
    shares = trace.notes.unexplained
    if shares:
        text = ", ".join(f"{rank} {100 * share:.1f} %" for rank, share in shares.items())
        say(f"note: time that no op explains: {text}")


def _tell_fits(fits: Fits) -> None:
    for warning in fits.warnings:
        say(f"note: {warning}")
    jitter = ", ".join(f"{kind} {100 * share:.1f} %" for kind, share in fits.jitter.items())
    say(f"note: jitter (coefficient of variation): {jitter}")
