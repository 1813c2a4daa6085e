"""What goes wrong costs its own item, and is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppsolve.models.studies.bench.file import read_records
from tests.studies.bench.conftest import Bench
from tests.studies.bench.misbehaving import write

pytestmark = pytest.mark.processes

FORTY = [
    *["fine"] * 9,
    "abort",
    *["fine"] * 9,
    "hang",
    *["fine"] * 9,
    "throw",
    *["fine"] * 9,
]
"""With the one that eats memory 40 items, of which 4 fail."""


def results(path: Path) -> dict[str, tuple[str, str | None]]:
    """Return failure and error of each item by what it does."""
    found = read_records(path).records
    assert len({record.key for record in found}) == len(found)
    return {r.instance.partition("-")[2]: (r.failure or "none", r.error) for r in found}


def check_forty(path: Path) -> None:
    found = read_records(path).records
    assert len(found) == 40
    assert (
        sum(record.status == "OPTIMAL" and record.value == 1 for record in found) == 36
    )
    failed = {
        r.instance.split("-")[1]: str(r.failure) for r in found if r.failure is not None
    }
    assert failed == {
        "abort": "crash",
        "hang": "timeout",
        "throw": "error",
        "eat": "memory",
    }


FORTY_OPTIONS = (
    "-t",
    "0",
    "--hard-limit",
    "15",
    "--memory-limit",
    "0.6",
    "--processes",
    "2",
)


def test_forty_items_of_which_four_fail(tmp_path: Path, bench: Bench) -> None:
    write(tmp_path / "forty", [*FORTY, "eat"])
    done = bench("forty", "-o", "x.jsonl", *FORTY_OPTIONS, code=1)
    check_forty(tmp_path / "x.jsonl")
    assert done.stdout == (
        "x.jsonl: 40 items: 36 proved, 1 failed (crash), 1 failed (error), 1 failed (memory), "
        "1 failed (timeout)\n"
    )


def test_how_failures_are_told(tmp_path: Path, bench: Bench) -> None:
    wanted = {
        "abort": ("crash", "the process was killed by SIGABRT"),
        "segfault": ("crash", "the process was killed by SIGSEGV"),
        "exit": ("crash", "the process ended with 7 and gave no answer"),
        "kill_itself": ("crash", "the process was killed by SIGKILL"),
        "throw": ("error", "RuntimeError: nothing works"),
        "throw_memory_error": ("memory", "MemoryError"),
    }
    write(tmp_path / "all", list(wanted))
    done = bench("all", "-o", "x.jsonl", "-t", "0", code=1)
    assert results(tmp_path / "x.jsonl") == wanted
    for number, (does, (failure, error)) in enumerate(wanted.items()):
        assert f"] {number}-{does}: failed ({failure}): {error}\n" in done.stderr


def test_a_hang_in_native_code_ends(tmp_path: Path, bench: Bench) -> None:
    (path,) = write(tmp_path / "one", ["hang_in_native_code"])
    bench(path, "-o", "x.jsonl", "-t", "5", "--hard-limit", "2", code=1)
    failure, error = results(tmp_path / "x.jsonl")["hang_in_native_code"]
    assert (failure, error) == ("timeout", "no answer after 2.0 s")


def test_memory_of_processes_that_an_item_starts_counts(
    tmp_path: Path, bench: Bench
) -> None:
    (path,) = write(tmp_path / "one", ["eat_in_a_child"])
    bench(path, "-o", "x.jsonl", "-t", "0", "--memory-limit", "0.6", code=1)
    failure, error = results(tmp_path / "x.jsonl")["eat_in_a_child"]
    assert failure == "memory"
    assert str(error).endswith("GiB of memory, allowed are 0.60 GiB")


def test_the_helper_is_started_again(tmp_path: Path, bench: Bench) -> None:
    does = ["kill_helper_once", "fine", "fine"]
    write(tmp_path / "three", does, argument=str(tmp_path / "done"))
    bench("three", "-o", "x.jsonl", "-t", "0", code=1)
    found = read_records(tmp_path / "x.jsonl").records
    assert [str(record.failure) for record in found] == ["crash", "None", "None"]
    bench("three", "-o", "x.jsonl", "-t", "0", "--retry-failed")
    found = read_records(tmp_path / "x.jsonl").records
    assert [(record.failure, record.attempts) for record in found] == [
        (None, 1),
        (None, 1),
        (None, 2),
    ]
