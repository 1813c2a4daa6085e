"""The best-known file: only ever better, proven again, loud about contradictions."""

from __future__ import annotations

import datetime
import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ppsolve.models.core.result import Result, ScheduleDocument, Status, StopReason, Versions
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import write_text
from ppsolve.models.documents.text import instance_text
from ppsolve.models.instances import Instance
from ppsolve.solver.bestknown import load_best_known, save_best_known, update, verify
from ppsolve.solver.bestknown.entries import instance_files
from ppsolve.solver.bestknown.schedules import load_schedule, save_schedule
from ppsolve.solver.bestknown.verification import schedule_problems
from ppsolve.solver.cli import bestknown as command
from ppsolve.solver.cli.guard import GuardedGroup
from ppsolve.solver.optimize.kinds import lower, parse_instance
from ppsolve.solver.structure.timing import time_orders

TODAY = datetime.date(2025, 1, 31)
OPTIMUM = 9
NAME = "tiny/two.json"


def tiny(**changes: Any) -> Instance:
    """Two devices, two micro-batches, F 1, B 2: by hand the optimum is 1 + 6 + 2 = 9."""
    data = {
        "kind": "pipeline",
        "name": "two",
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 1, "backward": 2},
    }
    return parse_instance({**data, **changes})


def schedule_of(instance: Instance, *, late: int = 0) -> Schedule:
    """Return the 1F1B schedule, all of it `late` ticks later than need be."""
    problem = lower(instance)
    forward, backward = problem.grid("F"), problem.grid("B")
    orders = [
        [*forward[0], *backward[0]],
        [forward[1][0], backward[1][0], forward[1][1], backward[1][1]],
    ]
    schedule = time_orders(problem, orders)
    return Schedule(problem, schedule.start + late)


def result_of(instance: Instance, *, late: int = 0, bound: float | None = 7) -> Result:
    schedule = schedule_of(instance, late=late)
    return Result(
        instance=instance.name,
        status=Status.FEASIBLE,
        objective=schedule.problem.objective,
        time_unit="us",
        value=schedule.value,
        makespan=schedule.value,
        bound=bound,
        bound_by="work",
        best_by="1f1b",
        stop_reason=StopReason.TIME,
        wall_seconds=1.239,
        workers=2,
        versions=Versions(ppsolve="0.1.0", ortools="9.15", python="3.11"),
        schedule=ScheduleDocument.of(schedule),
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "tiny").mkdir()
    write_text(tmp_path / NAME, instance_text(tiny()))
    return tmp_path


Solve = Callable[[Result | None], Any]


