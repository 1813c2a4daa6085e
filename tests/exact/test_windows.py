"""Start windows by hand: from heads, tails and the best value known."""

from __future__ import annotations

from ppsolve.models.core.problem import Problem
from ppsolve.solver.exact import windows as module
from ppsolve.solver.exact.windows import Windows, start_windows
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.small import op, small


def windows(problem: Problem, upper: int | None = None) -> Windows:
    return start_windows(ImpliedOrder(problem), upper)


def bounds(found: Windows) -> list[tuple[int, int]]:
    return list(zip(found.earliest.tolist(), found.latest.tolist(), strict=True))


def test_an_op_starts_behind_its_head_and_before_its_tail() -> None:
    problem = small([op("a", 2), op("b", 3), op("c", 1)], [("a", "b", 4)])
    found = windows(problem, 12)
    assert found.horizon == 12
    assert bounds(found) == [(0, 3), (6, 9), (0, 11)]


def test_without_a_value_everything_may_run_one_after_the_other() -> None:
    problem = small([op("a", 2), op("b", 3, release=7)], [("a", "b", 4)])
    found = windows(problem)
    assert found.horizon == 7 + 2 + 3 + 4
    assert bounds(found) == [(0, 16 - 9), (7, 13)]
    assert windows(small([op("a", 2, start=5), op("b", 1)])).horizon == 5 + 3
    ops = [op("a", 2), op("b", 1)]
    assert (
        windows(small(ops, windows={"a": [[1, 2], [30, 40]], "b": [[3, 9]]})).horizon
        == 43
    )


def test_a_pinned_op_has_one_start() -> None:
    found = windows(small([op("a", 2, start=5), op("b", 1)], [("a", "b")]), 20)
    assert bounds(found) == [(5, 5), (7, 19)]


def test_a_value_that_cannot_be_reached_leaves_the_earliest_starts() -> None:
    found = windows(small([op("a", 2), op("b", 3)], [("a", "b")]), 4)
    assert bounds(found) == [(0, 0), (2, 2)]


def test_weighed_ends_say_nothing_of_the_horizon() -> None:
    problem = small([op("a", 2, "r"), op("b", 3, "r")], weight={"a": 1})
    assert windows(problem, 2).horizon == 5


def test_starts_are_cut_out_of_the_windows_of_the_problem() -> None:
    ops = [op("a", 2, release=4), op("b", 3)]
    problem = small(ops, windows={"a": [[0, 1], [3, 6], [8, 20], [30, 31]]})
    found = windows(problem, 12)
    assert list(found.starts(problem)) == [[4, 6, 8, 10], [0, 9]]
    assert found.op_without_start(problem) is None
    shut = small(ops, windows={"a": [[0, 3], [11, 20]]})
    assert windows(shut, 12).op_without_start(shut) == 0


def linked(*fields: str) -> Problem:
    """r runs first and last, s runs slow in between; `fields` name ops to leave out."""
    ops = [op("first", 2, "r"), op("slow", 5, "s"), op("last", 3, "r")]
    ops = [each for each in ops if each["id"] not in fields]
    names = [each["id"] for each in ops]
    edges = [e for e in (("first", "slow"), ("slow", "last")) if set(e) <= set(names)]
    return small(ops, edges, objective="device_span")


def test_spans_end_behind_the_first_op_of_their_device() -> None:
    # Everything follows `first`, so r starts at 0 and ends within its span of 11.
    found = windows(linked(), 11)
    assert bounds(found) == [(0, 1), (2, 3), (7, 8)]
    assert found.horizon == 11


def test_devices_without_a_link_may_be_as_far_apart_as_all_ops_are_long() -> None:
    found = windows(linked("first"), 5)
    assert found.horizon == 8
    assert bounds(found) == [(0, 0), (5, 5)]
    assert windows(linked("first"), 7).horizon == 8


def test_release_times_allow_any_distance() -> None:
    ops = [op("first", 2, "r"), op("slow", 5, "s", release=4), op("last", 3, "r")]
    edges = [("first", "slow"), ("slow", "last")]
    problem = small(ops, edges, objective="device_span")
    # r need not start at 0: `first` may wait for the release of `slow`.
    assert bounds(windows(problem, 10)) == [(0, 4), (4, 6), (9, 11)]


def test_the_horizon_of_spans_is_all_that_may_run_one_after_the_other() -> None:
    ops = [op("first", 2, "r"), op("wait", 6), op("last", 3, "r")]
    problem = small(
        ops, [("first", "wait"), ("wait", "last", 1)], objective="device_span"
    )
    assert module.latest_end(problem) == 2 + 6 + 3 + 1
    # The device starts at 0: with a span of 20 its last op ends that late at most.
    assert bounds(windows(problem, 20)) == [(0, 8), (2, 10), (9, 17)]
