"""Where results go: stdout for people or programs, files whole or not at all."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import destination, is_read_only, source_name, write_bytes
from ppsolve.models.documents.printable import plain_json
from ppsolve.models.documents.text import document_text
from ppsolve.solver.cli.guard import postpone
from ppsolve.solver.render.terminal import MAX_WIDTH, TerminalConsole, TrimLines

MIN_WIDTH = 40
"""Least columns of tables and charts; fewer are refused."""


def check_writable(output: Path | None, *inputs: str | Path, option: str = "--output") -> None:
    """Refuse an output file that could not be written in the end, before any work is done.

    Parameters
    ----------
    output : Path or None
        Where the result is to go; ``-`` and None are stdout.
    *inputs : str or Path
        Files that were read, which a result must not replace; ``-`` is stdin.
    option : str
        What errors call the output.

    Raises
    ------
    InputError
        The directory is missing or not writable, the path is a directory or too long, the file
        is read-only, or it is an input under this or another name.
    """
    if output is None or str(output) == "-":
        return
    try:
        problem = _unfit(destination(output), inputs)
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
    if problem:
        raise InputError(problem, source=str(output), field=option)


def _unfit(target: Path, inputs: Iterable[str | Path]) -> str | None:
    """Return why a file could not be written, None where nothing is known to stop it."""
    parent = target.parent
    if target.is_dir():
        return "expected a file, this is a directory"
    if target.exists() and not target.is_file():
        return None if os.access(target, os.W_OK) else "it is not writable"
    if not parent.is_dir():
        return f"the directory {parent} does not exist"
    if not os.access(parent, os.W_OK):
        return f"the directory {parent} is not writable"
    replaced = _replaced_input(target, inputs)
    return "it is read-only" if is_read_only(target) and not replaced else replaced


def _replaced_input(target: Path, inputs: Iterable[str | Path]) -> str | None:
    for file in inputs:
        if _is_same_file(target, file):
            return f"this is the input {source_name(file)}, give another file"
    return None


def _is_same_file(target: Path, file: str | Path) -> bool:
    """Say if both are one regular file, whatever links lead to it."""
    try:
        given = os.fstat(sys.stdin.fileno()) if str(file) == "-" else Path(file).stat()
        written = target.stat()
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISREG(written.st_mode) and os.path.samestat(given, written)


def json_text(document: BaseModel | list[BaseModel]) -> str:
    """Return one JSON document, fit for a terminal, with a newline at its end."""
    if not isinstance(document, list):
        return document_text(document)
    return plain_json("[" + ",\n ".join(item.model_dump_json() for item in document) + "]\n")


def print_json(data: object) -> None:
    """Print plain data as one indented JSON document."""
    sys.stdout.write(plain_json(json.dumps(data, indent=2)) + "\n")


def deliver(document: BaseModel | list[BaseModel], output: Path | None, *, as_json: bool) -> bool:
    """Write `document` to the output file and, as JSON, to stdout.

    Parameters
    ----------
    document : model or list of models
        What to write.
    output : Path or None
        The file; ``-`` is stdout, None none. As in `save`, a failure is reported in the end.
    as_json : bool
        Whether stdout is to get the JSON too.

    Returns
    -------
    bool
        Whether stdout has been used up by JSON.
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
    """Write a file; where that fails the command goes on, to report what it has found.

    The error comes after the report, and decides the exit code.

    Parameters
    ----------
    path : Path
        The file.
    data : str or bytes
        What it is to hold; text is written as UTF-8.
    """
    try:
        write_bytes(path, data.encode() if isinstance(data, str) else data)
    except InputError as error:
        postpone(error)


def stdout_console(width: int | None = None) -> TerminalConsole:
    """Return the console for tables and charts; a closed pipe raises `BrokenPipeError`.

    Raises
    ------
    InputError
        The width that was asked for is out of reason.
    """
    if width is not None and width > MAX_WIDTH:
        raise InputError(f"expected at most {MAX_WIDTH} columns, got {width}", field="--width")
    console = TerminalConsole(width=width)
    if not console.is_terminal:
        console.push_render_hook(TrimLines())
    return console
