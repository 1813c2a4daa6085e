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

from ppsolve.models.documents import files
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import (
    parse_json,
    read_text,
    write_bytes,
    write_text,
)
from ppsolve.models.studies.bench.file import read_records
from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.formats.pickles.timeline import read_pickle_file


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
        reader = threading.Thread(
            target=lambda: read.append(pipe.read_bytes()), daemon=True
        )
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


def test_standard_input_is_utf8_whatever_the_locale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def given(data: bytes) -> None:
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="latin-1")
        )

    given("größer".encode())
    assert read_text("-") == "größer"
    given(b"a\xff")
    with pytest.raises(InputError) as caught:
        read_text("-")
    assert str(caught.value) == "<stdin>: expected UTF-8 text, byte 1 is not"


@pytest.mark.parametrize(
    "text", [r'"a\ud800"', r'{"\udc00": 1}', r'{"a": [1, {"b": "\ud83d"}]}']
)
def test_half_characters_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected whole characters, got the text"):
        parse_json(text, "file")


def test_long_ints_stay_exact() -> None:
    long = "-" + "9" * 5000
    found = parse_json(f"[{long}, {2**62}, -1]", "file")
    assert found == [Decimal(long), 2**62, -1]
    assert list(map(type, found)) == [Decimal, int, int]


def test_escaped_characters_are_read() -> None:
    assert parse_json(r'["\ud83d\ude00", "\\ud800", "\u00e4"]', "file") == [
        "😀",
        r"\ud800",
        "ä",
    ]


def test_endless_input_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LARGEST_INPUT", 2**20)
    (tmp_path / "large").write_bytes(b" " * (2**20 + 1))
    (tmp_path / "right").write_bytes(b" " * 2**20)
    too_much = "expected at most 1 MiB, this is more"
    with pytest.raises(InputError, match=too_much):
        read_text(tmp_path / "large")
    assert len(read_text(tmp_path / "right")) == 2**20
    with (
        (tmp_path / "large").open() as stream,
        pytest.raises(InputError, match=too_much),
    ):
        monkeypatch.setattr(sys, "stdin", stream)
        read_text("-")


@pytest.mark.skipif(sys.platform != "linux", reason="devices of Linux")
def test_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for device in ("/dev/zero", "/dev/full", "/dev/random"):
        with pytest.raises(InputError) as caught:
            read_text(device)
        assert (
            str(caught.value)
            == f"{device}: expected a file or a pipe, this is a device"
        )
    assert read_text(os.devnull) == ""
    monkeypatch.setattr(files, "LARGEST_INPUT", 2**20)
    with open("/dev/zero") as stream, pytest.raises(InputError, match="at most 1 MiB"):
        monkeypatch.setattr(sys, "stdin", stream)
        read_text("-")


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"a\r\nb"), daemon=True)
    writer.start()
    assert read_text(pipe) == "a\nb"


def test_a_pipe_that_nobody_writes_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    monkeypatch.setattr(files, "WRITER_SECONDS", 0.01)
    for read in (
        read_text,
        read_records,
        read_pickle_file,
        lambda path: read_trace([path]),
    ):
        with pytest.raises(InputError) as caught:
            read(pipe)
        assert caught.value.source == str(pipe)
        assert caught.value.message.startswith(
            "expected a file, or a pipe with a writer"
        )
    # What somebody has opened and closed again is empty, and not a pipe that nobody opened.
    reader, writer = os.pipe()
    os.close(writer)
    with pytest.raises(InputError, match="nothing arrived within"):
        read_text(f"/dev/fd/{reader}")
    os.close(reader)


def test_a_pipe_whose_writer_takes_its_time_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(files, "WRITER_SECONDS", 0.01)
    # Both ends at once, as opening one of them alone would wait.
    handle = os.open(pipe, os.O_RDWR)
    later = threading.Timer(0.05, lambda: (os.write(handle, b"late"), os.close(handle)))
    later.start()
    assert read_text(pipe) == "late"
    later.join()


def test_a_pipe_without_a_name_is_read_by_its_number() -> None:
    out, into = os.pipe()
    os.write(into, b"text")
    os.close(into)
    assert read_text(f"/dev/fd/{out}") == "text"
    os.close(out)


def test_a_written_file_outlives_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def kept(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def renamed(self: Path, target: Path) -> Path:
        done.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", kept)
    monkeypatch.setattr(Path, "replace", renamed)
    write_text(tmp_path / "file", "text")
    assert done == ["file", "rename", "folder"]


def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(InputError, match="cannot be written: it is read-only"):
        write_text(path, "new")
    assert path.read_text() == "old"


def test_files_are_read_where_nothing_can_be_opened_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on Windows, which has no flag for it and cannot say of a file that reading it may wait.
    def refuse(*_: object) -> None:
        raise OSError(1, "Incorrect function")

    (tmp_path / "file").write_text("text")
    monkeypatch.delattr(os, "O_NONBLOCK")
    monkeypatch.setattr(os, "set_blocking", refuse)
    assert read_text(tmp_path / "file") == "text"
