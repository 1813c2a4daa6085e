"""The measured block of DeepSeek's profile: its optima, and what orders in use make of it."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.solver.api.kinds import load_instance
from tests.paths import ROOT

MEASURED_SPAN = 129_012
"""From the first to the last kernel of the block in the trace, us."""

FIGURES = {
    "span": {"optimum": 127_281, "original": 128_119, "inductor-default": 135_721},
    "busy": {"optimum": 125_363, "original": 126_409, "inductor-default": 134_479},
    "net": {"optimum": 124_286, "original": 124_286, "inductor-default": 127_299},
}
BEST_PASSES = ("sink-waits", "inductor-list-sink")


@cache
def block(name: str) -> OverlapInstance:
    instance = load_instance(
        ROOT / f"instances/overlap/measured/deepseek-block-{name}.json"
    )
    assert isinstance(instance, OverlapInstance)
    return instance


@pytest.mark.parametrize("name", FIGURES)
def test_optima_are_proved(name: str) -> None:
    result = ppsolve.optimize(block(name), heuristics=["original"])
    optimum = FIGURES[name]["optimum"]
    assert (result.status, result.value, result.bound) == (
        Status.OPTIMAL,
        optimum,
        optimum,
    )
    assert ppsolve.check(block(name), result) == []


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("order", ["original", "inductor-default"])
def test_orders_in_use(name: str, order: str) -> None:
    assert ppsolve.simulate(block(name), order).value == FIGURES[name][order]


@pytest.mark.parametrize("name", FIGURES)
def test_the_best_of_inductors_passes_leave_deepseeks_order_as_it_is(name: str) -> None:
    values = {ppsolve.simulate(block(name), order).value for order in BEST_PASSES}
    assert values == {FIGURES[name]["original"]}


def test_the_replay_is_within_a_percent_of_the_measured_span() -> None:
    replayed = ppsolve.simulate(block("span"), "original").value
    assert replayed is not None
    assert 0.99 * MEASURED_SPAN < replayed < MEASURED_SPAN


def test_only_the_durations_differ() -> None:
    for one, other in pairwise([block(name) for name in FIGURES]):
        assert [(n.name, n.kind, n.deps) for n in one.nodes] == [
            (n.name, n.kind, n.deps) for n in other.nodes
        ]
        assert sum(n.duration for n in one.nodes) >= sum(
            n.duration for n in other.nodes
        )
