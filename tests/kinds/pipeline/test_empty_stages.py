"""Stages that have none of the equal layers: the loss alone, the embedding alone, or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import Layers, open_chunks, split_by
from ppsolve.solver.formats.layers import parse_layout
from ppsolve.solver.formats.megatron import LayerTimes, instance_of
from ppsolve.solver.kinds.pipeline.layers.ordered import OrderedSplits
from ppsolve.solver.kinds.pipeline.layers.rules import first_rules
from ppsolve.solver.kinds.pipeline.published import PUBLISHED
from tests.kinds.pipeline.runtimes import split_oracle
from tests.paths import DATA

LOSS_ALONE = DATA / "stages" / "loss_alone.json"

ONE = {"forward": 1, "backward": 2}

NVIDIA = [2] * 35 + [3] + [2] * 3 + [1]
ALONE = [2] * 32 + [3] * 2 + [2] * 5 + [0]


def pipeline(count: int = 2, **layers: Any) -> dict[str, Any]:
    """Return a pipeline of two devices with two stages each."""
    ends = {
        "first": {"forward": 3, "backward": 3},
        "last": {"forward": 4, "backward": 8},
    }
    body = {"count": count, "forward": 2, "backward": 4}
    return {
        "num_devices": 2,
        "num_microbatches": 3,
        "placement": "interleaved",
        "stages_per_device": 2,
        "layers": {**ends, "body": body, **layers},
    }


def published(path: Path, least: int | list[int]) -> PipelineInstance:
    data = json.loads(path.read_text())
    data["layers"]["min_per_stage"] = least
    return PipelineInstance.parse(data)


@pytest.mark.parametrize(
    ("least", "count", "even"),
    [
        (1, 6, [2, 2, 1, 1]),
        (0, 6, [2, 2, 1, 1]),
        (0, 2, [1, 1, 0, 0]),
        ([0, 3, 1, 0], 6, [1, 3, 1, 1]),
        ([0, 3, 1, 0], 5, [1, 3, 1, 0]),
    ],
)
def test_even_splits_keep_to_the_least(least: Any, count: int, even: list[int]) -> None:
    layers = Layers.parse({"body": {"count": count, **ONE}, "min_per_stage": least})
    assert layers.evenly(4).tolist() == [even]


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({}, "layers.body.count", "at least 4 layers (one for each stage), got 2"),
        (
            {"min_per_stage": [3, 0, 0, 0]},
            "layers.body.count",
            "3 layers (min_per_stage)",
        ),
        ({"min_per_stage": [0, 0, 0]}, "layers.min_per_stage", "4 entries"),
        ({"min_per_stage": -1}, "layers.min_per_stage", "from 0 to 100000"),
        ({"min_per_stage": [0, 0.5, 0, 0]}, "layers.min_per_stage[1]", "whole number"),
    ],
)
def test_too_few_layers_are_refused(fields: Any, field: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        PipelineInstance.parse(pipeline(**fields))
    assert error.value.field == field
    assert words in str(error.value)


def test_a_layout_is_the_split_of_its_layers() -> None:
    """``E||t|L``: stages of the embedding, of nothing, of a layer, of the loss."""
    instance = PipelineInstance.parse(pipeline(1, min_per_stage=0))
    split = split_by(instance, np.array([[0, 0, 1, 0]]))
    ends = {
        "embedding": {"forward": 3, "backward": 3},
        "loss": {"forward": 4, "backward": 8},
    }
    times = {"num_microbatches": 3, "decoder": {"forward": 2, "backward": 4}, **ends}
    imported = instance_of(parse_layout("E||t|L", 2), LayerTimes.parse(times))
    assert imported.times == split.times
    assert split.times.forward == (3, 0, 2, 4)


def test_stages_of_nothing_take_no_time_and_the_result_names_them() -> None:
    # Device 0 has the embedding and both layers: 3 x (3 + 3 + 2 x (2 + 4)) = 54, without a break.
    instance = PipelineInstance.parse(pipeline(min_per_stage=0))
    result = ppsolve.optimize(instance, workers=1, time_limit=20)
    assert (result.status, result.value) == (Status.OPTIMAL, 54)
    assert result.layers == ({"keep": 1}, {}, {"keep": 1}, {})
    document = result.model_dump(by_alias=True, exclude_none=True)
    assert ppsolve.check(instance, document) == []
    needs_all = PipelineInstance.parse(pipeline(4))
    rows = [{"keep": 2}, {}, {"keep": 1}, {"keep": 1}]
    wrong = ppsolve.check(needs_all, document | {"layers": rows})
    assert any("at least one on each stage" in each.message for each in wrong)


@pytest.mark.parametrize(
    ("split", "time"), [(NVIDIA, 5746), ([2] * 40, 6196), (ALONE, 5447)]
)
def test_layouts_take_what_a_simulator_says(split: list[int], time: int) -> None:
    instance = published(LOSS_ALONE, [0, *[1] * 38, 0])
    heuristic = next(each for each in PUBLISHED if each.name == "interleaved-1f1b")
    splits = OrderedSplits.of_heuristic(instance, heuristic)
    assert splits.rate(np.array([split])) == time
    data = json.loads(LOSS_ALONE.read_text()) | {"p2p": {"latency": 0}}
    data["memory"] = {"capacity": 1}
    assert split_oracle.value_of(data, split, "keep", 0, 5, 8) == time


def test_the_first_layers_of_stages_are_fewer_than_one_stage_may_have() -> None:
    """Of 4 layers with one on each of three stages, a stage has at most 2."""
    body = {"count": 4, **ONE, "activation": 1}
    full = [{"name": "full", "time": 1}]
    for least, limits in (([1, 1, 1, 0], [1]), (0, [1, 2, 3]), (1, [])):
        fields = {"body": body, "recompute": full, "min_per_stage": least}
        rules = first_rules(Layers.parse(fields), 4)
        assert [rule.limit for rule in rules] == limits


def test_open_chunks_count_the_ends_where_stages_may_be_empty() -> None:
    data = pipeline(6, min_per_stage=0)
    for field in ("placement", "stages_per_device"):
        data.pop(field)
    assert open_chunks(PipelineInstance.parse(data)) == range(1, 5)
    data["layers"]["min_per_stage"] = 1
    assert open_chunks(PipelineInstance.parse(data)) == range(1, 4)
    data["layers"]["min_per_stage"] = [0, 1]
    assert open_chunks(PipelineInstance.parse(data)) == range(0)


@pytest.mark.fuzz
def test_the_loss_alone_saves_four_percent() -> None:
    values = []
    for least in (1, [0, *[1] * 38, 0]):
        instance = published(LOSS_ALONE, least)
        entry = ppsolve.simulate(instance, heuristic="split-interleaved-1f1b")
        values.append(entry.value)
    assert values[0] <= 5716
    assert values[1] <= 5447
