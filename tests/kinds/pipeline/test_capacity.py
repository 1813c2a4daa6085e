"""Capacities in activations: 1p is what 1F1B holds on its first device."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pytest

import ppsolve
from ppsolve import InputError, PipelineInstance
from ppsolve.solver.studies.generate.flags import PerDevice
from ppsolve.solver.studies.generate.instances import generate


def pipeline(capacity: Any, activation: Any = 2, **fields: Any) -> PipelineInstance:
    given = {
        "num_devices": 4,
        "num_microbatches": 6,
        "times": {"forward": 1, "backward": 2},
    }
    memory = {"capacity": capacity, "activation": activation}
    return PipelineInstance(**{**given, "memory": memory, **fields})


@pytest.mark.parametrize(
    ("text", "fields", "amount"),
    [
        ("1p", {}, 8),
        ("p", {}, 8),
        (" 1.25P ", {}, 10),
        ("0.3p", {"activation": 0.1}, 0.12),
        ("1p", {"placement": "vshape"}, 16),
        ("1p", {"placement": "interleaved"}, 16),
        ("1p", {"placement": "interleaved", "stages_per_device": 3}, 24),
        ("1p", {"placement": {"stage_to_device": [0, 1, 2, 3, 0]}}, 10),
        (["1p", 3, "0.5p", 1], {}, (8, 3, 4, 1)),
        ("1p", {"activation": [2] * 4}, 8),
    ],
)
def test_amounts(text: Any, fields: dict[str, Any], amount: Any) -> None:
    found = pipeline(text, **fields).memory
    assert found is not None
    wanted = amount if isinstance(amount, tuple) else Decimal(str(amount))
    assert found.capacity == wanted


def test_1p_is_what_one_forward_one_backward_holds() -> None:
    entry = ppsolve.simulate(pipeline("1p"), "1f1b")
    assert entry.status == "feasible"
    assert entry.peak_memory == {f"device {d}": 2.0 * (4 - d) for d in range(4)}
    assert ppsolve.simulate(pipeline("0.99p"), "1f1b").status == "infeasible"


def test_it_is_the_same_multiple_as_that_of_generate() -> None:
    shape = {"devices": 4, "microbatches": 6, "placement": "vshape"}
    made = generate(seed=1, **shape, capacity=PerDevice(Decimal("1.25")))
    data = json.loads(made.model_dump_json())
    data["memory"]["capacity"] = "1.25 p"
    assert PipelineInstance.parse(data) == made


@pytest.mark.parametrize(
    ("capacity", "activation", "message"),
    [
        ("xp", 2, 'memory.capacity: expected an amount, or a multiple such as "1.25p"'),
        ("5", 2, 'memory.capacity: expected an amount, or a multiple such as "1.25p"'),
        (
            "-1p",
            2,
            'memory.capacity: expected an amount, or a multiple such as "1.25p"',
        ),
        (
            "1p",
            [2, 1] * 2,
            "memory.capacity: expected an amount, not 1p, where activations differ",
        ),
        ("1p", "y", "memory.activation: expected a number"),
        ("1p", -1, "memory.activation: expected a number >= 0"),
    ],
)
def test_what_is_none_is_refused(capacity: Any, activation: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        pipeline(capacity, activation)
    assert message in str(caught.value)


def test_other_fields_are_refused_by_themselves() -> None:
    with pytest.raises(InputError, match="num_devices: expected a whole number"):
        pipeline("1p", num_devices="four")
    with pytest.raises(InputError, match=r"memory\.activation: this field is required"):
        pipeline("1p", memory={"capacity": "1p"})


def test_the_schema_knows_it() -> None:
    capacity = PipelineInstance.model_json_schema()["$defs"]["Memory"]["properties"][
        "capacity"
    ]
    *others, multiple = capacity["anyOf"]
    assert multiple["type"] == "string"
    assert re.fullmatch(multiple["pattern"], "1.25p")
    assert multiple in others[-1]["items"]["anyOf"]


def test_interleaved_stages_are_two_per_device_as_those_of_a_v() -> None:
    counts = {
        name: pipeline(8, placement=name).num_stages
        for name in ("interleaved", "vshape", "linear")
    }
    assert counts == {"interleaved": 8, "vshape": 8, "linear": 4}
