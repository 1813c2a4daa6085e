"""Where results go: stdout for people or programs, files whole or not at all."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import (
    destination,
    is_read_only,
    source_name,
    write_bytes,
)
from ppsolve.models.documents.printable import plain_json
from ppsolve.models.documents.text import document_text
from ppsolve.solver.cli.guard import postpone, say
from ppsolve.solver.cli.options import value
from ppsolve.solver.views.terminal import MAX_WIDTH, TerminalConsole, TrimmedFile

if TYPE_CHECKING:
    from ppsolve.solver.views.line_chart import LineChart

Chart = Annotated[
    Path | None,
    value("FILE", "Draw the chart here too: .png or .svg (needs matplotlib)."),
]


def check_writable(
    output: Path | None, *inputs: str | Path, option: str = "--output"
) -> None:
    """Refuse an output file that could not be written in the end, before any work is done.

    ``-`` and None are stdout. The `InputError` names `option`: the directory is missing or not
    writable, the path is a directory or too long, the file is read-only, or it is one of the inputs
    under this or another name.
    """
    if output is None or str(output) == "-":
        return
    try:
        problem = _unfit(destination(output), inputs)
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
    if problem:
        raise InputError(problem, source=str(output), field=option, code=ErrorCode.FILE)


def check_outputs(outputs: Mapping[str, Path | None], *inputs: str | Path) -> None:
    """Refuse output files that could not be written in the end, before any work is done.

    Only ``--output`` may be ``-``, and ``--chart`` must be a picture. The `InputError` names the
    option; it also says where two options share a file, or one would replace an input.
    """
    owners: dict[Path, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        if str(path) == "-" and option != "--output":
            raise InputError(
                "expected a file, got -", field=option, code=ErrorCode.FILE
            )
        check_writable(path, *inputs, option=option)
        owner = owners.setdefault(destination(path).absolute(), option)
        if owner != option:
            raise InputError(
                f"{owner} writes there too",
                source=str(path),
                field=option,
                code=ErrorCode.FILE,
            )
    chart = outputs.get("--chart")
    if chart is not None:
        from ppsolve.solver.views.line_chart import chart_format

        chart_format(chart)


def _unfit(target: Path, inputs: Iterable[str | Path]) -> str | None:
    parent = target.parent
    if target.is_dir():
        return "expected a file, this is a directory"
    if target.exists() and not target.is_file():
        return None if os.access(target, os.W_OK) else "it is not writable"
    if not parent.is_dir():
        return f"the directory {parent} does not exist"
    if not os.access(parent, os.W_OK):
        return f"the directory {parent} is not writable"
    for file in inputs:
        if _is_same_file(target, file):
            return f"this is the input {source_name(file)}, give another file"
    return "it is read-only" if is_read_only(target) else None


def _is_same_file(target: Path, file: str | Path) -> bool:
    try:
        source = os.fstat(sys.stdin.fileno()) if str(file) == "-" else Path(file).stat()
        written = target.stat()
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISREG(written.st_mode) and os.path.samestat(source, written)


def check_folder(folder: Path, option: str) -> None:
    """Refuse a folder that is a file, before any work is done; the error names the option."""
    if folder.exists() and not folder.is_dir():
        message = "expected a folder, this is a file"
        raise InputError(message, source=str(folder), field=option, code=ErrorCode.FILE)


def make_folder(folder: Path, option: str) -> None:
    """Make a folder where there is none; an `InputError` names the option if it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot be made: {error.strerror}"
        raise InputError(
            message, source=str(folder), field=option, code=ErrorCode.FILE
        ) from None


Document = BaseModel | list[BaseModel] | dict[str, Any]


def json_text(document: Document) -> str:
    """Return one JSON document, fit for a terminal, with a newline at its end."""
    if isinstance(document, dict):
        return plain_json(json.dumps(document, indent=2)) + "\n"
    if not isinstance(document, list):
        return document_text(document)
    return plain_json(
        "[" + ",\n ".join(item.model_dump_json() for item in document) + "]\n"
    )


def print_json(data: object) -> None:
    """Print plain data as one indented JSON document."""
    sys.stdout.write(plain_json(json.dumps(data, indent=2)) + "\n")


def deliver(document: Document, output: Path | None, *, as_json: bool) -> bool:
    """Write a document to the output file and, if `as_json`, to stdout; say if stdout has it.

    ``-`` is stdout, and None no file. A dict is plain data.
    """
    to_stdout = as_json or str(output) == "-"
    if output is None and not to_stdout:
        return False
    text = json_text(document)
    if output is not None and str(output) != "-":
        save(output, text)
    if to_stdout:
        sys.stdout.write(text)
    return to_stdout


def save(path: Path, data: str | bytes) -> None:
    """Write a file, text as UTF-8; an error waits until the command has reported what it found."""
    try:
        write_bytes(path, data.encode() if isinstance(data, str) else data)
    except InputError as error:
        postpone(error)


def write_chart(path: Path | None, chart: LineChart | None) -> None:
    """Draw a chart into a file, if one is asked for; warn if there is nothing to draw."""
    if path is None:
        return
    if chart is None:
        say(f"warning: {path}: not written, there is nothing to draw")
        return
    from ppsolve.solver.views.line_chart import chart_bytes, chart_format

    save(path, chart_bytes(chart, chart_format(path)))


def stdout_console(width: int | None = None) -> TerminalConsole:
    """Return the console for tables and charts; a closed pipe raises `BrokenPipeError`."""
    if width is not None and width > MAX_WIDTH:
        raise InputError(
            f"expected at most {MAX_WIDTH} columns, got {width}",
            field="--width",
            code=ErrorCode.RANGE,
        )
    console = TerminalConsole(width=width)
    if not console.is_terminal:
        console.file = TrimmedFile(console.file)  # type: ignore[assignment]
    return console
