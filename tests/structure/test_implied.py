"""What may be imposed on a problem: index order, lanes, and the order that capacities force."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import (
    Column,
    ImpliedOrder,
    Lane,
    _required_releases,
)
from tests.small import holding, named_edges, op, small

WAYS = (("a", "b", 1), ("a", "c", 0), ("b", "d", 0), ("c", "d", 4))
"""Precedences of a row with their lags."""

TAKE, GIVE = {"acquire": {"m": 1}}, {"release_at_end": {"m": 1}}


def rows(count: int, lengths: tuple[int, ...] = (1, 1), capacity: float = 1) -> Problem:
    """Rows a -> b on one resource: a takes one unit, b gives it back."""
    ops = [op(f"a{k}", lengths[0], "r", **TAKE) for k in range(count)]
    ops += [op(f"b{k}", lengths[1], "r", **GIVE) for k in range(count)]
    family = [[f"a{k}", f"b{k}"] for k in range(count)]
    edges = [(f"a{k}", f"b{k}") for k in range(count)]
    return small(ops, edges, capacity=capacity, families=[family])


def test_ops_of_a_resource_run_one_after_the_other_in_index_order() -> None:
    problem = rows(3)
    before, after, lag = ImpliedOrder(problem).index_edges
    expected = {("a0", "a1"), ("a1", "a2"), ("b0", "b1"), ("b1", "b2")}
    assert named_edges(problem, before, after) == expected
    assert lag.tolist() == [0] * 4


def test_the_way_through_a_row_is_the_longest_and_leaves_other_rows_out() -> None:
    # a 2, then b 3 and c 5 beside each other, and d 1 behind b, 4 behind c.
    names = ("a", "b", "c", "d")
    lengths = dict(zip(names, (2, 3, 5, 1), strict=True))
    ops = [op(f"{name}{k}", lengths[name], name) for k in range(2) for name in names]
    edges = [(f"{x}{k}", f"{y}{k}", lag) for k in range(2) for x, y, lag in WAYS]
    family = [[f"{name}{k}" for name in names] for k in range(2)]
    implied = ImpliedOrder(small([op("e", 9, "e"), *ops], edges, families=[family]))
    a, b, _, d = (Column(0, index) for index in range(4))
    assert implied.way(a, b) == 2 + 1
    assert implied.way(b, d) == 3
    assert implied.way(a, d) == 2 + 5 + 4


def test_ops_without_a_resource_may_start_together() -> None:
    problem = small([op("a", 5), op("b", 5)], families=[[["a"], ["b"]]])
    implied = ImpliedOrder(problem)
    assert implied.index_edges[2].tolist() == [-5]
    assert implied.full.heads(problem.release).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        (1, {("b0", "a1"), ("b1", "a2"), ("b2", "a3")}),
        (2, {("b0", "a2"), ("b1", "a3")}),
        (2.9, {("b0", "a2"), ("b1", "a3")}),
        (3, {("b0", "a3")}),
        (4, set()),
    ],
)
def test_an_acquire_waits_for_the_release_that_makes_room(
    capacity: float, expected: set[tuple[str, str]]
) -> None:
    problem = rows(4, capacity=capacity)
    (order,) = ImpliedOrder(problem).pools
    assert named_edges(problem, order.before, order.after) == expected
    assert order.is_exact
    assert order.is_whole


def test_what_is_in_use_at_first_makes_rows_wait() -> None:
    problem = rows(2, capacity=2)
    (pool,) = problem.pools
    held = replace(problem, pools=(replace(pool, initial=Fraction(1)),))
    for given, expected in ((problem, set()), (held, {("b0", "a1")})):
        (order,) = ImpliedOrder(given).pools
        assert named_edges(given, order.before, order.after) == expected


def test_two_parts_gate_what_follows_them() -> None:
    # Row: a takes 1, b gives 0.4 back, then c 0.6. Of two rows 1.5 fit: a1 needs 0.5, and 0.4 is
    # too little: c0 must end. Of three rows a2 needs 1.5: c0, and c1 (0.4 + 0.4 + 0.6 < 1.5).
    problem = parted(capacity=1.5, in_order=True)
    (order,) = ImpliedOrder(problem).pools
    found = named_edges(problem, order.before, order.after)
    assert {pair for pair in found if pair[0][0] == "c"} == {("c0", "a1"), ("c1", "a2")}
    assert not order.is_exact
    assert not order.is_whole


def test_parts_in_no_order_gate_themselves_alone() -> None:
    # b and c may end in any order. a1 needs 0.5, which b0 alone does not give; a2 needs 1.5,
    # which takes both c (0.4 + 0.4 + 0.6 < 1.5) and at least one b (0.6 + 0.6 < 1.5).
    problem = parted(capacity=1.5, in_order=False)
    (order,) = ImpliedOrder(problem).pools
    assert named_edges(problem, order.before, order.after) == {
        ("c0", "a1"), ("b0", "a2"), ("c1", "a2"),
    }  # fmt: skip


def parted(capacity: float, *, in_order: bool) -> Problem:
    ops, edges = [], []
    for k in range(3):
        ops += [
            op(f"a{k}", 1, "r", **TAKE),
            op(f"b{k}", 1, "r", release_at_end={"m": 0.4}),
            op(f"c{k}", 1, "r", release_at_end={"m": 0.6}),
        ]
        edges += [(f"a{k}", f"b{k}"), (f"b{k}" if in_order else f"a{k}", f"c{k}")]
    family = [[f"a{k}", f"b{k}", f"c{k}"] for k in range(3)]
    return small(ops, edges, capacity=capacity, families=[family])


def test_outer_lanes_count_for_inner_ones() -> None:
    # Row: a, then inner b, given back by c (b's) and then d (a's). With room for 3 units the
    # second row can take its first unit, but not its second one before c0 has given back.
    ops, edges = [], []
    for k in range(2):
        ops += [op(f"a{k}", 1, "r", **TAKE), op(f"b{k}", 1, "r", **TAKE)]
        ops += [op(f"c{k}", 1, "r", **GIVE), op(f"d{k}", 1, "r", **GIVE)]
        edges += [(f"a{k}", f"b{k}"), (f"b{k}", f"c{k}"), (f"c{k}", f"d{k}")]
    family = [[f"{name}{k}" for name in "abcd"] for k in range(2)]
    problem = small(ops, edges, capacity=3, families=[family])
    (order,) = ImpliedOrder(problem).pools
    assert named_edges(problem, order.before, order.after) == {("c0", "b1")}
    assert order.is_whole
    assert not order.is_exact


def test_a_lane_encloses_where_all_that_it_gives_back_comes_behind() -> None:
    # Row: a, then b and c, which gives b's unit back; a's halves come from d, behind b, and from e.
    ops, edges = [], []
    for k in range(2):
        ops += [op(f"a{k}", 1, "r", **TAKE), op(f"b{k}", 1, "r", **TAKE)]
        ops += [op(f"{name}{k}", 1, "r", release_at_end={"m": 0.5}) for name in "de"]
        ops.append(op(f"c{k}", 1, "r", **GIVE))
        edges += [(f"{x}{k}", f"{y}{k}") for x, y in ("ab", "bc", "bd", "ae")]
    family = [[f"{name}{k}" for name in "abdec"] for k in range(2)]
    implied = ImpliedOrder(small(ops, edges, capacity=3, families=[family]))
    lanes = implied.pools[0].lanes
    assert [lane.acquire.index for lane in lanes] == [0, 1]
    assert implied.nest_of(lanes, lanes[1]) == [lanes[1]]


def test_releases_beyond_64_bits_are_counted_exactly() -> None:
    unit = Fraction(2**60)
    required = _required_releases(9, unit, Fraction(0), unit, unit)
    assert required.tolist() == list(range(9))


def test_what_an_op_gives_back_itself_is_not_kept() -> None:
    own, other = Column(0, 0), Column(0, 1)
    lane = Lane(own, Fraction(3), ((own, Fraction(1)), (other, Fraction(2))))
    assert lane.given_back == 1
    assert lane.kept == Lane(own, Fraction(2), ((other, Fraction(2)),))


def test_lanes_of_other_families_do_not_count() -> None:
    # Two families of the same pool: rows of one may run before, between or behind the other's.
    ops, families, edges = [], [], []
    for name in "xy":
        for k in range(2):
            ops += [
                op(f"a{name}{k}", 1, "r", **TAKE),
                op(f"b{name}{k}", 1, "r", **GIVE),
            ]
            edges.append((f"a{name}{k}", f"b{name}{k}"))
        families.append([[f"a{name}{k}", f"b{name}{k}"] for k in range(2)])
    for capacity, expected in ((2, 0), (1, 2)):
        problem = small(ops, edges, capacity=capacity, families=families)
        (order,) = ImpliedOrder(problem).pools
        assert len(order.lanes) == 2
        assert len(order.before) == expected
        assert not order.is_exact
    pair = order.lanes
    assert ImpliedOrder(problem).nest_of(pair, pair[0]) == [pair[0]]


def test_only_what_every_row_holds_alike_is_a_lane() -> None:
    # z, listed first, gives back 0.2 of what a0 took, so b0 has 0.3 left to give and b1 has 0.5.
    half = {"m": 0.5}
    ops = [op("z", 1, release_at_end={"m": 0.2})]
    ops += [op(f"a{k}", 2, acquire=half) for k in range(2)]
    ops += [op(f"b{k}", 3, release_at_end=half) for k in range(2)]
    edges = [("a0", "b0"), ("a1", "b1"), ("a0", "z"), ("a1", "z")]
    family = [["a0", "b0"], ["a1", "b1"]]
    problem = small(ops, edges, capacity=1, families=[family])
    (order,) = ImpliedOrder(problem).pools
    assert order.lanes == ()
    assert not len(order.before)
    assert not order.is_exact


def test_releases_without_length_make_no_order() -> None:
    # Ops of length zero take and give at one moment: rows need not wait for one another.
    (order,) = ImpliedOrder(rows(2, lengths=(0, 0))).pools
    assert not len(order.before)
    assert not order.is_exact
    for lengths in ((0, 1), (1, 0)):
        (order,) = ImpliedOrder(rows(2, lengths=lengths)).pools
        assert len(order.before) == 1
        assert order.is_exact


def test_one_release_without_length_is_enough_to_make_no_order() -> None:
    # All a and b may pass at one moment: half a unit of each row is left, though no c has run.
    ops, edges = [], []
    for k in range(2):
        ops += [op(f"a{k}", 0, "r", **TAKE)]
        ops += [op(f"b{k}", 0, "r", release_at_end={"m": 0.5})]
        ops += [op(f"c{k}", 1, "r", release_at_end={"m": 0.5})]
        edges += [(f"a{k}", f"b{k}"), (f"a{k}", f"c{k}")]
    family = [[f"{name}{k}" for name in "abc"] for k in range(2)]
    (order,) = ImpliedOrder(small(ops, edges, capacity=1.4, families=[family])).pools
    assert not len(order.before)


@pytest.mark.parametrize("lengths", [(1, 1), (0, 1)])
def test_a_single_row_waits_for_nothing(lengths: tuple[int, int]) -> None:
    (order,) = ImpliedOrder(rows(1, lengths)).pools
    assert len(order.lanes) == 1
    assert not len(order.before)


def test_wait_in_a_circle_is_infeasible_and_named() -> None:
    # Room for one row; but b0 also waits for a1, which waits for b0 to make room.
    ops = [op("a0", 1, "r", **TAKE), op("a1", 1, "r", **TAKE)]
    ops += [op("b0", 1, "r", **GIVE), op("b1", 1, "r", **GIVE)]
    edges = [("a0", "b0"), ("a1", "b1"), ("a1", "b0"), ("a0", "b1")]
    family = [["a0", "b0"], ["a1", "b1"]]
    problem = small(ops, edges, capacity=1.5, families=[family])
    with pytest.raises(
        MemoryInfeasible, match=r"these ops wait for each other: .*a1 -> b0"
    ):
        _ = ImpliedOrder(problem).full


def test_holds_outside_of_families_imply_nothing() -> None:
    problem = small([holding("x", 1, 1), holding("y", 1, 1)], capacity=1)
    (order,) = ImpliedOrder(problem).pools
    assert (order.lanes, len(order.before), order.is_exact) == ((), 0, False)
