"""Figures of a schedule: hand-made examples, and plain loops on random schedules."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.core.metrics import measure, peak_usage
from ppsolve.models.core.problem import FREE, Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.structure.dag import critical_path, slack
from tests.marks import examples
from tests.strategies import broken_rules, in_use, serial_schedule, tiny_problem


def pipeline(**fields: Any) -> Problem:
    data = {"kind": "pipeline", "num_devices": 2, "num_microbatches": 1}
    times = {"forward": 2, "backward": 3}
    return lower(parse_instance({**data, "times": times, **fields}))


def scheduled(problem: Problem, **starts: int) -> Schedule:
    """Schedule with starts by op name, ``F0_1`` for ``F0.1``."""
    names = problem.op_names(np.arange(problem.num_ops))
    named = {name.replace("_", "."): start for name, start in starts.items()}
    return Schedule(problem, np.array([named[name] for name in names], dtype=np.int64))


def example(**fields: Any) -> Schedule:
    """Device 0 computes in 1..3 and 9..12, device 1 in 3..5 and 6..9."""
    return scheduled(pipeline(**fields), F0_0=1, F1_0=3, B1_0=6, B0_0=9)


def test_makespan_counts_from_zero_and_span_from_the_first_op() -> None:
    schedule = example()
    assert schedule.makespan == 12
    assert schedule.spans.tolist() == [11, 6]
    assert schedule.device_span == 11
    assert schedule.value == 12
    assert example(objective="device_span").value == 11


def test_bubbles_by_hand() -> None:
    metrics = measure(example())
    assert metrics.bubble_ratio == (24 - 10) / 24
    assert metrics.span_bubble_ratio == (22 - 10) / 22
    assert metrics.bubble_over_compute == (24 - 10) / 10
    assert metrics.peak_memory == ()


def test_transfers_count_neither_as_busy_time_nor_for_the_span() -> None:
    problem = pipeline(p2p={"mode": "link", "bytes": 4, "bandwidth": 1})
    schedule = scheduled(problem, F0_0=0, TF0_0=2, F1_0=6, B1_0=8, TB1_0=11, B0_0=15)
    assert measure(schedule).bubble_over_compute == (2 * 18 - 10) / 10
    assert schedule.device_span == 18
    assert schedule.spans.tolist() == [18, 5]


def test_normalised_starts_at_zero_unless_anchored() -> None:
    assert example().normalised().start.min() == 0
    assert example().normalised().makespan == 11
    op = {"id": "a", "duration": 1, "release": 2}
    problem = lower(parse_instance({"kind": "graph", "resources": [], "ops": [op]}))
    assert Schedule(problem, np.array([2])).normalised().start.tolist() == [2]


def test_orders_leave_out_ops_without_length() -> None:
    problem = pipeline(times={"forward": [0, 2], "backward": 3})
    schedule = scheduled(problem, F0_0=0, F1_0=0, B1_0=2, B0_0=5)
    names = [problem.op_names(order) for order in schedule.resource_orders()]
    assert names == [["B0.0"], ["F1.0", "B1.0"]]


def test_peak_memory_is_exact_and_names_its_moment() -> None:
    memory = {"capacity": 4, "activation": [0.1, 0.2], "static": [1, 0]}
    schedule = example(memory=memory)
    assert measure(schedule).peak_memory == (Fraction(11, 10), Fraction(1, 5))
    assert peak_usage(schedule, schedule.problem.pools[0]) == (Fraction(11, 10), 1)
    assert peak_usage(schedule, schedule.problem.pools[1]) == (Fraction(1, 5), 3)


def test_peak_is_the_initial_amount_where_ops_only_give_back() -> None:
    op = {"id": "a", "duration": 2, "release_at_end": {"m": 1}}
    pools = [{"name": "m", "capacity": 3, "initial": 3}]
    data = {"kind": "graph", "resources": [], "ops": [op], "pools": pools}
    schedule = Schedule(lower(parse_instance(data)), np.array([0]))
    assert peak_usage(schedule, schedule.problem.pools[0]) == (3, 0)


def test_critical_path_and_slack_by_hand() -> None:
    schedule = scheduled(
        pipeline(num_microbatches=2),
        **{
            "F0_0": 0,
            "F0_1": 2,
            "F1_0": 2,
            "F1_1": 4,
            "B1_0": 6,
            "B1_1": 9,
            "B0_0": 9,
            "B0_1": 12,
        },
    )
    names = schedule.problem.op_names(critical_path(schedule))
    assert schedule.makespan == 15
    assert names[0] == "F0.0"
    assert names[-1] == "B0.1"
    late = dict(
        zip(schedule.problem.op_names(np.arange(8)), slack(schedule), strict=True)
    )
    assert {name: int(value) for name, value in late.items() if value} == {}
    schedule = scheduled(pipeline(), F0_0=0, F1_0=2, B1_0=4, B0_0=9)
    late = dict(
        zip(schedule.problem.op_names(np.arange(4)), slack(schedule), strict=True)
    )
    assert {name: int(value) for name, value in late.items()} == {
        "F0.0": 2,
        "F1.0": 2,
        "B1.0": 2,
        "B0.0": 0,
    }
    assert schedule.problem.op_names(critical_path(schedule)) == ["B0.0"]


def test_empty_work_has_no_bubbles() -> None:
    op = {"id": "a", "duration": 0, "resources": ["r"]}
    problem = lower(parse_instance({"kind": "graph", "resources": ["r"], "ops": [op]}))
    metrics = measure(Schedule(problem, np.zeros(1, dtype=np.int64)))
    assert (
        metrics.span_bubble_ratio,
        metrics.bubble_ratio,
        metrics.bubble_over_compute,
    ) == (
        0,
        0,
        0,
    )


def valid_schedule(seed: int) -> Schedule | None:
    return serial_schedule(tiny_problem(seed), np.random.default_rng(seed), tries=3)


@examples(27)
@given(st.integers(0, 10**6))
def test_figures_equal_plain_loops(seed: int) -> None:
    schedule = valid_schedule(seed)
    if schedule is None:
        return
    problem = schedule.problem
    start, duration = schedule.start.tolist(), problem.duration.tolist()
    ends = [s + d for s, d in zip(start, duration, strict=True)]
    spans, busy = [], []
    for resource in problem.span_resources.tolist():
        ops = [
            op for op in range(problem.num_ops) if resource in problem.resources_of(op)
        ]
        spans.append(
            max(ends[op] for op in ops) - min(start[op] for op in ops) if ops else 0
        )
        busy.append(sum(duration[op] for op in ops))
    assert schedule.makespan == max(ends)
    assert schedule.device_span == max(spans, default=0)
    work, total = sum(busy), max(ends) * len(busy)
    expected_bubble = (total - work) / work if work else 0
    assert measure(schedule).bubble_over_compute == expected_bubble
    expected = schedule.makespan
    if problem.objective is Objective.DEVICE_SPAN:
        expected = schedule.device_span
    assert schedule.value == expected


@examples(27)
@given(st.integers(0, 10**6))
def test_peak_memory_equals_plain_loops(seed: int) -> None:
    schedule = valid_schedule(seed)
    if schedule is None:
        return
    problem = schedule.problem
    starts = dict(enumerate(schedule.start.tolist()))
    moments = {-1, *schedule.start.tolist(), *schedule.end.tolist()}
    for pool, found in zip(problem.pools, measure(schedule).peak_memory, strict=True):
        peak = max(in_use(pool, problem, starts, moment) for moment in moments)
        assert found == peak
        moment = peak_usage(schedule, pool)[1]
        reached = {in_use(pool, problem, starts, moment), pool.initial}
        assert peak in reached


@examples(27)
@given(st.integers(0, 10**6))
def test_critical_path_is_tight_and_slack_is_free(seed: int) -> None:
    schedule = valid_schedule(seed)
    if schedule is None:
        return
    path = critical_path(schedule)
    assert schedule.end[path[-1]] == schedule.makespan
    assert np.all(np.diff(schedule.start[path]) >= 0)
    free = slack(schedule)
    assert free.min() >= 0
    assert free[path[-1]] == 0
    _assert_last_op_can_use_its_slack(schedule, free.tolist())


def _assert_last_op_can_use_its_slack(schedule: Schedule, free: list[int]) -> None:
    """Delay the last-starting op by its slack: no longer makespan, no rule but memory broken."""
    problem = schedule.problem
    op = int(np.lexsort((np.arange(problem.num_ops), schedule.start))[-1])
    if problem.pinned[op] != FREE or np.any(problem.before == op):
        return
    start = schedule.start.copy()
    start[op] += free[op]
    assert Schedule(problem, start).makespan == schedule.makespan
    assert broken_rules(problem, start.tolist()) <= {"memory", "overlap"}
