"""A search beside another one: it tells its best and learns."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from ppsolve.models.core.schedule import Schedule
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.companion import (
    FADING,
    LEAST_SHARE,
    LEAST_TURN,
    TURN_SHARE,
    ParallelSearch,
    Search,
    ordering,
    sweeping,
)
from ppsolve.solver.heuristics.list_rules import list_tail
from ppsolve.solver.heuristics.sweep import Exchange, list_sweep
from ppsolve.solver.optimize.kinds import lower

PROBLEM = lower(
    PipelineInstance(
        num_devices=3,
        num_microbatches=6,
        times={
            "forward": [3, 5, 4],
            "backward_input": [4, 3, 5],
            "backward_weight": [2, 4, 3],
        },
        p2p={"latency": 1},
        memory={"capacity": 3, "activation": 1, "released_by_backward_weight": 0.43},
    )
)


def test_it_tells_of_its_best_schedule() -> None:
    best, told = list_sweep(PROBLEM), []
    searches = {"list-sweep": sweeping(PROBLEM, None, 0)}
    with ParallelSearch(searches, Clock(60.0)).at_work() as companion:
        while not told or told[-1].value > best.value:
            found = companion.found()
            if found is not None:
                name, schedule = found
                assert name == "list-sweep"
                told.append(schedule)
            time.sleep(0.01)
    assert all(check_schedule(PROBLEM, schedule) == [] for schedule in told)


def test_searches_take_turns_from_the_best_until_none_finds_anything() -> None:
    starts = list_sweep(PROBLEM).start
    steps = [Schedule(PROBLEM, starts * factor) for factor in (4, 3, 2)]
    given: list[tuple[str, int | None]] = []

    def finder(name: str, finds: list[Schedule]) -> Search:
        def search(clock: Clock, exchange: Exchange) -> None:
            known = exchange(None)
            given.append((name, None if known is None else known.value))
            if finds:
                exchange(finds.pop(0))

        return search

    searches = {"one": finder("one", [steps[0], steps[2]]), "other": finder("other", [steps[1]])}
    with ParallelSearch(searches, Clock(60.0)).at_work() as companion:
        while len(given) < 5:
            time.sleep(0.01)
    first, second, third = (step.value for step in steps)
    assert given[:5] == [
        ("one", None),
        ("other", first),
        ("one", second),
        ("other", third),
        ("one", third),
    ]
    time.sleep(0.05)
    assert len(given) == 5
    found = companion.found()
    assert found is not None
    assert (found[0], found[1].value) == ("one", third)


def test_turns_are_longer_for_what_finds_more() -> None:
    starts = list_sweep(PROBLEM).start
    better = (Schedule(PROBLEM, starts * factor) for factor in range(10**6, 0, -1))
    turns: dict[str, list[float]] = {"finds": [], "learns": []}

    def finds(clock: Clock, exchange: Exchange) -> None:
        turns["finds"].append(clock.left)
        exchange(next(better))

    def learns(clock: Clock, exchange: Exchange) -> None:
        turns["learns"].append(clock.left)
        if len(turns["learns"]) == 1:
            # What another thread found under its name counts for it.
            companion.learn(next(better), "learns")

    companion = ParallelSearch({"finds": finds, "learns": learns}, Clock(10_000.0))
    with companion.at_work():
        while len(turns["learns"]) < 3:
            time.sleep(0.01)
    whole = TURN_SHARE * 10_000.0
    credit = 1 + FADING * (1 + FADING)
    shares = [LEAST_SHARE, 1 / (1 + FADING), FADING / credit]
    assert turns["finds"][:3] == pytest.approx([whole] * 3, rel=0.01)
    assert turns["learns"][:3] == pytest.approx([share * whole for share in shares], rel=0.01)


def test_the_least_turn_keeps_its_share_when_little_time_is_left() -> None:
    better = iter([Schedule(PROBLEM, list_sweep(PROBLEM).start * factor) for factor in (3, 2)])
    turns: dict[str, list[float]] = {"finds": [], "other": []}

    def finds(clock: Clock, exchange: Exchange) -> None:
        turns["finds"].append(clock.deadline - clock.began)
        exchange(next(better, None))

    def other(clock: Clock, exchange: Exchange) -> None:
        turns["other"].append(clock.deadline - clock.began)

    with ParallelSearch({"finds": finds, "other": other}, Clock(20.0)).at_work():
        while len(turns["other"]) < 2:
            time.sleep(0.01)
    # Nothing was found before the first turn; 0.15 of what is left is less than 4 s.
    assert turns["finds"][:2] == pytest.approx([3.0, LEAST_TURN / LEAST_SHARE], rel=0.05)
    assert turns["other"][:2] == pytest.approx([LEAST_TURN] * 2, rel=0.05)


def test_the_first_to_find_a_schedule_is_named() -> None:
    found = list_sweep(PROBLEM)
    told = []

    def search(clock: Clock, exchange: Exchange) -> None:
        exchange(found)
        told.append(found)

    searches = {"first": search, "second": search}
    with ParallelSearch(searches, Clock(60.0)).at_work() as companion:
        while len(told) < 2:
            time.sleep(0.01)
        best = companion.found()
    assert best is not None
    assert best[0] == "first"


def test_a_search_over_orders_goes_on_from_the_best_schedule() -> None:
    worse, best = list_tail(PROBLEM).normalised(), list_sweep(PROBLEM)
    told: list[Schedule] = []
    search = ordering(worse, best.value)
    search(Clock(60.0), lambda better: told.append(better) if better is not None else None)
    assert told
    assert all(check_schedule(PROBLEM, schedule) == [] for schedule in told)
    known = told[-1]
    search(Clock(0.0), lambda better: known if better is None else told.append(better))
    assert told[-1] is known


def test_it_learns_a_better_schedule() -> None:
    best, told = list_sweep(PROBLEM), []

    def exchange(better: Schedule | None) -> Schedule:
        if better is not None:
            told.append(better.value)
        return best

    worse = Schedule(PROBLEM, best.start * 2)
    clock = Clock(60.0)
    found = list_sweep(PROBLEM, clock, known=worse, bound=best.value, exchange=exchange)
    assert found.value == best.value
    assert not clock.is_over
    assert told == sorted(told, reverse=True)


LINGERS = """
import time
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.companion import ParallelSearch

def search(clock, exchange):
    while not clock.is_over:
        time.sleep(0.01)
    time.sleep(0.3)
    print("ended")

with ParallelSearch({"slow": search}, Clock()).at_work():
    pass
"""


def test_a_process_waits_for_a_companion_that_was_told_to_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LINGERS], capture_output=True, text=True, check=True
    )
    assert done.stdout == "ended\n"