@pytest.fixture
def solve(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Solve:
    """Run one update in which optimize returns the given result."""

    def once(result: Result | None, **options: Any) -> Any:
        def fake(*_: Any) -> Result:
            assert result is not None, "optimize must not be called"
            return result

        monkeypatch.setattr("ppsolve.solver.bestknown.updating._solve", fake)
        (outcome,) = update(directory, today=TODAY, **options)
        return outcome

    return once


def problems(directory: Path) -> list[str]:
    return [problem for verified in verify(directory) for problem in verified.problems]


def rewrite(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the entry of the tiny instance by hand."""
    path = directory / "best_known.json"
    data = json.loads(path.read_text())
    change(data["instances"][NAME])
    path.write_text(json.dumps(data))


def test_first_update_writes_a_proven_entry(directory: Path, solve: Solve) -> None:
    outcome = solve(result_of(tiny()))
    assert outcome.before is None
    entry = load_best_known(directory).instances[NAME]
    assert entry == outcome.after
    assert (entry.upper.value, entry.lower.value, entry.status) == (9, 7, "open")
    assert entry.upper.model_dump(mode="json") == {
        "value": 9,
        "method": "1f1b",
        "version": "ppsolve 0.1.0, ortools 9.15",
        "date": "2025-01-31",
        "seconds": 1.24,
        "workers": 2,
    }
    assert entry.lower.method == "work"
    assert (directory / entry.schedule).is_file()
    assert problems(directory) == []


def test_bounds_only_get_better(directory: Path, solve: Solve) -> None:
    values = []
    for late, bound in ((3, 5), (1, 4), (2, 8), (0, 6), (0, 9)):
        entry = solve(result_of(tiny(), late=late, bound=bound)).after
        values.append((entry.upper.value, entry.lower.value, entry.status))
        assert problems(directory) == []
    assert values == [
        (12, 5, "open"),
        (10, 5, "open"),
        (10, 8, "open"),
        (9, 8, "open"),
        (9, 9, "closed"),
    ]


def test_closed_instances_are_left_alone_unless_asked(directory: Path, solve: Solve) -> None:
    solve(result_of(tiny(), bound=9))
    before = (directory / "best_known.json").read_bytes()
    outcome = solve(None)
    assert outcome.after == outcome.before
    assert solve(result_of(tiny(), late=2, bound=1), again=True).after.upper.value == OPTIMUM
    assert (directory / "best_known.json").read_bytes() == before


def test_a_result_without_schedule_only_raises_the_bound(directory: Path, solve: Solve) -> None:
    none = result_of(tiny()).model_copy(update={"value": None, "schedule": None, "bound": 8})
    assert solve(none).after.upper is None
    assert problems(directory) == []
    entry = solve(result_of(tiny(), bound=None)).after
    assert (entry.upper.value, entry.lower.value) == (9, 8)


def test_contradiction_is_reported_and_changes_nothing(directory: Path, solve: Solve) -> None:
    solve(result_of(tiny(), bound=8))
    before = (directory / "best_known.json").read_bytes()
    outcome = solve(result_of(tiny(), late=1, bound=9.5))
    assert outcome.problem == (
        "CONTRADICTION: lower bound 9.5 (work) is above upper bound 9 (1f1b): one of them is wrong"
    )
    assert (directory / "best_known.json").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": 8, "makespan": None}, "objective: value is given as 8, the schedule has 9 us"),
        ({"schedule": None}, "a value without a schedule"),
    ],
)
def test_wrong_results_are_not_believed(
    directory: Path, solve: Solve, change: dict[str, Any], message: str
) -> None:
    outcome = solve(result_of(tiny()).model_copy(update=change))
    assert outcome.problem == f"optimize returned a wrong result: {message}"
    assert not (directory / "best_known.json").exists()


def test_a_schedule_that_breaks_a_rule_is_not_believed(directory: Path, solve: Solve) -> None:
    good = schedule_of(tiny())
    bad = Schedule(good.problem, good.start.copy())
    bad.start[good.problem.grid("F")[1][0]] = 0
    result = result_of(tiny()).model_copy(update={"schedule": ScheduleDocument.of(bad)})
    assert "precedence" in solve(result).problem
    assert not (directory / "best_known.json").exists()


def test_changed_instance_starts_afresh(directory: Path, solve: Solve) -> None:
    solve(result_of(tiny(), bound=9))
    slower = tiny(times={"forward": 1, "backward": 3})
    write_text(directory / NAME, instance_text(slower))
    assert problems(directory) == ["the instance has changed since; run the update again"]
    outcome = solve(result_of(slower))
    assert outcome.before is None
    assert problems(directory) == []


def test_what_others_write_meanwhile_is_kept(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: Any) -> Result:
        if not (directory / "best_known.json").exists():
            monkeypatch.setattr("ppsolve.solver.bestknown.updating._solve", lambda *_: better)
            list(update(directory, today=TODAY))
            known = load_best_known(directory)
            entries = {**known.instances, "other.json": known.instances[NAME]}
            save_best_known(directory, known.model_copy(update={"instances": entries}))
        return worse

    better, worse = result_of(tiny(), bound=OPTIMUM), result_of(tiny(), late=1)
    monkeypatch.setattr("ppsolve.solver.bestknown.updating._solve", slow)
    (outcome,) = update(directory, today=TODAY)
    known = load_best_known(directory).instances
    assert set(known) == {NAME, "other.json"}
    assert outcome.after == known[NAME] == known["other.json"]
    assert known[NAME].is_closed


def test_lost_schedule_is_stored_again(directory: Path, solve: Solve) -> None:
    entry = solve(result_of(tiny())).after
    (directory / entry.schedule).unlink()
    assert "no such file" in problems(directory)[0]
    solve(result_of(tiny(), late=1))
    assert "no such file" in problems(directory)[0]
    solve(result_of(tiny()))
    assert problems(directory) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e["lower"].update(value=10), "lower bound 10 (work) is above upper bound 9"),
        (lambda e: e.update(status="closed"), 'status is "closed", the bounds say otherwise'),
        (lambda e: e["upper"].update(value=8), "the schedule's value is 9, the upper bound 8"),
        (lambda e: e["upper"].update(value=8), "the work bound 9 is above the upper bound 8"),
        (lambda e: e.pop("schedule"), "an upper bound and its schedule must be there together"),
        (lambda e: e.update(objective="device_span"), "the entry has device_span in us"),
        (lambda e: e.update(time_unit="ms"), "the instance makespan in us"),
    ],
)
def test_verify_finds(
    directory: Path, solve: Solve, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    solve(result_of(tiny()))
    rewrite(directory, change)
    assert any(message in problem for problem in problems(directory))


def test_verify_finds_missing_and_orphaned_entries(directory: Path, solve: Solve) -> None:
    with pytest.raises(InputError, match="no such file"):
        problems(directory)
    solve(result_of(tiny()))
    (directory / NAME).rename(directory / "tiny" / "other.json")
    assert problems(directory) == [
        "no entry in best_known.json",
        "an entry, but no such instance file",
    ]


def test_verify_finds_a_broken_schedule(directory: Path, solve: Solve) -> None:
    entry = solve(result_of(tiny())).after
    path = directory / entry.schedule
    stored = json.loads(gzip.decompress(path.read_bytes()))
    stored["starts"]["B0"] = [0, 9]
    path.write_bytes(gzip.compress(json.dumps(stored).encode()))
    assert any(problem.startswith("precedence: ") for problem in problems(directory))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tick": "1/2"}, "tick: expected ticks of 1, got 1/2"),
        ({"starts": {"F0": [0]}}, "starts.B0: expected 2 starts, got 0"),
        ({"starts": {"B0": [0, 1, 2]}}, "starts.B0: expected 2 starts, got 3"),
        ({"starts": {"F0": [0, 2**80]}}, "is too large"),
        ({"starts": {"F0": [0, 0.5]}}, "starts.F0[1]: input should be a valid integer"),
        ({"begins": {}}, 'unknown field "begins"'),
    ],
)
def test_foreign_schedules_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    problem = lower(tiny())
    path = tmp_path / "x.json.gz"
    save_schedule(path, schedule_of(tiny()))
    stored = json.loads(gzip.decompress(path.read_bytes()))
    if "starts" in change and change["starts"].get("F0") != [0]:
        change = {"starts": {**stored["starts"], **change["starts"]}}
    path.write_bytes(gzip.compress(json.dumps({**stored, **change}).encode()))
    with pytest.raises(InputError) as caught:
        load_schedule(path, problem)
    assert message in str(caught.value)


def test_unknown_ops_in_a_schedule_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    save_schedule(path, schedule_of(tiny()))
    smaller = lower(tiny(num_devices=1))
    with pytest.raises(InputError, match=r"starts.B1: expected 0 starts, got 2"):
        load_schedule(path, smaller)


def test_unreadable_schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json.gz"
    path.write_bytes(b"no gzip")
    with pytest.raises(InputError, match="expected a gzipped schedule"):
        load_schedule(path, lower(tiny()))
    save_schedule(path, schedule_of(tiny()))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="expected a gzipped schedule"):
        load_schedule(path, lower(tiny()))
    save_schedule(path, schedule_of(tiny()))
    monkeypatch.setattr("ppsolve.solver.bestknown.schedules.MAX_BYTES", 10)
    with pytest.raises(InputError, match="expected at most 10 bytes unpacked"):
        load_schedule(path, lower(tiny()))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"placement": "bidirectional", "allreduce": 1, "optimizer": 1},
        {"p2p": {"mode": "link", "bytes": 1, "bandwidth": 3, "latency": 0.5}},
    ],
)
def test_schedules_survive_storage(tmp_path: Path, changes: dict[str, Any]) -> None:
    problem = lower(tiny(**changes))
    schedule = time_orders(problem, [])
    path = tmp_path / "x.json.gz"
    save_schedule(path, schedule)
    data = path.read_bytes()
    again = load_schedule(path, problem)
    assert again.start.tolist() == schedule.start.tolist()
    save_schedule(path, again)
    assert path.read_bytes() == data


def test_many_broken_rules_are_counted(directory: Path, solve: Solve) -> None:
    entry = solve(result_of(tiny())).after
    problem = lower(tiny())
    found = schedule_problems(Schedule(problem, 0 * problem.duration), entry, Decimal(2))
    assert len(found) == 5
    assert found[3].endswith(" more broken rules")
    assert found[4] == "the schedule's value is 2, the upper bound 9"


def test_saving_refuses_contradictions(directory: Path, solve: Solve) -> None:
    entry = solve(result_of(tiny())).after.model_copy(update={"status": "closed"})
    known = load_best_known(directory)
    with pytest.raises(InputError, match="the bounds say otherwise"):
        save_best_known(directory, known.model_copy(update={"instances": {NAME: entry}}))
    assert load_best_known(directory) == known


def test_directories_without_instances(tmp_path: Path, directory: Path) -> None:
    with pytest.raises(InputError, match="expected a directory of instances"):
        instance_files(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no instance"):
        list(verify(tmp_path / "empty"))
    with pytest.raises(InputError, match='no instance matches "x/'):
        list(update(directory, only="x/*"))


def test_unknown_field_in_the_file(directory: Path, solve: Solve) -> None:
    solve(result_of(tiny()))
    rewrite(directory, lambda entry: entry.update(uper=1))
    with pytest.raises(InputError, match='unknown field "uper"'):
        list(verify(directory))


def test_commands(directory: Path, solve: Solve) -> None:
    app = typer.Typer(cls=GuardedGroup)
    command.register(app)
    runner = CliRunner()
    missing = runner.invoke(app, ["bestknown", "verify", str(directory)])
    assert (missing.exit_code, missing.stdout) == (2, "")
    path = directory / "best_known.json"
    made = '"ppsolve bestknown update" makes it'
    assert missing.stderr == f"error: {path}: no such file; {made}\n"
    path.write_text('{"schema": 1, "instances": {}}')
    empty = runner.invoke(app, ["bestknown", "verify", str(directory)])
    assert empty.exit_code == 5
    assert f"WRONG {NAME}: no entry" in empty.stdout
    solve(result_of(tiny(), bound=9))
    proven = runner.invoke(app, ["bestknown", "verify", str(directory)])
    assert proven.exit_code == 0
    assert f"ok    {NAME}: closed, upper 9 (1f1b), lower 9 (work) us" in proven.stdout
    assert "1 of 1 verified" in proven.stdout
    same = runner.invoke(app, ["bestknown", "update", str(directory)])
    assert same.exit_code == 0
    assert same.stdout.startswith(f"same   {NAME}: closed")


def test_update_command_is_loud(directory: Path, solve: Solve) -> None:
    solve(result_of(tiny()).model_copy(update={"schedule": None}))
    app = typer.Typer()
    command.register(app)
    failed = CliRunner().invoke(app, ["bestknown", "update", str(directory)])
    assert failed.exit_code == 5
    assert f"WRONG {NAME}: optimize returned a wrong result" in failed.stderr


def test_update_with_the_solver_itself(directory: Path) -> None:
    (outcome,) = update(directory, time_limit=20, workers=1)
    assert outcome.problem is None
    assert outcome.after is not None
    assert outcome.after.status == "closed"
    assert outcome.after.upper is not None
    assert outcome.after.upper.value == OPTIMUM
    assert problems(directory) == []
