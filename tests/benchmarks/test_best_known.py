"""The best-known file: only ever better, proven again, loud about contradictions."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import best_known
import pytest
from best_known import schedule_problems, update, verify
from best_known_files import load_best_known, save_best_known
from shipped import instance_files

import ppsolve
from ppsolve.models.core.result import Result, ScheduleDocument
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import write_text
from ppsolve.models.documents.text import instance_text
from ppsolve.solver.api.kinds import lower
from tests.benchmarks.tiny import (
    NAME,
    OPTIMUM,
    TODAY,
    Solve,
    problems,
    result_of,
    schedule_of,
    stored_of,
    tiny,
)
from tests.studies.bench.records import MACHINE


def rewrite(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the entry of the tiny instance by hand."""
    path = directory / "best_known.json"
    data = json.loads(path.read_text())
    change(data["instances"][NAME])
    path.write_text(json.dumps(data))


def test_first_update_writes_a_proven_entry(
    directory: Path, solve: Solve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(best_known, "this_machine", lambda: MACHINE)
    outcome = solve(result_of(tiny()))
    assert outcome.before is None
    entry = load_best_known(directory).instances[NAME]
    assert entry == outcome.after
    assert (entry.upper.value, entry.lower.value, entry.status) == (9, 7, "open")
    assert entry.upper.model_dump(mode="json") == {
        "value": 9,
        "method": "1f1b",
        "version": "ppsolve 0.1.0, ortools 9.15",
        "machine": MACHINE,
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


def test_closed_instances_are_left_alone_unless_asked(
    directory: Path, solve: Solve
) -> None:
    solve(result_of(tiny(), bound=9))
    before = (directory / "best_known.json").read_bytes()
    outcome = solve(None)
    assert outcome.after == outcome.before
    assert (
        solve(result_of(tiny(), late=2, bound=1), again=True).after.upper.value
        == OPTIMUM
    )
    assert (directory / "best_known.json").read_bytes() == before


def test_a_result_without_schedule_only_raises_the_bound(
    directory: Path, solve: Solve
) -> None:
    none = result_of(tiny()).model_copy(
        update={"value": None, "schedule": None, "bound": 8}
    )
    assert solve(none).after.upper is None
    assert problems(directory) == []
    entry = solve(result_of(tiny(), bound=None)).after
    assert (entry.upper.value, entry.lower.value) == (9, 8)


def test_contradiction_is_reported_and_changes_nothing(
    directory: Path, solve: Solve
) -> None:
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
        (
            {"value": 8, "makespan": None},
            "objective: value is given as 8, the schedule has 9 us",
        ),
        ({"schedule": None}, "a value without a schedule"),
    ],
)
def test_wrong_results_are_not_believed(
    directory: Path, solve: Solve, change: dict[str, Any], message: str
) -> None:
    outcome = solve(result_of(tiny()).model_copy(update=change))
    assert outcome.problem == f"optimize returned a wrong result: {message}"
    assert not (directory / "best_known.json").exists()


def test_a_schedule_that_breaks_a_rule_is_not_believed(
    directory: Path, solve: Solve
) -> None:
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
    assert problems(directory) == [
        "the instance has changed since; run the update again"
    ]
    outcome = solve(result_of(slower))
    assert outcome.before is None
    assert problems(directory) == []


