"""What a cycle between the two parts of a schedule has to keep, on one device by hand."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.periodic.cut import Cut
from ppsolve.solver.periodic.cycle import find_cycle
from ppsolve.solver.periodic.rows import first_rows, rows_of
from tests.periodic.cases import one_device, pipeline

BY_HAND = np.array([[0, 3], [9, 12], [18, 21]])
"""F (3) and B (6) of three micro-batches, one after the other on one device."""


def cut_at(moment: int, *, turns: int = 2) -> Cut:
    return Cut(one_device(3), BY_HAND, moment, turns)


def test_ops_that_have_started_are_before_the_cut() -> None:
    assert cut_at(12).fired.tolist() == [2, 1]
    assert cut_at(13).fired.tolist() == [2, 2]


def test_a_turn_waits_for_what_is_before_the_cut() -> None:
    # F.1 ends at 12, and B of turn 0 is that of micro-batch 1, whose forward is this one.
    assert cut_at(12).earliest(9).tolist() == [12, 12]


def test_what_follows_waits_for_the_last_turn() -> None:
    # Behind the cut the device goes on at 12 with B.1, turns that end later than one period after
    # that delay it: F (3) by its start - 18 and B (6) by its start - 15. F of the last turn is
    # micro-batch 3, that of B.1 two turns later, so it need not be waited for any longer.
    assert cut_at(12).follows(9).tolist() == [3 - 9 - 12, 6 - 9 - 12]


def test_a_cycle_is_put_between_the_parts() -> None:
    cut = cut_at(18)
    cycle = find_cycle(cut, 9, Clock())
    assert cycle is not None
    assert cycle.start.tolist() == [18, 21]
    assert cycle.delay == 0
    whole = cut.joined(cycle.start, 9, cycle.delay)
    assert whole[:, 0].tolist() == [0, 9, 18, 27, 36]
    assert whole[:, 1].tolist() == [3, 12, 21, 30, 39]


def test_the_order_of_a_cycle_leaves_room_in_the_pool() -> None:
    # Cut at 12 with room for one, F.1 holds it: B must come first in every turn.
    rows = one_device(3, capacity=1)
    cycle = find_cycle(Cut(rows, BY_HAND, 12, 2), 9, Clock())
    assert cycle is not None
    assert cycle.start[1] + 6 <= cycle.start[0]
    # Cut behind a forward, with two of them in use and room for two, too.
    early = np.array([[0, 6], [3, 12], [18, 21]])
    cycle = find_cycle(Cut(one_device(3, capacity=2), early, 6, 2), 9, Clock())
    assert cycle is not None
    assert cycle.start[1] + 6 <= cycle.start[0]


def test_a_round_trip_longer_than_what_is_in_flight_has_no_cycle() -> None:
    # F (3) and B (6) on two devices: a micro-batch is back after 18, and a device is done with it
    # after 9. With one in flight there is a turn in 18 ticks and none in 9.
    problem = pipeline(2, 4, times={"forward": 3, "backward": 6}, capacity=1)
    rows = rows_of(first_rows(rows_of(problem), 2))
    names = rows.problem.op_names(rows.ops[0])
    alone = dict(zip(("F0", "F1", "B1", "B0"), (0, 3, 6, 12), strict=True))
    start = np.array([[alone[name.split(".")[0]] + 18 * k for name in names] for k in range(2)])
    flat = np.empty(rows.problem.num_ops, dtype=np.int64)
    flat[rows.ops] = start
    assert check_schedule(rows.problem, Schedule(rows.problem, flat)) == []
    cut = Cut(rows, start, 18, 2)
    assert find_cycle(cut, 9, Clock()) is None
    cycle = find_cycle(cut, 18, Clock())
    assert cycle is not None
    assert cycle.delay == 0
