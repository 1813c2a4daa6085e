"""Modes of a result as users see them."""

from __future__ import annotations

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.views.pipeline import _modes


def test_modes_of_more_stages_than_there_are_name_the_field() -> None:
    instance = ppsolve.parse_instance(
        {
            "kind": "pipeline",
            "num_devices": 2,
            "num_microbatches": 2,
            "times": {"forward": 1, "backward": 2},
            "memory": {
                "capacity": 1,
                "activation": 1,
                "recompute": {"modes": [{"name": "full", "time": 1, "held": 0}]},
            },
        }
    )
    result = ppsolve.optimize(instance, time_limit=5)
    assert list(_modes(result, instance))
    longer = result.model_copy(update={"modes": result.modes * 50})
    with pytest.raises(InputError, match="each of the 2 stages, got 100") as caught:
        list(_modes(longer, instance))
    assert caught.value.field == "modes"
