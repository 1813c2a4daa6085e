"""Exact orders of the published cases: frozen and free optima, proved, and replayed."""

from __future__ import annotations

from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.kinds.overlap.result import OverlapResult
from ppsolve.solver.kinds.overlap.replay import replay
from tests.kinds.overlap.cases import NAMES, NAMINGS, case

LISTED = {"frozen": "exact_fixed_comm_order", "free": "exact_free_comm_order"}


def solved(name: str, naming: str, order: str, **options: Any) -> OverlapResult:
    instance = case(name, naming).instance.model_copy(
        update={"collective_order": order}
    )
    result = ppsolve.optimize(instance, **options)
    assert isinstance(result, OverlapResult)
    return result


@pytest.mark.parametrize("order", LISTED)
@pytest.mark.parametrize("name", NAMES)
def test_listed_optima_are_proved(name: str, order: str) -> None:
    listed = case(name).expected[LISTED[order]]["makespan"]
    result = solved(name, "given_names", order)
    assert (result.status, result.value, result.bound) == (
        Status.OPTIMAL,
        listed,
        listed,
    )


@pytest.mark.parametrize("order", LISTED)
@pytest.mark.parametrize("name", NAMES)
def test_exact_search_alone_finds_orders_that_replay(name: str, order: str) -> None:
    result = solved(name, "given_names", order, heuristics=["original"])
    instance = case(name).instance
    assert result.status is Status.OPTIMAL
    assert result.order is not None
    places = [instance.index_of[node] for node in result.order]
    durations = [int(node.duration) for node in instance.nodes]
    assert replay(instance, places, durations).makespan == result.value


@pytest.mark.parametrize("name", NAMES)
def test_names_do_not_matter_to_the_optimum(name: str) -> None:
    values = {solved(name, naming, "free").value for naming in NAMINGS}
    assert len(values) == 1


def test_hand_made_cases() -> None:
    assert solved("I1_half_rule", "given_names", "frozen").value == 33
    assert solved("I2_frozen_comm_order", "given_names", "frozen").value == 40
    assert solved("I2_frozen_comm_order", "given_names", "free").value == 30
