"""Who searches beside CP-SAT: neighbourhoods, the sweep, or nobody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics import order_search
from ppsolve.solver.heuristics.list_rules import list_tail
from ppsolve.solver.kinds import parts, portfolio, scheduling
from ppsolve.solver.kinds.options import Options
from ppsolve.solver.kinds.parts import is_in_turn, is_raced
from ppsolve.solver.kinds.portfolio import (
    NEIGHBOURHOODS,
    ORDERS,
    SWEEP,
    companion,
    searches_beside,
)
from ppsolve.solver.optimize.kinds import kind_of, lower
from ppsolve.solver.structure.implied import ImpliedOrder

INSTANCE = PipelineInstance(
    num_devices=4,
    num_microbatches=6,
    times={
        "forward": [3, 5, 4, 6],
        "backward_input": [4, 3, 5, 2],
        "backward_weight": [2, 4, 3, 3],
    },
    p2p={"latency": 1},
    memory={"capacity": 4, "activation": 1, "released_by_backward_weight": 0.43},
)
PROBLEM = lower(INSTANCE)


def options_with(**given: Any) -> Options:
    return Options.checked(**{"time_limit": 60.0, **given})


def named(problem: Problem = PROBLEM, **options: Any) -> tuple[str, ...]:
    """Return the names of the searches beside CP-SAT in a run with these options."""
    known = list_tail(problem)
    found = companion(ImpliedOrder(problem), options_with(**options), Clock(9), known, 0)
    return () if found is None else found.names


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portfolio, "NEIGHBOURHOOD_OPS", 0)


@pytest.mark.usefixtures("always")
def test_one_of_two_workers_searches_neighbourhoods() -> None:
    assert named(workers=2) == (NEIGHBOURHOODS, ORDERS)
    assert named(workers=1) == ()
    assert named(deterministic=True) == ()


@pytest.mark.usefixtures("always")
def test_neighbourhoods_take_turns_with_the_sweep_where_orders_are_not_searched() -> None:
    spans = INSTANCE.model_copy(update={"objective": Objective.DEVICE_SPAN})
    assert named(lower(spans), workers=2) == (NEIGHBOURHOODS, SWEEP)


@pytest.mark.usefixtures("always")
def test_neighbourhoods_of_very_many_ops_take_turns_with_the_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order_search, "_MOST_OPS", 0)
    assert named(workers=2) == (NEIGHBOURHOODS, SWEEP)


@pytest.mark.usefixtures("always")
def test_searches_go_on_beside_the_exact_one_where_there_is_a_worker_for_them() -> None:
    assert searches_beside(PROBLEM, options_with(workers=2))
    assert not searches_beside(PROBLEM, options_with(workers=1))
    assert not searches_beside(PROBLEM, options_with(deterministic=True))


def test_small_problems_keep_their_workers() -> None:
    assert named(workers=2) == ()
    assert named(workers=8) == ()
    assert not searches_beside(PROBLEM, options_with(workers=8))


def test_the_sweep_takes_a_worker_where_there_are_no_neighbourhoods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(portfolio, "SWEEP_OPS", 0)
    assert named(workers=4) == (SWEEP,)
    assert named(workers=3) == ()


@pytest.mark.usefixtures("always")
def test_one_worker_searches_neighbourhoods_first() -> None:
    assert is_in_turn(PROBLEM, options_with(workers=1))
    assert is_in_turn(PROBLEM, options_with(deterministic=True))
    assert not is_in_turn(PROBLEM, options_with(workers=2))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("workers", [1, 2])
def test_either_way_the_optimum_is_proved(workers: int) -> None:
    heuristics = ["gpipe"]
    alone = ppsolve.optimize(INSTANCE, time_limit=60, workers=4, heuristics=heuristics)
    found = ppsolve.optimize(INSTANCE, time_limit=60, workers=workers, heuristics=heuristics)
    assert found.status == alone.status == "OPTIMAL"
    assert found.value == alone.value
    assert ppsolve.check(INSTANCE, found) == []


@pytest.mark.usefixtures("always")
def test_deterministic_runs_give_the_same_twice() -> None:
    first, second = (
        ppsolve.optimize(INSTANCE, time_limit=0.2, deterministic=True, heuristics=["gpipe"])
        for _ in range(2)
    )
    assert first.schedule is not None
    assert first.schedule == second.schedule
    assert (first.bound, first.best_by) == (second.bound, second.best_by)


@pytest.mark.usefixtures("always")
def test_a_companion_tells_of_schedules_and_is_no_worse_than_its_start() -> None:
    known = list_tail(PROBLEM).normalised()
    search = portfolio.stretching(ImpliedOrder(PROBLEM), known, 0, options_with().limits(Clock(9)))
    told = []
    search(Clock(9), lambda better: told.append(better) if better is not None else None)
    assert all(check_schedule(PROBLEM, schedule) == [] for schedule in told)
    assert [each.value for each in told] == sorted({each.value for each in told}, reverse=True)


@pytest.mark.usefixtures("always")
def test_a_task_says_whether_parts_of_its_schedules_are_solved_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert kind_of(INSTANCE).task(INSTANCE).has_parts
    monkeypatch.setattr(portfolio, "NEIGHBOURHOOD_OPS", PROBLEM.num_ops + 1)
    assert not kind_of(INSTANCE).task(INSTANCE).has_parts


@pytest.mark.usefixtures("always")
def test_nothing_searches_beside_where_no_exact_search_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert kind_of(INSTANCE).task(INSTANCE).searches_beside(options_with(workers=2))
    monkeypatch.setattr(scheduling, "MAX_EXACT_OPS", PROBLEM.num_ops - 1)
    assert not kind_of(INSTANCE).task(INSTANCE).searches_beside(options_with(workers=2))


SPANS = INSTANCE.model_copy(update={"objective": Objective.DEVICE_SPAN})


def run_with(clock: Clock, **given: Any) -> Any:
    """Return a run with some options, as far as it is asked for them and for its clock."""
    return SimpleNamespace(options=options_with(**given), clock=clock)


@pytest.mark.usefixtures("always")
def test_all_workers_race_for_device_spans_of_many_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = lower(SPANS)
    assert not is_raced(spans, run_with(Clock(9), workers=2))
    monkeypatch.setattr(parts, "RACE_OPS", 0)
    assert is_raced(spans, run_with(Clock(9), workers=2))
    # The makespan has its own search beside; alone, by units or for ever nobody races.
    assert not is_raced(PROBLEM, run_with(Clock(9), workers=2))
    monkeypatch.setattr(order_search, "_MOST_OPS", 0)
    assert not is_raced(PROBLEM, run_with(Clock(9), workers=2))
    assert not is_raced(spans, run_with(Clock(9), workers=1))
    assert not is_raced(spans, run_with(Clock(9), deterministic=True))
    assert not is_raced(spans, run_with(Clock(9), deterministic_limit=1.0, workers=2))
    assert not is_raced(spans, run_with(Clock(None), workers=2))


@pytest.fixture
def raced(always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all workers race, however small the problem is."""
    monkeypatch.setattr(parts, "RACE_OPS", 0)
    monkeypatch.setattr(scheduling, "GLANCE_OPS", 0)


