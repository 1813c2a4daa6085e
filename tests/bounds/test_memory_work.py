"""Heads that count the work which makes room, on rows small enough to be followed by hand."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from operator import mul

import numpy as np
import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.bounds.memory_work import MAX_SMALLEST, MemoryWork, ReleaseAmounts
from ppsolve.solver.bounds.params import BoundsParams
from ppsolve.solver.bounds.relaxations import Relaxations, start_heads
from ppsolve.solver.clock import Clock
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.bruteforce import brute_force
from tests.small import number, op, small

A, B, C = 2, 3, 5


def rows(count: int, capacity: float, *, in_order: bool, first: float = 0.2) -> Problem:
    """Rows on one resource: a takes 1, b gives `first` back and c the rest, in order or in any."""
    ops, edges = [], []
    for k in range(count):
        ops += [
            op(f"a{k}", A, "r", acquire={"m": 1}),
            op(f"b{k}", B, "r", release_at_end={"m": first}),
            op(f"c{k}", C, "r", release_at_end={"m": round(1 - first, 1)}),
        ]
        edges += [(f"a{k}", f"b{k}"), (f"b{k}" if in_order else f"a{k}", f"c{k}")]
    family = [[f"{name}{k}" for name in "abc"] for k in range(count)]
    return small(ops, edges, capacity=capacity, families=[family])


@pytest.mark.parametrize("in_order", [True, False])
def test_second_acquire_waits_for_what_must_make_room(in_order: bool) -> None:
    # The second row needs 0.5, which only c gives: behind b where that is the order, else alone.
    problem = rows(2, 1.5, in_order=in_order)
    heads = Relaxations(ImpliedOrder(problem)).strong_heads
    assert heads[number(problem, "a1")] == (A + B + C if in_order else A + C)


def test_work_before_an_acquire_is_the_least_that_makes_room() -> None:
    # Room for 2.5: the third row needs 0.5 and the fourth 1.5. Before row 3: three a, two c and
    # the two b before them, on one resource, whatever runs beside.
    problem = rows(4, 2.5, in_order=True)
    heads = Relaxations(ImpliedOrder(problem)).strong_heads
    assert heads[number(problem, "a2")] == 2 * A + B + C
    assert heads[number(problem, "a3")] == 3 * A + 2 * B + 2 * C


def test_a_first_release_that_makes_room_needs_no_second_one() -> None:
    # b gives 0.8 back: for the 0.5 of the second row it is enough, for the 1.5 of the third one
    # both b are (1.6).
    problem = rows(3, 1.5, in_order=True, first=0.8)
    heads = Relaxations(ImpliedOrder(problem)).strong_heads
    assert heads[number(problem, "a1")] == A + B
    assert heads[number(problem, "a2")] == 2 * A + 2 * B


@pytest.mark.parametrize("resources", [("r", "s"), ("", "")])
def test_work_of_several_resources_is_no_sum(resources: tuple[str, str]) -> None:
    # Room for two rows: a2 waits for b0, which a1 need not precede.
    ops, edges = [], []
    for k in range(3):
        first, second = ((name,) if name else () for name in resources)
        ops.append(op(f"a{k}", A, *first, acquire={"m": 1}))
        ops.append(op(f"b{k}", B, *second, release_at_end={"m": 1}))
        edges.append((f"a{k}", f"b{k}"))
    family = [[f"a{k}", f"b{k}"] for k in range(3)]
    problem = small(ops, edges, capacity=2, families=[family])
    heads = Relaxations(ImpliedOrder(problem)).strong_heads
    assert heads[number(problem, "a2")] == A + B


def test_a_third_release_makes_room_too() -> None:
    # Room for two rows: a2 runs behind a0, a1 and the three parts that row 0 gives back.
    ops, edges = [], []
    for k in range(3):
        ops.append(op(f"a{k}", 1, "r", acquire={"m": 1}))
        parts = zip("bcd", (0.3, 0.3, 0.4), strict=True)
        ops += [
            op(f"{name}{k}", 1, "r", release_at_end={"m": part}) for name, part in parts
        ]
        edges += [(f"{x}{k}", f"{y}{k}") for x, y in ("ab", "bc", "cd")]
    family = [[f"{name}{k}" for name in "abcd"] for k in range(3)]
    problem = small(ops, edges, capacity=2, families=[family])
    assert Relaxations(ImpliedOrder(problem)).strong_heads[number(problem, "a2")] <= 5


def test_lanes_with_one_and_two_releases_are_no_series() -> None:
    # a's unit comes back from e, b's by halves from c and d.
    ops, edges = [], []
    for k in range(2):
        ops += [op(f"{name}{k}", 1, "r", acquire={"m": 1}) for name in "ab"]
        ops += [op(f"{name}{k}", 1, "r", release_at_end={"m": 0.5}) for name in "cd"]
        ops.append(op(f"e{k}", 1, "r", release_at_end={"m": 1}))
        edges += [(f"{x}{k}", f"{y}{k}") for x, y in ("ab", "bc", "cd", "de")]
    family = [[f"{name}{k}" for name in "abcde"] for k in range(2)]
    problem = small(ops, edges, capacity=2, families=[family])
    assert best_bound(lower_bounds(ImpliedOrder(problem))).value == 2 * 5


def test_lanes_of_which_one_has_no_order_say_nothing() -> None:
    # a's halves come back in order (e, f), b's in any (c, d): what they free is not one series.
    ops, edges = [], []
    for k in range(2):
        ops += [op(f"{name}{k}", 1, "r", acquire={"m": 1}) for name in "ab"]
        ops += [op(f"{name}{k}", 1, "r", release_at_end={"m": 0.5}) for name in "cdef"]
        edges += [
            (f"{x}{k}", f"{y}{k}") for x, y in ("ab", "bc", "bd", "ce", "de", "ef")
        ]
    family = [[f"{name}{k}" for name in "abcdef"] for k in range(2)]
    implied = ImpliedOrder(small(ops, edges, capacity=3, families=[family]))
    heads = start_heads(implied.problem, implied.full)
    assert implied.nest_of(implied.pools[0].lanes, implied.pools[0].lanes[1])[1:]
    assert best_bound(lower_bounds(implied)).value == 2 * 6
    assert (Relaxations(implied).strong_heads >= heads).all()


def choices_of(amounts: ReleaseAmounts, row: int) -> list[list[int]]:
    """Numbers of first and second releases that make room, up to where no second one is needed."""
    missing = (row + 1) * sum(amounts.taken) - amounts.available
    found = []
    for first in range(row * len(amounts.taken) + 1):
        for second in range(first + 1 if len(amounts.shares) == 2 else 1):
            given = (first, second)[: len(amounts.shares)]
            if sum(map(mul, given, amounts.shares)) >= missing > 0:
                found.append([first, second])
                break
        if found and found[-1][1] == 0:
            return found
    return found


@pytest.mark.parametrize("seed", range(40))
def test_choices_are_all_that_make_room(seed: int) -> None:
    rng = np.random.default_rng(seed)
    taken, shares = (
        tuple(Fraction(int(n), 2) for n in rng.integers(1, 6, count))
        for count in rng.integers(1, 3, 2)
    )
    members = int(rng.integers(1, 6))
    amounts = ReleaseAmounts(
        taken, shares, Fraction(int(rng.integers(-1, 12)), 4), members
    )
    expected = [choices_of(amounts, row) for row in range(members)]
    for step in (1, 2, 3):
        pointer, flat = amounts.choices(step)
        found = [
            flat[2 * a : 2 * b].reshape(-1, 2).tolist() for a, b in pairwise(pointer)
        ]
        looked_at = [(members - 1 - row) % step == 0 for row in range(members)]
        assert found == [
            each if chosen else []
            for each, chosen in zip(expected, looked_at, strict=True)
        ]


def test_what_an_acquire_gives_back_itself_is_taken_at_its_start() -> None:
    # a takes 1.5 and gives 0.5 back at its end. Of 3.2 two rows leave 1.2: a2 waits for b0.
    ops, edges = [], []
    for k in range(3):
        ops.append(op(f"a{k}", A, "r", acquire={"m": 1.5}, release_at_end={"m": 0.5}))
        ops.append(op(f"b{k}", B, "r", release_at_end={"m": 1}))
        edges.append((f"a{k}", f"b{k}"))
    family = [[f"a{k}", f"b{k}"] for k in range(3)]
    problem = small(ops, edges, capacity=3.2, families=[family])
    heads = Relaxations(ImpliedOrder(problem)).strong_heads
    assert heads[number(problem, "a2")] == 2 * A + B


def test_any_release_may_be_the_largest_one_of_its_series() -> None:
    # Row: a takes 2 and b 1, d gives 2 back, then c 1. With room for 4 units d0 is enough for b1,
    # behind a0, b0 and a1.
    ops, edges = [], []
    for k in range(2):
        ops += [
            op(f"a{k}", 1, "r", acquire={"m": 2}),
            op(f"b{k}", 1, "r", acquire={"m": 1}),
        ]
        ops.append(op(f"d{k}", 1, "r", release_at_end={"m": 2}))
        ops.append(op(f"c{k}", 1, "r", release_at_end={"m": 1}))
        edges += [(f"{x}{k}", f"{y}{k}") for x, y in ("ab", "bd", "dc")]
    family = [[f"{name}{k}" for name in "abdc"] for k in range(2)]
    problem = small(ops, edges, capacity=4, families=[family])
    assert Relaxations(ImpliedOrder(problem)).strong_heads[number(problem, "b1")] <= 4


def test_heads_that_the_clock_cut_short_are_not_remembered() -> None:
    implied = ImpliedOrder(rows(4, 2.5, in_order=True))
    cut = Relaxations(implied, Clock(0.0)).strong_heads
    whole = Relaxations(implied).strong_heads
    assert (cut <= whole).all() and (cut < whole).any()


def test_a_single_row_needs_no_work_before_it() -> None:
    implied = ImpliedOrder(rows(1, 1.5, in_order=True))
    assert Relaxations(implied).strong_heads.tolist() == [0, A, A + B]


def test_amounts_are_counted_in_the_smallest_one() -> None:
    amounts = ReleaseAmounts((Fraction(3), Fraction(2)), (Fraction(2),), Fraction(5), 2)
    smallest, times, over, more, more_over = amounts.fractions
    assert (smallest, times, over) == (2, 2, 1)
    assert (more[:3].tolist(), more_over[:3].tolist()) == ([0, 1, 2], [0, 0, 0])


@pytest.mark.parametrize(("lanes", "members"), [(8, 1), (8, 4), (1, 16)])
def test_sums_beyond_int64_are_exact(lanes: int, members: int) -> None:
    amount = 2**60
    amounts = ReleaseAmounts(
        (Fraction(amount),) * lanes, (Fraction(amount),), Fraction(amount), members
    )
    need = amounts.shortage(np.arange(members))
    assert need.tolist() == [
        lanes * (row + 1) * amount - amount for row in range(members)
    ]


def test_large_amounts_are_rounded_for_what_is_free() -> None:
    # In units of a lane's amount 1: free 2.5, and n / 4 given back by n releases, never less.
    unit = MAX_SMALLEST * 1000
    shares = (Fraction(unit // 4 + 1),)
    amounts = ReleaseAmounts((Fraction(unit),), shares, Fraction(5 * unit // 2), 4)
    smallest, times, over, more, more_over = amounts.fractions
    assert (smallest, times, over) == (MAX_SMALLEST, 2, MAX_SMALLEST // 2)
    assert more[:5].tolist() == [0, 0, 0, 0, 1]
    assert more_over[:4].tolist() == [
        0,
        *(n * MAX_SMALLEST // 4 + 1 for n in (1, 2, 3)),
    ]


def test_what_an_outer_lane_took_runs_before_too() -> None:
    # Row: a, b, then c gives b's unit back and d a's. With room for three units, b1 waits for
    # c0; before it run a0, b0, c0 and a1, though a1 and c0 wait for nothing of one another.
    ops, edges = [], []
    for k in range(2):
        ops += [
            op(f"a{k}", 1, "r", acquire={"m": 1}),
            op(f"b{k}", 1, "r", acquire={"m": 1}),
        ]
        ops += [op(f"{name}{k}", 1, "r", release_at_end={"m": 1}) for name in "cd"]
        edges += [(f"a{k}", f"b{k}"), (f"b{k}", f"c{k}"), (f"c{k}", f"d{k}")]
    family = [[f"{name}{k}" for name in "abcd"] for k in range(2)]
    problem = small(ops, edges, capacity=3, families=[family])
    implied = ImpliedOrder(problem)
    b1 = number(problem, "b1")
    assert start_heads(problem, implied.full)[b1] == 3
    assert Relaxations(implied).strong_heads[b1] == 4


def test_a_release_of_two_lanes_is_no_work_twice() -> None:
    # Row: a and b take a unit each and c gives both back. With room for two, b1 waits for c0
    # alone, behind a0, b0 and a1, and all is done by 6.
    ops, edges = [], []
    for k in range(2):
        ops += [
            op(f"a{k}", 1, "r", acquire={"m": 1}),
            op(f"b{k}", 1, "r", acquire={"m": 1}),
        ]
        ops.append(op(f"c{k}", 1, "r", release_at_end={"m": 2}))
        edges += [(f"a{k}", f"b{k}"), (f"b{k}", f"c{k}")]
    family = [[f"{name}{k}" for name in "abc"] for k in range(2)]
    problem = small(ops, edges, capacity=2, families=[family])
    heads = Relaxations(ImpliedOrder(problem)).strong_heads
    assert heads[number(problem, "b1")] <= 4
    assert (
        best_bound(lower_bounds(ImpliedOrder(problem))).value
        == brute_force(problem)
        == 6
    )


def test_heads_never_fall_and_stay_without_pools() -> None:
    problem = small([op("a", 1, "r"), op("b", 1, "r")], families=[[["a"], ["b"]]])
    implied = ImpliedOrder(problem)
    heads = start_heads(problem, implied.full)
    assert MemoryWork(implied).raise_heads(heads).tolist() == heads.tolist() == [0, 1]


def test_acquires_that_are_left_out_weaken_heads_only() -> None:
    problem = rows(6, 2.5, in_order=True)
    full = Relaxations(ImpliedOrder(problem)).strong_heads
    few = Relaxations(
        ImpliedOrder(problem), params=BoundsParams(raised_acquires=2)
    ).strong_heads
    assert (few <= full).all()
    # The last acquire is always looked at.
    last = number(problem, "a5")
    assert few[last] == full[last]
