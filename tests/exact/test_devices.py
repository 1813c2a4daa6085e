"""Parts of some devices, whose optimum is a bound on that of the whole, and their search."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import cache
from itertools import combinations

import numpy as np
import pytest

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.board import Board, Incumbent
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact import device_part as parts
from ppsolve.solver.exact.device_part import Machines, obstacle
from ppsolve.solver.exact.few_devices import FewDevices
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.heuristics import order_search
from ppsolve.solver.heuristics.generic import list_serial, list_tail
from ppsolve.solver.structure.implied import ImpliedOrder
from ppsolve.solver.studies.generate.flags import IntegerRange, PerDevice
from ppsolve.solver.studies.generate.instances import generate
from tests.asking import solve
from tests.bruteforce import brute_force
from tests.exact.models import change_model
from tests.marks import first
from tests.small import op, small
from tests.strategies import serial_schedule, tiny_problems

LIMITS = SearchLimits(seconds=20)


def uneven(seed: int, placement: str = "linear") -> Problem:
    """Return a pipeline with random times on 3 or 4 devices, and little memory on most."""
    rng = np.random.default_rng(seed)
    devices = int(rng.integers(3, 5))
    return lower(
        generate(
            seed=seed,
            devices=devices,
            microbatches=int(rng.integers(2, 4 if placement == "linear" else 3)),
            forward=IntegerRange(1, 9),
            backward_input=IntegerRange(1, 9),
            backward_weight=IntegerRange(1, 9),
            p2p=Decimal(int(rng.integers(0, 3))),
            capacity=PerDevice(Decimal(str(rng.choice(["0.5", "0.75", "1"])))),
            placement=placement,
            **({} if placement == "linear" else {"stages_per_device": 2}),
        )
    )


PIPELINES = [uneven(seed, "vshape") for seed in range(3)]
PIPELINES += [uneven(seed) for seed in range(50)]
PIPELINES += [uneven(seed, "vshape") for seed in range(3, 10)]
FEW = 5
TINY = 148


def optimum(problem: Problem) -> int:
    answer = solve(ImpliedOrder(problem), lower=0, incumbent=None, limits=LIMITS)
    assert answer.schedule is not None
    assert answer.bound == answer.schedule.value
    return answer.schedule.value


@cache
def searched() -> list[tuple[Problem, Schedule]]:
    """Return tiny graphs and pipelines of which parts are taken, with a schedule of each."""
    found = []
    for seed, problem in enumerate(tiny_problems(400)):
        if order_search.obstacle(problem) is None:
            known = serial_schedule(problem, np.random.default_rng(seed))
            if known is not None:
                found.append((problem, known.normalised()))
    return found


def pipeline(capacity: int | None = None) -> Problem:
    """Return three stages with a forward and a backward of 1, 10 and 100 ticks, two of each."""
    return lower(
        generate(
            devices=3,
            microbatches=2,
            forward=(Decimal(1), Decimal(10), Decimal(100)),
            backward=(Decimal(2), Decimal(20), Decimal(200)),
            p2p=Decimal(3),
            **({} if capacity is None else {"capacity": Decimal(capacity)}),
        )
    )


def test_left_out_devices_become_lags() -> None:
    problem = pipeline()
    part = Machines(ImpliedOrder(problem)).part([1]).problem
    # F and B of the middle stage, the way to them (F0 and p2p), and the end.
    assert part.duration.tolist() == [10, 10, 20, 20, 4, 0]
    edges = zip(
        part.before.tolist(), part.after.tolist(), part.lag.tolist(), strict=True
    )
    # F1 to B1 by F2 and B2 (the end is behind B2 too), 4 ticks to F1, and B0 behind B1.
    ways = {(0, 2, 306), (0, 5, 303), (4, 0, 0), (2, 5, 5)}
    assert set(edges) == ways | {(1, 3, 306), (1, 5, 303), (4, 1, 0), (3, 5, 5)}
    assert [family.tolist() for family in part.families] == [[[0, 2], [1, 3]]]
    # 4, F1 F1 (306 lag) B1 B1, 5: the second backward is ready when the first one ends.
    assert optimum(part) == 4 + 10 + 306 + 20 + 20 + 5


def test_only_pools_of_kept_devices_remain() -> None:
    whole = Machines(ImpliedOrder(pipeline(1)))
    assert [pool.name for pool in whole.part([0, 2]).problem.pools] == [
        "device 0",
        "device 2",
    ]
    assert len(whole.part([1]).problem.pools) == 1
    # One micro-batch at a time on the first device: twice the way there and back.
    assert optimum(whole.part([0]).problem) == 2 * (1 + 10 + 100 + 200 + 20 + 2 + 4 * 3)


def test_ways_past_a_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    change_model(monkeypatch, device_paths=3)
    with pytest.raises(parts.TooManyWaysError):
        Machines(ImpliedOrder(pipeline())).part([1])
    known = list_tail(pipeline())
    search = FewDevices(ImpliedOrder(pipeline()), Board.beginning(known, 5), LIMITS)
    # Parts are left out; the whole is asked all the same.
    assert search.run() == known.value
    assert search.parts == []


def test_all_tiny_cases_are_tried() -> None:
    assert len(searched()) == TINY


@pytest.mark.parametrize("number", first(FEW, range(TINY)))
def test_all_resources_are_as_long_as_the_whole(number: int) -> None:
    problem, known = searched()[number]
    whole = Machines(ImpliedOrder(problem))
    part = whole.part(whole.resources)
    assert check_schedule(part.problem, part.of(known)) == []
    assert part.of(known).value == known.value
    assert optimum(part.problem) == brute_force(problem)


@pytest.mark.parametrize("problem", first(FEW, PIPELINES))
def test_no_part_is_longer_than_what_it_is_part_of(problem: Problem) -> None:
    whole, least = Machines(ImpliedOrder(problem)), optimum(problem)
    found = {(): 0}
    for count in range(1, len(whole.resources) + 1):
        for chosen in combinations(whole.resources, count):
            found[chosen] = optimum(whole.part(chosen).problem)
            assert found[chosen] <= least
            assert all(
                found[less] <= found[chosen] for less in combinations(chosen, count - 1)
            )
    assert found[tuple(whole.resources)] == least


@pytest.mark.parametrize("problem", first(FEW, PIPELINES))
def test_the_bound_is_no_more_than_the_optimum(problem: Problem) -> None:
    assert obstacle(problem) is None
    told: list[int] = []
    implied, board = ImpliedOrder(problem), Board.beginning(list_tail(problem))
    board.subscribe(
        lambda event, by: told.append(board.bound.value) if event == "bound" else None
    )
    search = FewDevices(implied, board, LIMITS)
    bound, least = search.run(), optimum(problem)
    assert bound == search.lower == told[-1] <= least
    assert told == sorted(set(told))
    whole = Machines(ImpliedOrder(problem))
    # All parts of few devices are solved, so the strongest of those tried is the bound.
    assert bound >= max(optimum(whole.part([r]).problem) for r in whole.resources[:1])


@pytest.mark.parametrize("problem", first(5, PIPELINES[:20]))
def test_the_whole_is_asked_too(problem: Problem) -> None:
    board = Board.beginning(list_tail(problem))
    search = FewDevices(ImpliedOrder(problem), board, LIMITS)
    assert search.run() == board.value == optimum(problem)
    assert board.schedule is not None
    assert check_schedule(problem, board.schedule) == []


def test_the_whole_is_not_asked_twice_about_a_schedule_that_is_not_taken() -> None:
    refused: list[int] = []

    def refuse(better: Schedule, *_: object) -> None:
        refused.append(better.value)

    problem = PIPELINES[0]
    known = list_tail(problem)
    board = Board(refuse)
    board.incumbent = Incumbent(
        2 * known.value, "known", Schedule(problem, known.start * 2)
    )
    search = FewDevices(ImpliedOrder(problem), board, LIMITS)
    assert search.run() <= optimum(problem)
    assert refused


def test_few_devices_prove_what_no_single_one_does() -> None:
    gains = 0
    for problem in PIPELINES[:20]:
        implied = ImpliedOrder(problem)
        analytic = best_bound(lower_bounds(implied)).value
        board = Board.beginning(list_tail(problem), analytic)
        gains += FewDevices(implied, board, LIMITS).run() > analytic
    assert gains >= 5


def test_a_search_ends_with_its_limits() -> None:
    problem = PIPELINES[0]
    known = list_tail(problem)
    for limits in (
        SearchLimits(seconds=0.0),
        SearchLimits(seconds=None, deterministic=0.0),
    ):
        assert (
            FewDevices(ImpliedOrder(problem), Board.beginning(known, 1), limits).run()
            == 1
        )


@pytest.mark.parametrize(
    "changed",
    [
        {"objective": Objective.DEVICE_SPAN},
        {"families": ()},
        {"release": np.array([1])},
    ],
)
def test_problems_without_such_parts_are_told_why(changed: dict[str, object]) -> None:
    problem = replace(small([op("a", 1, "r")]), families=(np.array([[0]]),))
    assert obstacle(problem) is None
    assert obstacle(replace(problem, **changed)) is not None


def test_a_part_may_be_shorter_than_the_bound_of_the_whole() -> None:
    # That bound ends the search over the orders of a part, which may reach less with one move.
    lengths = dict.fromkeys(
        ("forward", "backward_input", "backward_weight"), IntegerRange(1, 40)
    )
    room = PerDevice(Decimal("0.75"))
    problem = lower(
        generate(seed=4, devices=4, microbatches=8, capacity=room, **lengths)
    )
    known = list_serial(problem).normalised()
    bound = int(0.9 * known.value)
    limits = replace(LIMITS, deterministic=0.3)
    assert (
        FewDevices(ImpliedOrder(problem), Board.beginning(known, bound), limits).run()
        >= bound
    )
