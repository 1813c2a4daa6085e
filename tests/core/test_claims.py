"""States, bubbles, memory and heuristics of a document, held against its schedule."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from ppsolve.models.core.claims import agrees
from ppsolve.models.core.documents import parse_given
from ppsolve.models.core.problem import Problem
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api.kinds import lower, parse_instance
from tests.core.test_documents import bare, complaints, problem

__all__ = ["problem"]


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"status": "GREAT"}, "status is given as GREAT, expected OPTIMAL"),
        ({"status": "INFEASIBLE"}, "status is INFEASIBLE, but there is a schedule"),
        ({"status": "failed"}, "status is failed, but there is a schedule"),
        ({"bubble_ratio": 0.1}, "bubble_ratio is given as 0.1, the schedule has 1"),
        (
            {"bubble_over_compute": 0.1},
            "bubble_over_compute is given as 0.1, the schedule has 0",
        ),
        (
            {"peak_memory": {"m": 1}},
            'peak_memory has "m", the instance has no such pool',
        ),
        (
            {
                "value": 5,
                "heuristics": [{"name": "x", "status": "feasible", "value": 4}],
            },
            "x is feasible with value 4 ms, below the value 5 ms of the best",
        ),
        (
            {
                "value": 5,
                "heuristics": [
                    {"name": "x", "status": "feasible", "value": 6, "gap": 0.3}
                ],
            },
            "x is feasible with value 6 ms, its gap is given as 0.3, it is 0.2",
        ),
        (
            {"heuristics": [{"name": "x", "status": "fine"}]},
            "heuristics[0].status is given as fine",
        ),
    ],
)
def test_states_bubbles_and_heuristics_that_contradict_the_schedule(
    claims: dict[str, Any], message: str, problem: Problem
) -> None:
    found = complaints({"schedule": bare(0, 2), **claims}, problem)
    assert len(found) == 1
    assert found[0].startswith(f"objective: {message}")


@pytest.mark.parametrize("slack", [Fraction(0), Fraction(1, 10)])
def test_lists_agree_where_all_of_their_members_do(slack: Fraction) -> None:
    assert agrees([1, [2, "x"]], (1, (2, "x")), slack)
    for given in ([1, [3, "x"]], [1, [2, "y"]], [2, [2, "x"]], [1], 1):
        assert not agrees(given, (1, (2, "x")), slack)


def test_states_bubbles_and_heuristics_that_agree(problem: Problem) -> None:
    entries = [
        {"name": "a", "status": "feasible", "value": 6, "gap": 0.2},
        {"name": "b", "status": "feasible", "value": 5, "gap": 0},
        {"name": "c", "status": "infeasible", "value": 4},
        {"name": "d", "status": "failed"},
    ]
    claims = {
        "value": 5,
        "heuristics": entries,
        "bubble_ratio": 1,
        "bubble_over_compute": 0,
        "peak_memory": {},
    }
    assert (
        complaints({"schedule": bare(0, 2), **claims, "status": "FEASIBLE"}, problem)
        == []
    )
    assert complaints({"schedule": bare(0, 2), "status": "infeasible"}, problem) == []


@pytest.mark.parametrize(
    ("peaks", "message"),
    [
        ({"m": 3}, None),
        ({"m": 2}, "peak_memory of m is given as 2, the schedule has 3"),
        ({}, "peak_memory leaves m out, the schedule has 3"),
    ],
)
def test_peak_memory_is_compared_by_pool(
    peaks: dict[str, int], message: str | None
) -> None:
    op = {"id": "a", "duration": 2, "acquire": {"m": 3}}
    pools = [{"name": "m", "capacity": 4}]
    data = {
        "kind": "graph",
        "time_unit": "ms",
        "resources": [],
        "ops": [op],
        "pools": pools,
    }
    found = complaints(
        {"schedule": bare(0), "peak_memory": peaks}, lower(parse_instance(data))
    )
    assert found == ([] if message is None else [f"objective: {message}"])


def test_peak_memory_must_be_an_object(problem: Problem) -> None:
    with pytest.raises(InputError, match=r"peak_memory: expected an object, got 3"):
        parse_given({"schedule": bare(0, 2), "peak_memory": 3}, problem)
