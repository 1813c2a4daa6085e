"""Bounds on modes by single devices: none is above the optimum of a choice that it covers."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.modes import CHOSEN_MODES
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.kinds.pipeline.choice_bounds import INFEASIBLE
from ppsolve.solver.kinds.pipeline.open.beams import ChoiceBeams
from ppsolve.solver.kinds.pipeline.open.device_frontiers import device_frontiers
from ppsolve.solver.kinds.pipeline.open.space import PipelineSpace, is_decided
from ppsolve.solver.kinds.pipeline.open.tree import ChoiceTree
from ppsolve.solver.run.params import ModesParams
from tests.marks import later
from tests.outside.combined_model import combined_optimum

MANY = later("fuzz", (0, *range(4, 300)))
OPEN = -1


def drawn(draw: Random) -> dict[str, Any]:
    """Return a small pipeline in tight memory that leaves the modes of its stages open."""
    devices = draw.randint(1, 3)
    per_device = draw.randint(1, 2 if devices < 3 else 1)
    stages = devices * per_device

    def times(factor: int = 1) -> list[int]:
        return [draw.randint(1, 4 * factor) for _ in range(stages)]

    held = [draw.choice([0.25, 0.5]) for _ in range(stages)]
    modes = [{"name": "full", "time": times(), "held": held}]
    if stages < 3:
        some = {"name": "some", "time": times(), "held": 0.75}
        modes.append(some)
    data: dict[str, Any] = {
        "num_devices": devices,
        "num_microbatches": draw.randint(2, 4 if stages < 4 else 3),
        "placement": "linear"
        if per_device == 1
        else draw.choice(["interleaved", "vshape"]),
        "stages_per_device": per_device,
        "times": {"forward": times(), "backward": times(2)},
        "p2p": {"latency": draw.randint(0, 2)},
        "memory": {
            "activation": 1,
            "capacity": per_device * draw.choice([1, 1.25, 1.5, 2]),
            "recompute": {"modes": modes, "decide": "stage"},
        },
    }
    if draw.random() < 0.6:
        data["times"] |= {"backward_input": times(), "backward_weight": times()}
        del data["times"]["backward"]
        data["memory"]["released_by_backward_weight"] = draw.choice([0, 0.5, 1])
    if draw.random() < 0.2:
        data["memory"]["offload"] = {"amount": 0.75, "out": 2, "back": 1}
    return data


def optima(data: dict[str, Any]) -> dict[tuple[int, ...], Fraction]:
    """Return the optimum of each whole choice that has a schedule."""
    space = PipelineSpace(PipelineInstance.parse(data))
    names = space.decision(CHOSEN_MODES).modes.names  # type: ignore[attr-defined]
    best = {}
    for modes in product(range(len(names)), repeat=len(space.open[CHOSEN_MODES])):
        fixed = json.loads(json.dumps(data))
        for part in ("recompute", "offload"):
            if part in fixed["memory"]:
                fixed["memory"][part]["decide"] = [names[mode] for mode in modes]
        value = combined_optimum(fixed)
        if value is not None:
            best[modes] = Fraction(value)
    return best


@pytest.mark.parametrize("seed", [1, 2, 3, *MANY])
def test_no_bound_is_above_the_optimum(seed: int) -> None:
    draw = Random(seed)
    data = drawn(draw)
    space = PipelineSpace(PipelineInstance.parse(data))
    devices = device_frontiers(space)
    assert devices is not None
    best, tick = optima(data), space.scale.tick
    for modes in list(best):
        covering = tuple(mode if draw.random() < 0.8 else OPEN for mode in modes)
        for part in (modes, covering):
            choice = np.repeat(np.array(part)[:, None], data["num_microbatches"], 1)
            for floor in (draw.randint(0, 20), 0):
                bound = devices.bound(choice, floor, INFEASIBLE)
                assert bound == floor or bound * tick <= best[modes]


@pytest.mark.parametrize("seed", [1, 3, *MANY[:100]])
def test_beams_and_branches_end_at_the_optimum(seed: int) -> None:
    data = drawn(Random(seed))
    space, board, params = (
        PipelineSpace(PipelineInstance.parse(data)),
        Board(),
        ModesParams(),
    )
    devices = device_frontiers(space)
    ChoiceBeams(space, board, 0, params, devices).run(Clock())
    limits = SearchLimits(seconds=20)
    ChoiceTree(space, board, limits, params, devices).run(Clock(20.0))
    best = combined_optimum(data)
    assert (board.value is None) == (best is None)
    if best is not None and board.value is not None:
        assert board.bound.value == board.value
        assert board.value * space.scale.tick == best


@pytest.mark.parametrize("seed", range(1, 6))
def test_what_bounds_rule_out_leaves_no_choice_in_part(seed: int) -> None:
    """No schedule is shorter than a time unit, so that no mode of a device is left."""
    space = PipelineSpace(PipelineInstance.parse(drawn(Random(seed))))
    devices, shorter = device_frontiers(space), SimpleNamespace(value=1)
    assert devices is not None
    beams = ChoiceBeams(space, cast("Board", shorter), 0, ModesParams(), devices)
    leaves = beams._least_bounds(devices, Clock())
    assert all(is_decided(choices) for choices in leaves)
