"""Graph instances: lowering of every field and round trips."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.problem import FREE, Objective
from ppsolve.models.kinds.graph import GraphInstance, lower_graph
from ppsolve.solver.api.kinds import KINDS, known_kind, lower, parse_instance

DATA: dict[str, Any] = {
    "schema": 1,
    "kind": "graph",
    "name": "example",
    "time_unit": "ms",
    "resources": ["gpu", "link"],
    "ops": [
        {"id": "load", "duration": 1.5, "resources": ["link"], "release": 0.5},
        {
            "id": "run",
            "duration": 2,
            "resources": ["gpu", "link"],
            "acquire": {"hbm": 0.1, "host": 1},
            "release_at_end": {"host": 1},
        },
        {"id": "free", "duration": 0, "start": 7, "release_at_end": {"hbm": 0.1}},
    ],
    "precedences": [
        {"before": "load", "after": "run", "lag": 0.25},
        {"before": "run", "after": "free"},
    ],
    "pools": [
        {"name": "hbm", "capacity": 0.3, "initial": 0.2},
        {"name": "host", "capacity": 2},
    ],
    "objective": "device_span",
}


def test_times_are_lowered_to_one_exact_tick() -> None:
    problem = lower(parse_instance(DATA))
    assert problem.scale.tick == Fraction(1, 4)
    assert problem.scale.unit == "ms"
    assert problem.duration.tolist() == [6, 8, 0]
    assert problem.release.tolist() == [2, 0, 0]
    assert problem.pinned.tolist() == [FREE, FREE, 28]
    assert problem.lag.tolist() == [1, 0]


def test_ops_keep_their_order_names_and_resources() -> None:
    problem = lower(parse_instance(DATA))
    assert problem.op_names(np.arange(3)) == ["load", "run", "free"]
    assert [problem.resources_of(op).tolist() for op in range(3)] == [[1], [0, 1], []]
    assert [ops.tolist() for ops in problem.ops_by_resource] == [[1], [0, 1]]
    assert (problem.before.tolist(), problem.after.tolist()) == ([0, 1], [1, 2])
    assert problem.families == ()


def test_every_resource_counts_for_the_span() -> None:
    problem = lower(parse_instance(DATA))
    assert problem.span_resources.tolist() == [0, 1]
    assert problem.is_compute.tolist() == [True, True, False]
    assert problem.objective is Objective.DEVICE_SPAN
    assert problem.is_anchored


def test_pools_hold_exact_amounts() -> None:
    hbm, host = lower(parse_instance(DATA)).pools
    assert (hbm.name, hbm.capacity, hbm.initial) == (
        "hbm",
        Fraction(3, 10),
        Fraction(1, 5),
    )
    assert hbm.amounts == (Fraction(1, 10),)
    assert (hbm.acquire_op.tolist(), hbm.release_op.tolist()) == ([1], [2])
    assert (host.acquire_op.tolist(), host.release_op.tolist()) == ([1], [1])
    assert host.initial == 0


def test_every_pool_has_its_own_amounts() -> None:
    ops = [
        {"id": "a", "duration": 1, "acquire": {"m": 2, "n": 3}},
        {"id": "b", "duration": 1, "acquire": {"m": 3}, "release_at_end": {"m": 2}},
        {"id": "c", "duration": 1, "release_at_end": {"n": 3, "m": 3}},
    ]
    pools = [{"name": "n", "capacity": 9}, {"name": "m", "capacity": 9}]
    data = {"kind": "graph", "resources": [], "ops": ops, "pools": pools}
    found = {
        pool.name: [
            [(op, pool.amounts[index]) for op, index in zip(*events, strict=True)]
            for events in (
                (pool.acquire_op.tolist(), pool.acquire_amount.tolist()),
                (pool.release_op.tolist(), pool.release_amount.tolist()),
            )
        ]
        for pool in lower(parse_instance(data)).pools
    }
    assert list(found) == ["n", "m"]
    assert found["n"] == [[(0, 3)], [(2, 3)]]
    assert found["m"] == [[(0, 2), (1, 3)], [(1, 2), (2, 3)]]


def test_amounts_of_zero_are_no_events() -> None:
    op = {"id": "a", "duration": 1, "acquire": {"m": 0}}
    data = {
        "kind": "graph",
        "resources": [],
        "ops": [op],
        "pools": [{"name": "m", "capacity": 1}],
    }
    assert lower(parse_instance(data)).pools[0].acquire_op.tolist() == []


def test_smallest_graph() -> None:
    problem = lower(
        parse_instance(
            {"kind": "graph", "resources": [], "ops": [{"id": "a", "duration": 0}]}
        )
    )
    assert (problem.num_ops, problem.num_resources, len(problem.before)) == (1, 0, 0)
    assert problem.objective is Objective.MAKESPAN
    assert not problem.is_anchored


def test_round_trip() -> None:
    instance = GraphInstance.parse(DATA)
    assert GraphInstance.model_validate(instance.model_dump(mode="json")) == instance
    assert parse_instance(instance.model_dump(mode="json")) == instance
    assert lower_graph(instance).scale.tick == Fraction(1, 4)


@pytest.mark.parametrize("kind", list(KINDS))
def test_json_schema_names_the_fields_of_the_file(kind: str) -> None:
    schema = known_kind(kind).instance.model_json_schema(by_alias=True)
    assert {"schema", "kind", "name", "time_unit", "objective"} <= set(
        schema["properties"]
    )
    assert schema["additionalProperties"] is False
