"""Plans for a runtime, held to every split under every order that the runtime runs."""

from __future__ import annotations

import os
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.studies.plan.request import parse_request
from ppsolve.models.studies.plan.result import Plan, PlanRow, Rule
from tests.marks import first
from tests.studies.plan.runtime_oracle import (
    Found,
    Shape,
    best_of,
    orders,
    random_request,
)

FIRST_SEED = int(os.environ.get("PPSOLVE_FIRST_SEED", "0"))
"""Another number makes other requests."""

NEARLY = 1 + 1e-9


@pytest.mark.parametrize("seed", first(4, range(8)))
def test_a_plan_for_a_runtime_is_the_best_of_all_splits_and_orders(seed: int) -> None:
    _hold_to_enumeration(seed)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(60))
def test_many_plans_for_a_runtime(seed: int) -> None:
    _hold_to_enumeration(1000 + FIRST_SEED + seed)


def _hold_to_enumeration(seed: int) -> None:
    data, runtime = random_request(seed)
    assert wrong_claims(data, runtime) == []


def wrong_claims(data: dict[str, Any], runtime: str) -> list[str]:
    """Return what a plan of a request says that enumeration contradicts."""
    plan = ppsolve.plan(parse_request(data), runtime=runtime, time_limit=10)
    best = best_of(data, runtime)
    times = [found.time for found in best.values() if found.time is not None]
    wrong = [
        text for row in plan.table for text in _wrong_of_row(row, best[_shape_of(row)])
    ]
    if not times:
        return wrong + (["a plan that cannot be"] if plan.winner is not None else [])
    if plan.winner is None:
        claim = f"{plan.status}, enumeration finds {min(times)}"
        return [*wrong, claim] if plan.status is Status.INFEASIBLE else wrong
    step = plan.winner.step_time
    assert step is not None
    if step.high * NEARLY < min(times):
        wrong.append(f"reaches {step.high}, nothing is below {min(times)}")
    if plan.status is Status.OPTIMAL and step.high > min(times) * NEARLY:
        wrong.append(f"OPTIMAL {step.high}, enumeration finds {min(times)}")
    return wrong + _unattained(data, plan, step.high)


def _wrong_of_row(row: PlanRow, best: Found) -> list[str]:
    where = (
        f"{row.configuration.virtual_stages} per device, {row.configuration.recompute}"
    )
    if row.lost_by is Rule.MEMORY:
        shortage = row.memory
        assert shortage is not None
        wrong = [] if best.time is None else [f"{where}: said not to fit, {best} does"]
        if (
            shortage.needed is None
            or not shortage.available < shortage.needed <= best.peak
        ):
            wrong.append(f"{where}: {shortage}, the least peak is {best.peak}")
        return wrong
    if best.time is None:
        return []
    if row.step_time is not None and row.step_time.low > best.time * NEARLY:
        return [f"{where}: bound {row.step_time.low} above {best}"]
    return []


def _shape_of(row: PlanRow) -> Shape:
    c = row.configuration
    return Shape(c.virtual_stages, c.recompute, c.backward)


def _unattained(data: dict[str, Any], plan: Plan, value: float) -> list[str]:
    row = plan.winner
    assert row is not None
    assert row.layers_per_stage is not None
    profiles = (data["model"], *data["variants"])
    profile = next(p for p in profiles if p["recompute"] == row.configuration.recompute)
    timed = orders(
        data, profile, row.layers_per_stage, row.configuration.virtual_stages
    )
    room = data["cluster"].get("memory", 10**9)
    reached = {
        f"groups of {size}" if size else "1F1B": time
        for size, time, peak in timed
        if peak <= room
    }
    if reached.get(row.schedule_by or "") != pytest.approx(value, rel=1e-9):
        return [
            f"{row.layers_per_stage} by {row.schedule_by} takes {reached}, not {value}"
        ]
    return []
