"""One pipeline on several placements, from one table of times."""

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.collectives import Collectives
from ppsolve.models.kinds.pipeline.fields import ExplicitPlacement
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.studies.curve import optimize_placements, placements_of
from ppsolve.solver.studies.plan.placements import (
    NamedPlacement,
    on_layout,
)

TWO = PipelineInstance(
    name="two",
    num_devices=2,
    num_microbatches=2,
    times={"forward": [4, 2], "backward": 8},
    memory={"capacity": 4, "activation": [2, 1], "static": 1},
    allreduce=6,
)


def layers(forward, **fields):
    return PipelineInstance(
        name="layers",
        num_devices=2,
        num_microbatches=2,
        placement={"stage_to_device": [0] + [1] * (len(forward) - 1)},
        times={"forward": forward, "backward": 0},
        **fields,
    )


def test_each_device_keeps_its_work_split_evenly_over_its_stages():
    found = on_layout(TWO, NamedPlacement("vshape"))
    assert found.stage_to_device == (0, 1, 1, 0)
    assert found.times.forward == (2, 1, 1, 2)
    assert found.times.backward == 4
    assert found.memory.activation == (1, 0.5, 0.5, 1)
    assert (found.memory.static, found.allreduce) == (0.5, 3)
    assert found.memory.capacity == 4
    four = on_layout(TWO, NamedPlacement("interleaved", 4))
    assert four.times.forward == (1, 0.5) * 4


def test_what_recomputing_and_copies_take_is_split_like_activations():
    recompute = {"modes": [{"name": "full", "time": [4, 2], "held": 1}]}
    offload = {"amount": 1, "out": 2, "back": [2, 4]}
    memory = {"capacity": 4, "activation": [2, 1], "forward_peak": 3}
    memory |= {"recompute": recompute, "offload": offload}
    given = PipelineInstance(
        num_devices=2,
        num_microbatches=2,
        times={"forward": 4, "backward": 8},
        memory=memory,
    )
    found = on_layout(given, NamedPlacement("vshape")).memory
    mode, copies = found.recompute.modes[0], found.offload
    assert (found.forward_peak, mode.time, mode.held) == (1.5, (2, 1, 1, 2), 0.5)
    assert (copies.amount, copies.out, copies.back) == (0.5, 1, (1, 2, 2, 1))


def test_layers_say_what_the_new_stages_take():
    """Five layers and a head of 3: two stages have 3 and 2 + 3, four have 2, 1, 1 and 1 + 3."""
    given = PipelineInstance.parse(
        {
            "kind": "pipeline",
            "num_devices": 2,
            "num_microbatches": 2,
            "layers": {
                "body": {"count": 5, "forward": 1, "backward": 2, "activation": 1},
                "last": {"forward": 3, "backward": 6},
            },
            "memory": {"capacity": 9},
        }
    )
    assert given.times.forward == (3, 5)
    found = on_layout(given, NamedPlacement("vshape"))
    assert (found.times.forward, found.memory.activation) == (
        (2, 1, 1, 4),
        (2, 1, 1, 1),
    )


@pytest.mark.parametrize("name", ["linear", "bidirectional"])
def test_one_stage_per_device_stays_as_it_is(name):
    found = on_layout(TWO, NamedPlacement(name))
    assert (found.times, found.memory, found.placement) == (TWO.times, TWO.memory, name)


def test_the_stage_of_a_device_is_found_where_placements_are_written_out():
    placement = ExplicitPlacement(stage_to_device=(1, 0))
    turned = TWO.model_copy(update={"placement": placement})
    assert on_layout(turned, NamedPlacement("linear")).times.forward == (2, 4)


def test_layers_form_stages_whose_slowest_device_is_fastest():
    """1 + 1 + 1 | 4 + 1 | is 5 at most; no device can do with 4 of 8, as 4 stands alone or not."""
    found = on_layout(layers([1, 1, 1, 4, 1]), NamedPlacement("linear"))
    assert found.times.forward == (3, 5)
    assert found.times.backward == (0, 0)


