"""Memory that counts along the order: against every order, and every message about it."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import instance_text
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from tests.kinds.overlap.bruteforce import (
    Document,
    Graph,
    optimum,
    random_document,
    with_buffers,
)
from tests.kinds.overlap.cases import program
from tests.marks import first


def drawn(seed: int) -> Document:
    rng = random.Random(seed)
    return with_buffers(rng, random_document(rng))


@pytest.mark.parametrize("seed", first(5, range(250)))
def test_the_optimum_is_that_of_all_orders(seed: int) -> None:
    document = drawn(seed)
    best, graph = optimum(document), Graph(document)
    instance = OverlapInstance.parse(document)
    result: Any = ppsolve.optimize(instance, time_limit=20, workers=1)
    if best.makespan is None:
        assert (result.status, result.value) == (Status.INFEASIBLE, None)
        return
    assert result.status is Status.OPTIMAL
    assert abs(Fraction(result.value) - best.makespan) < Fraction(1, 10**9)
    order = tuple(graph.names.index(name) for name in result.order)
    assert graph.is_valid(order)
    assert graph.peak_along(order) == Fraction(result.peak_live_bytes)
    assert not ppsolve.check(instance, result)


@pytest.mark.parametrize("seed", range(6))
def test_an_instance_survives_its_text(seed: int) -> None:
    instance = OverlapInstance.parse(drawn(seed))
    assert OverlapInstance.parse(json.loads(instance_text(instance))) == instance


STEP = [
    {"name": "g", "kind": "comm", "duration": 4},
    {"name": "k", "kind": "compute", "duration": 3},
    {"name": "w", "kind": "wait", "deps": ["g"]},
    {"name": "u", "kind": "compute", "duration": 2, "deps": ["w", "k"]},
]
BUFFERS = [
    {"bytes": 5, "users": ["k"]},
    {"bytes": 4, "producer": "g", "users": ["w", "u"]},
    {"bytes": 2, "producer": "k", "users": ["u"]},
    {"bytes": 1, "producer": "u", "kept": True},
]


@pytest.mark.parametrize(("cap", "makespan"), [(11, 6), (10, 9), (7, 9)])
def test_by_hand(cap: int, makespan: int) -> None:
    """While k runs its input and output are there: with the gathered weights 11 bytes."""
    found = ppsolve.optimize(program(*STEP, buffers=BUFFERS, max_live_bytes=cap))
    assert (found.status, found.value) == (Status.OPTIMAL, makespan)


def test_less_than_any_order_holds_is_infeasible() -> None:
    found = ppsolve.optimize(program(*STEP, buffers=BUFFERS, max_live_bytes=6))
    assert found.status is Status.INFEASIBLE


def test_what_stays_before_is_kept() -> None:
    nodes = [*STEP[:2], {**STEP[2]}, {**STEP[3]}]
    nodes[1] = {**nodes[1], "after": ["g"]}
    late = program(nodes[1] | {"after": []}, nodes[0] | {"after": ["k"]}, *nodes[2:])
    assert ppsolve.optimize(program(*nodes)).value == 6
    assert ppsolve.optimize(late).value == 9


def test_the_least_peak_counts_buffers() -> None:
    instance = program(*STEP, buffers=BUFFERS, objective="makespan_then_bytes")
    found: Any = ppsolve.optimize(instance)
    assert (found.value, found.peak_live_bytes) == (6, 11)


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown": ({"bytes": 1, "users": ["kk"]}, "buffers[0]", 'unknown node "kk"'),
    "early": (
        {"bytes": 1, "producer": "u", "users": ["k"]},
        "buffers[0]",
        "before the producer",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_buffer_is_refused(case: str) -> None:
    buffer, field, text = WRONG[case]
    with pytest.raises(InputError, match=field.replace("[", r"\[")) as told:
        program(*STEP, buffers=[buffer])
    assert text in str(told.value)


def test_outputs_and_buffers_together_are_refused() -> None:
    with pytest.raises(InputError, match=r"nodes\[0\]\.bytes"):
        program({**STEP[0], "bytes": 3}, *STEP[1:], buffers=[])


def test_a_node_stays_after_earlier_ones_only() -> None:
    with pytest.raises(InputError, match=r"nodes\[0\]\.after\[0\].*comes later"):
        program({**STEP[0], "after": ["k"]}, *STEP[1:])
