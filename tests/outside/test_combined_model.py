"""The model of combined parts: rules by hand, and the plain model where there are no parts."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.outside.combined_model import combined_optimum
from tests.outside.generators import FAMILIES, drawn
from tests.outside.open_choices import choices_of
from tests.outside.plain_model import Instance, plain_optimum

LINE: Instance = {
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 1, "backward": 2},
}
ONE: Instance = LINE | {"num_microbatches": 1}


@pytest.mark.parametrize("family", FAMILIES)
def test_without_parts_it_is_the_plain_model(family: str) -> None:
    for seed in range(4):
        instance = drawn(family, seed)
        assert combined_optimum(instance) == plain_optimum(instance)


def test_slices_run_forwards_in_order_and_backwards_in_reverse() -> None:
    # Stage 1 works from 1 to 1 + 2 + 4, the last backward of stage 0 takes 2 more.
    assert combined_optimum(ONE | {"slices": 2}) == 1 + 2 + 4 + 2


def test_a_micro_batch_is_recomputed_slice_by_slice() -> None:
    mode = {"name": "full", "time": 3}
    recompute = {"modes": [mode], "decide": ["keep", "full"]}
    memory = {"capacity": [2, 1], "activation": 1, "recompute": recompute}
    sliced = ONE | {"slices": 2, "memory": memory}
    assert combined_optimum(sliced) == 1 + 2 + 2 * (3 + 2) + 2
    # An op of its own needs room before the backward that gives room back.
    anytime = recompute | {"place": "anytime"}
    later = sliced | {"memory": memory | {"recompute": anytime}}
    assert combined_optimum(later) == 1 + 2 + 2 * (3 + 2) + 2


def test_layers_are_recomputed_one_by_one() -> None:
    body = {"count": 3, "forward": 1, "backward": 2, "activation": 1}
    layers = {"body": body, "recompute": [{"name": "full", "time": 1}]}
    pipeline = {"num_devices": 1, "num_microbatches": 1, "layers": layers}
    assert len(list(choices_of(pipeline))) == 4
    tight = pipeline | {"memory": {"capacity": 1}}
    assert combined_optimum(tight) == 3 * (1 + 2) + 2
    assert combined_optimum(tight | {"steps": 2}) == 2 * (3 * (1 + 2) + 2)


def test_a_block_shares_the_time_of_recomputing_by_its_ratio() -> None:
    pipeline = LINE | {"num_devices": 1, "placement": {"stage_to_device": [0]}}
    recompute = {"modes": [{"name": "full", "time": 3}], "decide": ["full"]}
    memory = {"capacity": 2, "activation": 1, "recompute": recompute}
    halved = pipeline | {"memory": memory, "overlap": {"ratio": 0.5}}
    # F0, then F1 with B0, then B1.
    assert combined_optimum(halved) == 1 + Fraction(1 + 2 + 3, 2) + 5
    timed = halved | {"overlap": {"time": 2}}
    assert combined_optimum(timed) == 1 + (2 + 3) + 5


def test_replicas_have_one_mode_and_micro_batches_take_theirs_along() -> None:
    recompute = {"modes": [{"name": "full", "time": 3}], "decide": "stage"}
    memory = {"capacity": 1, "activation": 1, "recompute": recompute}
    replicas = {"count": 2, "assignment": "free"}
    pipeline = LINE | {"memory": memory, "replicas": replicas}
    assert len(list(choices_of(pipeline))) == 4 * 2
    assert combined_optimum(pipeline) == plain_optimum(ONE)


def test_fillers_wait_for_all_slices_and_run_on_any_of_their_devices() -> None:
    filler = {"name": "x", "device": 0, "devices": [1], "pieces": [3], "after": "F0.0"}
    sliced = ONE | {"slices": 2, "fillers": [filler]}
    assert len(list(choices_of(sliced))) == 2
    # On device 0, from 2 to 5, while stage 1 works.
    assert combined_optimum(sliced) == 9
