"""Windows of schedules as problems of their own, and the search that solves them in turn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.board import Board
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.model import index_ordered
from ppsolve.solver.exact.params import WindowParams
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.exact.subproblem import (
    FixedOrderGraph,
    Subproblem,
    hold_full,
    obstacle,
)
from ppsolve.solver.exact.window_lns import SLANTS, WindowLNS
from ppsolve.solver.heuristics.generic import list_tail
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.asking import solve
from tests.heuristics.test_order_search import in_any_order, job_shop
from tests.small import at, holding, op, small
from tests.strategies import serial_schedule, tiny_problems

LIMITS = SearchLimits(seconds=20)


def poor(problem: Problem, seed: int) -> Schedule | None:
    """Return a random feasible schedule in index order, None where none was found."""
    found = serial_schedule(problem, np.random.default_rng(seed))
    return (
        None
        if found is None
        else index_ordered(ImpliedOrder(problem), found.normalised())
    )


def known_cases() -> list[tuple[Problem, Schedule]]:
    cases = []
    for seed, problem in enumerate(tiny_problems(120)):
        if obstacle(problem) is None and (found := poor(problem, seed)) is not None:
            cases.append((problem, found))
    return cases


CASES = known_cases()


def searching(
    problem: Problem, known: Schedule, bound: int, limits: SearchLimits
) -> WindowLNS:
    return WindowLNS(ImpliedOrder(problem), Board.beginning(known, bound), limits)


def windows_of(whole: FixedOrderGraph) -> list[Subproblem]:
    """Return the whole and its halves, by every slant."""
    count = whole.problem.num_ops
    places = [
        (0, count),
        (0, count // 2),
        (count // 2, count),
        (count // 4, 3 * count // 4),
    ]
    return [
        whole.part(first, last, slant)
        for first, last in places
        if first < last
        for slant in SLANTS
    ]


def best_of(part: Subproblem) -> Schedule:
    found = solve(
        ImpliedOrder(part.problem), lower=0, incumbent=None, limits=LIMITS
    ).schedule
    assert found is not None
    return found


def test_there_are_cases_of_both_objectives() -> None:
    objectives = [problem.objective for problem, _ in CASES]
    assert min(map(objectives.count, (Objective.MAKESPAN, Objective.DEVICE_SPAN))) >= 5


@pytest.mark.parametrize("case", CASES)
def test_what_is_known_of_a_window_is_a_schedule_of_its_problem(
    case: tuple[Problem, Schedule],
) -> None:
    problem, schedule = case
    whole = FixedOrderGraph(ImpliedOrder(problem), schedule)
    assert whole.schedule.value <= schedule.value
    assert check_schedule(problem, whole.schedule) == []
    for part in windows_of(whole):
        assert check_schedule(part.problem, part.known) == []
        assert part.known.value == whole.schedule.value + whole.shift
        assert part.put_back(part.known).start.tolist() == whole.schedule.start.tolist()


@pytest.mark.parametrize("case", CASES[::7])
def test_a_better_window_is_a_better_whole(case: tuple[Problem, Schedule]) -> None:
    whole = FixedOrderGraph(ImpliedOrder(case[0]), case[1])
    for part in windows_of(whole):
        best = best_of(part)
        again = part.put_back(best)
        assert check_schedule(case[0], again) == []
        assert again.value <= best.value - whole.shift <= whole.schedule.value


def bound_of(part: Subproblem) -> int:
    return best_bound(lower_bounds(part.implied)).value


def test_a_window_is_refuted_by_the_work_of_a_device() -> None:
    # r: a b c without a gap; of the window {a, b} nothing shorter is left of it.
    problem = small(
        [op(name, length, "r") for name, length in (("a", 2), ("b", 3), ("c", 1))]
    )
    whole = FixedOrderGraph(ImpliedOrder(problem), at(problem, 0, 2, 5))
    assert bound_of(whole.part(0, 2)) == 6
    # Where c is ready at 7 only, a and b need not end before that.
    idle = small([op("a", 2, "r"), op("b", 3, "r"), op("c", 1, "r")], [("a", "c", 5)])
    assert (
        bound_of(FixedOrderGraph(ImpliedOrder(idle), at(idle, 3, 0, 10)).part(0, 2))
        == 8
    )


def test_paths_that_a_full_device_leaves_alone_stay_open() -> None:
    # r works throughout; s sends c too late, though it may be sent from the start.
    ops = [
        op("a", 4, "r"),
        op("b", 4, "r"),
        op("c", 1, "s"),
        op("d", 1, "s"),
        op("e", 1, "t"),
    ]
    problem = small(ops, [("c", "e", 5)])
    whole = FixedOrderGraph(ImpliedOrder(problem), at(problem, 0, 4, 1, 0, 7))
    part = whole.part(0, 5)
    assert bound_of(part) == 8
    # c, five ticks and e take 7 at least, one less than in the schedule.
    held = hold_full(part, 7)
    assert held is not None
    assert held.value - bound_of(held.part) == 1


def three_devices() -> FixedOrderGraph:
    """Return micro-batches a and b on their way through three devices, one tick each, lag 2."""
    names = [f"{name}{device}" for name in "ab" for device in range(3)]
    problem = small(
        [op(name, 1, f"r{name[1]}") for name in names],
        [(f"{name}{d}", f"{name}{d + 1}", 2) for name in "ab" for d in range(2)],
    )
    problem = replace(problem, device=np.array([0, 1, 2] * 2))
    return FixedOrderGraph(ImpliedOrder(problem), at(problem, 0, 3, 6, 1, 4, 7))


def test_a_slanted_window_follows_a_micro_batch() -> None:
    whole = three_devices()
    # From start to start of an op and the next one on its way: one tick and two of lag.
    assert whole.slope == 3
    assert whole.part(0, 3, 1).ops.tolist() == [0, 1, 2]
    assert whole.part(3, 6, 1).ops.tolist() == [3, 4, 5]
    # At one moment the first device is with b when the second one is not yet with a.
    assert whole.part(0, 3).ops.tolist() == [0, 1, 3]
    # Against their way: the last device's two ops come last, the first one's first.
    assert whole.sequence(-1).tolist() == [0, 3, 1, 4, 2, 5]


@pytest.mark.parametrize("case", CASES)
def test_no_op_comes_before_one_that_it_waits_for(
    case: tuple[Problem, Schedule],
) -> None:
    whole = FixedOrderGraph(ImpliedOrder(case[0]), case[1])
    for slant in SLANTS:
        place = np.argsort(whole.sequence(slant))
        assert (place[whole.before] < place[whole.after]).all()


def test_borders_are_straight_where_an_op_has_no_device() -> None:
    problem = three_devices().problem
    beside = replace(problem, device=np.array([0, 1, -1] * 2))
    assert (
        FixedOrderGraph(ImpliedOrder(beside), at(beside, 0, 3, 6, 1, 4, 7)).slope == 0
    )


def test_a_device_with_a_smaller_span_may_start_sooner() -> None:
    # r: a b without a gap, 10 ticks. s: c d, 4 ticks, six less, so it may start three sooner.
    ops = [op("a", 1, "r"), op("b", 9, "r"), op("c", 2, "s"), op("d", 2, "s")]
    loose = small(ops, [("a", "b")], objective="device_span")
    whole = FixedOrderGraph(ImpliedOrder(loose), at(loose, 0, 1, 6, 8))
    assert whole.schedule.value == 10
    # As late as may be, c starts at 6.
    assert whole.problem.release.tolist() == [0, 0, 3, 3]
    assert whole.part(0, 4).known.value == 10 + whole.shift
    # Where both ops of s wait for a, which ends at 1, and four ticks more, none starts before 5.
    tight = small(
        ops, [("a", "b"), ("a", "c", 4), ("a", "d", 4)], objective="device_span"
    )
    whole = FixedOrderGraph(ImpliedOrder(tight), at(tight, 0, 1, 6, 8))
    assert whole.problem.release.tolist() == [0, 0, 5, 5]


def test_ops_behind_keep_their_order_and_give_tails() -> None:
    # r: a b, then s: c d in this order. Of the window {a, b} only b leads to the long d.
    problem = small(
        [op("a", 1, "r"), op("b", 2, "r"), op("c", 3, "s"), op("d", 4, "s")],
        [("a", "c"), ("b", "d")],
    )
    whole = FixedOrderGraph(ImpliedOrder(problem), at(problem, 0, 1, 3, 6))
    # c starts at 1 already, d at 4: 8 in all.
    assert whole.schedule.start.tolist() == [0, 1, 1, 4]
    part = whole.part(0, 2)
    assert part.ops.tolist() == [0, 1]
    # After a come c and d, after b comes d.
    assert part.problem.lag.tolist() == [7, 4]
    assert best_of(part).value == 8


def test_ops_before_a_window_leave_their_memory() -> None:
    # The first holds 2 of 3 for ever: the others, of 1 each, run one after the other.
    problem = small(
        [
            op("first", 1, "r", acquire={"m": 2}),
            holding("a", 2, 1, "r"),
            holding("b", 2, 1, "r"),
        ],
        capacity=3,
    )
    whole = FixedOrderGraph(ImpliedOrder(problem), at(problem, 0, 1, 3))
    part = whole.part(1, 3)
    assert [pool.initial for pool in part.problem.pools] == [2]
    assert part.problem.release.tolist() == [1, 1, 1]


def test_memory_that_holds_all_of_a_window_is_left_out() -> None:
    problem = small([holding(name, 2, 1, "r") for name in "abc"], capacity=1)
    whole = FixedOrderGraph(ImpliedOrder(problem), at(problem, 0, 2, 4))
    assert [len(pool.acquire_op) for pool in whole.part(0, 2).problem.pools] == [2]
    assert whole.part(1, 2).problem.pools == ()


@pytest.mark.parametrize(
    "changed",
    [
        {"release": np.array([1, 0])},
        {"pinned": np.array([0, -1])},
        {"objective": Objective.COMPLETION, "weight": np.array([1, 1])},
    ],
)
def test_problems_without_parts_are_told_why(changed: dict[str, object]) -> None:
    problem = small([op("a", 1, "r"), op("b", 1, "r")])
    assert obstacle(problem) is None
    assert obstacle(replace(problem, **changed)) is not None


def test_memory_that_orders_do_not_decide_is_an_obstacle() -> None:
    apart = small([holding("a", 1, 1, "r"), holding("b", 1, 1, "s")], capacity=1)
    assert "pools" in str(obstacle(apart))


def test_a_poor_job_shop_schedule_becomes_optimal() -> None:
    problem = job_shop()
    search = searching(problem, in_any_order(problem), 55, LIMITS)
    assert search.run().value == 55
    assert check_schedule(problem, search.best) == []
    assert search.counts.better > 0


def test_what_nothing_refutes_beforehand_is_refuted_by_a_search() -> None:
    problem = job_shop()
    search = searching(problem, in_any_order(problem), 54, LIMITS)
    assert search.run().value == 55
    assert search.counts.refuted > 0


def test_a_window_is_asked_for_a_schedule_below_the_best_one() -> None:
    problem = job_shop()
    search = searching(problem, in_any_order(problem), 55, LIMITS)
    whole = search._whole.part(0, problem.num_ops, 0)
    search._ops = search._most
    question = search._question(whole, search._aim())
    assert question.most == search.best.value - 1
    assert question.target == search._whole.schedule.value + search._whole.shift - 1


def test_it_ends_where_no_window_is_open() -> None:
    problem = small([op("a", 2, "r"), op("b", 3, "r")])
    search = searching(problem, at(problem, 0, 2), 0, SearchLimits(seconds=None))
    assert search.run().value == 5
    assert search.is_exhausted


def test_a_pass_goes_on_in_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    # Windows of one op each, of which every turn tries one.
    problem = small([op("a", 2, "r"), op("b", 3, "r")])
    search = searching(problem, at(problem, 0, 2), 0, SearchLimits(seconds=None))
    ended = []
    for _ in range(2):
        turn = Clock(1000.0)
        monkeypatch.setattr(search, "_take_incumbent", turn.stop)
        search.run(turn)
        ended.append(search.is_exhausted)
    assert ended == [False, True]
    assert search.counts.bounded == 2


def test_a_window_that_uses_up_the_units_by_itself_is_asked_for_nothing() -> None:
    problem = job_shop()
    limits = SearchLimits(seconds=None, deterministic=WindowParams().base_units / 2)
    search = searching(problem, in_any_order(problem), 0, limits)
    assert search.run().value == search.best.value
    assert search.is_over


def test_equal_seeds_and_units_give_equal_schedules() -> None:
    problem = job_shop()
    limits = SearchLimits(seconds=None, deterministic=0.5, seed=3)
    begun = in_any_order(problem)
    found = [searching(problem, begun, 0, limits).run() for _ in range(2)]
    assert found[0].start.tolist() == found[1].start.tolist()
    assert found[0].value < begun.value


def test_it_takes_schedules_from_elsewhere_and_tells_of_better_ones() -> None:
    problem = job_shop()
    good, told = list_tail(problem), list[int]()
    board = Board.beginning(in_any_order(problem))
    search = WindowLNS(ImpliedOrder(problem), board, LIMITS)
    board.propose(good, "elsewhere")
    board.raise_bound(55, "known")
    board.subscribe(lambda event, by: told.append(search.best.value))
    assert search.run().value <= good.value
    assert told == sorted(told, reverse=True)
