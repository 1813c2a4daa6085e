"""The independent checker, rule by rule: what it says and what it lets pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.checker import check_schedule


def graph(ops: list[dict[str, Any]], **fields: Any) -> Problem:
    data = {
        "kind": "graph",
        "resources": ["r"],
        "ops": ops,
        "time_unit": "ms",
        **fields,
    }
    return lower(parse_instance(data))


def violations(problem: Problem, *starts: int) -> list[Violation]:
    return check_schedule(problem, Schedule(problem, np.array(starts, dtype=np.int64)))


def texts(problem: Problem, *starts: int) -> list[str]:
    return [str(violation) for violation in violations(problem, *starts)]


def op(name: str, duration: float = 2, **fields: Any) -> dict[str, Any]:
    return {"id": name, "duration": duration, "resources": ["r"], **fields}


def test_valid_schedule_has_no_violations() -> None:
    assert violations(graph([op("a"), op("b")]), 0, 2) == []


def test_empty_gap_and_touching_ops_are_allowed() -> None:
    assert violations(graph([op("a"), op("b"), op("c")]), 7, 0, 2) == []


def test_negative_start() -> None:
    assert texts(graph([op("a")]), -3) == ["start: a starts at -3 ms, before 0"]


def test_release_time() -> None:
    problem = graph([op("a", release=5)])
    assert texts(problem, 4) == [
        "release: a starts at 4 ms, before its release time 5 ms"
    ]
    assert texts(problem, 5) == []


def test_pin() -> None:
    problem = graph([op("a", start=5)])
    assert texts(problem, 6) == ["pin: a starts at 6 ms, it is pinned to 5 ms"]
    assert texts(problem, 5) == []


def test_pin_at_zero_is_a_pin() -> None:
    assert [v.rule for v in violations(graph([op("a", start=0)]), 1)] == ["pin"]


def test_precedence_with_and_without_lag() -> None:
    ops = [op("a"), op("b", resources=[])]
    plain = graph(ops, precedences=[{"before": "a", "after": "b"}])
    assert texts(plain, 0, 1) == ["precedence: b starts at 1 ms, before a ends at 2 ms"]
    lagged = graph(ops, precedences=[{"before": "a", "after": "b", "lag": 3}])
    assert texts(lagged, 0, 4) == [
        "precedence: b starts at 4 ms, before a ends at 2 ms + lag 3 ms"
    ]
    assert texts(lagged, 0, 5) == []


def test_precedence_names_both_ops() -> None:
    problem = graph(
        [op("a"), op("b", resources=[])], precedences=[{"before": "a", "after": "b"}]
    )
    assert [v.ops for v in violations(problem, 0, 1)] == [("a", "b")]


@pytest.mark.parametrize("kind", ["int64", "uint64"])
def test_starts_are_counted_exactly_beyond_doubles(kind: str) -> None:
    problem = graph([op("a", 1), op("b", 1)])
    for late, expected in ((2**53, ["overlap"]), (2**53 + 1, [])):
        start = np.array([2**53, late], dtype=kind)
        assert [
            v.rule for v in check_schedule(problem, Schedule(problem, start))
        ] == expected


def test_times_are_in_the_unit_of_the_instance() -> None:
    problem = graph([op("a", 0.5), op("b", 0.25)])
    assert texts(problem, 0, 1) == [
        "overlap: b starts at 0.25 ms on r, where a runs until 0.5 ms",
    ]


def test_overlap_names_both_ops_and_the_resource() -> None:
    found = violations(graph([op("a", 4), op("b")]), 0, 3)
    assert [str(v) for v in found] == [
        "overlap: b starts at 3 ms on r, where a runs until 4 ms"
    ]
    assert found[0].ops == ("a", "b")


def test_every_op_inside_a_long_one_is_reported() -> None:
    problem = graph([op("long", 10), op("b"), op("c"), op("d")])
    assert [v.ops for v in violations(problem, 0, 1, 5, 10)] == [
        ("long", "b"),
        ("long", "c"),
    ]


def test_overlap_on_one_of_several_resources() -> None:
    ops = [
        op("a", resources=["r", "s"]),
        op("b", resources=["s"]),
        op("c", resources=["r"]),
    ]
    problem = graph(ops, resources=["r", "s"])
    assert [v.ops for v in violations(problem, 0, 1, 2)] == [("a", "b")]


def test_zero_length_op_may_lie_inside_another() -> None:
    problem = graph([op("a", 4), op("zero", 0), op("another", 0)])
    assert violations(problem, 0, 2, 2) == []


def test_zero_length_op_hides_no_overlap() -> None:
    problem = graph([op("a", 4), op("zero", 0), op("b", 1)])
    assert [v.rule for v in violations(problem, 0, 2, 3)] == ["overlap"]


def test_no_op_runs_around_a_point() -> None:
    ops = [op("a", 4), op("point", 0), op("b", 2, resources=["s"])]
    problem = graph(ops, resources=["r", "s"])
    with_point = replace(problem, points=np.array([1]))
    assert texts(with_point, 0, 3, 2) == [
        "overlap: point starts at 3 ms on r, where a runs until 4 ms"
    ]
    for touching in (0, 4, 5):
        assert texts(with_point, 0, touching, 0) == []
    assert texts(problem, 0, 3, 2) == []


def test_start_outside_of_every_window() -> None:
    problem = replace(
        graph([op("a"), op("b")]), windows={1: np.array([[3, 4], [8, 8]])}
    )
    said = "window: b starts at {} ms, which is in no hole that has room for it"
    assert [texts(problem, 0, start) for start in (3, 4, 8)] == [[], [], []]
    assert [texts(problem, 0, start) for start in (2, 5, 9)] == [
        [said.format(t)] for t in (2, 5, 9)
    ]


def memory(capacity: Any, *ops: dict[str, Any], initial: Any = 0) -> Problem:
    pools = [{"name": "m", "capacity": capacity, "initial": initial}]
    return graph([{"resources": [], **each} for each in ops], pools=pools)


def holder(name: str, amount: Any, duration: int = 2, **fields: Any) -> dict[str, Any]:
    held = {"acquire": {"m": amount}, "release_at_end": {"m": amount}}
    return {"id": name, "duration": duration, **held, **fields}


def test_memory_names_peak_and_interval() -> None:
    problem = memory(2, holder("a", 2, 4), holder("b", 1), holder("c", 0.5, 1))
    assert texts(problem, 0, 1, 2) == [
        "memory: m holds 3.5 of 2 at 2 ms (too much from 1 ms to 3 ms)"
    ]
    assert violations(problem, 0, 1, 2)[0].ops == ("c",)


def test_every_interval_over_the_limit_is_reported() -> None:
    problem = memory(2, holder("a", 2, 9), holder("b", 1), holder("c", 1))
    assert [v.message for v in violations(problem, 0, 1, 6)] == [
        "m holds 3 of 2 at 1 ms (too much from 1 ms to 3 ms)",
        "m holds 3 of 2 at 6 ms (too much from 6 ms to 8 ms)",
    ]


def test_touching_intervals_over_the_limit_are_one() -> None:
    problem = memory(2, holder("a", 2, 9), holder("b", 1), holder("c", 2))
    assert [v.message for v in violations(problem, 0, 1, 3)] == [
        "m holds 4 of 2 at 3 ms (too much from 1 ms to 5 ms)"
    ]


def test_release_and_acquire_at_one_instant_fit() -> None:
    assert violations(memory(1, holder("a", 1), holder("b", 1)), 0, 2) == []


def test_zero_length_holder_needs_no_room() -> None:
    assert violations(memory(1, holder("a", 1, 4), holder("zero", 1, 0)), 0, 2) == []


def test_memory_never_given_back_is_too_much_to_the_end() -> None:
    problem = memory(1, {"id": "a", "duration": 1, "acquire": {"m": 2}})
    assert texts(problem, 3) == [
        "memory: m holds 2 of 1 at 3 ms (too much from 3 ms to the end)"
    ]


def test_memory_is_exact_on_decimals() -> None:
    thirds = [holder(name, 0.1) for name in "abc"]
    assert violations(memory(0.3, *thirds), 0, 0, 0) == []
    assert [v.rule for v in violations(memory(0.2999999, *thirds), 0, 0, 0)] == [
        "memory"
    ]


def test_allowed_excess_is_a_billionth_of_the_capacity() -> None:
    fits = memory(1, {"id": "a", "duration": 1, "acquire": {"m": 1.000000001}})
    exceeds = memory(1, {"id": "a", "duration": 1, "acquire": {"m": 1.0000000011}})
    assert violations(fits, 0) == []
    assert [v.rule for v in violations(exceeds, 0)] == ["memory"]


def test_amounts_beyond_int64_are_counted_exactly() -> None:
    tiny, huge = 1e-18, 1e6
    problem = memory(
        3 * huge,
        *(
            holder(name, amount)
            for name, amount in zip("abcd", (huge, huge, huge, tiny), strict=True)
        ),
    )
    assert violations(problem, 0, 0, 0, 0) == []
    assert [
        v.rule
        for v in violations(
            memory(3, *(holder(n, a) for n, a in (("a", huge), ("b", tiny)))), 0, 0
        )
    ] == ["memory"]


def test_releases_alone_are_counted_exactly_beyond_int64() -> None:
    ops = [
        {"id": f"a{n}", "duration": 1, "release_at_end": {"m": n}} for n in range(1, 6)
    ]
    problem = memory(15, *ops, initial=15)
    pool = problem.pools[0]
    amounts = tuple(2**61 + amount for amount in pool.amounts)
    problem = replace(problem, pools=(replace(pool, amounts=amounts),))
    assert violations(problem, 0, 1, 2, 3, 4) == []


def test_amounts_are_shown_to_the_last_digit() -> None:
    assert texts(memory(123456789012345, holder("a", 123456789999999)), 0) == [
        "memory: m holds 123,456,789,999,999 of 123,456,789,012,345 at 0 ms "
        "(too much from 0 ms to 2 ms)"
    ]


def test_initial_amount_alone_can_be_too_much() -> None:
    problem = memory(1, {"id": "a", "duration": 1}, initial=2)
    assert texts(problem, 0) == [
        "memory: m holds 2 of 1 at the beginning (too much from the beginning to the end)"
    ]


def test_no_op_is_blamed_for_what_is_in_use_at_the_beginning() -> None:
    free = {"id": "a", "duration": 1, "release_at_end": {"m": 1}}
    problem = memory(
        1, free, {"id": "b", "duration": 1, "acquire": {"m": 1}}, initial=3
    )
    assert [violation.ops for violation in violations(problem, 0, 1)] == [()]


def test_memory_of_initial_amount_is_counted() -> None:
    assert [v.rule for v in violations(memory(2, holder("a", 1), initial=1.5), 0)] == [
        "memory"
    ]


def test_all_violations_are_listed_in_one_call() -> None:
    ops = [op("a", release=3), op("b"), op("c", start=9), op("d", acquire={"m": 2})]
    problem = graph(
        ops,
        precedences=[{"before": "a", "after": "c"}],
        pools=[{"name": "m", "capacity": 1}],
    )
    rules = [v.rule for v in violations(problem, 1, -1, 2, 2)]
    assert rules == [
        "start",
        "release",
        "pin",
        "precedence",
        "overlap",
        "overlap",
        "memory",
    ]


@pytest.mark.parametrize("starts", [[0], [0, 1, 2], [0.5, 1.0]])
def test_wrong_shape_or_type_is_a_programming_error(starts: list[float]) -> None:
    problem = graph([op("a"), op("b")])
    with pytest.raises(ValueError, match="expected 2 integer starts"):
        check_schedule(problem, Schedule(problem, np.array(starts)))


def test_resources_without_ops() -> None:
    problem = graph([op("a", resources=[])], resources=["r", "s"])
    assert violations(problem, 0) == []


def pipeline(stages: int, microbatches: int) -> tuple[Problem, Schedule]:
    """All forwards, then all backwards, in lockstep."""
    data = {
        "kind": "pipeline",
        "num_devices": stages,
        "num_microbatches": microbatches,
        "times": {"forward": 10, "backward_input": 10, "backward_weight": 10},
        "memory": {
            "capacity": microbatches,
            "activation": 1,
            "released_by_backward_weight": 0.43243243243243246,
        },
    }
    problem = lower(parse_instance(data))
    stage, microbatch = np.arange(stages)[:, None], np.arange(microbatches)
    start = np.zeros(problem.num_ops, dtype=np.int64)
    turn = 10 * (microbatches + stages - 1)
    start[problem.grid("F")] = 10 * (stage + microbatch)
    start[problem.grid("I")] = turn + 20 * (stages - 1 - stage) + 20 * microbatch
    start[problem.grid("W")] = start[problem.grid("I")] + 10
    return problem, Schedule(problem, start)


def test_large_pipeline_is_checked() -> None:
    problem, schedule = pipeline(64, 1024)
    assert problem.num_ops == 196_608
    assert check_schedule(problem, schedule) == []
    start = schedule.start.copy()
    start[problem.grid("F")[63, 1023]] -= 10
    found = check_schedule(problem, Schedule(problem, start))
    assert [v.rule for v in found] == ["precedence", "overlap"]
