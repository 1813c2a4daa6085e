"""What a cycle between the two parts of a schedule has to keep, on one device by hand."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.periodic.cycle import PARAMS, Cut, find_cycle
from ppsolve.solver.exact.periodic.steady_state import first_rows, rows_of
from tests.exact.periodic.cases import one_device, pipeline

BY_HAND = np.array([[0, 3], [9, 12], [18, 21]])
"""F (3) and B (6) of three micro-batches, one after the other on one device."""


def cut_at(moment: int, *, turns: int = 3) -> Cut:
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
    # micro-batch 4, and B.1 three turns later is that of 4, too, so it waits for nothing longer.
    assert cut_at(12).follows(9).tolist() == [3 - 9 - 12, 6 - 9 - 12]


def two_devices(forwards: list[int], after: int, moment: int) -> tuple[Cut, dict[str, int]]:
    """Return a cut of forwards (3) on device 0, and the columns; the rest comes from `after` on."""
    rows = rows_of(pipeline(2, len(forwards), times={"forward": 3, "backward": 6}))
    column = {name[:2]: x for x, name in enumerate(rows.problem.op_names(rows.ops[0]))}
    start = np.empty((len(forwards), 4), dtype=np.int64)
    start[:, column["F0"]] = forwards
    for name, shift, step in (("F1", 0, 3), ("B1", 9, 6), ("B0", 30, 6)):
        start[:, column[name]] = after + shift + step * np.arange(len(forwards))
    return Cut(rows, start, moment, len(forwards)), column


def test_each_turn_waits_for_its_own_micro_batch() -> None:
    # Forwards end at 3, 12 and 33, no other op has begun. Turn k comes 9 k later than turn 0, which
    # so starts F1 no earlier than 3, 12 - 9 and 33 - 18.
    cut, column = two_devices([0, 9, 30], after=40, moment=33)
    earliest = cut.earliest(9)
    assert earliest[column["F1"]] == 15
    assert earliest[column["F0"]] == 33
    assert earliest[column["B0"]] == 33
    assert earliest[column["B1"]] < 0


def test_the_part_behind_waits_for_the_turns_that_run_its_micro_batches() -> None:
    # Behind the cut F1 starts at 40, 43 and 46, now after three turns: F0 of them ran in these, 3,
    # 2 and 1 turns before. Device 0 goes on at 70 only, device 1 at 40 with F1.
    cut, column = two_devices([0, 9, 30], after=40, moment=33)
    assert cut.follows(9)[column["F0"]] == max(3 - 27 - 40, 3 - 18 - 43, 3 - 9 - 46)
    assert cut.follows(9)[column["F1"]] == 3 - 9 - 40


def test_what_is_behind_comes_after_all_turns_and_the_delay() -> None:
    found = cut_at(12).joined(np.array([21, 12]), 9, 5)
    assert found[:, 0].tolist() == [0, 9, 21, 30, 39, 18 + 27 + 5]
    assert found[:, 1].tolist() == [3, 12, 21, 30, 12 + 27 + 5, 21 + 27 + 5]


def test_a_turn_takes_amounts_of_the_room_that_is_left() -> None:
    # Of 6 units a forward takes 2: with one in flight two thirds are free, rounded down twice.
    problem = pipeline(1, 3, times={"forward": 3, "backward": 6}, capacity=3, activation=2)
    (use,) = Cut(rows_of(problem), BY_HAND, 12, 3).uses()
    limit = problem.pools[0].limit
    assert use.room == int((limit - 2) * PARAMS.levels / limit) - 2
    assert use.takes == {0: round(2 * PARAMS.levels / limit)}
    assert use.gives == {1: round(2 * PARAMS.levels / limit)}


def test_a_cycle_is_put_between_the_parts() -> None:
    cut = cut_at(18)
    cycle = find_cycle(cut, 9, Clock())
    assert cycle is not None
    assert cycle.start.tolist() == [18, 21]
    assert cycle.delay == 0
    whole = cut.joined(cycle.start, 9, cycle.delay)
    assert whole[:, 0].tolist() == [0, 9, 18, 27, 36, 45]
    assert whole[:, 1].tolist() == [3, 12, 21, 30, 39, 48]


def test_the_order_of_a_cycle_leaves_room_in_the_pool() -> None:
    # Cut at 12 with room for one, F.1 holds it: B must come first in every turn.
    rows = one_device(3, capacity=1)
    cycle = find_cycle(Cut(rows, BY_HAND, 12, 3), 9, Clock())
    assert cycle is not None
    assert cycle.start[1] + 6 <= cycle.start[0]
    # Cut behind a forward, with two of them in use and room for two, too.
    early = np.array([[0, 6], [3, 12], [18, 21]])
    cycle = find_cycle(Cut(one_device(3, capacity=2), early, 6, 3), 9, Clock())
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
