"""Requests with several profiles of a model, against one request for each profile."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.plan.request import parse_request
from ppsolve.models.studies.plan.result import Rule
from tests.marks import first
from tests.studies.plan.cases import document, planned, reduced_document


def varied(seed: int) -> dict[str, Any]:
    """Return a random request whose profiles differ in their devices, times and memory."""
    rng = random.Random(seed)
    data = reduced_document(seed)
    data["cluster"]["devices_per_node"] = 4
    data["variants"] = []
    for shared, recompute in ((2, "none"), (1, "full"), (2, "full")):
        layers = [dict(layer) for layer in data["model"]["layers"]]
        for layer in layers:
            layer["parameter_bytes"] /= shared
            layer["activation_bytes"] /= shared if recompute == "none" else 4 * shared
            layer["optimizer"] = rng.choice([0, 1, 2.5])
        variant = {"tensor_parallel": shared, "recompute": recompute}
        data["variants"].append(data["model"] | variant | {"layers": layers})
    return data


def alone(data: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the request of one profile, whose devices are written as groups."""
    model = dict([data["model"], *data["variants"]][number])
    shared = model.pop("tensor_parallel", 1)
    model.pop("recompute", None)
    cluster = data["cluster"] | {
        "devices_per_node": data["cluster"]["devices_per_node"] // shared
    }
    return data | {"model": model, "cluster": cluster, "variants": []}


@pytest.mark.parametrize("seed", first(1, [1, 2, 5, 8]))
def test_the_answer_is_the_best_of_the_separate_requests(seed: int) -> None:
    data = varied(seed)
    found = planned(data, finalists=60)
    each = [planned(alone(data, number), finalists=60) for number in range(4)]
    ranked = [
        (-one.goodput.low, number) for number, one in enumerate(each) if one.goodput
    ]
    reached, number = min(ranked)
    assert found.counts.enumerated == sum(one.counts.enumerated for one in each)
    assert found.counts.undecided == 0
    assert found.winner is not None
    assert found.goodput is not None
    assert found.goodput.low == -reached
    best, profile = each[number].winner, parse_request(data).profiles[number]
    assert best is not None
    variant = {
        "tensor_parallel": profile.tensor_parallel,
        "recompute": profile.recompute,
    }
    assert best.configuration.model_copy(update=variant) == found.winner.configuration
    assert best.layers_per_stage == found.winner.layers_per_stage


def test_a_plan_of_groups_by_hand() -> None:
    """Four layers of 3 on two devices: alone each has two of them, of 6; as a group all, of 8."""
    data = document(4, 1, 2, batch_sizes=[8], microbatch_sizes=[1])
    shared = [{"count": 4, "forward": 0.6, "backward": 1.4}]
    data["variants"] = [data["model"] | {"tensor_parallel": 2, "layers": shared}]
    found = planned(data)
    assert found.status is Status.OPTIMAL
    times = {
        (c.tensor_parallel, c.pipeline_depth, c.replicas): row.step_time.high
        for row in found.table
        if (c := row.configuration) and row.step_time is not None
    }
    # Two replicas run 4 micro-batches of 12 each, a pipeline 8 of 6 and fills for 2, drains for 4;
    # the group runs 8 of 8.
    assert times == {(1, 1, 2): 48, (1, 2, 1): 54, (2, 1, 1): 64}
    assert found.instance is not None
    assert found.winner is not None
    assert found.winner.configuration.variant == (1, "none")


def test_recomputation_wins_where_nothing_else_fits() -> None:
    data = document(4, 1, 1, batch_sizes=[8])
    data["cluster"]["memory"] = 7
    data["model"]["layers"][0] |= {"activation_bytes": 2}
    again = data["model"]["layers"][0] | {"backward": 3, "activation_bytes": 0.25}
    data["variants"] = [data["model"] | {"recompute": "full", "layers": [again]}]
    found = planned(data)
    assert found.winner is not None
    assert found.winner.configuration.recompute == "full"
    assert found.instance is not None
    assert found.instance.plan is not None
    assert found.instance.plan.recompute == "full"
    assert "tp1 full" in found.instance.name
    kept = [row for row in found.table if row.configuration.recompute == "none"]
    assert {row.lost_by for row in kept} == {Rule.MEMORY}
    assert all(
        "recomputation" in row.memory.may_help for row in kept if row.memory is not None
    )


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        (
            {"tensor_parallel": 3},
            "variants[0].tensor_parallel: expected a divisor of cluster.dev",
        ),
        (
            {},
            'variants[0]: expected a "tensor_parallel" or "recompute" that no profile before it',
        ),
        ({"recompute": "some"}, "variants[0].recompute: "),
        (
            {
                "recompute": "full",
                "layers": [{"count": 7, "forward": 1, "backward": 2}],
            },
            "variants[0].layers: expected the 8 layers of the model, got 7",
        ),
        (
            {"recompute": "full", "microbatch_sizes": [2, 1]},
            "variants[0].microbatch_sizes: exp",
        ),
        (
            {"recompute": "full", "layers": [{"forward": [1], "backward": 2}]},
            "variants[0].layers[0].forward: expected 2 numbers, one per micro-batch size, got 1",
        ),
    ],
)
def test_variants_that_are_none_are_refused(
    variant: dict[str, Any], words: str
) -> None:
    data = document()
    data["variants"] = [data["model"] | variant]
    with pytest.raises(InputError) as caught:
        parse_request(data)
    assert words in str(caught.value)


def test_the_model_may_need_groups_of_devices_too() -> None:
    data = document(pipeline_depths=[4])
    data["model"]["tensor_parallel"] = 4
    with pytest.raises(InputError) as caught:
        parse_request(data)
    assert "search.pipeline_depths[0]: expected at most 2 (2 devices" in str(
        caught.value
    )
    data["search"] = {"pipeline_depths": [2], "batch_sizes": [8]}
    found = planned(data)
    assert {row.configuration.replicas for row in found.table} == {1}
