"""Models made in Python refuse what is wrong as those read from files do: by an InputError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ppsolve
from ppsolve import InputError
from ppsolve.models.kinds.pipeline.fields import Memory, Times

SHAPE: dict[str, Any] = {"num_devices": 2, "num_microbatches": 2}
TIMES = {"forward": 1, "backward": 1}


@pytest.mark.parametrize(
    ("make", "field", "message"),
    [
        (lambda: ppsolve.PipelineInstance(**SHAPE), "times", "this field is required"),
        (
            lambda: ppsolve.PipelineInstance(**SHAPE, times=TIMES, tmies=1),
            "tmies",
            'unknown field "tmies"; did you mean "times"?',
        ),
        (
            lambda: ppsolve.PipelineInstance(
                **SHAPE, times={**TIMES, "backward": [1, -2]}
            ),
            "times.backward[1]",
            "expected a number >= 0, got -2",
        ),
        (
            lambda: ppsolve.PipelineInstance(**SHAPE, times={**TIMES, "backward": [1]}),
            "times.backward",
            "expected",
        ),
        (
            lambda: Times(forward=1),
            None,
            'expected either "backward", or both "backward_input" and "backward_weight"',
        ),
        (
            lambda: Memory(capacity="much", activation=1),
            "capacity",
            "expected a number or a list",
        ),
        (lambda: ppsolve.GraphInstance(ops=3), "resources", "this field is required"),
        (lambda: ppsolve.OverlapInstance(nodes=3), "nodes", "expected a list, got 3"),
        (
            lambda: ppsolve.KfacInstance(name=3),
            "name",
            "input should be a valid string, got 3",
        ),
        (lambda: ppsolve.PlanRequest(), "model", "this field is required"),
    ],
)
def test_a_wrong_field_is_named(
    make: Callable[[], Any], field: str | None, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.field == field
    assert caught.value.message.startswith(message)


def test_nothing_of_the_first_error_is_left_to_read() -> None:
    with pytest.raises(InputError) as caught:
        Times(forward=1)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
