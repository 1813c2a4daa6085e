"""Bounds that users write are compared with the schedule, and never believed."""

from __future__ import annotations

import json
import threading
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve import InputError, NotApplicableError, PipelineInstance
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import OwnBound, OwnBoundStatus
from ppsolve.models.studies.bench.file import read_records
from ppsolve.solver.api import own_bounds
from ppsolve.solver.cli.main import build
from ppsolve.solver.run.progress import Progress

TWO_BY_THREE = PipelineInstance(
    num_devices=2, num_microbatches=3, times={"forward": 1, "backward": 1}
)
BEST = 8
"""Six ops on each device; the last one waits for a forward and a backward of the other."""


def work(instance: PipelineInstance) -> int:
    return 2 * instance.num_microbatches


def too_much(problem: Problem) -> float:
    return float(problem.duration.sum())


def far_too_little(instance: PipelineInstance) -> float:
    return 0.5


def not_for_this(instance: PipelineInstance) -> None:
    raise NotApplicableError("needs three devices")


def broken(instance: PipelineInstance) -> float:
    return 1 / (instance.num_devices - 2)


def judged(*bounds: Any) -> tuple[OwnBound, ...]:
    result = ppsolve.optimize(TWO_BY_THREE, bounds=bounds, time_limit=20)
    # Whatever users say, what is proved is ours.
    assert (result.value, result.bound, result.status) == (BEST, BEST, "OPTIMAL")
    assert result.bound_by in {bound.name for bound in result.bounds}
    return result.own_bounds


def test_a_bound_above_a_valid_schedule_is_refuted() -> None:
    # All twelve ops one after the other.
    (bound,) = judged(too_much)
    assert (bound.status, bound.value) == (OwnBoundStatus.REFUTED, 12)
    assert bound.reason == "there is a valid schedule of 8"


def test_a_bound_that_no_schedule_refutes_is_listed() -> None:
    weak, weaker = judged(work, far_too_little)
    assert (weak.status, weak.value) == (OwnBoundStatus.NOT_REFUTED, 6)
    assert weak.name == f"{__name__}:work"
    assert (weaker.status, weaker.value) == (OwnBoundStatus.NOT_REFUTED, 0.5)


def test_a_bound_as_high_as_the_schedule_proves_nothing() -> None:
    result = ppsolve.optimize(
        TWO_BY_THREE, bounds=[lambda instance: BEST], heuristics=["gpipe"], time_limit=0
    )
    assert result.own_bounds[0].status == OwnBoundStatus.NOT_REFUTED
    assert result.bound_by in {bound.name for bound in result.bounds}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (float("inf"), "expected a finite number, got"),
        ("8", "expected a finite number, got"),
        (True, "expected a finite number, got"),
    ],
)
def test_other_answers_fail(answer: Any, reason: str) -> None:
    (bound,) = judged(lambda instance: answer)
    assert bound.status == OwnBoundStatus.FAILED
    assert reason in str(bound.reason)


def test_a_bug_fails_the_bound_alone() -> None:
    crash, other, silent = judged(broken, not_for_this, lambda instance: None)
    assert crash.status == OwnBoundStatus.FAILED
    assert str(crash.reason).startswith("ZeroDivisionError: division by zero (test_own")
    assert (other.status, other.reason) == ("not_applicable", "needs three devices")
    assert silent.status == "not_applicable"


def test_a_bound_without_an_answer_leaves_the_search_its_time() -> None:
    released = threading.Event()

    def endless(instance: PipelineInstance) -> int:
        released.wait()
        return 1

    try:
        result = ppsolve.optimize(
            TWO_BY_THREE, bounds=[endless, work], params=BRIEF, time_limit=20
        )
    finally:
        released.set()
    late, other = result.own_bounds
    assert (late.status, late.reason) == (OwnBoundStatus.FAILED, own_bounds.LATE)
    # Its time is over too, and so short an answer is not cut off.
    assert other.status in {OwnBoundStatus.NOT_REFUTED, OwnBoundStatus.FAILED}
    assert (result.value, result.status) == (BEST, "OPTIMAL")


BRIEF = {"steps.own_bounds_share": 0.005}


def test_what_is_no_function_is_refused() -> None:
    for bounds in (work, "work", [8], ["nowhere.py:bound"], [lambda size: 8]):
        with pytest.raises(InputError):
            ppsolve.optimize(TWO_BY_THREE, bounds=bounds, time_limit=0)


def test_installed_bounds_are_compared_in_every_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = EntryPoint("mine", f"{__name__}:too_much", own_bounds.ENTRY_POINTS)
    monkeypatch.setattr(own_bounds, "entry_points", lambda group: [point])
    (bound,) = judged()
    assert (bound.name, bound.status) == ("mine", OwnBoundStatus.REFUTED)


def test_commands_take_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "def wild(instance):\n    return 9\n\ndef low(problem):\n    return 3\n"
    )
    Path("one.json").write_text(TWO_BY_THREE.model_dump_json(by_alias=True))
    asked = ["one.json", "--bound", "mine.py:wild", "--bound", "mine.py:low", "-t", "9"]
    done = CliRunner().invoke(build(), ["optimize", *asked, "-o", "found.json"])
    assert done.exit_code == 0, done.output
    words = " ".join(done.stdout.split())
    assert "mine.py:wild: 9 us, refuted: there is a valid schedule of 8" in words
    assert "mine.py:low: 3 us, not refuted, not above the proved bound 8" in words
    statuses = [b["status"] for b in json.loads(Path("found.json").read_text())[FIELD]]
    assert statuses == ["refuted", "not_refuted"]
    done = CliRunner().invoke(build(), ["optimize", "one.json", "--bound", "mine.py:x"])
    assert done.exit_code == 2
    # A benchmark reports the contradiction as it does for its own bounds.
    done = CliRunner().invoke(build(), ["bench", *asked, "-o", "r.jsonl"])
    assert done.exit_code == 0, done.output
    (record,) = read_records("r.jsonl").records
    assert {"mine.py:wild", "mine.py:low"} <= {bound.name for bound in record.bounds}
    assert set(record.settings["code"]) == {"mine.py:wild", "mine.py:low"}
    done = CliRunner().invoke(build(), ["bench", "report", "r.jsonl"])
    assert done.exit_code == 5
    assert 'the bound "mine.py:wild" 9 is above' in " ".join(done.stdout.split())


FIELD = "own_bounds"


def test_events_know_nothing_of_them() -> None:
    events: list[Progress] = []
    ppsolve.optimize(
        TWO_BY_THREE, bounds=[too_much], on_progress=events.append, time_limit=5
    )
    assert all((event.bound or 0) <= BEST for event in events)
