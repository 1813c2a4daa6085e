"""Reading and writing JSON files: exact numbers in, one clear error, nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import secrets
import select
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

from ppsolve.models.documents.contents import BYTES, TEXTS, describe_text
from ppsolve.models.documents.errors import ErrorCode, InputError

STANDARD_STREAM = "-"

LARGEST_INPUT = 256 * 2**20
"""Bytes that are read of one input; parsed JSON takes 6 to 7 times its text."""

WRITER_SECONDS = 1.0
"""Seconds in which somebody has to open a named pipe that is read."""

BEGINNING = 65_536
"""Characters by which files are recognised."""

SAFE_DIGITS = sys.int_info.str_digits_check_threshold
"""Python makes ints of this many digits whatever limit it has been given."""


def read_text(path: str | Path) -> str:
    """Return the text of a file or pipe, or of standard input for ``-``.

    An `InputError` says that it is missing, a directory, a device, too large, unreadable or not
    UTF-8.
    """
    source = source_name(path)
    if str(path) == STANDARD_STREAM:
        return _standard_input(source)
    with opened(path) as stream:
        return _as_text(_limited(stream, source), source)


@contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """Open an input for reading; an `InputError` says why it cannot be opened or read.

    It is a file, or a pipe that somebody writes to, such as ``/dev/stdin`` or ``<(...)``; no
    directory and no device.
    """
    source = source_name(path)
    try:
        with open(path, "rb", opener=_open_at_once) as stream:
            _refuse_special(stream, path, source)
            if hasattr(
                os, "O_NONBLOCK"
            ):  # else nothing was opened so, and Windows refuses files
                os.set_blocking(stream.fileno(), True)
            yield stream
    except FileNotFoundError:
        raise InputError("no such file", source=source, code=ErrorCode.FILE) from None
    except IsADirectoryError:
        raise InputError(
            "expected a file, this is a directory", source=source, code=ErrorCode.FILE
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror or error}",
            source=source,
            code=ErrorCode.FILE,
        ) from None


def _open_at_once(path: str, flags: int) -> int:
    # A pipe that nobody writes to would make a plain opening wait.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _refuse_special(stream: BinaryIO, path: str | Path, source: str) -> None:
    """Refuse pipes without a writer, and devices, which may have no end; terminals have one."""
    status = os.fstat(stream.fileno())
    if stat.S_ISFIFO(status.st_mode) and not _has_writer(stream, path):
        raise InputError(
            "expected a file, or a pipe with a writer; nothing arrived within "
            f"{WRITER_SECONDS:g} s",
            source=source,
            code=ErrorCode.FILE,
        )
    is_device = stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)
    if (
        not is_device
        or stream.isatty()
        or os.path.samestat(status, os.stat(os.devnull))
    ):
        return
    raise InputError(
        "expected a file or a pipe, this is a device",
        source=source,
        code=ErrorCode.FILE,
    )


def _has_writer(stream: BinaryIO, path: str | Path) -> bool:
    """Whether a pipe has a writer, or had one that left something to read."""
    # Only a pipe that has had a writer says when it has none.
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    pipe = select.poll()
    pipe.register(stream, select.POLLIN)
    deadline = time.monotonic() + WRITER_SECONDS
    while [event for _, event in pipe.poll(0)] == [select.POLLHUP]:
        if time.monotonic() > deadline:
            return False
        time.sleep(WRITER_SECONDS / 100)
    return True


def _limited(stream: BinaryIO, source: str) -> bytes:
    data = stream.read(LARGEST_INPUT + 1)
    if len(data) > LARGEST_INPUT:
        raise InputError(
            f"expected at most {LARGEST_INPUT >> 20} MiB, this is more",
            source=source,
            code=ErrorCode.RANGE,
        )
    return data


def _as_text(data: bytes, source: str) -> str:
    r"""Return UTF-8 as text, with ``\n`` at the ends of lines wherever the file is from."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        description = describe_text(data[:BEGINNING].decode("latin-1"), BYTES)
        expected = (
            f"JSON text, {description}"
            if description
            else f"UTF-8 text, byte {error.start} is not"
        )
        raise InputError(
            f"expected {expected}", source=source, code=ErrorCode.SYNTAX
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _standard_input(source: str) -> str:
    raw = getattr(sys.stdin, "buffer", None)
    if raw is not None:
        return _as_text(_limited(raw, source), source)
    return "" if sys.stdin is None else sys.stdin.read()


def source_name(path: str | Path) -> str:
    """Return the name of `path` in errors."""
    return "<stdin>" if str(path) == STANDARD_STREAM else str(path)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        key = next(key for index, key in enumerate(keys) if key in keys[:index])
        raise InputError(
            f'the field "{key}" appears twice in one object', code=ErrorCode.CONFLICT
        )
    return result


def _refuse_surrogates(data: Any) -> None:
    """Refuse half a character, written as an escape, which no file or terminal can show."""
    text = json.dumps(data, ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        escape = json.dumps(text[error.start : error.end])[:60]
        raise InputError(
            f"expected whole characters, got the text {escape}", code=ErrorCode.SYNTAX
        ) from None


def _integer(text: str) -> int | Decimal:
    """Return an int, or a decimal where Python may refuse to make an int of so many digits."""
    return int(text) if len(text) <= SAFE_DIGITS else Decimal(text)


def parse_json(text: str, source: str) -> Any:
    """Parse JSON, decimals kept exactly as written: numbers are int or Decimal.

    An `InputError` says that it is no JSON (with line and column), that a field appears twice, or
    that a text has half a character.
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
            raise InputError(
                "expected JSON, the file is empty", source=source, code=ErrorCode.SYNTAX
            ) from None
        truncated = error.pos >= len(text.rstrip())
        hint = "the file ends too early (truncated?)" if truncated else error.msg
        description = describe_text(text[:BEGINNING], TEXTS)
        message = f"not valid JSON: line {error.lineno}, column {error.colno}: {hint}"
        message = f"expected JSON text, {description}" if description else message
        raise InputError(message, source=source, code=ErrorCode.SYNTAX) from None
    except RecursionError:
        raise InputError(
            "not usable JSON: nested too deeply", source=source, code=ErrorCode.SYNTAX
        ) from None
    except ArithmeticError:
        raise InputError(
            "not usable JSON: a number has too many digits",
            source=source,
            code=ErrorCode.SYNTAX,
        ) from None
    except InputError as error:
        raise error.located(source) from None


def read_json(path: str | Path) -> Any:
    """Read and parse a JSON file, or standard input for ``-``; errors as in the parts."""
    return parse_json(read_text(path), source_name(path))


def write_text(path: str | Path, text: str) -> None:
    """Write a file whole or not at all, as `write_bytes` does; ``-`` is standard output."""
    if str(path) == STANDARD_STREAM:
        sys.stdout.write(text)
    else:
        write_bytes(path, text.encode())


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file whole or not at all (temporary file, then rename).

    A device or a named pipe is written to as it is, and a symbolic link is followed: renaming would
    put a file in their place. Once this returns, the file outlives a loss of power. An `InputError`
    says why it cannot be written.
    """
    try:
        target = destination(path)
        if target.exists() and not target.is_file():
            target.write_bytes(data)
        elif is_read_only(target):
            raise PermissionError(errno.EACCES, "it is read-only")
        else:
            _replace(target, data)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}",
            source=str(path),
            code=ErrorCode.FILE,
        ) from None


def is_read_only(target: Path) -> bool:
    """Return True for a file that nobody, or not this user, may write to.

    A rename would replace it all the same, and the superuser may write to any file.
    """
    if not target.exists():
        return False
    return not target.stat().st_mode & 0o222 or not os.access(target, os.W_OK)


def destination(path: str | Path) -> Path:
    """Return the file that writing to `path` makes or replaces: a link's target.

    A link to a device or pipe stays as it is: ``/dev/stdout`` may lead to what has no path.
    """
    path = Path(path)
    is_special = path.exists() and not path.is_file()
    return (
        Path(os.path.realpath(path)) if path.is_symlink() and not is_special else path
    )


def _replace(target: Path, data: bytes) -> None:
    temporary = target.with_name(f".ppsolve-{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
        _keep_name(target.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _keep_name(folder: Path) -> None:
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
