"""Changes of a pipeline: each axis against the pipeline written by hand, and what it refuses."""

from decimal import Decimal

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.studies.changes import AXES, changes_of, shown

RECOMPUTE = {"modes": [{"name": "full", "time": 2, "held": 0}], "decide": "stage"}
FIELDS = {
    "name": "two",
    "num_devices": 2,
    "num_microbatches": 3,
    "times": {"forward": [2, 4], "backward": 6},
    "p2p": {"mode": "link", "latency": [[0, 1], [2, 0]], "bytes": [8], "bandwidth": 4},
    "memory": {"capacity": 2, "activation": 1, "recompute": RECOMPUTE},
}
OFFLOAD = {"amount": 1, "out": 1, "back": 1}


def pipeline(**fields):
    return PipelineInstance(**(FIELDS | fields))


def memory(**fields):
    return FIELDS["memory"] | fields


def only(axis, value):
    (change,) = changes_of(axis, value)
    return change


@pytest.mark.parametrize(
    ("axis", "value", "fields"),
    [
        ("microbatches", 5, {"num_microbatches": 5}),
        ("capacity", "1.5p", {"memory": memory(capacity=3)}),
        ("capacity", 2.5, {"memory": memory(capacity=2.5)}),
        ("recompute", "none", {"memory": {"capacity": 2, "activation": 1}}),
        (
            "recompute",
            "all",
            {"memory": memory(recompute=RECOMPUTE | {"decide": "all"})},
        ),
        (
            "comm",
            "x0.5",
            {"p2p": FIELDS["p2p"] | {"latency": [[0, 0.5], [1, 0]], "bytes": [4]}},
        ),
        (
            "slow",
            "1x1.5",
            {
                "times": {"forward": [2, 6], "backward": [6, 9]},
                "memory": memory(
                    recompute=RECOMPUTE
                    | {"modes": [{"name": "full", "time": [2, 3], "held": 0}]}
                ),
            },
        ),
    ],
)
def test_a_change_is_the_pipeline_written_by_hand(axis, value, fields):
    assert only(axis, value)(pipeline()) == pipeline(**fields)


def test_a_placement_halves_the_stages_and_their_recomputing():
    found = only("placements", "v")(pipeline(p2p={"latency": 1}))
    assert found.placement == "vshape"
    assert found.times.forward == (1, 2, 2, 1)
    assert found.memory.recompute.modes[0].time == 1


def test_all_that_communicates_takes_longer_together():
    given = pipeline(
        p2p={"latency": 1},
        memory=None,
        collectives={
            "forward": {"segments": 2, "allreduce": [1, 2]},
            "reduce_scatter": 4,
            "all_gather": 6,
        },
    )
    found = only("comm", "x2")(given)
    assert (found.p2p.latency, found.times) == (2, given.times)
    assert (
        found.collectives.forward.allreduce,
        found.collectives.forward.segments,
    ) == ((2, 4), 2)
    assert (found.collectives.reduce_scatter, found.collectives.all_gather) == (8, 12)
    assert only("comm", "x3")(pipeline(p2p={}, allreduce=2)).allreduce == 6


def test_costs_over_lengths_are_multiplied_in_every_part():
    cost = {"per_token": 2, "constant": 4}
    given = pipeline(
        lengths=[1, 2, 3], times={"forward": cost, "backward": 6}, memory=None
    )
    slow = only("slow", "0x0.5")(given).times.forward
    assert [(part.per_token, part.constant) for part in slow] == [(1, 2), (2, 4)]


def test_slices_divide_numbers_and_leave_costs_over_lengths():
    cost = {"per_token": 2, "per_square": 1}
    fields = {"lengths": [8, 8, 8], "memory": None}
    given = pipeline(**fields, times={"forward": [cost, 4], "backward": 6})
    made = pipeline(
        **fields,
        times={"forward": [cost, 2], "backward": 3},
        p2p=FIELDS["p2p"] | {"bytes": [4]},
        slices={"count": 2, "cuts": "balanced"},
    )
    assert only("slices", "2:balanced")(given) == made
    again = only("slices", 4)(made)
    assert (again.times.backward, again.num_slices, again.slices.cuts) == (
        1.5,
        4,
        "uniform",
    )
    rows = pipeline(memory=None, times={"forward": [[1, 2, 3], 1], "backward": 1})
    with pytest.raises(
        InputError, match=r"--slices times\.forward: expected one number or cost"
    ):
        only("slices", 3)(rows)
    with pytest.raises(
        InputError, match="--slices: expected slices such as 8 or 8:balanced"
    ):
        only("slices", "2:even")


def test_offloading_is_decided_with_recomputing():
    given = pipeline(memory=memory(offload=OFFLOAD))
    found = only("recompute", "microbatch")(given).memory
    assert (found.recompute.decide, found.offload.decide) == (
        "microbatch",
        "microbatch",
    )
    assert only("recompute", "none")(given).memory.offload is None


def test_values_are_read_once_each():
    values = [
        change.value for change in changes_of("capacity", ["1p:2p:0.5p", "1.50p,3", 3])
    ]
    assert values == ["1p", "1.5p", "2p", "3"]
    assert [each.value for each in changes_of("microbatches", range(2, 4))] == [
        "2",
        "3",
    ]
    assert [each.value for each in changes_of("slow", "0x2,1x1.5")] == ["0x2", "1x1.5"]


