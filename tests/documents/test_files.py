"""Files in and out: written whole or not at all, devices and links left what they are."""

from __future__ import annotations

import io
import os
import stat
import sys
import threading
from decimal import Decimal
from pathlib import Path

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import parse_json, read_text, write_bytes, write_text


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    write_text(tmp_path / "new", "text")
    assert (tmp_path / "new").read_text() == "text"
    assert mode_of(tmp_path / "new") == mode_of(tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "other"]


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "private"
    path.write_text("old")
    path.chmod(0o600)
    write_text(path, "new")
    assert (path.read_text(), mode_of(path)) == ("new", 0o600)


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to("folder/file")
    write_text(link, "text")
    assert link.is_symlink()
    assert (tmp_path / "folder" / "file").read_text() == "text"


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to("pipe")
    read: list[bytes] = []
    for path in (pipe, tmp_path / "link"):
        reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
        reader.start()
        write_bytes(path, b"text")
        reader.join()
    assert read == [b"text", b"text"]
    assert pipe.is_fifo()
    assert (tmp_path / "link").is_symlink()


def test_a_failed_write_leaves_nothing_and_keeps_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_standard_input_is_utf8_whatever_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    def given(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="latin-1"))

    given("größer".encode())
    assert read_text("-") == "größer"
    given(b"a\xff")
    with pytest.raises(InputError) as caught:
        read_text("-")
    assert str(caught.value) == "<stdin>: expected UTF-8 text, byte 1 is not"


@pytest.mark.parametrize("text", [r'"a\ud800"', r'{"\udc00": 1}', r'{"a": [1, {"b": "\ud83d"}]}'])
def test_half_characters_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected whole characters, got the text"):
        parse_json(text, "file")


def test_long_ints_stay_exact() -> None:
    long = "-" + "9" * 5000
    found = parse_json(f"[{long}, {2**62}, -1]", "file")
    assert found == [Decimal(long), 2**62, -1]
    assert list(map(type, found)) == [Decimal, int, int]


def test_escaped_characters_are_read() -> None:
    assert parse_json(r'["\ud83d\ude00", "\\ud800", "\u00e4"]', "file") == ["😀", r"\ud800", "ä"]
