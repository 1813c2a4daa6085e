"""A search beside another one: it tells its best and learns."""

from __future__ import annotations

import time

from ppsolve.models.core.schedule import Schedule
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.companion import Companion, Search, ordering, sweeping
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
    with Companion(searches, Clock(60.0)).at_work() as companion:
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
    with Companion(searches, Clock(60.0)).at_work() as companion:
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
