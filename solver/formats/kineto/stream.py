"""A large JSON object, its event list read item by item: memory stays that of one piece of it.

A window of the text slides over the file; Python's own decoder reads each event at its place.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from ppsolve.models.documents.errors import InputError, errors_in
from ppsolve.models.documents.files import opened, source_name

Take = Callable[[dict[str, Any]], None]


def read_events(path: str | Path, take: Take, window: int = 2**20) -> dict[str, Any]:
    """Give each event of a trace to `take`, and return the other fields of the object.

    Raises `InputError` where the file cannot be read, is cut off, or is no such JSON; says after
    which event.

    Parameters
    ----------
    path : str or Path
        Chrome JSON: an object with ``traceEvents``, or a bare list of events; plain or gzipped.
    take : callable
        Gets each event that is an object, in the order of the file.
    window : int
        Characters read at a time.

    Returns
    -------
    dict of str to object
        The other fields of the object; empty where the file is a bare list.
    """
    with errors_in(source_name(path)):
        try:
            with opened(path) as raw, io.TextIOWrapper(unpacked(raw), encoding="utf-8") as stream:
                return _Scanner(stream, window).run(take)
        except UnicodeDecodeError:
            raise InputError("expected UTF-8 text") from None


def unpacked(raw: BinaryIO) -> BinaryIO:
    """Return the bytes of a file, those that are packed in it where it is gzipped."""
    is_packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    return cast("BinaryIO", gzip.open(raw, "rb")) if is_packed else raw


class _Scanner:
    def __init__(self, stream: TextIO, window: int) -> None:
        self.stream, self.window = stream, window
        self.text, self.at, self.is_end = "", 0, False
        self.events = 0
        self.decode = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode

    def run(self, take: Take) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self._peek() == "[":
            self._events(take)
        else:
            for name in self._names():
                if name == "traceEvents":
                    self._events(take)
                else:
                    fields[name] = self._value()
        if self._peek():
            raise self._error("expected nothing behind the trace")
        return fields

    def _names(self) -> Iterator[str]:
        seen: set[str] = set()
        for _ in self._items("{", "}"):
            name = self._value()
            if not isinstance(name, str):
                raise self._error("expected the name of a field")
            if name in seen:
                raise self._error(f'the field "{name[:40]}" is there twice')
            seen.add(name)
            self._expect(":")
            yield name

    def _events(self, take: Take) -> None:
        for _ in self._items("[", "]"):
            event = self._value()
            self.events += 1
            if isinstance(event, dict):
                take(event)

    def _items(self, begin: str, end: str) -> Iterator[None]:
        """Yield at each item between two brackets; the caller reads it."""
        self._expect(begin)
        if self._peek() != end:
            yield
            while self._peek() == ",":
                self.at += 1
                yield
            if self._peek() != end:
                raise self._error(f'expected "," or "{end}"')
        self.at += 1

    def _expect(self, mark: str) -> None:
        if self._peek() != mark:
            raise self._error(f'expected "{mark}"')
        self.at += 1

    def _peek(self) -> str:
        """Return the next character that is not blank, or an empty text at the end."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in " \t\r\n":
                self.at += 1
            if self.at < len(self.text):
                return self.text[self.at]
            if not self._more():
                return ""

    def _value(self) -> Any:
        self._peek()
        while True:
            try:
                value, end = self.decode(self.text, self.at)
            except RecursionError:
                raise self._error("nested too deeply") from None
            except _ConstantError as error:
                raise self._error(str(error)) from None
            except ValueError:
                # A value of more than 2^25 characters was cut off or is no trace.
                if len(self.text) - self.at > 2**25 or not self._more():
                    raise self._error("expected a JSON value") from None
                continue
            # Of "-12.5e+2", "-12.5" is a number too, up to "e+".
            if len(self.text) - end >= len("e+2") or not self._more():
                self.at = end
                return value

    def _more(self) -> bool:
        if self.is_end:
            return False
        try:
            piece = self.stream.read(self.window)
        except (EOFError, zlib.error) as error:
            raise self._error(f"the compressed file is cut off or damaged ({error})") from None
        if not piece:
            self.is_end = True
            return False
        self.text, self.at = self.text[self.at :] + piece, 0
        return True

    def _error(self, message: str) -> InputError:
        cut = ", the file is cut off there" if self.is_end and self.at >= len(self.text) else ""
        if self.is_end and not cut and message == "expected a JSON value":
            cut = " (the file is cut off or damaged there)"
        return InputError(f"not a trace: {message}{cut}", field=f"after event {self.events}")


class _ConstantError(ValueError):
    pass


def _refuse_constant(name: str) -> float:
    raise _ConstantError(f"expected finite numbers, got {name}")
