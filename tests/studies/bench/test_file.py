"""Files of results: strict lines, torn ends, locks, whole rewrites."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.bench.file import BenchFile, read_records
from tests.studies.bench.records import record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def write(path: Path, *keys: str) -> None:
    with BenchFile(path) as file:
        for key in keys:
            file.append(record(key))


def test_what_is_written_is_read(path: Path) -> None:
    moments = [[0.1, 100, None], [0.25, 95.5, 80]]
    full = record("a", anytime=moments, bounds=[{"name": "work", "value": 80.25}])
    with BenchFile(path) as file:
        file.append(full)
    assert read_records(path).records == (full,)
    data = json.loads(path.read_text())
    assert (data["schema"], data["failure"], data["anytime"]) == (1, None, moments)


def test_a_torn_end_is_dropped(path: Path) -> None:
    write(path, "a", "b")
    whole = path.read_bytes()
    for cut in (1, 30, len(whole.splitlines()[1])):
        path.write_bytes(whole[:-cut])
        assert [one.key for one in read_records(path).records] == ["a"]
        with BenchFile(path) as file:
            assert file.torn > 0
            file.append(record("c"))
        assert [one.key for one in read_records(path).records] == ["a", "c"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "{",
            "line 2: not valid JSON: line 1, column 2: the file ends too early (truncated?)",
        ),
        ("", "line 2: expected a record, the line is empty"),
        ("[]", "line 2: expected an object, got a list of 0"),
        ('{"schema": 1}', "line 2: key: this field is required"),
    ],
)
def test_any_other_bad_line_is_refused(path: Path, line: str, message: str) -> None:
    write(path, "a", "b")
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{line}\n{second}\n")
    for reader in (read_records, BenchFile):
        with pytest.raises(InputError) as error:
            reader(path)
        assert str(error.value) == f"{path}: {message}"
    assert path.read_text().splitlines() == [first, line, second]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "schema: input should be 1, got 2"),
        (
            {"failure": "bang"},
            "failure: input should be 'crash', 'timeout', 'memory' or 'error'",
        ),
        ({"statuss": "OPTIMAL"}, 'unknown field "statuss"; did you mean "status"?'),
        (
            {"seconds": -1},
            "seconds: input should be greater than or equal to 0, got -1",
        ),
    ],
)
def test_records_are_strict(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        record("a", **changes)
    assert message in str(error.value)


def test_one_run_writes_at_a_time(path: Path) -> None:
    with (
        BenchFile(path),
        pytest.raises(InputError, match="another run is writing to it"),
    ):
        BenchFile(path)
    BenchFile(path).close()


def test_a_rewrite_keeps_the_lock(path: Path) -> None:
    write(path, "a", "b")
    with BenchFile(path) as file:
        file.keep([one for one in file.records if one.key == "b"])
        with pytest.raises(InputError, match="another run"):
            BenchFile(path)
        file.append(record("c"))
    assert [one.key for one in read_records(path).records] == ["b", "c"]


def test_a_full_disk_leaves_whole_lines(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, "a")
    real = os.write
    with BenchFile(path) as file:
        monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:10]))
        with pytest.raises(InputError, match=os.strerror(errno.ENOSPC)):
            file.append(record("b"))
    assert [one.key for one in read_records(path).records] == ["a"]


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_records(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="this is a directory"):
        read_records(tmp_path)
    with pytest.raises(InputError, match="cannot be written: Is a directory"):
        BenchFile(tmp_path)
    with pytest.raises(
        InputError, match="cannot be written: No such file or directory"
    ):
        BenchFile(tmp_path / "none" / "x.jsonl")


def test_a_result_in_place_of_records_is_named(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text('{"instance": "tiny", "status": "OPTIMAL"}\n')
    with pytest.raises(
        InputError, match=r"result.json: .* this is a result; `ppsolve show"
    ):
        read_records(file)
