"""Proofs of CP-SAT are repeated: agreement is told, and disagreement is never hidden."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve.models.core.result import Result, Status, StopReason
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.contents import INSTANCE
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.graph import GraphInstance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.bound_check import BoundCheck, check_bound
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.api.registry import find_heuristic
from ppsolve.solver.board import WrongScheduleError
from ppsolve.solver.cli.main import build
from ppsolve.solver.exact import memory
from ppsolve.solver.exact.params import AmountParams
from ppsolve.solver.exact.question import EXACT, FEW_DEVICES, SearchLimits
from ppsolve.solver.run import schedule_task, steps
from ppsolve.solver.run.schedule_task import ScheduleTask, search_below
from ppsolve.solver.run.step import Turn
from tests.paths import ROOT

NOT_BEST = "list-work"
"""A list schedule of the shop that takes 12."""


def shop(**fields: Any) -> GraphInstance:
    """Return a job shop of three jobs and three machines, in which no simple bound is met.

    The optimum is 11, the work of the busiest machine with its head and tail is less.
    """
    jobs = {"a": ("xyz", (3, 2, 2)), "b": ("xzy", (2, 1, 4)), "c": ("yzx", (4, 3, 1))}
    ops = [
        {"id": f"{job}{place}", "duration": length, "resources": [machine]}
        for job, (machines, lengths) in jobs.items()
        for place, (machine, length) in enumerate(zip(machines, lengths, strict=True))
    ]
    edges = [
        {"before": f"{job}{place}", "after": f"{job}{place + 1}"}
        for job in jobs
        for place in (0, 1)
    ]
    document = {
        "kind": "graph",
        "resources": list("xyz"),
        "ops": ops,
        "precedences": edges,
    }
    return GraphInstance.parse({"schema": 1, "name": "shop", **document, **fields})


def solve(**options: Any) -> Result:
    limits = {"time_limit": 30, "workers": 1, "heuristics": [NOT_BEST]}
    return ppsolve.optimize(shop(), **(limits | options))


def claims(turn: Turn, *given: Any, **named: Any) -> StopReason:
    """Say that the best schedule of the heuristics is proved, whatever it is."""
    assert turn.board.value is not None
    turn.board.raise_bound(turn.board.value, EXACT)
    return StopReason.PROVED


def refutes(turn: Turn, *given: Any, **named: Any) -> StopReason:
    """Say that there is no schedule."""
    turn.board.is_refuted = True
    return StopReason.INFEASIBLE


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(steps, "solve_model", claims)
    yield


def test_what_only_cp_sat_has_proved_is_proved_twice() -> None:
    found = solve(verify=True)
    assert (found.status, found.value, found.bound_by) == (Status.OPTIMAL, 11, EXACT)
    assert found.bound_verified is True


def test_a_proof_is_not_repeated_where_that_is_not_wanted() -> None:
    assert solve(verify=False).bound_verified is None


def test_an_analytic_bound_needs_no_second_proof() -> None:
    one = {"id": "a", "duration": 3, "resources": ["x"]}
    found = ppsolve.optimize(shop(ops=[one], precedences=[]), verify=True)
    assert (found.status, found.bound_verified) == (Status.OPTIMAL, None)


def test_deterministic_runs_repeat_proofs_alike() -> None:
    one, other = (solve(deterministic=True) for _ in range(2))
    assert one.bound_verified is other.bound_verified is True


@pytest.mark.usefixtures("lying")
def test_a_wrong_proof_is_withdrawn_and_told() -> None:
    found = solve(verify=True)
    assert (found.status, found.stop_reason) == (
        Status.FEASIBLE,
        StopReason.DISAGREEMENT,
    )
    assert found.value is not None
    assert found.bound is not None
    assert found.bound_verified is False
    assert found.bound <= 11 <= found.value < solve(verify=False).value  # type: ignore[operator]
    assert found.bound_by != EXACT
    assert found.reason is not None
    assert found.reason.startswith("two proofs of cp-sat disagree: the first found no")
    assert ppsolve.check(shop(), found) == []


def test_a_wrong_refutation_is_withdrawn_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ScheduleTask, "run_heuristic", lambda task, *given: None)
    monkeypatch.setattr(steps, "solve_model", refutes)
    assert solve(verify=False, heuristics=[]).status is Status.INFEASIBLE
    found = solve(verify=True, heuristics=[])
    assert (found.status, found.stop_reason) == (
        Status.FEASIBLE,
        StopReason.DISAGREEMENT,
    )
    assert found.reason == (
        "two proofs of cp-sat disagree: the first found no schedule, the second did"
    )


def test_a_refutation_is_repeated() -> None:
    pools = [{"name": "m", "capacity": 1}]
    ops = [
        {"id": name, "duration": 1, "resources": ["x"], "acquire": {"m": 1}}
        for name in ("a", "b")
    ]
    found = ppsolve.optimize(
        shop(ops=ops, precedences=[], pools=pools),
        workers=1,
        time_limit=30,
        verify=True,
    )
    assert (found.status, found.bound_verified) == (Status.INFEASIBLE, True)


@pytest.fixture
def result(tmp_path: Path) -> Path:
    path = tmp_path / "result.json"
    solve().save(path)
    return path


def changed(path: Path, **fields: Any) -> Path:
    data = json.loads(path.read_text(encoding="utf-8")) | fields
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def check(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(build(), ["check", *arguments])
    return done.exit_code, done.output


def test_the_bound_of_a_result_is_proved_again(result: Path) -> None:
    code, said = check("--bound", str(result))
    assert code == 0
    assert said.splitlines() == [
        f"{result}: bound 11, proved again by cp-sat",
        f"{result}: valid, no violations",
    ]
    code, said = check("--bound", str(result), "--json")
    assert (code, json.loads(said)["bound"]) == (
        0,
        {"claimed": 11, "proved_by": "cp-sat", "better": None},
    )


def test_an_analytic_bound_proves_what_is_not_above_it(result: Path) -> None:
    data = json.loads(result.read_text(encoding="utf-8")) | {"bound": 7}
    assert check_bound(shop(), data).proved_by in {
        "work",
        "critical-path",
        "one-machine",
    }


def test_a_bound_above_the_optimum_is_refuted_by_a_schedule(result: Path) -> None:
    data = json.loads(result.read_text(encoding="utf-8")) | {"bound": 12}
    assert check_bound(shop(), data) == BoundCheck(12, None, 11)
    code, said = check("--bound", str(changed(result, bound=12, value=12)))
    assert code == 5
    assert (
        "bound: the file claims that none is below 12, but there is one of 11" in said
    )


def test_that_there_is_no_schedule_is_refuted_by_one(result: Path) -> None:
    data = json.loads(result.read_text(encoding="utf-8"))
    found = check_bound(shop(), data | {"status": "INFEASIBLE", "bound": None})
    assert (found.claimed, found.proved_by) == (None, None)
    assert found.better is not None


def test_a_result_without_a_schedule_is_held_to_its_bound(
    tmp_path: Path, result: Path
) -> None:
    ops = [
        {"id": name, "duration": 1, "resources": ["x"], "acquire": {"m": 1}}
        for name in "ab"
    ]
    pools = [{"name": "m", "capacity": 1}]
    path = tmp_path / "impossible.json"
    ppsolve.optimize(shop(ops=ops, precedences=[], pools=pools), time_limit=30).save(
        path
    )
    code, said = check("--bound", str(path))
    assert (code, said.splitlines()[0].split(",")[0]) == (0, f"{path}: no schedule")
    code, said = check(
        "--bound", str(changed(result, status="UNKNOWN", schedule=None, bound=12))
    )
    assert code == 5
    assert (
        "bound: the file claims that none is below 12, but there is one of 11" in said
    )


def test_bounds_between_ticks_count_as_the_next_tick(result: Path) -> None:
    data = json.loads(result.read_text(encoding="utf-8"))
    assert check_bound(shop(), data | {"bound": 10.5}).claimed == 11
    assert check_bound(shop(), data | {"bound": 11 * (1 + 1e-16)}).claimed == 11


def test_a_bound_that_is_not_there_is_no_bound(result: Path) -> None:
    with pytest.raises(InputError, match="expected a result with a bound"):
        check_bound(shop(), {"schedule": None})
    code, said = check("--bound", str(changed(result, bound=None)))
    assert code == 2
    assert f"{result}: bound: expected a result with a bound" in said


def test_bounds_of_iterations_are_not_proved_again() -> None:
    instance = ppsolve.load_instance(next((ROOT / "instances/kfac").glob("**/*.json")))
    with pytest.raises(InputError, match="cannot be proved again"):
        check_bound(instance, {"bound": 3})


def test_a_result_alone_is_checked_by_the_instance_that_it_carries(
    result: Path,
) -> None:
    assert check(str(result))[0] == 0
    code, said = check(str(changed(result, value=10)))
    assert code == 5
    assert "value is given as 10" in said


def test_a_file_alone_has_to_be_a_result(tmp_path: Path) -> None:
    path = tmp_path / "shop.json"
    path.write_text(shop().model_dump_json(), encoding="utf-8")
    assert check(str(path)) == (2, f"error: {path}: expected a result, {INSTANCE}\n")


def test_files_of_runtimes_have_no_bound(tmp_path: Path) -> None:
    code, said = check("pipeline.json", str(tmp_path / "orders.csv"), "--bound")
    assert code == 2
    assert "--bound: expected a result" in said


def test_a_second_search_that_breaks_a_rule_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = kind_of(shop()).task(shop())
    task.find_bounds()
    broken = [Violation("no-overlap", "two at once", ())]
    monkeypatch.setattr(schedule_task, "check_schedule", lambda *given: broken)
    with pytest.raises(WrongScheduleError, match="two at once"):
        search_below(task.implied, task.board.bound.value, 20, SearchLimits())


def test_memory_that_nothing_fits_into_proves_that_there_is_no_schedule() -> None:
    ops = [{"id": "a", "duration": 1, "resources": ["x"], "acquire": {"m": 2}}]
    instance = shop(ops=ops, precedences=[], pools=[{"name": "m", "capacity": 1}])
    found = check_bound(instance, {"status": "INFEASIBLE"})
    assert found == BoundCheck(None, "memory")


def test_what_holds_for_one_assignment_of_micro_batches_proves_no_bound() -> None:
    forward = [[2, 4, 3, 5], [3, 2, 6, 1]]
    times = {"forward": forward, "backward": [[3, 3, 3, 2], [4, 4, 4, 5]]}
    data = {"num_devices": 2, "num_microbatches": 4, "times": times}
    instance = PipelineInstance.parse(
        {**data, "replicas": {"count": 2, "assignment": "free"}}
    )
    assert ppsolve.optimize(instance, time_limit=30, workers=1).value == 21
    assert check_bound(instance, {"bound": 20}).proved_by == "exchange"
    with pytest.raises(InputError, match="leaves choices open"):
        check_bound(instance, {"bound": 22})


def test_a_bound_that_rounded_memory_does_not_tell_is_refused() -> None:
    # 0.504 x 64 is 32.3: rounded down two ops fill 64, but only one fits at once.
    ops = [
        {"id": f"op{k}", "duration": 1, "resources": [f"r{k}"], "acquire": {"m": 0.504}}
        | {"release_at_end": {"m": 0.504}}
        for k in range(4)
    ]
    pools, resources = [{"name": "m", "capacity": 1}], [f"r{k}" for k in range(4)]
    instance = shop(ops=ops, precedences=[], pools=pools, resources=resources)
    with (
        patch.multiple(
            memory, AMOUNTS=AmountParams(2**6, 2**6), _same_sets=lambda *_: False
        ),
        patch.object(ScheduleTask, "find_bounds", lambda task: None),
        pytest.raises(InputError, match="CP-SAT rounds memory down"),
    ):
        check_bound(instance, {"bound": 3})


def test_a_bound_of_few_devices_is_proved_twice() -> None:
    task = kind_of(shop()).task(shop())
    assert isinstance(task, ScheduleTask)
    task.find_bounds()
    task.run_heuristic(find_heuristic(NOT_BEST))
    task.board.raise_bound(11, FEW_DEVICES)
    assert task.verify(SearchLimits(workers=1)) is True
