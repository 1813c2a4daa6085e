"""Stored schedules: exact, the same bytes again, refused where they belong to something else."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import best_known
import pytest
from best_known import schedule_problems
from best_known_files import StoredSchedule, load_best_known

import ppsolve
from ppsolve.models.core.documents import parse_given
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.structure.timing import time_orders
from tests.benchmarks.tiny import (
    NAME,
    TODAY,
    Solve,
    problems,
    result_of,
    result_with,
    schedule_of,
    stored_of,
    tiny,
)
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tick": "0"}, "tick: string should match pattern"),
        ({"tick": "1/0"}, "tick: string should match pattern"),
        ({"starts": {"F0": [0]}}, "starts.B0: expected 2 starts, got 0"),
        ({"starts": {"B0": [0, 1, 2]}}, "starts.B0: expected 2 starts, got 3"),
        ({"starts": {"B1": [0]}}, "starts.B1: expected 2 starts, got 1"),
        ({"starts": {"F0": [0, 2**80]}}, "starts.F0: a start is too large"),
        ({"starts": {"F0": [0, 0.5]}}, "starts.F0[1]: input should be a valid integer"),
        ({"starts": {"F9": [0]}}, 'unknown op "F9"'),
        ({"begins": {}}, 'unknown field "begins"'),
    ],
)
def test_foreign_schedules_are_refused(
    directory: Path, solve: Solve, change: dict[str, Any], message: str
) -> None:
    path = directory / solve(result_of(tiny())).after.schedule
    stored = json.loads(gzip.decompress(path.read_bytes()))
    if "starts" in change and change["starts"].get("F0") != [0]:
        change = {"starts": {**stored["starts"], **change["starts"]}}
    path.write_bytes(gzip.compress(json.dumps({**stored, **change}).encode()))
    (problem,) = problems(directory)
    assert problem.startswith(f"{path}: ")
    assert message in problem


def test_starts_in_other_ticks_prove_nothing(directory: Path, solve: Solve) -> None:
    path = directory / solve(result_of(tiny())).after.schedule
    halved = StoredSchedule.load(path).model_copy(update={"tick": "1/2"})
    halved.save(path)
    found = problems(directory)
    assert any(problem.startswith("tick: ") for problem in found)
    doubled = halved.model_copy(update={"tick": "2"})
    doubled.save(path)
    assert "objective: value is given as 9, the schedule has 16 us" in problems(
        directory
    )


def test_unknown_ops_in_a_schedule_are_refused() -> None:
    stored = stored_of(schedule_of(tiny()))
    entry = best_known._entry_of(NAME, tiny(), result_of(tiny()), TODAY)
    with pytest.raises(InputError, match=r"starts.B1: expected 1 starts, got 2"):
        schedule_problems(tiny(num_devices=1), stored, entry)


def test_unreadable_schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json.gz"
    path.write_bytes(b"no gzip")
    with pytest.raises(InputError, match="expected a gzipped schedule"):
        StoredSchedule.load(path)
    stored_of(schedule_of(tiny())).save(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="expected a gzipped schedule"):
        StoredSchedule.load(path)
    stored_of(schedule_of(tiny())).save(path)
    monkeypatch.setattr("best_known_files.MAX_BYTES", 10)
    with pytest.raises(InputError, match="expected at most 10 bytes unpacked"):
        StoredSchedule.load(path)


@pytest.mark.parametrize(
    ("changes", "tick"),
    [
        ({}, "1"),
        ({"placement": "bidirectional", "allreduce": 1, "optimizer": 1}, "1"),
        ({"p2p": {"mode": "link", "bytes": 1, "bandwidth": 3, "latency": 0.5}}, "1/6"),
        ({"p2p": {"latency": 0.123456789}}, "1/1000000000"),
    ],
)
def test_schedules_survive_storage(
    tmp_path: Path, changes: dict[str, Any], tick: str
) -> None:
    instance = tiny(**changes)
    problem = lower(instance)
    schedule = time_orders(problem, [])
    stored = StoredSchedule.of(result_with(instance, schedule))
    assert stored.tick == tick
    path = tmp_path / "x.json.gz"
    stored.save(path)
    data = path.read_bytes()
    again = StoredSchedule.load(path)
    names = problem.op_names(range(problem.num_ops))
    start = {row["id"]: row["start"] for row in again.rows(names)}
    assert [start[name] for name in names] == [
        problem.scale.time(ticks) for ticks in schedule.start.tolist()
    ]
    again.save(path)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    "name",
    [
        "few_microbatches/random-8x1.json",
        "p2p_heavy/link-uneven-4x12.json",
        "virtual_stages/bidirectional-4x8.json",
        "kfac/measured/packing.json",
        "kfac/pinned/bert-4x8-zb-h1.json",
        "overlap/moe-4l-two-groups.json",
    ],
)
def test_every_kind_is_proved_from_the_shipped_files(name: str) -> None:
    home = ROOT / "instances"
    entry, instance = (
        load_best_known(home).instances[name],
        ppsolve.load_instance(home / name),
    )
    stored = StoredSchedule.load(home / entry.schedule)
    assert schedule_problems(instance, stored, entry) == []
    less = entry.upper.model_copy(update={"value": entry.upper.value - 1})
    found = schedule_problems(
        instance, stored, entry.model_copy(update={"upper": less})
    )
    assert len(found) == 1
    assert (
        f"value is given as {less.value}, the schedule has {entry.upper.value}"
        in found[0]
    )


def test_iterations_that_are_stored_are_checked() -> None:
    home, name = ROOT / "instances", "kfac/pinned/bert-4x8-zb-h1.json"
    entry, instance = (
        load_best_known(home).instances[name],
        ppsolve.load_instance(home / name),
    )
    stored = StoredSchedule.load(home / entry.schedule)
    assert stored.iterations is not None
    wrong = stored.model_copy(update={"iterations": (1, *stored.iterations[1:])})
    assert any(
        "iterations_of" in found for found in schedule_problems(instance, wrong, entry)
    )


def test_shipped_schedules_are_stored_as_they_would_be_now() -> None:
    home = ROOT / "instances"
    for name in (
        "p2p_heavy/link-uneven-4x12.json",
        "step_end/bidirectional-allreduce-4x8.json",
    ):
        path = home / load_best_known(home).instances[name].schedule
        stored, instance = StoredSchedule.load(path), ppsolve.load_instance(home / name)
        problem = lower(instance)
        start = {
            row["id"]: row["start"]
            for row in stored.rows(problem.op_names(range(problem.num_ops)))
        }
        ops = [{"id": op, "start": time} for op, time in start.items()]
        schedule, _ = parse_given({"ops": ops}, problem)
        assert schedule is not None
        assert StoredSchedule.of(result_with(instance, schedule)) == stored