def test_what_others_write_meanwhile_is_kept(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: Any, **__: Any) -> Result:
        if not (directory / "best_known.json").exists():
            monkeypatch.setattr(ppsolve, "optimize", lambda *_, **__: better)
            list(update(directory, today=TODAY))
            known = load_best_known(directory)
            entries = {**known.instances, "other.json": known.instances[NAME]}
            save_best_known(directory, known.model_copy(update={"instances": entries}))
        return worse

    better, worse = result_of(tiny(), bound=OPTIMUM), result_of(tiny(), late=1)
    monkeypatch.setattr(ppsolve, "optimize", slow)
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
        (
            lambda e: e["lower"].update(value=10),
            "lower bound 10 (work) is above upper bound 9",
        ),
        (
            lambda e: e.update(status="closed"),
            'status is "closed", the bounds say otherwise',
        ),
        (
            lambda e: e["upper"].update(value=8),
            "value is given as 8, the schedule has 9 us",
        ),
        (
            lambda e: e["upper"].update(value=9.000000001),
            "no multiple of the schedule's tick 1",
        ),
        (
            lambda e: e["upper"].update(value=8),
            "the work bound 9 is above the upper bound 8",
        ),
        (
            lambda e: e.update(schedule=None),
            "an upper bound and its schedule must be there together",
        ),
        (
            lambda e: e.update(objective="device_span"),
            "the entry has device_span in us",
        ),
        (lambda e: e.update(time_unit="ms"), "the instance makespan in us"),
        (
            lambda e: e.update(ops=7),
            "the entry has 7 ops of kind pipeline, the instance 8 of",
        ),
        (
            lambda e: e.update(kind="graph"),
            "8 ops of kind graph, the instance 8 of pipeline",
        ),
    ],
)
def test_verify_finds(
    directory: Path,
    solve: Solve,
    change: Callable[[dict[str, Any]], None],
    message: str,
) -> None:
    solve(result_of(tiny()))
    rewrite(directory, change)
    assert any(message in problem for problem in problems(directory))


def test_verify_finds_missing_and_orphaned_entries(
    directory: Path, solve: Solve
) -> None:
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


def test_many_broken_rules_are_counted(directory: Path, solve: Solve) -> None:
    entry = solve(result_of(tiny())).after
    problem = lower(tiny())
    nothing_waits = stored_of(Schedule(problem, 0 * problem.duration))
    found = schedule_problems(tiny(), nothing_waits, entry)
    assert found[0] == "objective: value is given as 9, the schedule has 2 us"
    assert len(found) == 4
    assert found[3].endswith(" more broken rules")


def test_what_the_tolerance_could_hide_is_not_proved(
    directory: Path, solve: Solve
) -> None:
    long = tiny(times={"forward": 10**8, "backward": 2 * 10**8})
    write_text(directory / NAME, instance_text(long))
    assert solve(result_of(long)).problem is None
    longer = tiny(times={"forward": 10**9, "backward": 2 * 10**9})
    write_text(directory / NAME, instance_text(longer))
    assert (
        "1,000,000,000 ticks or more cannot be compared exactly"
        in solve(result_of(longer)).problem
    )


def test_saving_refuses_contradictions(directory: Path, solve: Solve) -> None:
    entry = solve(result_of(tiny())).after.model_copy(update={"status": "closed"})
    known = load_best_known(directory)
    with pytest.raises(InputError, match="the bounds say otherwise"):
        save_best_known(
            directory, known.model_copy(update={"instances": {NAME: entry}})
        )
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


def test_script(
    directory: Path, solve: Solve, capsys: pytest.CaptureFixture[str]
) -> None:
    path = directory / "best_known.json"
    assert best_known.main(["verify", str(directory)]) == 2
    made = '"best_known.py update" makes it'
    assert capsys.readouterr() == ("", f"error: {path}: no such file; {made}\n")
    path.write_text('{"schema": 1, "instances": {}}')
    assert best_known.main(["verify", str(directory)]) == 5
    assert f"WRONG {NAME}: no entry" in capsys.readouterr().out
    solve(result_of(tiny(), bound=9))
    assert best_known.main(["verify", str(directory)]) == 0
    out = capsys.readouterr().out
    assert f"ok    {NAME}: closed, upper 9 (1f1b), lower 9 (work) us" in out
    assert "1 of 1 verified" in out
    assert best_known.main(["update", str(directory)]) == 0
    assert capsys.readouterr().out.startswith(f"same   {NAME}: closed")


def test_update_is_loud(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = result_of(tiny()).model_copy(update={"schedule": None})
    monkeypatch.setattr(ppsolve, "optimize", lambda *_, **__: wrong)
    assert best_known.main(["update", str(directory)]) == 5
    assert f"WRONG {NAME}: optimize returned a wrong result" in capsys.readouterr().err


def test_update_with_the_solver_itself(directory: Path) -> None:
    (outcome,) = update(directory, time_limit=20, workers=1)
    assert outcome.problem is None
    assert outcome.after is not None
    assert outcome.after.status == "closed"
    assert outcome.after.upper is not None
    assert outcome.after.upper.value == OPTIMUM
    assert problems(directory) == []
