"""The table of steps: which search runs when, and what results say of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.problem import Objective
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.api.registry import chosen_heuristics
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.generic import list_tail
from ppsolve.solver.run import steps
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.params import SearchParams, paths
from ppsolve.solver.run.schedule_task import ScheduleTask
from ppsolve.solver.run.step import Step, Turn, always, inserted, replaced, whole
from ppsolve.solver.run.steps import MEANWHILE, STEPS

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
WINDOWS = SearchParams().varied({"exact.windows.least_ops": 0})


def turn_with(
    instance: PipelineInstance = INSTANCE,
    params: SearchParams = WINDOWS,
    **options: Any,
) -> Turn:
    task = kind_of(instance).task(instance)
    assert isinstance(task, ScheduleTask)
    task.board.propose(list_tail(task.problem), "list-tail")
    given = Options(**{"time_limit": 60.0, **options})
    return Turn(task, given, Clock(60.0), params=params)


def meanwhile(turn: Turn) -> list[str]:
    """Return the searches that take turns on another thread, where there is one for them."""
    return [search.name for search in MEANWHILE if search.applies(turn)]


def test_windows_take_turns_with_orders_or_with_the_sweep() -> None:
    assert meanwhile(turn_with(workers=2)) == ["neighbourhoods", "order-search"]
    spans = INSTANCE.model_copy(update={"objective": Objective.DEVICE_SPAN})
    assert meanwhile(turn_with(spans, workers=2)) == ["neighbourhoods", "list-sweep"]


def test_small_problems_keep_their_workers() -> None:
    assert meanwhile(turn_with(params=SearchParams(), workers=8)) == []


def test_the_sweep_takes_one_of_many_workers_where_there_are_no_windows() -> None:
    params = SearchParams().varied({"heuristics.turns.sweep_ops": 0})
    assert meanwhile(turn_with(params=params, workers=4)) == ["list-sweep"]
    assert meanwhile(turn_with(params=params, workers=3)) == []


def test_one_worker_solves_windows_first() -> None:
    assert steps.has_windows_in_turn(turn_with(workers=1))
    assert steps.has_windows_in_turn(turn_with(deterministic=True))
    assert not steps.has_windows_in_turn(turn_with(workers=2))
    assert not steps.has_windows_in_turn(turn_with(workers=1, time_limit=0))


@pytest.mark.parametrize("workers", [1, 2])
def test_either_way_the_optimum_is_proved(workers: int) -> None:
    options = {"time_limit": 60, "heuristics": ["gpipe"]}
    alone = ppsolve.optimize(INSTANCE, workers=4, **options)
    found = ppsolve.optimize(INSTANCE, workers=workers, params=WINDOWS, **options)
    assert found.status == alone.status == "OPTIMAL"
    assert found.value == alone.value
    assert ppsolve.check(INSTANCE, found) == []


def test_deterministic_runs_give_the_same_twice() -> None:
    first, second = (
        ppsolve.optimize(
            INSTANCE,
            time_limit=0.2,
            deterministic=True,
            heuristics=["gpipe"],
            params=WINDOWS,
        )
        for _ in range(2)
    )
    assert first.schedule is not None
    assert first.schedule == second.schedule
    assert (first.bound, first.best_by) == (second.bound, second.best_by)


def test_results_say_what_ran_and_what_was_known_after_it() -> None:
    params = SearchParams().varied({"exact.quick_ops": 0})
    found = ppsolve.optimize(
        INSTANCE, time_limit=60, heuristics=["1f1b"], verify=True, params=params
    )
    names = [step.name for step in found.steps]
    assert names[:2] == ["bounds", "heuristics"]
    assert "cp-sat" in names
    assert ("second proof" in names) == (found.bound_by == "cp-sat")
    assert found.steps[0].value is None
    assert (found.steps[-1].value, found.steps[-1].bound) == (found.value, found.bound)
    assert all(step.seconds >= 0 for step in found.steps)


def test_a_step_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(turn: Turn) -> None:
        """Find nothing."""

    row = Step("idle", always, whole, idle)
    kind = kind_of(INSTANCE)
    table = inserted(STEPS, "cp-sat", row)
    task = type("Task", (ScheduleTask,), {"steps": replaced(table, "quick exact")})
    monkeypatch.setattr(
        type(kind), "task", lambda *_, **__: task(kind, INSTANCE, kind.lower(INSTANCE))
    )
    found = ppsolve.optimize(INSTANCE, time_limit=60, heuristics=["gpipe"])
    names = [step.name for step in found.steps]
    assert names.index("idle") == names.index("cp-sat") - 1


def test_names_of_steps_are_unique_in_the_table() -> None:
    names = [row.name for row in STEPS]
    assert len(names) == len(set(names))


def test_budgets_are_varied_by_path() -> None:
    varied = SearchParams().varied(
        {"exact.windows.growth": 1.5, "steps.endless_ops": 7}
    )
    assert (varied.exact.windows.growth, varied.steps.endless_ops) == (1.5, 7)
    assert varied.heuristics == SearchParams().heuristics
    assert dict(paths(varied))["exact.windows.growth"] == 1.5
    with pytest.raises(InputError, match="unknown budget"):
        SearchParams().varied({"exact.window.growth": 1.5})


def test_a_table_is_changed_by_name() -> None:
    row = replace(STEPS[0], name="first")
    assert [each.name for each in inserted(STEPS, "bounds", row)][:2] == [
        "first",
        "bounds",
    ]
    assert replaced(STEPS, "bounds", row)[0] is row
    assert len(replaced(STEPS, "bounds")) == len(STEPS) - 1


def test_budgets_reach_the_searches() -> None:
    params = SearchParams().varied({"heuristics.orders.most_ops": 0})
    found = ppsolve.optimize(
        INSTANCE, time_limit=0, heuristics=["list-tail", "order-search"], params=params
    )
    entry = found.heuristics[-1]
    assert (entry.name, entry.status) == ("order-search", "not_applicable")
    assert entry.reason == "needs at most 0 ops"


class _EndingClock(Clock):
    """A clock that ends once it has been looked at as often as it may be."""

    looks = 0

    @property
    def left(self) -> float:
        self.looks -= 1
        return 1.0 if self.looks >= 0 else 0.0


@pytest.mark.parametrize("looks", range(4))
def test_the_share_of_a_heuristic_needs_no_time_left(looks: int) -> None:
    turn = turn_with()
    turn = replace(turn, heuristics=chosen_heuristics(INSTANCE, ["gpipe"]))
    clock = _EndingClock(60.0)
    (step, *_) = steps.greedy_heuristics(turn)
    clock.looks = looks
    assert 0.0 <= step.share(replace(turn, clock=clock)) <= 1.0
