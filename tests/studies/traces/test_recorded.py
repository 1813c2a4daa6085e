"""Recorded schedules: valid as they are, moved as little as needed, or refused."""

from __future__ import annotations

import numpy as np
import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api import api
from ppsolve.solver.studies.traces.replay import Recorded, least_span, recorded_step
from tests.studies.traces import cases


def moved(**starts):
    """Return the plan with other starts of some ops, by name (``F1_0``)."""
    return [
        (kind, stage, mb, starts.get(f"{kind}{stage}_{mb}", at))
        for kind, stage, mb, at in cases.PLAN
    ]


def starts(step):
    """Return starts in microseconds; documents count nanoseconds where moments are finer."""
    parts = {"us": 1, "ns": 1000}[step.instance.time_unit]
    return {op.id: op.start / parts for op in step.result.schedule.ops}


def test_a_possible_schedule_stays_as_it_is():
    step = recorded_step(cases.trace(moved(B0_1=77.25)))
    assert (step.shift, step.moved, step.name) == (0, "", "step0-replica0")
    assert starts(step)["B0.1"] == 77.25
    assert api.check(step.instance, step.result) == []
    assert step.result.best_by == "recorded"
    assert step.result.makespan == 97_250


def test_time_begins_with_the_first_op():
    step = recorded_step(
        cases.trace([(k, s, m, at + 1000) for k, s, m, at in cases.PLAN])
    )
    assert starts(step)["F0.0"] == 0


def test_an_op_that_is_early_is_moved_to_the_end_of_what_it_needs():
    """F1.0 starts 0.1 us too early. 2 % of the median op, 15 us, are allowed."""
    step = recorded_step(cases.trace(moved(F1_0=9.9)))
    assert (step.shift, step.moved) == (100, "F1.0")
    assert starts(step)["F1.0"] == 10
    assert api.check(step.instance, step.result) == []


def test_ops_behind_it_move_only_as_far_as_needed():
    """F1.0 to 10, then B1.0 from 19.95 to 20; the gap before F1.1 stays shorter by nothing."""
    step = recorded_step(
        cases.trace(moved(F1_0=9.95, B1_0=19.95, F1_1=40.5, B1_1=50.5, B0_1=71))
    )
    assert starts(step)["B1.0"] == 20
    assert starts(step)["F1.1"] == 40.5


def test_larger_moves_are_refused_and_named():
    early = cases.trace(moved(F1_0=9))
    with pytest.raises(InputError, match=r"F1\.0: starts 1 us before what it needs"):
        recorded_step(early)
    assert recorded_step(early, tolerance=1000).shift == 1000


def test_moments_finer_than_durations_are_kept():
    """All durations are multiples of 10 us, one start is not: the document counts nanoseconds."""
    step = recorded_step(cases.trace(moved(B0_1=70.001)))
    assert step.instance.time_unit == "ns"
    assert starts(step)["B0.1"] == 70.001


def test_replay_of_the_recorded_order():
    """B0.0 recorded late: the replay starts it as soon as B1.0 ends."""
    recorded = Recorded.of(cases.trace(moved(B0_0=45, B0_1=75)))
    assert cases.order_of(recorded) == ["F0 F1 B0 B1", "F0 B0 F1 B1"]
    assert (recorded.span, recorded.replayed) == (95_000, 90_000)


def test_least_span_counts_head_load_and_tail():
    """Stage 1: F0 ahead (10), its work (60), B0 behind (20)."""
    assert least_span(cases.trace()) == 90_000


def test_split_backwards_need_nothing_behind_the_last_w():
    plan = [("F", 0, 0, 0), ("F", 1, 0, 10), ("I", 1, 0, 20), ("I", 0, 0, 40)]
    plan += [("W", 1, 0, 40), ("W", 0, 0, 60)]
    trace = cases.trace(plan)
    assert least_span(trace) == 60_000
    recorded = Recorded.of(trace)
    assert recorded.replayed == recorded.span == 80_000
    assert set(np.unique(trace.kind)) == {0, 2, 3}
