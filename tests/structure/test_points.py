"""Ops of no time that keep their place: schedules in which others run across them, timed anew."""

from __future__ import annotations

from ppsolve.solver.checker import check_schedule
from ppsolve.solver.structure.points import in_sequence, without_crossings
from tests.small import at, op, small


def test_a_point_waits_for_the_op_that_ran_across_it() -> None:
    """The long op runs from 0 to 5, the point at 2 waits for it, as does what needs the point."""
    ops = [op("long", 5, "a"), op("point", 0, "a"), op("next", 3, "b")]
    problem = small(ops, [("point", "next")], points=["point"])
    crossed = at(problem, 0, 2, 2)
    assert [each.rule for each in check_schedule(problem, crossed)] == ["overlap"]
    assert without_crossings(crossed).start.tolist() == [0, 5, 5]


def test_a_point_at_the_start_or_the_end_of_an_op_stays() -> None:
    problem = small([op("long", 5, "a"), op("point", 0, "a")], points=["point"])
    for start in (0, 5):
        schedule = at(problem, 0, start)
        assert without_crossings(schedule) is schedule


def test_points_of_one_moment_keep_their_precedences() -> None:
    """The second is numbered before the first, and both stand at 1 on one resource."""
    ops = [
        op("second", 0, "a"),
        op("first", 0, "a"),
        op("long", 4, "a"),
        op("before", 1, "b"),
    ]
    edges = [("before", "first"), ("first", "second")]
    problem = small(ops, edges, points=["first", "second"])
    assert without_crossings(at(problem, 1, 1, 0, 0)).start.tolist() == [4, 4, 0, 0]


def test_only_resources_that_are_named_keep_their_order() -> None:
    """b serves first come, first served: its op that is ready at 0 goes before the one at 2."""
    ops = [op("late", 2, "a"), op("x", 1, "b"), op("y", 1, "b")]
    problem = small(ops, [("late", "x")])
    schedule = at(problem, 0, 2, 3)
    assert in_sequence(schedule, [0]).start.tolist() == [0, 2, 0]
    assert in_sequence(schedule, [0, 1]).start.tolist() == [0, 2, 3]
