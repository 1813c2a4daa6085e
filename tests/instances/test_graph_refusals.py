"""What a graph must not say: each refusal names the field, what is wrong, and what comes near."""

from __future__ import annotations

from typing import Any

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.graph import GraphInstance
from ppsolve.solver.api.kinds import lower

OPS = [
    {"id": "first", "duration": 1, "resources": ["device"]},
    {"id": "second", "duration": 1, "resources": ["device"]},
]
POOLS = [{"name": "memory", "capacity": 1}]


def refusal(**fields: Any) -> str:
    given = {"resources": ["device"], "ops": OPS, "pools": POOLS, **fields}
    with pytest.raises(InputError) as caught:
        GraphInstance.parse(given)
    return str(caught.value)


def with_op(**fields: Any) -> list[dict[str, Any]]:
    return [OPS[0], {**OPS[1], **fields}]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"ops": with_op(resources=["devise"])},
            'ops[1].resources: unknown resource "devise"; did you mean "device"?',
        ),
        (
            {"ops": with_op(acquire={"memroy": 1})},
            'ops[1].acquire: unknown pool "memroy"; did you mean "memory"?',
        ),
        (
            {"ops": with_op(release_at_end={"memroy": 1})},
            'ops[1].release_at_end: unknown pool "memroy"; did you mean "memory"?',
        ),
        (
            {"precedences": [{"before": "frist", "after": "second"}]},
            'precedences[0].before: unknown op "frist"; did you mean "first"?',
        ),
        (
            {"precedences": [{"before": "first", "after": "secnd"}]},
            'precedences[0].after: unknown op "secnd"; did you mean "second"?',
        ),
        (
            {
                "precedences": [
                    {"before": "first", "after": "second"},
                    {"before": "second", "after": "first"},
                ]
            },
            "precedences: expected no cycle, found first -> second -> first",
        ),
        (
            {"resources": ["device", "device"]},
            'resources: expected different names, "device" appears twice',
        ),
        (
            {"ops": with_op(id="first")},
            'ops: expected different names, "first" appears twice',
        ),
        (
            {"ops": with_op(resources=["device", "device"])},
            'ops[1].resources: expected different names, "device" appears twice',
        ),
        (
            {"pools": POOLS * 2},
            'pools: expected different names, "memory" appears twice',
        ),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], message: str) -> None:
    assert refusal(**fields) == message


def test_times_without_a_common_tick_are_rounded_up_unless_ticks_are_to_be_exact() -> (
    None
):
    ops = [{**OPS[0], "duration": 1e-18}, {**OPS[1], "duration": 1e9}]
    instance = GraphInstance.parse({"resources": ["device"], "ops": ops})
    with pytest.raises(InputError):
        lower(instance, exact=True)
    problem = lower(instance)
    assert problem.duration[0] == 1
    assert problem.scale.time(int(problem.duration[1])) >= 1e9
