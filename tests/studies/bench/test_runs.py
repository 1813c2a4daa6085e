"""Runs from the command line: resuming after kills, parts, merging, interrupts, locks."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ppsolve.models.studies.bench.file import read_records
from ppsolve.solver.cli.main import build
from tests.marks import first
from tests.studies.bench.conftest import Bench, command
from tests.studies.bench.misbehaving import write

pytestmark = pytest.mark.processes

TINY = "tiny --devices 2 --microbatches 2..3"
PATIENCE = 120
"""Seconds after which a test that waits for something has failed."""


@contextmanager
def begun(
    *arguments: str | Path, cwd: Path, env: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Start a run; it is dead when the block is left."""
    with subprocess.Popen(
        command(*arguments), cwd=cwd, env=env, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("count", first(1, [40, 200]))
def test_killed_three_times_and_resumed(
    tmp_path: Path, bench: Bench, environment: dict[str, str], count: int
) -> None:
    draw = random.Random(7)
    path = tmp_path / "x.jsonl"
    few = ("-t", "0", "--heuristics", "gpipe,1f1b,list-tail", "--processes", "2")
    run = ("--recipe", TINY, "--count", str(count), "-o", path, *few)
    for _ in range(3):
        wanted = lines(path) + draw.randint(1, count // 5)
        with begun(*run, "-q", cwd=tmp_path, env=environment) as process:
            wait_until(partial(has_lines, path, wanted))
            time.sleep(draw.random() / 10)
            process.send_signal(signal.SIGKILL)
        before = read_records(path).records
        assert wanted <= len(before) < count
    with path.open("ab") as file:
        file.write(b'{"schema":1,"key":"tor')
    done = bench(*run)
    assert done.stderr.startswith(
        f"note: {path}: the last line was not written whole; it is run again\n"
        f"{len(before)} of {count} items are in the file already\n"
    )
    found = read_records(path).records
    assert found[: len(before)] == before
    assert len({record.key for record in found}) == len(found) == count
    assert all(
        r.failure is None and r.value is not None and r.bound is not None for r in found
    )
    text = path.read_bytes()
    assert (
        f"{len(found)} of {count} items are in the file already" in bench(*run).stderr
    )
    assert path.read_bytes() == text


def has_lines(path: Path, wanted: int) -> bool:
    return lines(path) >= wanted


def test_nothing_outlives_a_killed_run(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    write(tmp_path / "two", ["fine", "hang"])
    path = tmp_path / "x.jsonl"
    with begun("two", "-o", path, "-t", "0", cwd=tmp_path, env=environment) as process:
        wait_until(lambda: lines(path) == 1)
        wait_until(lambda: len(_descendants(process.pid)) == 2)
        (helper, child) = _descendants(process.pid)
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(_is_running(one) for one in (helper, child)))


def _descendants(parent: int) -> list[int]:
    found = []
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        found += [int(child), *_descendants(int(child))]
    return found


def _is_running(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_and_keeps_lines(
    tmp_path: Path, environment: dict[str, str], number: signal.Signals
) -> None:
    write(tmp_path / "three", ["fine", "hang", "fine"])
    path = tmp_path / "x.jsonl"
    with begun(
        "three", "-o", path, "-t", "0", cwd=tmp_path, env=environment
    ) as process:
        wait_until(lambda: lines(path) == 1)
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert errors.endswith("interrupted; 2 of 3 items not done\n")
    assert len(read_records(path).records) == 1


def test_two_runs_of_one_file(
    tmp_path: Path, bench: Bench, environment: dict[str, str]
) -> None:
    paths = write(tmp_path / "two", ["fine", "hang"])
    path = tmp_path / "x.jsonl"
    with begun(*paths, "-o", path, "-t", "0", cwd=tmp_path, env=environment):
        wait_until(lambda: lines(path) == 1)
        done = bench(paths[0], "-o", path, "-t", "0", code=2)
        assert done.stderr == (
            f"error: {path}: another run is writing to it; give it a file of its own, or wait\n"
        )


def test_retry_runs_failed_items_again_and_keeps_others(
    tmp_path: Path, bench: Bench
) -> None:
    once = str(tmp_path / "once")
    first, other = write(tmp_path / "two", ["kill_helper_once", "abort"], argument=once)
    bench(first, other, "-o", "x.jsonl", "-t", "0", code=1)
    bench(first, "-o", "x.jsonl", "-t", "0", "--retry-failed")
    found = read_records(tmp_path / "x.jsonl").records
    assert [(record.failure, record.attempts) for record in found] == [
        ("crash", 1),
        (None, 2),
    ]


def test_parts_make_the_whole(tmp_path: Path, bench: Bench) -> None:
    options = ("--recipe", TINY, "--count", "12", "-t", "0")
    for number in (1, 2, 3):
        bench(*options, "--shard", f"{number}/3", "-o", f"{number}.jsonl")
    bench(*options, "-o", "whole.jsonl")
    parts = [read_records(tmp_path / f"{number}.jsonl").records for number in (1, 2, 3)]
    whole = read_records(tmp_path / "whole.jsonl").records
    assert sorted(r.key for part in parts for r in part) == sorted(r.key for r in whole)
    done = bench("merge", "1.jsonl", "2.jsonl", "3.jsonl", "-o", "all.jsonl")
    assert done.stdout == "all.jsonl: 12 items of 12 lines, 0 differences\n"
    merged = read_records(tmp_path / "all.jsonl").records
    assert [r.key for r in merged] == [r.key for part in parts for r in part]
    # Merged files are resumed like any other.
    assert (
        "12 of 12 items are in the file already"
        in bench(*options, "-o", "all.jsonl").stderr
    )


def test_files_of_a_folder_are_a_family(tmp_path: Path, bench: Bench) -> None:
    folder = tmp_path / "folder" / "small"
    folder.mkdir(parents=True)
    document = {
        "kind": "pipeline",
        "name": "tiny",
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 10, "backward": 20},
    }
    (folder / "tiny.json").write_text(json.dumps(document))
    (folder / "other.json").write_text(json.dumps({**document, "name": "other"}))
    (folder / "result.json").write_text('{"schedule": []}')
    done = bench("folder", "-o", "x.jsonl", "-t", "5", "--workers", "1", "--seed", "3")
    assert done.stderr.startswith(
        "note: folder/small/result.json is not an instance, left out\n"
        "note: folder/small/tiny.json asks the same as folder/small/other.json; "
        "each question is solved once\n"
    )
    (record,) = read_records(tmp_path / "x.jsonl").records
    assert (record.family, record.path) == ("small", "folder/small/other.json")
    assert (record.status, record.value, record.bound, record.gap) == (
        "OPTIMAL",
        90,
        90,
        0,
    )
    assert (record.ops, record.objective, record.time_unit) == (8, "makespan", "us")
    assert (record.settings["workers"], record.settings["seed"]) == (1, 3)
    assert record.time_limit == 5
    assert record.seconds_to_proof is not None
    entries = {entry.name: entry for entry in record.heuristics}
    assert (entries["1f1b"].status, entries["1f1b"].gap) == ("feasible", 0)
    assert entries["1f1b"].seconds is not None
    assert entries["zbv"].status == "not_applicable"
    assert "work" in {bound.name for bound in record.bounds}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "PATHS: expected instances: files, directories, or --recipe"),
        (["none.json"], "none.json: no such file"),
        (
            ["--recipe", TINY, "--shard", "4/3"],
            "--shard: expected a part such as 1/4 or 4/4",
        ),
        (
            ["--recipe", ""],
            "--recipe: expected options of `ppsolve generate`, got none",
        ),
        (
            ["--recipe", "a --devices x"],
            "--recipe: --devices: expected a whole number or a range",
        ),
        (["--recipe", "a --device 4"], "--recipe: No such option: --device"),
        (["--recipe", "a b"], "--recipe: Got unexpected extra argument"),
        (["--recipe", "a 'b"], "--recipe: not readable: No closing quotation"),
        (
            ["--recipe", "ä"],
            "--recipe: expected a name of letters, digits, dots and dashes",
        ),
        (
            ["--recipe", "a --count x"],
            "--recipe: --count: expected a whole number >= 1",
        ),
        (
            ["--recipe", "a --profile 1.5b", "--count", "2"],
            "--recipe: expected one instance, as a profile has no random draws",
        ),
        (
            ["--recipe-file", "r.txt"],
            "r.txt: line 3: --devices: expected a whole number",
        ),
        (
            ["--recipe", TINY, "--scheduler", "x"],
            "--scheduler: this option needs --engine dask",
        ),
        (
            ["--recipe", TINY, "--heuristics", "gpip"],
            '--heuristics: unknown heuristic "gpip"',
        ),
        (
            ["--recipe", TINY, "--deterministic", "--workers", "2"],
            "workers: expected 1 with deterministic runs",
        ),
    ],
)
def test_wrong_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.txt").write_text(f"# recipes\n{TINY}  # few\nb --devices y\n")
    done = CliRunner().invoke(build(), ["bench", *arguments, "-o", "x.jsonl"])
    assert done.exit_code == 2
    assert f"error: {error}" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == ["r.txt"]


def test_bad_lines_stop_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.jsonl").write_text('{"schema": 1}\n')
    for arguments in (
        ["--recipe", TINY, "-o", "x.jsonl"],
        ["merge", "x.jsonl", "-o", "y.jsonl"],
    ):
        done = CliRunner().invoke(build(), ["bench", *arguments])
        assert done.exit_code == 2
        assert done.stderr == "error: x.jsonl: line 1: key: this field is required\n"
    assert (tmp_path / "x.jsonl").read_text() == '{"schema": 1}\n'
    assert os.listdir(tmp_path) == ["x.jsonl"]
