"""Published pipelines with unequal micro-batches: times, memory and send queues as recorded."""

from __future__ import annotations

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.structure.timing import time_orders
from tests.unequal_cases import (
    NAMES,
    Recorded,
    ops_of,
    pipeline_of,
    read_case,
    recorded_of,
    sends_of,
)

NO_BARRIERS = ("1F1B", "fifo", "wait-free-cyclic", "interleaved-1F1B")
"""Schedulers that start every op as soon as its order allows."""


def peaks_of(schedule: Schedule) -> list[float]:
    """Return the most that each pool holds, counted event by event."""
    found = []
    for pool in schedule.problem.pools:
        events = [
            (int(schedule.start[op]), 1, pool.amounts[index])
            for op, index in zip(pool.acquire_op, pool.acquire_amount, strict=True)
        ] + [
            (int(schedule.end[op]), 0, -pool.amounts[index])
            for op, index in zip(pool.release_op, pool.release_amount, strict=True)
        ]
        held = peak = pool.initial
        for _, _, amount in sorted(events):
            held += amount
            peak = max(peak, held)
        found.append(float(peak))
    return found


def replayed(problem: Problem, record: Recorded) -> Schedule:
    """Return the recorded order, everything as early as it allows."""
    chains = ops_of(problem, record.orders)
    if record.scheduler == "1F1B":
        chains += sends_of(problem, record.orders)
    return time_orders(problem, chains)


def test_there_are_28_cases() -> None:
    assert len(NAMES) == 28


@pytest.mark.parametrize("name", NAMES)
def test_recorded_orders_take_the_recorded_time_and_memory(name: str) -> None:
    case = read_case(name)
    problem = lower_pipeline(pipeline_of(case, memory=True))
    for record in recorded_of(case):
        if record.scheduler in NO_BARRIERS:
            schedule = replayed(problem, record)
            found = problem.scale.time(schedule.makespan), max(peaks_of(schedule))
            assert found == (record.makespan, record.peak_memory), record[:2]
            assert check_schedule(problem, schedule) == []


@pytest.mark.parametrize("name", [name for name in NAMES if "transfer" not in name])
def test_orders_of_rounds_take_no_longer_without_their_barriers(name: str) -> None:
    case = read_case(name)
    problem = lower_pipeline(pipeline_of(case, memory=True))
    rounds = [record for record in recorded_of(case) if "cyclic" in record.scheduler]
    for record in rounds:
        schedule = replayed(problem, record)
        assert problem.scale.time(schedule.makespan) <= record.makespan
        assert max(peaks_of(schedule)) == record.peak_memory
        assert check_schedule(problem, schedule) == []


def test_a_limit_below_the_recorded_peak_is_broken() -> None:
    case = read_case("p4_m16_sigma04_seed48_memory")
    (record, *_) = recorded_of(case)
    case["memory"]["limit"] = record.peak_memory - 1
    problem = lower_pipeline(pipeline_of(case))
    (broken, *_) = check_schedule(problem, replayed(problem, record))
    assert broken.rule == "memory"
    assert (
        f"holds {record.peak_memory:,} of {record.peak_memory - 1:,}" in broken.message
    )
