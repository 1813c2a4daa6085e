"""Starts by random list rules."""

from __future__ import annotations

import pytest

from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics import draws
from ppsolve.solver.heuristics.draws import RandomStarts
from ppsolve.solver.heuristics.rules import RuleBook
from ppsolve.solver.optimize.kinds import lower

V = PipelineInstance(
    num_devices=4,
    num_microbatches=8,
    placement="vshape",
    times={"forward": 3, "backward_input": 4, "backward_weight": 2},
    p2p={"latency": 1},
    memory={"capacity": 5, "activation": 0.5, "released_by_backward_weight": 0.43},
    objective="device_span",
)
LINEAR = V.model_copy(update={"placement": "linear"})


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few rules at once, as Python runs the kernels here."""
    monkeypatch.setattr(draws, "MOST_AT_ONCE", 20)


@pytest.mark.parametrize("instance", [V, LINEAR])
def test_starts_are_valid(instance: PipelineInstance) -> None:
    problem = lower(instance)
    drawn = RandomStarts(problem, 1)
    starts = [start for _ in range(3) if (start := drawn.next(Clock())) is not None]
    assert starts
    assert all(check_schedule(problem, start) == [] for start in starts)


def test_the_same_seed_draws_the_same_starts() -> None:
    problem = lower(V)
    first, second = RandomStarts(problem, 3), RandomStarts(problem, 3)
    for _ in range(2):
        one, other = first.next(Clock()), second.next(Clock())
        assert one is not None
        assert other is not None
        assert one.start.tolist() == other.start.tolist()


def test_values_are_given_once_the_best_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "compact_spans", lambda schedule, clock: schedule)
    drawn = RandomStarts(lower(V), 1)
    first = drawn.next(Clock())
    waiting = [schedule.value for schedule in drawn._kept]
    assert first is not None
    assert [first.value, *waiting] == sorted({first.value, *waiting})


def test_nothing_is_drawn_once_the_time_is_over() -> None:
    assert RandomStarts(lower(V), 1).next(Clock(0.0)) is None


def test_rules_that_get_stuck_are_left_out() -> None:
    # Memory for one micro-batch on each of two chunks.
    assert V.memory is not None
    tight = V.model_copy(update={"memory": V.memory.model_copy(update={"capacity": 1.0})})
    start = RandomStarts(lower(tight), 1).next(Clock())
    assert start is None or check_schedule(start.problem, start) == []


def test_starts_have_bursts_where_those_pay() -> None:
    for instance, pays in ((V, True), (LINEAR, False)):
        recipes = RuleBook(lower(instance)).starts(1)
        assert any(next(recipes).burst is not None for _ in range(9)) == pays