def test_layers_of_a_v_balance_devices_not_stages():
    """Stages 0 and 3 lie on device 0, stages 1 and 2 on device 1: 1 + 3 beside 2 + 2."""
    found = on_layout(layers([1, 2, 2, 3]), NamedPlacement("vshape"))
    assert found.times.forward == (1, 2, 2, 3)
    uneven = on_layout(
        layers([3, 1, 1, 1, 1, 1]), NamedPlacement("vshape")
    ).times.forward
    assert uneven[0] + uneven[3] == uneven[1] + uneven[2] == 4


def test_figures_of_a_stage_are_sums_over_its_layers_and_transfers_those_between_them():
    given = layers(
        [2, 2, 4],
        memory={"capacity": 9, "activation": [1, 2, 3], "static": 1},
        optimizer=1,
        p2p={"mode": "link", "bytes": [10, 20], "bandwidth": 1},
    )
    found = on_layout(given, NamedPlacement("linear"))
    assert found.times.forward == (4, 4)
    assert (found.memory.activation, found.memory.static) == ((3, 3), (2, 1))
    assert (found.optimizer, found.p2p.bytes) == ((2, 1), (20,))


def test_results_come_best_first():
    """Two devices, four micro-batches of 2 and 4: linear ends at 30, a V of halves at 27."""
    equal = PipelineInstance(
        name="equal",
        num_devices=2,
        num_microbatches=4,
        times={"forward": 2, "backward": 4},
    )
    found = ppsolve.optimize_placements(
        equal, ["linear", "vshape", "linear"], time_limit=20
    )
    assert [(r.instance, r.value, r.status) for r in found] == [
        ("equal vshape", 27, "OPTIMAL"),
        ("equal linear", 30, "OPTIMAL"),
    ]


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("zigzag", "expected linear, interleaved, vshape, wave, bidirectional"),
        ("vshpae", 'got "vshpae"; did you mean'),
        ("wave:0", 'expected stages per device, a whole number >= 1, got "0"'),
        ("wave:x", 'a whole number >= 1, got "x"'),
        ("vshape:3", "stages_per_device: expected 2 with placement"),
    ],
)
def test_placements_that_are_none_are_refused(layout, words):
    with pytest.raises(InputError) as caught:
        placements_of(TWO, [layout])
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("instance", "layout", "words"),
    [
        (
            layers([1, 1, 1]),
            "vshape",
            "layers: placement: expected at most 3 stages, one of the",
        ),
        (
            TWO.model_copy(update={"collectives": Collectives()}),
            "vshape",
            "two: collectives: expected none where stages are split",
        ),
        (
            layers([1, [1, 2], 1]),
            "linear",
            "layers: times.forward: expected amounts that are",
        ),
        (
            layers(
                [1, 1, 1], memory={"capacity": 9, "activation": 1, "forward_peak": 2}
            ),
            "linear",
            "layers: memory.forward_peak: expected none where layers are grouped",
        ),
        (
            layers([1, 1, 1], collectives={}),
            "linear",
            "layers: collectives: expected none where",
        ),
        (
            ppsolve.GraphInstance(
                name="g", resources=[], ops=[{"id": "x", "duration": 1}]
            ),
            "linear",
            'g: expected a pipeline, this is of kind "graph"',
        ),
    ],
)
def test_what_has_no_known_parts_is_refused(instance, layout, words):
    with pytest.raises(InputError) as caught:
        on_layout(instance, NamedPlacement.read(layout))
    assert words in str(caught.value)


def test_times_per_microbatch_or_over_lengths_have_no_parts():
    for entry in ([[4, 5], 2], {"per_token": 1}):
        given = PipelineInstance(
            num_devices=2,
            num_microbatches=2,
            lengths=[1, 2],
            times={"forward": entry, "backward": 8},
        )
        with pytest.raises(InputError, match="alike for all micro-batches"):
            on_layout(given, NamedPlacement("interleaved"))


def test_no_placement_at_all():
    with pytest.raises(InputError, match="--placements: expected at least one value"):
        optimize_placements(TWO, [])
