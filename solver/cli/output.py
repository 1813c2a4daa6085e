"""Where results go: stdout for people or programs, files whole or not at all."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

MIN_WIDTH = 40


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
        The directory is missing or not writable, the path is a directory, or it is an input
        under this or another name.
    """
    if output is None or str(output) == "-":
        return
    from ppsolve.models.documents.errors import InputError
    from ppsolve.models.documents.files import destination

    target = destination(output)
    parent = target.parent
    problem = None
    if target.is_dir():
        problem = "expected a file, this is a directory"
    elif target.exists() and not target.is_file():
        problem = None if os.access(target, os.W_OK) else "it is not writable"
    elif not parent.is_dir():
        problem = f"the directory {parent} does not exist"
    elif not os.access(parent, os.W_OK):
        problem = f"the directory {parent} is not writable"
    else:
        problem = _replaced_input(target, inputs)
    if problem:
        raise InputError(problem, source=str(output), field=option)


def _replaced_input(target: Path, inputs: Iterable[str | Path]) -> str | None:
    from ppsolve.models.documents.files import source_name

    for file in inputs:
        if _is_same_file(target, file):
            return f"this is the input {source_name(file)}, give another file"
    return None


def _is_same_file(target: Path, file: str | Path) -> bool:
    """Return whether both are one regular file, whatever links lead to it."""
    try:
        given = os.fstat(sys.stdin.fileno()) if str(file) == "-" else Path(file).stat()
        written = target.stat()
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISREG(written.st_mode) and os.path.samestat(given, written)


def json_text(document: BaseModel | list[BaseModel]) -> str:
    """Return one JSON document with a newline at its end."""
    if isinstance(document, list):
        return "[" + ",\n ".join(item.model_dump_json() for item in document) + "]\n"
    return document.model_dump_json() + "\n"


def print_json(data: object) -> None:
    """Print plain data as one indented JSON document."""
    sys.stdout.write(json.dumps(data, indent=2) + "\n")


def deliver(document: BaseModel | list[BaseModel], output: Path | None, *, as_json: bool) -> bool:
    """Write `document` to the output file and, as JSON, to stdout.

    Returns
    -------
    bool
        Whether stdout has been used up by JSON.
    """
    from ppsolve.models.documents.files import write_text

    to_stdout = as_json or str(output) == "-"
    if output is None and not to_stdout:
        return False
    text = json_text(document)
    if output is not None and str(output) != "-":
        write_text(output, text)
    if to_stdout:
        sys.stdout.write(text)
    return to_stdout


def stdout_console(width: int | None = None) -> Console:
    """Return the console for tables and charts; a closed pipe raises `BrokenPipeError`."""
    from rich.console import Console

    from ppsolve.solver.render.trimmed import TrimLines

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = _Console(highlight=False, emoji=False, markup=False, width=width)
    if not console.is_terminal:
        console.push_render_hook(TrimLines())
    return console
