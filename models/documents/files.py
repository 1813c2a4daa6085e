"""Reading and writing JSON files: exact numbers in, one clear error, nothing half-written."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from ppsolve.models.documents.errors import InputError

STANDARD_STREAM = "-"

PICKLED = (
    "expected JSON text, this looks like a pickle (nothing in it was run); "
    "`ppsolve convert pipefisher --allow-pickle` reads PipeFisher's timelines"
)

SAFE_DIGITS = sys.int_info.str_digits_check_threshold
"""Python makes ints of this many digits whatever limit it has been given."""


def read_text(path: str | Path) -> str:
    """Return the text of a file, or of standard input for ``-``.

    Raises
    ------
    InputError
        The file is missing, a directory, unreadable or not UTF-8.
    """
    source = source_name(path)
    try:
        if str(path) == STANDARD_STREAM:
            return _standard_input()
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError("no such file", source=source) from None
    except IsADirectoryError:
        raise InputError("expected a file, this is a directory", source=source) from None
    except UnicodeDecodeError as error:
        if _looks_pickled(error.object):
            raise InputError(PICKLED, source=source) from None
        raise InputError(f"expected UTF-8 text, byte {error.start} is not", source=source) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=source) from None


def _looks_pickled(data: bytes) -> bool:
    """Return whether `data` begins like a pickle of a binary protocol: PROTO, then 2 to 5."""
    return data[:1] == b"\x80" and data[1:2] in (b"\2", b"\3", b"\4", b"\5")


def _standard_input() -> str:
    """Read standard input as UTF-8, whatever the locale says; a replaced one may be text only."""
    raw = getattr(sys.stdin, "buffer", None)
    return sys.stdin.read() if raw is None else str(raw.read(), "utf-8")


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


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        yield from data
        for value in data.values():
            yield from _texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value)


def _refuse_surrogates(data: Any) -> None:
    """Refuse half a character, written as an escape, which no file or terminal can show."""
    for text in _texts(data):
        try:
            text.encode()
        except UnicodeEncodeError:
            shown = json.dumps(text)[:60]
            raise InputError(f"expected whole characters, got the text {shown}") from None


def _integer(text: str) -> int | Decimal:
    """Return an int, or a decimal where Python may refuse to make an int of so many digits.

    Nothing takes numbers that long, but the error is then the one that names the field.
    """
    return int(text) if len(text) <= SAFE_DIGITS else Decimal(text)


def parse_json(text: str, source: str) -> Any:
    """Parse JSON, decimals kept exactly as written.

    Raises
    ------
    InputError
        Not JSON (with line and column), a field that is there twice, or half a character.
    """
    try:
        data = json.loads(
            text,
            parse_float=Decimal,
            parse_int=_integer,
            parse_constant=float,
            object_pairs_hook=_no_duplicates,
        )
        if "\\u" in text:
            _refuse_surrogates(data)
        return data
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
    except ArithmeticError:
        raise InputError("not usable JSON: a number has too many digits", source=source) from None
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
    """Write a file whole or not at all; errors as in `write_text`.

    A device or a named pipe is written to as it is, and a symbolic link is followed: renaming
    would put a file in their place.
    """
    target = destination(path)
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
        else:
            _replace(target, data)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None


def destination(path: str | Path) -> Path:
    """Return the file that writing to `path` makes or replaces: a link's target.

    A link to a device or pipe stays as it is: ``/dev/stdout`` may lead to what has no path.
    """
    given = Path(path)
    is_special = given.exists() and not given.is_file()
    return Path(os.path.realpath(given)) if given.is_symlink() and not is_special else given


def _replace(target: Path, data: bytes) -> None:
    """Put a new file in the place of `target`, which keeps its permissions."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
