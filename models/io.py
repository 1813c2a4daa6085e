"""Reading and writing JSON files: exact numbers in, one clear error, nothing half-written."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

from ppsolve.models.errors import InputError

STANDARD_STREAM = "-"


def read_text(path: str | Path) -> str:
    """Return the text of a file, or of standard input for ``-``.

    Raises
    ------
    InputError
        The file is missing, a directory, unreadable or not UTF-8.
    """
    if str(path) == STANDARD_STREAM:
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError("no such file", source=str(path)) from None
    except IsADirectoryError:
        raise InputError("expected a file, this is a directory", source=str(path)) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"expected UTF-8 text, byte {error.start} is not", source=str(path)
        ) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None


def source_name(path: str | Path) -> str:
    """Return how errors name `path`."""
    return "<stdin>" if str(path) == STANDARD_STREAM else str(path)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise InputError(f'the field "{key}" is there twice in one object')
        result[key] = value
    return result


def parse_json(text: str, source: str) -> Any:
    """Parse JSON, decimals kept exactly as written.

    Raises
    ------
    InputError
        Not JSON (with line and column), or a field that is there twice.
    """
    try:
        return json.loads(
            text, parse_float=Decimal, parse_constant=float, object_pairs_hook=_no_duplicates
        )
    except json.JSONDecodeError as error:
        if not text.strip():
            raise InputError("expected JSON, the file is empty", source=source) from None
        truncated = error.pos >= len(text.rstrip())
        hint = "the file ends too early (truncated?)" if truncated else error.msg
        raise InputError(
            f"not valid JSON: line {error.lineno}, column {error.colno}: {hint}", source=source
        ) from None
    except RecursionError:
        raise InputError("not usable JSON: nested too deeply", source=source) from None
    except ValueError as error:
        raise InputError(f"not usable JSON: {error}", source=source) from None
    except InputError as error:
        raise error.located(source) from None


def read_json(path: str | Path) -> Any:
    """Read and parse a JSON file, or standard input for ``-``; errors as in the parts."""
    return parse_json(read_text(path), source_name(path))


def write_text(path: str | Path, text: str) -> None:
    """Write a file whole or not at all (temporary file, then rename); ``-`` is standard output.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    if str(path) == STANDARD_STREAM:
        sys.stdout.write(text)
    else:
        write_bytes(path, text.encode())


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file whole or not at all; errors as in `write_text`."""
    target = Path(path)
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            "wb", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as stream:
            temporary = Path(stream.name)
            stream.write(data)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(target)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