def test_capacities_may_have_a_unit_where_memory_has_one():
    read = [
        each.value for each in changes_of("capacity", ["70GB:90GB:10000MB", "1p"], "GB")
    ]
    assert read == ["70", "80", "90", "1p"]
    for name, text, unit in (("capacity", "70GB", ""), ("microbatches", "4GB", "GB")):
        with pytest.raises(InputError, match=f"^--{name}: expected a plain number "):
            changes_of(name, text, unit)
    for text in ("3 ms", "1:3ms"):
        with pytest.raises(
            InputError, match="--capacity: expected a number in GB, got"
        ):
            changes_of("capacity", text, "GB")


def test_curves_and_what_ifs_take_the_unit_of_the_instance():
    given = pipeline(memory=memory(unit="GB", capacity="4GB", activation=1))
    (point,) = ppsolve.curve(given, "capacity", ["6000MB"], time_limit=1).points
    assert point.at == 6
    rows = ppsolve.what_if(given, {"capacity": "6000MB"}, time_limit=1).rows
    assert rows[1].changes == {"capacity": "6"}


def test_words():
    assert shown([("microbatches", "8"), ("placements", "vshape"), ("mine", "")]) == (
        "8 micro-batches, vshape, mine"
    )
    assert all(axis.shown.format("VALUE").count("VALUE") == 1 for axis in AXES.values())


@pytest.mark.parametrize(
    ("axis", "value", "message"),
    [
        (
            "microbatches",
            "0",
            "two: --microbatches: expected a whole number >= 1, got 0",
        ),
        (
            "microbatches",
            "2p",
            "two: --microbatches: expected a whole number >= 1, got 2p",
        ),
        ("microbatches", "x", '--microbatches: expected a number, got "x"'),
        ("capacity", [], "--capacity: expected at least one value"),
        ("placements", "zigzag", "--placements: expected linear, interleaved, vshape"),
        ("placements", "vshape:3", "two: --placements stages_per_device: expected 2"),
        (
            "recompute",
            "some",
            "--recompute: expected one of none, all, stage, window, microbatch",
        ),
        ("comm", "0.5", '--comm: expected a factor such as x0.5, got "0.5"'),
        ("comm", "1x2", "--comm: expected a factor such as x0.5"),
        ("comm", "xy", '--comm: expected a number, got "y"'),
        ("slow", "x2", "--slow: expected a device and a factor such as 2x1.5"),
        ("slow", "2x1.5", "two: --slow: expected a device from 0 to 1, got 2"),
        ("microbatch", 2, 'unknown change "microbatch"; did you mean "microbatches"?'),
    ],
)
def test_what_is_no_change_is_named(axis, value, message):
    with pytest.raises(InputError) as caught:
        only(axis, value)(pipeline())
    assert str(caught.value).startswith(message)


LAYERS = {"body": {"count": 4, "forward": 1, "backward": 2, "activation": 1}}


@pytest.mark.parametrize(
    ("axis", "value", "fields", "message"),
    [
        (
            "capacity",
            "1p",
            {"memory": None},
            "two: --capacity memory: this pipeline has no memory",
        ),
        (
            "recompute",
            "stage",
            {"memory": {"capacity": 2, "activation": 1}},
            'two: --recompute memory: expected memory modes; add "recompute": {"modes": [',
        ),
        (
            "recompute",
            "none",
            {"memory": None},
            "two: --recompute memory: expected memory modes",
        ),
        ("comm", "x2", {"p2p": {}}, "two: --comm: expected transfers or collectives"),
        (
            "microbatches",
            "4",
            {"times": {"forward": [[1, 2, 3], 4], "backward": 6}},
            "two: --microbatches times.forward[0]: expected a number or 4 entries",
        ),
        (
            "slow",
            "1x2",
            {"placement": "bidirectional", "num_microbatches": 2},
            "two: --slow: expected stages with one device",
        ),
    ],
)
def test_what_a_pipeline_cannot_take_is_named(axis, value, fields, message):
    with pytest.raises(InputError) as caught:
        only(axis, value)(pipeline(**fields))
    assert str(caught.value).startswith(message)


def test_layers_have_no_slow_device():
    data = {
        "kind": "pipeline",
        "num_devices": 2,
        "num_microbatches": 2,
        "layers": LAYERS,
    }
    with pytest.raises(
        InputError, match="--slow: expected stages with one device and times"
    ):
        only("slow", "1x2")(PipelineInstance.parse(data))


def test_decimals_stay_what_they_are():
    given = pipeline(times={"forward": [0.1, 4], "backward": 6})
    assert only("slow", "0x1.1")(given).times.forward == (Decimal("0.11"), 4)


def test_fillers_take_longer_or_no_time():
    filler = {"name": "x", "device": 0, "pieces": [2, 3]}
    given = pipeline(memory=None, fillers=[filler])
    for text, pieces in (("x2", [4, 6]), ("x0", [0, 0])):
        expected = pipeline(memory=None, fillers=[{**filler, "pieces": pieces}])
        assert only("fillers", text)(given) == expected