@pytest.mark.usefixtures("raced")
@pytest.mark.parametrize("workers", [2, 3])
def test_after_a_race_without_new_starts_the_optimum_is_proved(workers: int) -> None:
    alone = ppsolve.optimize(SPANS, time_limit=60, workers=1, heuristics=["gpipe"])
    found = ppsolve.optimize(SPANS, time_limit=60, workers=workers, heuristics=["list-serial"])
    assert found.status == alone.status == "OPTIMAL"
    assert found.value == alone.value
    assert ppsolve.check(SPANS, found) == []


@pytest.mark.usefixtures("raced")
def test_a_race_ends_where_the_gap_is_small_enough() -> None:
    found = ppsolve.optimize(SPANS, time_limit=60, gap=0.05, workers=2, heuristics=["list-serial"])
    assert found.gap is not None
    assert found.gap <= 0.05
    assert found.stop_reason in {"gap_reached", "proved"}


def test_a_race_tells_of_what_all_workers_find() -> None:
    problem, kept = lower(SPANS), []
    known = list_tail(problem).normalised()

    def hear(schedule: Schedule, by: str) -> bool:
        kept.append((by, schedule))
        return True

    parts.race(ImpliedOrder(problem), known, 0, run_with(Clock(1.5), workers=2), hear)
    values = [schedule.value for _, schedule in kept]
    assert {by for by, _ in kept} <= {NEIGHBOURHOODS, SWEEP}
    assert values == sorted(set(values), reverse=True)
    assert values[-1] < known.value
    assert all(check_schedule(problem, schedule) == [] for _, schedule in kept)
