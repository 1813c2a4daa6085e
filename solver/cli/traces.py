"""``ppsolve convert trace`` and ``diagnose``: recorded runs, and how far from optimal they were."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import write_text
from ppsolve.models.documents.printable import printable
from ppsolve.models.documents.text import instance_text
from ppsolve.models.studies.trace.table import Trace
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import say
from ppsolve.solver.cli.options import argument, flag, value
from ppsolve.solver.cli.output import (
    check_folder,
    check_outputs,
    check_writable,
    deliver,
    json_text,
    make_folder,
    save,
    stdout_console,
)
from ppsolve.solver.formats.detect import files_of, read_trace
from ppsolve.solver.formats.table import write_table
from ppsolve.solver.studies.traces.diagnosis.diagnose import (
    TIME_LIMIT,
    changed_instance,
    diagnose,
)
from ppsolve.solver.studies.traces.diagnosis.verdict import Diagnosis
from ppsolve.solver.studies.traces.fits import fit, kept_steps, unusual_steps
from ppsolve.solver.studies.traces.replay import (
    RecordedStep,
    median_instance,
    recorded_step,
)
from ppsolve.solver.views.diagnosis import diagnosis_report

if TYPE_CHECKING:
    from ppsolve.solver.views.page.schedules import PageSchedule

Format = Annotated[
    str, value("NAME", "auto, kineto, megatron, straggler or table (CSV, JSONL).")
]
Tolerance = Annotated[
    float | None,
    value(
        "SECONDS",
        "Largest error of recorded times [0.0001; less for short ops; at least the clock's step].",
    ),
]

Capacity = Annotated[
    str | None,
    value(
        "N[,N...]",
        "Activations that fit on each device: one number for all, or one per device [what the "
        "run held].",
    ),
]

Chunks = Annotated[
    int | None,
    value(
        "V",
        "Stages of each rank, if the profile names no ops and fits several schedules.",
    ),
]


def convert_trace_command(
    files: Annotated[
        list[str], argument("FILES", "Files of one run, or folders of them.")
    ],
    output: Annotated[
        str,
        value(
            "PATH", "Folder; file with --median, --table or --change.", "--output", "-o"
        ),
    ],
    format: Format = "auto",
    median: Annotated[
        bool, flag("Write one instance: medians by stage and kind of op.", "--median")
    ] = False,
    table: Annotated[
        bool,
        flag("Write the ops as a table: CSV for .csv, else JSON Lines.", "--table"),
    ] = False,
    change: Annotated[
        str | None,
        value(
            "NAME",
            "Write one instance: the median step with a change that `diagnose` names, such as "
            "more-chunks.",
        ),
    ] = None,
    tolerance: Tolerance = None,
    capacity: Capacity = None,
    chunks: Chunks = None,
) -> None:
    """Convert a recorded run to instances with the recorded durations.

    For every step and replica the folder gets step<S>-replica<R>.json, the instance, and
    step<S>-replica<R>.recorded.json, the recorded schedule as a result that `check` and `show`
    take. Warnings, time that no op explains, and unusual steps go to stderr.
    """
    if median + table + (change is not None) > 1:
        raise InputError(
            "expected either --median or --table or --change",
            field="--table",
            code=ErrorCode.CONFLICT,
        )
    if capacity is not None and change is None:
        raise InputError(
            "this option needs --change", field="--capacity", code=ErrorCode.MISSING
        )
    room = _capacities(capacity)
    allowed = _nanoseconds(tolerance)
    is_file = median or table or change is not None
    sources = files_of([Path(file) for file in files])
    if is_file:
        check_writable(Path(output), *sources)
    else:
        if output == "-":
            message = "expected a folder, or --median, --table or --change with a file"
            raise InputError(message, field="--output", code=ErrorCode.CONFLICT)
        check_folder(Path(output), "--output")
    paths = [Path(file) for file in files]
    trace = read_trace(paths, format, tolerance=allowed, chunks=chunks)
    if change is not None:
        changed = changed_instance(trace, change, _name_of(output), room)
        write_text(output, instance_text(changed))
    elif is_file:
        suffix = Path(output).suffix.lower()
        text = write_table(trace, suffix) if table else _median_text(trace, output)
        write_text(output, text)
    else:
        trace = _write_steps(trace, Path(output), allowed)
    say(*(f"warning: {warning}" for warning in _warnings(trace)))
    _tell_unexplained(trace)


def _warnings(trace: Trace) -> list[str]:
    return [*trace.notes.warnings, *map(str, unusual_steps(trace))]


def _tell_unexplained(trace: Trace) -> None:
    shares = trace.notes.unexplained
    if shares:
        text = ", ".join(
            f"{rank} {100 * share:.1f} %" for rank, share in shares.items()
        )
        say(f"note: time that no op explains: {text}")


def _nanoseconds(tolerance: float | None) -> int | None:
    if tolerance is None:
        return None
    if not 0 <= tolerance <= 3600:
        raise InputError(
            f"expected seconds from 0 to 3600, got {tolerance:g}",
            field="--tolerance",
            code=ErrorCode.RANGE,
        )
    return round(tolerance * 1e9)


def _median_text(trace: Trace, output: str) -> str:
    fits = fit(trace)
    jitter = ", ".join(
        f"{kind} {100 * share:.1f} %" for kind, share in fits.jitter.items()
    )
    notes = (*fits.warnings, f"jitter (coefficient of variation): {jitter}")
    say(*(f"note: {note}" for note in notes))
    return instance_text(median_instance(trace, fits, _name_of(output)))


def _name_of(output: str) -> str:
    return "trace" if output == "-" else Path(output).stem


def _write_steps(trace: Trace, folder: Path, tolerance: int | None) -> Trace:
    trace, steps = kept_steps(
        trace, lambda subtrace: recorded_step(subtrace, tolerance)
    )
    make_folder(folder, "--output")
    for step in steps:
        write_text(folder / f"{step.name}.json", instance_text(step.instance))
        write_text(folder / f"{step.name}.recorded.json", json_text(step.result))
    _tell_moves(trace, steps)
    return trace


def _tell_moves(trace: Trace, steps: list[RecordedStep]) -> None:
    moved = [step for step in steps if step.shift]
    if moved:
        furthest = max(moved, key=lambda step: step.shift)
        amount = f"{float(trace.times([furthest.shift])[0]):g} {trace.unit}"
        say(
            f"note: clocks are off: ops of {len(moved)} of {len(steps)} steps and replicas were "
            f"moved, at most by {amount} ({furthest.name}, {furthest.moved})"
        )


def diagnose_command(
    files: Annotated[
        list[str], argument("TRACE", "Files of one run, or folders of them.")
    ],
    time_limit: Annotated[
        float, opt.time_limit("Wall seconds in all, shared by the steps.")
    ] = TIME_LIMIT,
    format: Format = "auto",
    tolerance: Tolerance = None,
    capacity: Capacity = None,
    chunks: Chunks = None,
    as_json: opt.Json = False,
    output: opt.Output = None,
    html: Annotated[
        Path | None, value("FILE", "Write the verdict as a page here.")
    ] = None,
) -> None:
    """Compute how far from optimal a recorded run was, and what would help.

    Prints for every step the recorded time, the time of a replay, and the best orders with a proved
    bound: within each replica, and with micro-batches exchanged. Then it prints where devices wait,
    what possible changes would save, and the commands that make the best change.
    """
    began = time.monotonic()
    paths = [Path(file) for file in files]
    check_outputs({"--output": output, "--html": html}, *files_of(paths))
    room = _capacities(capacity)
    allowed = _nanoseconds(tolerance)
    trace = read_trace(paths, format, tolerance=allowed, chunks=chunks)
    warnings = _warnings(trace)
    say(*(f"warning: {warning}" for warning in warnings))
    diagnosis = diagnose(trace, time_limit, began, capacity=room)
    settings = {
        "--format": format,
        "--tolerance": tolerance,
        "--capacity": capacity,
        "--chunks": chunks,
    }
    kept = {
        name: setting
        for name, setting in settings.items()
        if setting not in {None, "auto"}
    }
    commands = _commands(diagnosis, files, kept)
    if html is not None:
        from ppsolve.solver.views.page.diagnosis import diagnosis_page

        recorded = _typical(trace, diagnosis, _nanoseconds(tolerance))
        save(html, diagnosis_page(diagnosis, recorded, warnings, commands))
    document = {**diagnosis.document(), "warnings": warnings, "next": commands}
    if not deliver(document, output, as_json=as_json):
        console = stdout_console()
        console.print(diagnosis_report(diagnosis))
        if commands:
            console.print(Text("\nNext", "bold"))
            console.print(
                *(f"  {printable(line)}" for line in commands), sep="\n", soft_wrap=True
            )


def _commands(
    diagnosis: Diagnosis, files: list[str], options: Mapping[str, object]
) -> list[str]:
    """Return the commands that make and solve the instance of the change that saves most."""
    if diagnosis.best is None:
        return []
    change = diagnosis.best.change.replace(" ", "-")
    arguments = [str(word) for option in options.items() for word in option]
    convert = [
        "convert",
        "trace",
        *files,
        *arguments,
        "--change",
        change,
        "-o",
        f"{change}.json",
    ]
    torch_options = (
        ["--replica", "0", "--data-order", "order.json"] if change == "exchange" else []
    )
    commands = (
        convert,
        ["optimize", f"{change}.json", "-o", "best.json"],
        ["export", "best.json", "--to", "torch", *torch_options, "-o", "best.csv"],
    )
    return [shlex.join(["ppsolve", *words]) for words in commands]


def _typical(
    trace: Trace, diagnosis: Diagnosis, tolerance: int | None
) -> list[PageSchedule]:
    """Return the recorded schedule of a typical step and its slowest replica, to be drawn."""
    from ppsolve.solver.views.page.schedules import read_shown

    step, replica = diagnosis.typical
    subtrace = trace.where((trace.step == step) & (trace.replica == replica))
    try:
        recorded = recorded_step(subtrace, tolerance)
    except InputError:
        return []  # clocks are too far off to draw it
    return read_shown(json.loads(json_text(recorded.result)), recorded.name, [])


def _capacities(text: str | None) -> list[int] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and len(word) <= 9 and int(word) for word in words):
        message = (
            f'expected whole numbers from 1 such as 4 or 4,3,2,1, got "{text[:40]}"'
        )
        raise InputError(message, field="--capacity", code=ErrorCode.SYNTAX)
    return [int(word) for word in words]
