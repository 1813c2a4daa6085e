"""Stages that recompute: the same gradients, and steps as long as schedules say."""

from __future__ import annotations

from typing import Any

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.formats.program import FORMATS
from ppsolve.solver.formats.torch.checkpoint import checkpointed
from tests.formats.torch.world import World, least_seconds

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

GRADIENTS, TIMES = 1e-6, 0.05
"""Relative differences of gradients in float64, and of a step from its makespan."""


def pipeline(
    forward: list[int], backward: list[int], microbatches: int, **more: Any
) -> Any:
    """Return a pipeline whose stages may recompute all, or their first layer."""
    modes = [
        {"name": "full", "time": forward, "held": 0.1},
        {"name": "first", "time": [each // 2 for each in forward], "held": 0.5},
    ]
    memory = {"activation": 1, "recompute": {"modes": modes, "decide": "stage"}}
    return ppsolve.PipelineInstance(
        time_unit="ms",
        num_microbatches=microbatches,
        times={"forward": forward, "backward": backward},
        memory=memory | {"capacity": more.pop("capacity")},
        **more,
    )


CASES = {
    "three stages": pipeline(
        [90, 80, 60], [120, 130, 110], 5, num_devices=3, capacity=1.6
    ),
    "four stages": pipeline([80, 70, 90, 60], [100] * 4, 6, num_devices=4, capacity=2),
    "interleaved": pipeline(
        [60, 70, 60, 80],
        [90, 80, 100, 90],
        4,
        num_devices=2,
        stages_per_device=2,
        placement="interleaved",
        capacity=2.2,
    ),
}


def solved(name: str) -> Any:
    """Return the optimum of a case, in which some stage recomputes."""
    found = ppsolve.optimize(CASES[name], time_limit=20, deterministic=True)
    assert set(found.modes) != {"keep"}
    return found


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_model_in_one_piece(world: World, name: str) -> None:
    from tests.formats.torch.gradients import differences

    result = solved(name)
    given = type(result), result.model_dump_json()
    for form in FORMATS:
        found = world.run(differences, CASES[name].num_devices, result=given, form=form)
        assert max(max(pair) for pair in found) <= GRADIENTS


@pytest.mark.parametrize("name", CASES)
def test_steps_take_as_long_as_predicted(world: World, name: str) -> None:
    from tests.formats.torch.emulation import Stretch

    # Ops that sleep have no parts: all of a stage is recomputed, or nothing.
    instance = CASES[name]
    modes = [mode if mode != "first" else "full" for mode in solved(name).modes]
    recompute = instance.memory.recompute.model_copy(update={"decide": tuple(modes)})
    memory = instance.memory.model_copy(update={"recompute": recompute})
    result = ppsolve.optimize(
        instance.model_copy(update={"memory": memory}), time_limit=20
    )
    columns = zip(instance.times.forward, instance.times.backward, strict=True)
    stretches = [
        Stretch(float(f) / 1000, float(b) / 2000, float(b) / 2000) for f, b in columns
    ]
    # Nobody asks for the gradient of the input of the whole model.
    first = stretches[0]
    stretches[0] = Stretch(first.forward, 0.0, first.inputs + first.weights)
    taken = least_seconds(world, instance, result, stretches, FORMATS[0])
    assert taken == pytest.approx(float(result.makespan) / 1000, rel=TIMES)


def test_what_cannot_be_checkpointed_is_refused() -> None:
    result = solved("three stages")
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    assert checkpointed(result.model_copy(update={"modes": None}), 0, module) is module
    for modes, stage, parts, words in (
        (("full",), 1, None, "from 0 to 0"),
        (("offload",), 0, None, "got offload"),
        ((("full", "keep"),), 0, None, "each micro-batch"),
        (("full",), 0, {"full": ["1"]}, 'got "1"'),
    ):
        with pytest.raises(InputError, match=words):
            checkpointed(
                result.model_copy(update={"modes": modes}), stage, module, parts
            )
