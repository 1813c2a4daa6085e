"""Reading schedules from documents: forms, tolerances, and what is an error or a violation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.documents import load_schedule, parse_given
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import ScheduleDocument
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.contents import INSTANCE
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import parse_json
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.checker import check_schedule
from tests.small import small


@pytest.fixture
def problem() -> Problem:
    """Two ops of 2 and 3 ms, one after the other: ticks of 1 ms."""
    ops = [{"id": "a", "duration": 2}, {"id": "b", "duration": 3}]
    data = {"kind": "graph", "time_unit": "ms", "resources": ["r"], "ops": ops}
    return lower(
        parse_instance({**data, "precedences": [{"before": "a", "after": "b"}]})
    )


def bare(*starts: Any) -> dict[str, Any]:
    ops = [
        {"id": name, "start": start} for name, start in zip("ab", starts, strict=False)
    ]
    return {"time_unit": "ms", "ops": ops}


def complaints(data: Any, problem: Problem) -> list[str]:
    return [str(violation) for violation in parse_given(data, problem)[1]]


@pytest.mark.parametrize(
    "data",
    [
        bare(0, 2),
        {"ops": bare(0, 2)["ops"]},
        {"name": "list", "status": "feasible", "schedule": bare(0, 2), "value": 5},
        {"schema": 1, "status": "OPTIMAL", "time_unit": "ms", "schedule": bare(0, 2)},
        bare(0.0, 2.0),
        bare(0, 2.000000001),
    ],
)
def test_forms_of_a_schedule(data: dict[str, Any], problem: Problem) -> None:
    schedule, violations = parse_given(data, problem)
    assert violations == []
    assert schedule is not None
    assert schedule.start.tolist() == [0, 2]


def test_pydantic_document_is_read(problem: Problem) -> None:
    document = ScheduleDocument.of(Schedule(problem, np.array([0, 4])))
    schedule, violations = parse_given(document, problem)
    assert schedule is not None
    assert (schedule.start.tolist(), violations) == ([0, 4], [])


def test_missing_ops_are_violations_one_each(problem: Problem) -> None:
    schedule, violations = parse_given({"ops": []}, problem)
    assert schedule is None
    assert [str(v) for v in violations] == [
        "missing: a is not scheduled",
        "missing: b is not scheduled",
    ]


def test_other_violations_are_listed_beside_missing_ops(problem: Problem) -> None:
    data = {"ops": [{"id": "a", "start": -2, "end": 5}]}
    schedule, violations = parse_given(data, problem)
    assert schedule is None
    assert [v.rule for v in violations] == ["missing", "start", "duration"]


def test_negative_start_is_left_to_the_checker(problem: Problem) -> None:
    schedule, violations = parse_given(bare(-2, 0), problem)
    assert violations == []
    assert schedule is not None
    assert [v.rule for v in check_schedule(problem, schedule)] == ["start"]


def test_time_0_is_not_before_0_however_short_the_schedule() -> None:
    point = {"id": "a", "duration": 0, "resources": []}
    two = small([point, point | {"id": "b"}], time_unit="ms")
    assert complaints(bare(0), two) == ["missing: b is not scheduled"]


def test_wrong_end(problem: Problem) -> None:
    data = bare(0, 2)
    data["ops"][1]["end"] = 6
    assert complaints(data, problem) == [
        "duration: b runs from 2 ms to 6 ms, it takes 3 ms"
    ]


def test_start_off_the_tick_grid(problem: Problem) -> None:
    assert complaints(bare(0, 2.5), problem) == [
        "tick: b starts at 2.5 ms, not a multiple of the tick 1 ms"
    ]


@pytest.mark.parametrize("key", ["value", "makespan", "device_span"])
def test_wrong_claim(key: str, problem: Problem) -> None:
    found = complaints({"schedule": bare(0, 2), key: 4}, problem)
    actual = 0 if key == "device_span" else 5
    assert found == [f"objective: {key} is given as 4, the schedule has {actual} ms"]


def test_claims_within_the_tolerance_pass(problem: Problem) -> None:
    assert complaints({"schedule": bare(0, 2), "makespan": 5 + 4e-9}, problem) == []
    assert len(complaints({"schedule": bare(0, 2), "makespan": 5 + 6e-9}, problem)) == 1


@pytest.mark.parametrize(
    "claims",
    [
        {"bound": 5, "gap": 0, "status": "OPTIMAL"},
        {"bound": 4, "gap": 0.2, "status": "FEASIBLE"},
        {"bound": 4, "gap": 0.2 + 1e-9},
        {"value": 5, "bound": 5 + 4e-9, "status": "OPTIMAL"},
        {"bound": 5 - 4e-9, "status": "OPTIMAL"},
        {"bound": None, "gap": 0.2, "status": "OPTIMAL"},
        {"name": "gpipe", "value": 5, "gap": 0.25, "status": "feasible"},
    ],
)
def test_figures_that_agree(claims: dict[str, Any], problem: Problem) -> None:
    assert complaints({"schedule": bare(0, 2), **claims}, problem) == []


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"value": 5, "bound": 6}, "the bound 6 ms is above the value 5 ms"),
        ({"bound": 6}, "the bound 6 ms is above the value 5 ms"),
        ({"bound": 5 + 6e-9}, "the bound 5.000000006 ms is above the value 5 ms"),
        (
            {"value": 5, "bound": 6, "status": "OPTIMAL"},
            "the bound 6 ms is above the value 5 ms",
        ),
        (
            {"value": 5, "bound": 4.5, "gap": 0.1, "status": "OPTIMAL"},
            "status is OPTIMAL, but the bound 4.5 ms is below the value 5 ms",
        ),
        (
            {"value": 5, "bound": 4, "gap": 0.1},
            "gap is given as 0.1, bound 4 ms and value 5 ms make it 0.2",
        ),
        (
            {"bound": 5, "gap": 4e-9},
            "gap is given as 4e-09, bound 5 ms and value 5 ms make it 0",
        ),
    ],
)
def test_figures_that_contradict_each_other(
    claims: dict[str, Any], message: str, problem: Problem
) -> None:
    assert complaints({"schedule": bare(0, 2), **claims}, problem) == [
        f"objective: {message}"
    ]


def test_figures_are_compared_without_a_whole_schedule(problem: Problem) -> None:
    found = complaints({"schedule": bare(0), "value": 5, "bound": 6, "gap": 0}, problem)
    assert [text.partition(":")[0] for text in found] == [
        "missing",
        "objective",
        "objective",
    ]
    assert found[2].endswith(
        "gap is given as 0, bound 6 ms and value 5 ms make it -0.2"
    )
    assert complaints({"schedule": bare(0), "bound": 6}, problem) == [
        "missing: b is not scheduled"
    ]


def test_bound_and_gap_must_be_numbers(problem: Problem) -> None:
    for key, value in (("bound", "5"), ("gap", [])):
        data = {"schedule": bare(0, 2), "bound": 5, key: value}
        field, message = refused(data, problem)
        assert (field, message.partition(",")[0]) == (key, "expected a number")


def test_empty_problem_time_has_no_gap_to_check() -> None:
    data = {"kind": "graph", "resources": [], "ops": [{"id": "a", "duration": 0}]}
    problem = lower(parse_instance(data))
    document = {
        "ops": [{"id": "a", "start": 0}],
        "bound": 0,
        "gap": 0,
        "status": "OPTIMAL",
    }
    assert complaints(document, problem) == []


def test_absent_claims_are_no_claims(problem: Problem) -> None:
    assert complaints({"schedule": bare(0, 2), "value": None}, problem) == []


def refused(data: Any, problem: Problem) -> tuple[str | None, str]:
    with pytest.raises(InputError) as caught:
        parse_given(data, problem, "s.json")
    assert caught.value.source == "s.json"
    return caught.value.field, caught.value.message


@pytest.mark.parametrize(
    ("data", "field", "message"),
    [
        ([], None, "expected a result or a schedule (an object), got a list of 0"),
        ("x", None, 'expected a result or a schedule (an object), got the text "x"'),
        ({}, "ops", "expected a list of ops, each with id and start, got nothing"),
        (
            {"kind": "graph", "ops": []},
            None,
            f"expected a result or a schedule, {INSTANCE}",
        ),
        ({"schedule": 3}, "schedule", "expected an object, got 3"),
        (
            {"schedule": None, "status": "INFEASIBLE"},
            "schedule",
            "expected a schedule, there is none (status INFEASIBLE)",
        ),
        (
            {"schedule": {"ops": "F0"}},
            "schedule.ops",
            'expected a list of ops, each with id and start, got the text "F0"',
        ),
        ({"ops": ["a"]}, "ops[0]", 'expected an object, got the text "a"'),
        ({"ops": [{"start": 1}]}, "ops[0].id", "this field is required"),
        ({"ops": [{"id": "a"}]}, "ops[0].start", "this field is required"),
        (
            {"ops": [{"id": 7, "start": 1}]},
            "ops[0].id",
            "expected the name of an op, got 7",
        ),
        (
            {"ops": [{"id": "c", "start": 1}]},
            "ops[0].id",
            'unknown op "c"; known: a, b',
        ),
        (
            {"schedule": {"ops": [*bare(0, 2)["ops"], {"id": "a", "start": 1}]}},
            "schedule.ops[2].id",
            'the op "a" appears twice',
        ),
        (
            {"time_unit": "us", "ops": []},
            "time_unit",
            'expected "ms" as in the instance, got the text "us"',
        ),
        (
            {"schedule": {"time_unit": "us", "ops": []}},
            "schedule.time_unit",
            'expected "ms" as in the instance, got the text "us"',
        ),
        (
            {"schedule": bare(0, 2), "value": "5"},
            "value",
            'expected a number, got the text "5"',
        ),
    ],
)
def test_what_cannot_be_read(
    data: Any, field: str | None, message: str, problem: Problem
) -> None:
    assert refused(data, problem) == (field, message)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("1", 'expected a number, got the text "1"'),
        (None, "expected a number, got null"),
        (True, "expected a number, got true"),
        (float("nan"), "expected a finite number, got NaN"),
        (float("-inf"), "expected a finite number, got -Infinity"),
        (1e300, "expected at most 1E+30, got 1.000000E+300"),
        (-1e300, "expected at least -1E+30, got -1.000000E+300"),
        (10**400, "expected at most 1E+30, got 1.000000E+400"),
        (1e-300, "expected 0 or at least 1E-30, got 1.000000E-300"),
    ],
)
def test_times_that_are_no_times(start: Any, message: str, problem: Problem) -> None:
    assert refused(bare(start, 2), problem) == ("ops[0].start", message)


def test_start_beyond_the_arithmetic_is_refused() -> None:
    data = {"kind": "graph", "resources": [], "ops": [{"id": "a", "duration": 1e-9}]}
    problem = lower(parse_instance(data))
    field, message = refused({"ops": [{"id": "a", "start": 10**14}]}, problem)
    assert field == "ops[0].start"
    assert message.startswith("expected less than 2305843009213693952 ticks")


def test_unknown_op_of_a_large_problem_gets_a_short_message() -> None:
    data = {"kind": "pipeline", "num_devices": 8, "num_microbatches": 24, "times": {}}
    data["times"] = {"forward": 1, "backward": 2}
    problem = lower(parse_instance(data))
    _, message = refused({"ops": [{"id": "F0.25", "start": 0}]}, problem)
    assert message.startswith('unknown op "F0.25"; did you mean "F0.')
    _, message = refused({"ops": [{"id": "?", "start": 0}]}, problem)
    assert message.endswith("F0.19, ...")


def write(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_load_schedule_reads_a_file(tmp_path: Path, problem: Problem) -> None:
    schedule = load_schedule(write(tmp_path / "s.json", bare(0, 2)), problem)
    assert schedule.start.tolist() == [0, 2]


def test_load_schedule_refuses_what_contradicts_itself(
    tmp_path: Path, problem: Problem
) -> None:
    path = write(tmp_path / "s.json", {"ops": []})
    with pytest.raises(InputError) as caught:
        load_schedule(path, problem)
    assert (
        str(caught.value)
        == f"{path}: schedule: missing: a is not scheduled (and 1 more)"
    )


def test_load_schedule_of_a_missing_file(tmp_path: Path, problem: Problem) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_schedule(tmp_path / "none.json", problem)


def test_duplicate_key_in_a_schedule_file(tmp_path: Path, problem: Problem) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"ops": [{"id": "a", "start": 0, "start": 1}]}', encoding="utf-8")
    with pytest.raises(InputError, match='"start" appears twice'):
        load_schedule(path, problem)


def pipeline(forward: Any) -> tuple[Problem, Schedule]:
    """All forwards, then all backwards, in lockstep."""
    data = {"kind": "pipeline", "num_devices": 4, "num_microbatches": 40}
    times = {"forward": forward, "backward": 10}
    problem = lower(parse_instance({**data, "times": times}))
    step = int(problem.duration.max())
    stage, microbatch = np.arange(4)[:, None], np.arange(40)
    start = np.zeros(problem.num_ops, dtype=np.int64)
    start[problem.grid("F")] = step * (stage + microbatch)
    start[problem.grid("B")] = step * (43 + 3 - stage + microbatch)
    return problem, Schedule(problem, start)


def reread(schedule: Schedule, digits: int | None = None) -> Schedule:
    """Write a schedule, round its numbers to some decimals, and read it back."""
    data = json.loads(ScheduleDocument.of(schedule).model_dump_json())
    for op in data["ops"] if digits is not None else ():
        op["start"], op["end"] = round(op["start"], digits), round(op["end"], digits)
    read, violations = parse_given(
        parse_json(json.dumps(data), "s.json"), schedule.problem
    )
    assert violations == []
    assert read is not None
    return read


@pytest.mark.parametrize("forward", [10, 10.1, 9.123456, 10.123456789])
def test_written_schedules_are_read_back_exactly(forward: float) -> None:
    problem, schedule = pipeline(forward)
    assert check_schedule(problem, schedule) == []
    assert reread(schedule).start.tolist() == schedule.start.tolist()


def test_ticks_finer_than_the_tolerance_do_not_break_rules() -> None:
    problem, schedule = pipeline(10.123456789)
    read = reread(schedule, digits=7)
    assert check_schedule(problem, read) == []
    off = np.abs(read.start - schedule.start).max()
    assert 0 < off <= schedule.makespan * 1e-9


def test_errors_beyond_the_tolerance_stay_violations() -> None:
    problem, schedule = pipeline(10.123456789)
    start = schedule.start.copy()
    start[problem.grid("F")[3, 39]] -= 5 + schedule.makespan // 10**9
    found = check_schedule(problem, reread(Schedule(problem, start)))
    assert {v.rule for v in found} == {"precedence", "overlap"}


def test_pin_within_the_tolerance_is_kept() -> None:
    ops = [
        {"id": "a", "duration": 100.000000001},
        {"id": "b", "duration": 1, "start": 900.5},
    ]
    problem = lower(parse_instance({"kind": "graph", "resources": [], "ops": ops}))
    data = {"ops": [{"id": "a", "start": 0}, {"id": "b", "start": 900.5000003}]}
    schedule, violations = parse_given(data, problem)
    assert schedule is not None
    assert violations == check_schedule(problem, schedule) == []


def test_large_schedule_is_read() -> None:
    data: dict[str, Any] = {
        "kind": "pipeline",
        "num_devices": 32,
        "num_microbatches": 256,
    }
    data["times"] = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    problem = lower(parse_instance(data))
    start = np.arange(problem.num_ops, dtype=np.int64)
    schedule, violations = parse_given(
        ScheduleDocument.of(Schedule(problem, start)).model_dump(), problem
    )
    assert schedule is not None
    assert violations == []
    assert np.array_equal(schedule.start, start)


def labelled() -> tuple[Problem, dict[str, Any]]:
    """A schedule with every kind of op that a pipeline has, by op id."""
    instance = {
        "kind": "pipeline",
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 1, "backward": 2},
        "p2p": {"mode": "link", "bytes": 1, "bandwidth": 1},
        "allreduce": 1,
        "optimizer": 1,
    }
    problem = lower(parse_instance(instance))
    start = np.arange(problem.num_ops, dtype=np.int64)
    return problem, ScheduleDocument.of(Schedule(problem, start)).model_dump(
        mode="json"
    )


@pytest.mark.parametrize(
    ("op", "label", "value", "message"),
    [
        ("F0.0", "device", 1, "F0.0 is given with device 1, it has device 0"),
        ("F0.1", "kind", "B", 'F0.1 is given with kind "B", it has kind "F"'),
        ("F0.1", "kind", 0, 'F0.1 is given with kind 0, it has kind "F"'),
        ("B1.1", "stage", 0, "B1.1 is given with stage 0, it has stage 1"),
        (
            "B1.1",
            "microbatch",
            0,
            "B1.1 is given with microbatch 0, it has microbatch 1",
        ),
        (
            "B1.1",
            "microbatch",
            True,
            "B1.1 is given with microbatch true, it has microbatch 1",
        ),
        ("F0.0", "device", False, "F0.0 is given with device false, it has device 0"),
        ("F0.0", "device", "0", 'F0.0 is given with device "0", it has device 0'),
        ("F0.0", "device", -1, "F0.0 is given with device -1, it has device 0"),
        ("TF0.0", "kind", "TF", 'TF0.0 is given with kind "TF", it has kind "P2P"'),
        ("TB1.0", "device", 0, "TB1.0 is given with device 0, it has device 1"),
        ("AR0", "microbatch", 0, "AR0 is given with microbatch 0, it has none"),
        ("OPT1", "microbatch", -1, "OPT1 is given with microbatch -1, it has none"),
        ("OPT1", "kind", "AR", 'OPT1 is given with kind "AR", it has kind "OPT"'),
    ],
)
def test_labels_that_contradict_the_op(
    op: str, label: str, value: Any, message: str
) -> None:
    problem, document = labelled()
    next(row for row in document["ops"] if row["id"] == op)[label] = value
    found = parse_given(document, problem)[1]
    assert [(v.rule, v.message, v.ops) for v in found] == [("label", message, (op,))]
    del document["ops"][-1]
    assert {v.rule for v in parse_given(document, problem)[1]} >= {"missing"}


def test_labels_may_be_left_out_or_null_or_written_as_decimals() -> None:
    problem, document = labelled()
    assert parse_given(document, problem)[1] == []
    for row, values in zip(document["ops"], ([None] * 3, [1.0] * 3, []), strict=False):
        if not values:
            for label in ("kind", "stage", "device", "microbatch"):
                row.pop(label)
        elif values[0] is None:
            row.update(kind=None, stage=None, device=None, microbatch=None)
        else:
            row.update(stage=float(row["stage"]), device=float(row["device"]))
    assert parse_given(document, problem)[1] == []


def test_labels_of_a_graph(problem: Problem) -> None:
    document = ScheduleDocument.of(Schedule(problem, np.array([0, 2]))).model_dump(
        mode="json"
    )
    assert complaints(document, problem) == []
    document["ops"][0].update(kind="F", stage=0)
    assert complaints(document, problem) == [
        'label: a is given with kind "F", it has kind "op"',
        "label: a is given with stage 0, it has none",
    ]


def test_sums_of_times_may_be_larger_than_any_time() -> None:
    op = {"duration": 9 * 10**14, "resources": ["r"]}
    shop = {
        "kind": "graph",
        "resources": ["r"],
        "ops": [{"id": "a", **op}, {"id": "b", **op}],
    }
    instance = ppsolve.parse_instance(shop)
    assert ppsolve.check(instance, ppsolve.optimize(instance, time_limit=20)) == []
