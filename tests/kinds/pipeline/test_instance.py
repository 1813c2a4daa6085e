"""Pipeline instances: placements, lowering of every feature, exact scales, round trips."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.core.problem import FREE, Objective, Problem
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower, parse_instance
from tests.marks import examples
from tests.strategies import tiny_instance

FUSED = {"forward": 1, "backward": 2}
SPLIT = {"forward": 1, "backward_input": 2, "backward_weight": 3}


def instance(**fields: Any) -> PipelineInstance:
    data = {"num_devices": 2, "num_microbatches": 2, "times": FUSED, **fields}
    return PipelineInstance.parse(data)


def lowered(**fields: Any) -> Problem:
    return lower(instance(**fields))


def edges(problem: Problem) -> dict[tuple[str, str], int]:
    """Lag of every precedence by the names of its ops."""
    pairs = zip(
        problem.op_names(problem.before), problem.op_names(problem.after), strict=True
    )
    return dict(zip(pairs, problem.lag.tolist(), strict=True))


def number(problem: Problem, name: str) -> int:
    return problem.op_names(np.arange(problem.num_ops)).index(name)


def resources(problem: Problem, name: str) -> list[str]:
    return [
        problem.resource_names[r] for r in problem.resources_of(number(problem, name))
    ]


@pytest.mark.parametrize(
    ("fields", "devices"),
    [
        ({"num_devices": 3}, (0, 1, 2)),
        ({"num_devices": 3, "stages_per_device": 1}, (0, 1, 2)),
        ({"placement": "interleaved", "stages_per_device": 3}, (0, 1, 0, 1, 0, 1)),
        ({"placement": "interleaved"}, (0, 1, 0, 1)),
        ({"placement": "interleaved", "stages_per_device": 1}, (0, 1)),
        (
            {"placement": "wave", "stages_per_device": 3, "num_devices": 2},
            (0, 1, 1, 0, 0, 1),
        ),
        ({"placement": "wave", "num_devices": 2}, (0, 1, 1, 0)),
        ({"placement": "wave", "stages_per_device": 1, "num_devices": 2}, (0, 1)),
        ({"placement": "vshape", "num_devices": 3}, (0, 1, 2, 2, 1, 0)),
        ({"placement": "vshape", "stages_per_device": 2, "num_devices": 1}, (0, 0)),
        ({"placement": {"stage_to_device": [0, 1, 1, 0]}}, (0, 1, 1, 0)),
        (
            {"placement": {"stage_to_device": [1, 0, 0]}, "stages_per_device": 1},
            (1, 0, 0),
        ),
        ({"placement": "bidirectional", "num_devices": 4}, (0, 1, 2, 3)),
    ],
)
def test_stage_to_device(fields: dict[str, Any], devices: tuple[int, ...]) -> None:
    made = instance(**fields)
    assert made.stage_to_device == devices
    assert made.num_stages == len(devices)


def test_bidirectional_pipes_run_each_way() -> None:
    made = instance(placement="bidirectional", num_devices=4, num_microbatches=4)
    assert made.stage_devices_of_pipes() == ((0, 1, 2, 3), (3, 2, 1, 0))
    assert made.pipe_of_microbatch.tolist() == [0, 0, 1, 1]
    assert made.device_grid[:, 0].tolist() == [0, 1, 2, 3]
    assert made.device_grid[:, 3].tolist() == [3, 2, 1, 0]


def test_fused_precedences() -> None:
    problem = lowered(num_microbatches=1)
    assert edges(problem) == {
        ("F0.0", "B0.0"): 0,
        ("F1.0", "B1.0"): 0,
        ("F0.0", "F1.0"): 0,
        ("B1.0", "B0.0"): 0,
    }
    assert problem.objective is Objective.MAKESPAN


def test_split_precedences_and_durations() -> None:
    problem = lowered(num_microbatches=1, times=SPLIT, objective="device_span")
    assert edges(problem) == {
        ("F0.0", "I0.0"): 0,
        ("F1.0", "I1.0"): 0,
        ("I0.0", "W0.0"): 0,
        ("I1.0", "W1.0"): 0,
        ("F0.0", "F1.0"): 0,
        ("I1.0", "I0.0"): 0,
    }
    assert problem.duration.tolist() == [1, 1, 2, 2, 3, 3]
    assert problem.objective is Objective.DEVICE_SPAN


def test_labels_and_resources() -> None:
    problem = lowered(placement="vshape", num_devices=2, num_microbatches=3)
    op = number(problem, "B2.1")
    labels = (problem.stage[op], problem.device[op], problem.microbatch[op])
    assert labels == (2, 1, 1)
    assert problem.kinds[problem.kind[op]] == "B"
    assert resources(problem, "B2.1") == ["device 1"]
    assert problem.span_resources.tolist() == [0, 1]
    assert problem.grid("F").shape == (4, 3)
    assert problem.op_name(int(problem.grid("F")[3, 2])) == "F3.2"


def test_times_per_stage_and_per_microbatch() -> None:
    problem = lowered(times={"forward": [1, [4, 5]], "backward": [2, 3]})
    assert problem.duration[problem.grid("F")].tolist() == [[1, 1], [4, 5]]
    assert problem.duration[problem.grid("B")].tolist() == [[2, 2], [3, 3]]


def test_scalar_delay_is_a_lag_between_devices_only() -> None:
    problem = lowered(placement="vshape", num_microbatches=1, p2p={"latency": 7})
    lags = edges(problem)
    assert lags["F0.0", "F1.0"] == lags["F2.0", "F3.0"] == lags["B1.0", "B0.0"] == 7
    assert lags["F1.0", "F2.0"] == lags["B2.0", "B1.0"] == 0
    assert lags["F0.0", "B0.0"] == 0
    assert problem.num_resources == 2


def test_matrix_delay_depends_on_the_direction() -> None:
    latency = [[99, 3], [5, 99]]
    lags = edges(lowered(num_microbatches=1, p2p={"latency": latency}))
    assert lags["F0.0", "F1.0"] == 3
    assert lags["B1.0", "B0.0"] == 5


def test_matrix_delay_of_bidirectional_pipes() -> None:
    p2p = {"latency": [[0, 3], [5, 0]]}
    lags = edges(lowered(placement="bidirectional", p2p=p2p))
    assert (lags["F0.0", "F1.0"], lags["B1.0", "B0.0"]) == (3, 5)
    assert (lags["F0.1", "F1.1"], lags["B1.1", "B0.1"]) == (5, 3)


def test_unused_latencies_do_not_refine_the_tick() -> None:
    latency = [[0.001, 3], [5, 0.001]]
    assert lowered(p2p={"latency": latency}).scale.tick == 1


def test_link_transfers_occupy_the_directed_link() -> None:
    p2p = {"mode": "link", "bytes": 6, "bandwidth": [[0, 2], [3, 0]], "latency": 1}
    problem = lowered(p2p=p2p)
    lags = edges(problem)
    assert resources(problem, "TF0.1") == ["link 0->1"]
    assert resources(problem, "TB1.0") == ["link 1->0"]
    assert problem.duration[number(problem, "TF0.0")] == 3
    assert problem.duration[number(problem, "TB1.0")] == 2
    assert (lags["F0.0", "TF0.0"], lags["TF0.0", "F1.0"]) == (0, 1)
    assert (lags["B1.1", "TB1.1"], lags["TB1.1", "B0.1"]) == (0, 1)
    assert ("F0.0", "F1.0") not in lags
    assert problem.span_resources.tolist() == [0, 1]


def test_link_transfers_skip_neighbours_on_one_device() -> None:
    p2p = {"mode": "link", "bytes": [1, 2, 3], "bandwidth": 1}
    problem = lowered(placement="vshape", num_microbatches=1, p2p=p2p, times=SPLIT)
    names = problem.op_names(np.arange(problem.num_ops))
    transfers = {
        name: int(problem.duration[names.index(name)])
        for name in names
        if name[0] == "T"
    }
    assert transfers == {"TF0.0": 1, "TB1.0": 1, "TF2.0": 3, "TB3.0": 3}
    assert edges(problem)["F1.0", "F2.0"] == 0
    assert edges(problem)["I2.0", "I1.0"] == 0
    assert ("I3.0", "TB3.0") in edges(problem)


def test_nic_transfers_occupy_both_ends() -> None:
    problem = lowered(num_devices=3, p2p={"mode": "nic", "bytes": 4, "bandwidth": 2})
    assert resources(problem, "TF1.0") == ["nic 1", "nic 2"]
    assert resources(problem, "TB1.0") == ["nic 1", "nic 0"]


def test_bidirectional_transfers_use_both_directions() -> None:
    p2p = {"mode": "link", "bytes": 1, "bandwidth": 1}
    problem = lowered(placement="bidirectional", p2p=p2p)
    assert resources(problem, "TF0.0") == ["link 0->1"]
    assert resources(problem, "TF0.1") == ["link 1->0"]
    assert problem.device[number(problem, "TF0.1")] == 1


def test_alike_microbatches_are_one_family() -> None:
    problem = lowered(num_microbatches=3)
    (family,) = problem.families
    assert family.shape == (3, 4)
    assert problem.op_names(family[1]) == ["F0.1", "F1.1", "B0.1", "B1.1"]


def test_transfers_belong_to_the_family() -> None:
    (family,) = lowered(p2p={"mode": "link", "bytes": 1, "bandwidth": 1}).families
    assert family.shape == (2, 6)


def test_one_family_per_pipe() -> None:
    problem = lowered(placement="bidirectional", num_microbatches=6)
    members = [problem.microbatch[family[:, 0]].tolist() for family in problem.families]
    assert members == [[0, 1, 2], [3, 4, 5]]


def test_overridden_microbatch_leaves_the_family() -> None:
    times = {"forward": [[1, 1, 9, 1], 1], "backward": 2}
    problem = lowered(num_microbatches=4, times=times)
    members = [problem.microbatch[family[:, 0]].tolist() for family in problem.families]
    assert members == [[0, 1, 3]]


def test_single_microbatch_has_no_family() -> None:
    assert lowered(num_microbatches=1).families == ()


def memory(**fields: Any) -> dict[str, Any]:
    return {"capacity": 4, "activation": 1, **fields}


def held(problem: Problem, device: int) -> dict[str, tuple[Fraction, ...]]:
    """Acquired and released amounts of one pool by op name."""
    pool = problem.pools[device]
    found: dict[str, tuple[Fraction, ...]] = {}
    for ops, amounts in (
        (pool.acquire_op, pool.acquire_amount),
        (pool.release_op, pool.release_amount),
    ):
        for op, index in zip(ops.tolist(), amounts.tolist(), strict=True):
            name = problem.op_name(op)
            found[name] = (*found.get(name, ()), pool.amounts[index])
    return found


def test_fused_backward_releases_everything() -> None:
    problem = lowered(num_microbatches=1, memory=memory(activation=[1, 2.5]))
    assert held(problem, 0) == {"F0.0": (1,), "B0.0": (1,)}
    assert held(problem, 1) == {"F1.0": (Fraction(5, 2),), "B1.0": (Fraction(5, 2),)}
    assert [pool.capacity for pool in problem.pools] == [4, 4]


def test_split_backward_shares_the_release_exactly() -> None:
    share = memory(released_by_backward_weight=0.43243243243243246)
    problem = lowered(num_microbatches=1, times=SPLIT, memory=share)
    weight = Fraction("0.43243243243243246")
    assert held(problem, 0) == {"F0.0": (1,), "I0.0": (1 - weight,), "W0.0": (weight,)}


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"optimizer": [1, [2]]}, "optimizer[1]"),
        ({"memory": {"capacity": [1, [2]], "activation": 1}}, "memory.capacity[1]"),
        ({"times": {"forward": [1, [2, [3]]], "backward": 1}}, "times.forward[1][1]"),
    ],
)
def test_a_list_that_is_too_deep_is_refused_where_it_is(
    fields: dict[str, Any], where: str
) -> None:
    with pytest.raises(InputError, match=r"expected a number,? or a list") as refused:
        instance(**fields)
    assert refused.value.field == where


@pytest.mark.parametrize(("share", "kind"), [(0, "I"), (1, "W")])
def test_one_backward_may_release_everything(share: int, kind: str) -> None:
    fields = memory(released_by_backward_weight=share)
    problem = lowered(num_microbatches=1, times=SPLIT, memory=fields)
    assert held(problem, 1) == {"F1.0": (1,), f"{kind}1.0": (1,)}


def test_weight_backward_releases_by_default() -> None:
    problem = lowered(num_microbatches=1, times=SPLIT, memory=memory())
    assert set(held(problem, 0)) == {"F0.0", "W0.0"}


def test_static_amounts_add_up_per_device() -> None:
    fields = memory(capacity=[8, 9], static=[1, 2, 4, 0.5])
    problem = lowered(placement="vshape", memory=fields)
    assert [pool.initial for pool in problem.pools] == [Fraction(3, 2), 6]
    assert [pool.capacity for pool in problem.pools] == [8, 9]
    assert set(held(problem, 0)) == {
        "F0.0",
        "F0.1",
        "F3.0",
        "F3.1",
        "B0.0",
        "B0.1",
        "B3.0",
        "B3.1",
    }


def test_bidirectional_pipes_hold_the_stages_of_both() -> None:
    """Device 1 of three is the middle of both pipes: one copy of stage 1, as of its optimizer."""
    fields = memory(static=[1, 2, 4])
    problem = lowered(
        placement="bidirectional",
        num_devices=3,
        memory=fields,
        allreduce=5,
        optimizer=7,
    )
    assert [pool.initial for pool in problem.pools] == [5, 2, 5]
    assert set(held(problem, 0)) == {"F0.0", "B0.0", "F2.1", "B2.1"}
    assert set(held(problem, 1)) == {"F1.0", "B1.0", "F1.1", "B1.1"}
    names = ["OPT0@0", "OPT0@2", "OPT1", "OPT2@0", "OPT2@2"]
    assert (
        sorted(
            name
            for name in map(problem.op_name, range(problem.num_ops))
            if "OPT" in name
        )
        == names
    )
    assert resources(problem, "AR1") == ["comm 1"]


def test_four_bidirectional_devices_hold_two_stages_each() -> None:
    fields = memory(static=[1, 2, 4, 8], capacity=20)
    problem = lowered(placement="bidirectional", num_devices=4, memory=fields)
    assert [pool.initial for pool in problem.pools] == [9, 6, 6, 9]


def test_allowed_excess() -> None:
    pool = lowered(memory=memory()).pools[0]
    assert pool.limit == 4 + Fraction(4, 10**9)


def test_allreduce_follows_every_weight_gradient_and_precedes_the_optimizer() -> None:
    problem = lowered(times=SPLIT, allreduce=[5, 6], optimizer=7)
    lags = edges(problem)
    assert {("W1.0", "AR1"), ("W1.1", "AR1"), ("AR1", "OPT1")} <= set(lags)
    assert ("W1.0", "OPT1") not in lags
    assert resources(problem, "AR1") == ["comm 1"]
    assert resources(problem, "OPT1") == ["device 1"]
    assert problem.duration[number(problem, "AR0")] == 5
    assert problem.duration[number(problem, "OPT0")] == 7
    assert problem.microbatch[number(problem, "AR0")] == FREE


def test_optimizer_alone_follows_every_weight_gradient() -> None:
    lags = edges(lowered(optimizer=7))
    assert {("B0.0", "OPT0"), ("B0.1", "OPT0")} <= set(lags)


def test_allreduce_of_bidirectional_pipes_is_a_rendezvous() -> None:
    problem = lowered(placement="bidirectional", allreduce=5, optimizer=7)
    lags = edges(problem)
    assert resources(problem, "AR0") == ["comm 0", "comm 1"]
    assert resources(problem, "OPT0@1") == ["device 1"]
    assert {
        ("B0.0", "AR0"),
        ("B0.1", "AR0"),
        ("AR0", "OPT0@0"),
        ("AR0", "OPT0@1"),
    } <= set(lags)


def test_bidirectional_optimizers_without_allreduce_wait_for_their_own_pipe() -> None:
    lags = edges(lowered(placement="bidirectional", optimizer=7))
    assert ("B0.0", "OPT0@0") in lags
    assert ("B0.1", "OPT0@1") in lags
    assert ("B0.1", "OPT0@0") not in lags


def test_decimals_are_exact() -> None:
    problem = lowered(times={"forward": 0.1, "backward": 0.2}, p2p={"latency": 0.3})
    assert problem.scale.tick == Fraction(1, 10)
    assert sorted(set(problem.duration.tolist())) == [1, 2]
    assert set(problem.lag.tolist()) == {0, 3}
    assert problem.scale.time(3) == 0.3


def test_transfer_times_are_exact_fractions() -> None:
    problem = lowered(p2p={"mode": "link", "bytes": 1, "bandwidth": 3})
    assert problem.scale.tick == Fraction(1, 3)
    assert problem.duration[number(problem, "TF0.0")] == 1
    assert problem.duration[number(problem, "F0.0")] == 3


def test_times_without_a_common_tick_are_rounded_up() -> None:
    times = {"forward": 1e6, "backward": 1.234567890123}
    with pytest.raises(InputError, match="no common tick"):
        lower(instance(times=times), exact=True)
    problem = lower(instance(times=times))
    tick = problem.scale.tick
    backward = int(problem.duration[number(problem, "B0.0")]) * tick
    exact = Fraction("1.234567890123")
    assert exact < backward < exact + tick
    assert not problem.scale.is_exact


def test_large_split_pipeline_is_lowered() -> None:
    problem = lowered(
        num_devices=64, num_microbatches=1024, times=SPLIT, memory=memory()
    )
    assert problem.num_ops == 196_608
    assert len(problem.before) == 2 * 64 * 1024 + 2 * 63 * 1024
    assert problem.op_name(problem.num_ops - 1) == "W63.1023"


FULL: dict[str, Any] = {
    "schema": 1,
    "kind": "pipeline",
    "name": "full",
    "description": "everything at once",
    "time_unit": "ms",
    "num_devices": 2,
    "stages_per_device": 2,
    "num_microbatches": 2,
    "placement": "wave",
    "lengths": [512, [100, 28]],
    "times": {
        "forward": [1, 2, [0.1, 0.2], 3],
        "backward_input": 1.5,
        "backward_weight": 2,
    },
    "p2p": {
        "mode": "link",
        "latency": [[0, 1], [2, 0]],
        "bytes": [1, 2, [3, 5]],
        "bandwidth": 4,
    },
    "memory": {
        "capacity": [8, 9],
        "activation": [
            0.25,
            [0.5, 0.75],
            1,
            {"per_token": 0, "per_square": 1e-6, "constant": 0.5},
        ],
        "forward_peak": 2,
        "released_by_backward_weight": 0.43243243243243246,
        "static": [0, 1, 2, 3],
    },
    "allreduce": 3,
    "optimizer": [1, 2, 3, 4],
    "objective": "device_span",
}


def test_full_instance_is_written_as_it_was_read() -> None:
    written = parse_instance(FULL).model_dump(mode="json")
    shown = {key: written[key] for key in FULL}
    for part in ("times", "memory"):
        shown[part] = {key: written[part][key] for key in FULL[part]}
    assert shown == FULL


@examples(27)
@given(st.integers(0, 10**9))
def test_json_round_trip(seed: int) -> None:
    made: Instance = tiny_instance(seed)
    again = parse_instance(made.model_dump(mode="json"))
    assert again == made
    assert type(made).model_validate_json(made.model_dump_json()) == made
    assert lower(again).duration.tolist() == lower(made).duration.tolist()


@pytest.mark.parametrize("nothing", [0, [0, 0], [[0, 0, 0], 0]])
def test_times_that_are_all_zero_are_refused(nothing: Any) -> None:
    with pytest.raises(
        InputError, match="times: expected some time above 0, all are 0"
    ):
        instance(num_microbatches=3, times={"forward": nothing, "backward": 0})
    one = instance(num_microbatches=3, times={"forward": nothing, "backward": [0, 0.5]})
    assert one.times.forward is not None
