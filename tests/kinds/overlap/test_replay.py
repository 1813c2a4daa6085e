"""True two-stream times of a program order, and the bytes that it holds."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ppsolve
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.labels import NodeKind
from ppsolve.models.kinds.overlap.lowering import LoweredOverlap
from ppsolve.solver.api.kinds import kind_of, lower
from ppsolve.solver.kinds.overlap.realise import run_order
from ppsolve.solver.kinds.overlap.replay import is_valid_order, live_bytes, replay
from ppsolve.solver.kinds.overlap.report import check_order
from tests.kinds.overlap.cases import program, programs, ticks
from tests.marks import examples

SMALL = program(
    {"name": "k0", "kind": "compute", "duration": 2, "bytes": 1},
    {
        "name": "a",
        "kind": "comm",
        "duration": 5,
        "deps": ["k0"],
        "bytes": 4,
        "group": "x",
    },
    {
        "name": "b",
        "kind": "comm",
        "duration": 3,
        "deps": ["k0"],
        "bytes": 2,
        "group": "y",
    },
    {"name": "k1", "kind": "compute", "duration": 4},
    {"name": "wb", "kind": "wait", "deps": ["b"]},
    {"name": "wa", "kind": "wait", "deps": ["a"]},
    {"name": "c", "kind": "comm", "duration": 2, "deps": ["wb"], "group": "x"},
    {"name": "k2", "kind": "compute", "duration": 1, "deps": ["wa"], "bytes": 0.5},
    {"name": "wc", "kind": "wait", "deps": ["c"]},
)


def test_two_groups_by_hand() -> None:
    timed = replay(SMALL, range(9), ticks(SMALL))
    assert timed.start.tolist() == [0, 2, 2, 2, 6, 6, 7, 7, 8]
    assert timed.end.tolist() == [2, 7, 5, 6, 6, 7, 9, 8, 9]
    assert (timed.makespan, timed.exposed_wait) == (9, 2)
    assert timed.in_flight == {"x": 1, "y": 1}


def test_a_collective_starts_after_the_compute_before_it_in_the_order() -> None:
    timed = replay(SMALL, [0, 3, 1, 2, 4, 5, 6, 7, 8], ticks(SMALL))
    assert timed.start[[1, 2]].tolist() == [6, 6]
    assert timed.makespan == 13


def test_a_collective_waits_for_the_previous_one_of_its_group_in_the_order() -> None:
    instance = program(
        {"name": "a", "kind": "comm", "duration": 5},
        {"name": "b", "kind": "comm", "duration": 3},
        {"name": "wa", "kind": "wait", "deps": ["a"]},
        {"name": "wb", "kind": "wait", "deps": ["b"]},
        collective_order="free",
    )
    timed = replay(instance, [1, 0, 2, 3], ticks(instance))
    assert timed.start.tolist() == [3, 0, 0, 8]
    assert timed.in_flight == {"0": 2}


def test_compute_waits_for_a_collective_that_it_uses_directly() -> None:
    instance = program(
        {"name": "a", "kind": "comm", "duration": 5},
        {"name": "k", "kind": "compute", "duration": 2, "deps": ["a"]},
        {"name": "wa", "kind": "wait", "deps": ["a"]},
    )
    timed = replay(instance, [0, 1, 2], ticks(instance))
    assert (timed.end.tolist(), timed.exposed_wait) == ([5, 7, 7], 0)


def test_nothing_takes_no_time() -> None:
    empty = program()
    timed = replay(empty, [], [])
    assert (timed.makespan, timed.exposed_wait, timed.in_flight) == (0, 0, {})
    assert live_bytes(empty, [], []).peak == 0
    assert is_valid_order(empty, [])


@pytest.mark.parametrize(
    ("order", "free", "frozen"),
    [
        ([0, 1, 2, 3], True, True),
        ([1, 0, 2, 3], True, False),
        ([0, 2, 1, 3], True, True),
        ([2, 0, 1, 3], False, False),
        ([0, 1, 2], False, False),
        ([0, 1, 2, 2], False, False),
        ([0, 1, 2, 4], False, False),
    ],
)
def test_valid_orders(order: list[int], free: bool, frozen: bool) -> None:
    nodes = (
        {"name": "a", "kind": "comm", "duration": 5},
        {"name": "b", "kind": "comm", "duration": 3},
        {"name": "wa", "kind": "wait", "deps": ["a"]},
        {"name": "wb", "kind": "wait", "deps": ["b"]},
    )
    assert is_valid_order(program(*nodes, collective_order="free"), order) == free
    assert is_valid_order(program(*nodes), order) == frozen


def test_bytes_by_hand() -> None:
    timed = replay(SMALL, range(9), ticks(SMALL))
    held = live_bytes(SMALL, timed.start, timed.end)
    # k0 until a ends at 7; a (4) from 2 until k2 ends at 8; b (2) from 2 until c ends at 9.
    assert held.times == [0, 2, 7, 8, 9]
    assert held.amounts == [1, 7, Fraction("6.5"), 2, 0]
    assert held.peak == 7


def test_what_ends_makes_room_for_what_starts_then() -> None:
    instance = program(
        {"name": "a", "kind": "compute", "duration": 2, "bytes": 5},
        {"name": "b", "kind": "compute", "duration": 0, "bytes": 9},
        {"name": "c", "kind": "compute", "duration": 2, "bytes": 5},
    )
    timed = replay(instance, range(3), ticks(instance))
    held = live_bytes(instance, timed.start, timed.end)
    assert (held.times, held.amounts, held.peak) == ([0, 4], [5, 0], 5)


@examples(67)
@given(programs())
def test_every_rule_holds_in_a_replay(instance: OverlapInstance) -> None:
    durations = ticks(instance)
    timed = replay(instance, range(len(durations)), durations)
    start, end = timed.start.tolist(), timed.end.tolist()
    clock = 0
    for node, deps in enumerate(instance.deps):
        ready = max([clock, *(end[dep] for dep in deps)])
        if instance.nodes[node].kind is NodeKind.WAIT:
            assert (start[node], end[node]) == (clock, ready)
        else:
            previous = instance.previous_in_group.get(node)
            ready = max(ready, end[previous] if previous is not None else 0)
            assert (start[node], end[node]) == (ready, ready + durations[node])
        if instance.nodes[node].kind is not NodeKind.COMM:
            clock = end[node]
    assert timed.makespan == clock == max(end, default=0)
    assert timed.makespan >= sum(
        durations[node] for node in instance.of_kind(NodeKind.COMPUTE)
    )


@examples(34)
@given(programs(most=8), st.integers(0, 60))
def test_bytes_at_any_instant_are_those_of_open_lifetimes(
    instance: OverlapInstance, instant: int
) -> None:
    timed = replay(instance, range(len(instance.nodes)), ticks(instance))
    start, end = timed.start.tolist(), timed.end.tolist()
    expected = Fraction(0)
    for node, made in enumerate(instance.nodes):
        aliases = {node, instance.wait_of.get(node, node)}
        users = [
            u for u, deps in enumerate(instance.deps) if not aliases.isdisjoint(deps)
        ]
        if start[node] <= instant < max(end[use] for use in (node, *users)):
            expected += Fraction(made.bytes)
    held = live_bytes(instance, start, end)
    before = [
        amount
        for time, amount in zip(held.times, held.amounts, strict=True)
        if time <= instant
    ]
    assert (before[-1] if before else 0) == expected
    assert held.peak >= expected


# Orders of programs --------------------------------------------------------------------------

SIDE_BY_SIDE = program(
    {"name": "k1", "kind": "compute", "duration": 1},
    {"name": "c", "kind": "comm", "duration": 3},
    {"name": "k2", "kind": "compute", "duration": 2},
    {"name": "w", "kind": "wait", "deps": ["c"]},
)


@pytest.mark.parametrize(
    ("orders", "followed", "start"),
    [
        ([["k2", "c", "k1", "w"]], [2, 1, 0, 3], [2, 2, 0, 5]),
        ([["k2", "k1"]], None, [2, 0, 0, 3]),
        ([["k2", "k1"], ["c"]], None, [2, 0, 0, 3]),
    ],
)
def test_one_order_of_all_nodes_is_a_program_and_others_are_of_streams(
    orders: list[list[str]], followed: list[int] | None, start: list[int]
) -> None:
    """A program launches c behind k2, which only precedes k1 on its stream."""
    found = kind_of(SIDE_BY_SIDE).follow(SIDE_BY_SIDE, lower(SIDE_BY_SIDE), orders)
    assert found.order == followed
    assert found.schedule.start.tolist() == start
    assert ppsolve.check(SIDE_BY_SIDE, found.schedule) == []


def test_a_launch_is_where_the_compute_stream_comes_to_it() -> None:
    """Behind k1, or behind k2: the collective before it in flight need not be over."""
    nodes = [node.model_dump(exclude_unset=True) for node in SIDE_BY_SIDE.nodes]
    nodes += [{"name": "d", "kind": "comm", "duration": 3}]
    nodes += [{"name": "v", "kind": "wait", "deps": ["d"]}]
    capped = program(*nodes, max_in_flight=2)
    lowered = LoweredOverlap.of(capped, lower(capped))
    for order, launches in (([0, 1, 4, 2, 3, 5], [1, 1]), ([0, 1, 2, 4, 3, 5], [1, 3])):
        schedule, timed = run_order(capped, lowered, order)
        assert [
            int(schedule.start[lowered.launch[comm]]) for comm in (1, 4)
        ] == launches
        assert timed.start[[1, 4]].tolist() == [1, 4]


@pytest.mark.parametrize(("share", "is_close"), [(5e-10, True), (2e-9, False)])
def test_a_figure_may_be_off_by_the_billionth_part(
    share: float, is_close: bool
) -> None:
    problem = lower(SIDE_BY_SIDE)
    claim = {
        "order": ["k1", "c", "k2", "w"],
        "peak_live_bytes": 0,
        "exposed_wait": 1 + share,
    }
    assert (check_order(SIDE_BY_SIDE, problem, claim, None) == []) == is_close
    assert check_order(SIDE_BY_SIDE, problem, ["k1", "c", "k2", "w"], None) == []
