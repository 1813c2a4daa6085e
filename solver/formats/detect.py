"""Recorded runs of any format: which format it is, by names and beginnings of files."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ppsolve.models.documents.contents import (
    BYTES,
    TEXTS,
    describe_document,
    describe_text,
)
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import opened, read_json
from ppsolve.models.studies.trace import table
from ppsolve.solver.formats.kineto.events import unpacked
from ppsolve.solver.formats.kineto.reader import read_kineto
from ppsolve.solver.formats.megatron import CONFIG, RANK_FILE, read_megatron
from ppsolve.solver.formats.pipefisher import human_key
from ppsolve.solver.formats.straggler import read_straggler
from ppsolve.solver.formats.table import read_table
from ppsolve.solver.studies.traces.fits import kept_steps, refuse_early

READERS: dict[str, Callable[[Sequence[str | Path]], table.Trace]] = {
    "kineto": read_kineto,
    "megatron": read_megatron,
    "straggler": read_straggler,
    "table": read_table,
}
"""Readers of trace formats by name."""

MARKS = {
    "megatron": (b'"fwd_start"',),
    "table": (b"start_ns", b"start_us", b"start_ms", b"start_s"),
    "kineto": (b'"traceEvents"', b'"ph"', b'"schemaVersion"', b'"distributedInfo"'),
}
"""Words in the beginnings of files that say the format."""


def read_trace(
    paths: Sequence[str | Path],
    format: str = "auto",
    *,
    tolerance: int | None = None,
    chunks: int | None = None,
) -> table.Trace:
    """Read the ops of a trace of any format, by step, replica, device and start, a whole run.

    Steps whose times are impossible are left out, with a warning. Raises `InputError` where a file
    cannot be read, is of no or another format, the run is not whole, or no step of it is possible.

    `paths`: files of one run, or folders of them.
    `format`: a key of `READERS`, or ``auto``.
    `tolerance`: nanoseconds by which clocks may be off; by default as `tolerance_of` says for each
        step.
    `chunks`: stages of each rank, of a profile whose calls fit several schedules of Megatron-LM.
    """
    if format not in {*READERS, "auto"}:
        raise InputError.unknown(
            "unknown format",
            format,
            ("auto", *READERS),
            field="--format",
        )
    files = files_of(paths)
    name = format if format != "auto" else _format_of(files)
    if chunks is None:
        trace = table.checked(READERS[name](files))
    elif name == "kineto":
        trace = table.checked(read_kineto(files, chunks))
    else:
        text = f"expected none: files of the format {name} say the stages of their ops"
        raise InputError(text, field="--chunks", code=ErrorCode.CONFLICT)

    def overlap(step: table.Trace) -> int:
        refuse_early(step, tolerance)
        longest = table.refuse_overlaps(step, tolerance)
        return longest if longest > table.clock_error_of(step) else 0

    trace, overlaps = kept_steps(trace, overlap)
    if tolerance is not None:
        return trace
    if trace.noise > table.tolerance_of(replace(trace, noise=0)):
        (noise,) = trace.times([trace.noise])
        return trace.warn(
            f"ops of a device overlap by up to {noise} {trace.unit} all over the run, which is "
            "taken for the error of its clocks"
        )
    if not any(overlaps):
        return trace
    longest, resolution = trace.times(
        (max(overlaps), round(table.resolution_of(trace)))
    )
    return trace.warn(
        f"ops of a device overlap by up to {longest} {trace.unit}, which is within the clocks' "
        f"error and the {resolution} {trace.unit} that the numbers cannot tell apart"
    )


def files_of(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files that paths name, folders replaced by the traces in them.

    Raises `InputError` where there is no such file, one is named twice, or a folder holds no trace.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        files += _inside(path) if path.is_dir() else [path]
    if not files:
        raise InputError("expected at least one file", code=ErrorCode.RANGE)
    seen: set[Path] = set()
    for file in files:
        if not file.exists():
            raise InputError("no such file", source=str(file), code=ErrorCode.FILE)
        if file.resolve() in seen:
            raise InputError(
                "this file is given twice", source=str(file), code=ErrorCode.CONFLICT
            )
        seen.add(file.resolve())
    return files


def _inside(folder: Path) -> list[Path]:
    suffixes = (".parquet", ".json", ".json.gz", ".csv", ".jsonl")
    files = (file for file in folder.iterdir() if file.is_file())
    traces = [file for file in files if file.name.lower().endswith(suffixes)]
    if not traces:
        raise InputError(
            f"expected files that end in {', '.join(suffixes)}",
            source=str(folder),
            code=ErrorCode.TYPE,
        )
    ranks = [file for file in traces if _is_of_megatron(file)]
    return sorted(
        ranks if len(ranks) > 1 else traces, key=lambda file: human_key(file.name)
    )


def _is_of_megatron(path: Path) -> bool:
    return path.name == CONFIG or RANK_FILE.fullmatch(path.name) is not None


def _format_of(files: Sequence[Path]) -> str:
    formats: dict[str, Path] = {}
    for file in files:
        formats.setdefault(_guess(file), file)
    if len(formats) > 1:
        (first, example), (second, path) = list(formats.items())[:2]
        text = f"is of format {second}, {example} of {first}; expected files of one run"
        raise InputError(text, source=str(path), code=ErrorCode.TYPE)
    return next(iter(formats))


def _guess(path: Path) -> str:
    if _is_of_megatron(path):
        return "megatron"
    start = _beginning(path)
    if not start:
        raise InputError("the file is empty", source=str(path), code=ErrorCode.SYNTAX)
    if start.startswith(b"PAR1") or path.suffix.lower() == ".parquet":
        return "straggler"
    for name, words in MARKS.items():
        if any(word in start for word in words):
            return name
    if path.suffix.lower() in {".csv", ".jsonl"}:
        return "table"
    description = describe_text(start.decode("latin-1"), BYTES | TEXTS)
    with suppress(InputError):
        description = describe_document(read_json(path)) or description
    text = f"this looks like none of {', '.join(READERS)}; {description or 'give --format'}"
    raise InputError(text, source=str(path), code=ErrorCode.SYNTAX)


def _beginning(path: Path) -> bytes:
    try:
        with opened(path) as raw:
            return unpacked(raw).read(
                2**16
            )  # the header of a profiler trace is far shorter
    except EOFError:
        raise InputError(
            "the compressed file is cut off", source=str(path), code=ErrorCode.SYNTAX
        ) from None
    except zlib.error as error:
        raise InputError(
            f"cannot be read: {error}", source=str(path), code=ErrorCode.FILE
        ) from None
