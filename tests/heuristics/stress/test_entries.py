"""Without jitter the replay of every heuristic of a result takes what its entry says."""

import json

import numpy as np
import pytest

import ppsolve
from tests.marks import first
from tests.paths import ROOT

SEND_QUEUE = {
    "num_devices": 2,
    "num_microbatches": 5,
    "placement": {"stage_to_device": [1, 0, 1, 0]},
    "times": {
        "forward": [
            [14, 6, 14, 3, 4],
            [1, 4, 7, 3, 6],
            [7, 3, 6, 8, 5],
            [11, 5, 7, 3, 3],
        ],
        "backward": [
            [28, 10, 20, 6, 6],
            [7, 10, 14, 4, 5],
            [28, 10, 20, 6, 6],
            [12, 4, 8, 3, 3],
        ],
    },
    "p2p": {"mode": "send_queue", "latency": 1, "bytes": 4, "bandwidth": 1},
}
SHIPPED = (
    "p2p_heavy/nic-90-4x8",
    "few_microbatches/random-8x1",
    "overlap_pipelines/tp-split-2x4-2p",
    "heterogeneous/uneven-microbatches-4x8-1p",
    "step_end/allreduce-optimizer-8x16",
)


def unlike(result):
    """Return the makespans of replays and of entries, where they differ."""
    said = {entry.name: entry.makespan for entry in result.heuristics}
    said[result.best_by] = result.makespan
    found = {
        entry.name: entry.planned
        for entry in ppsolve.stress(result, 0.0, runs=1).entries
    }
    assert len(found) > 1
    return {
        name: (value, said[name])
        for name, value in found.items()
        if value != said[name]
    }


def drawn(seed):
    """Return a random pipeline with transfers of one of the modes."""
    random = np.random.default_rng(seed)
    devices, microbatches = (
        int(random.integers(low, high)) for low, high in ((2, 4), (2, 6))
    )
    stages = devices * int(random.integers(1, 3))
    names = [("forward", "backward"), ("forward", "backward_input", "backward_weight")]
    times = {
        name: random.integers(1, 9, (stages, microbatches)).tolist()
        for name in names[random.integers(2)]
    }
    mode = ("send_queue", "link", "nic", "delay")[seed % 4]
    sent = (
        {"bytes": int(random.integers(1, 5)), "bandwidth": 1} if mode != "delay" else {}
    )
    later = random.integers(0, devices, stages - devices).tolist()
    return ppsolve.PipelineInstance(
        num_devices=devices,
        num_microbatches=microbatches,
        placement={"stage_to_device": [*random.permutation(devices).tolist(), *later]},
        times=times,
        p2p={"mode": mode, "latency": int(random.integers(0, 3)), **sent},
        memory={"capacity": int(random.integers(stages, 3 * stages)), "activation": 1},
        optimizer=int(random.integers(0, 5)),
    )


@pytest.mark.parametrize("name", first(2, SHIPPED))
def test_shipped_pipelines(name):
    instance = ppsolve.load_instance(ROOT / "instances" / f"{name}.json")
    assert not unlike(ppsolve.optimize(instance, time_limit=0.3, deterministic=True))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.slow
def test_random_pipelines(seed):
    assert not unlike(ppsolve.optimize(drawn(seed), time_limit=0.3, deterministic=True))


def test_an_order_of_transfers_that_is_not_first_come_first_served():
    instance = ppsolve.PipelineInstance(**SEND_QUEUE)
    result = ppsolve.optimize(instance, time_limit=0.3, deterministic=True)
    serial = next(entry for entry in result.heuristics if entry.name == "list-serial")
    assert not unlike(result)
    assert ppsolve.stress(result, 0.0, runs=1).entries[0].planned == result.makespan
    # Read again from a file, it is the same one.
    data = json.loads(result.model_dump_json())
    (again,) = (
        e for e in ppsolve.stress(data, 0.0, runs=1).entries if e.name == "list-serial"
    )
    assert again.planned == serial.makespan


def test_a_backward_that_stays_in_one_piece_does_so_whatever_ops_take():
    """The gradient leaves after I and W, 2 + 3: F0 F1 B1 B0 take 1 + 1 + 5 + 5; I alone 2."""
    pipeline = ppsolve.PipelineInstance(
        num_devices=2,
        num_microbatches=1,
        times={"forward": 1, "backward_input": 2, "backward_weight": 3},
    )
    result = ppsolve.optimize(pipeline, time_limit=0.3, deterministic=True)
    planned = {
        entry.name: entry.planned
        for entry in ppsolve.stress(result, 0.0, runs=1).entries
    }
    assert planned["1f1b"] == 12
    assert planned[result.best_by] == 9


def recomputed(place, capacity):
    """Return what a stage of 1 and 5 with room for its activation of 10 or less does in a run."""
    full = {"name": "full", "time": 2, "held": 0}
    memory = {
        "capacity": capacity,
        "activation": 10,
        "recompute": {"modes": [full], "decide": "stage", "place": place},
    }
    pipeline = ppsolve.PipelineInstance(
        num_devices=1,
        num_microbatches=2,
        times={"forward": 1, "backward": 5},
        memory=memory,
    )
    return ppsolve.optimize(pipeline, time_limit=0.3, deterministic=True)


def test_entries_whose_modes_add_ops_are_left_out():
    """The best schedule keeps 2 x (1 + 5); recomputing adds an op of 2 to each micro-batch."""
    result = recomputed("anytime", 12.5)
    planned = {
        entry.name: entry.planned
        for entry in ppsolve.stress(result, 0.0, runs=1).entries
    }
    said = {entry.name: entry.makespan for entry in result.heuristics}
    assert (planned["keep-all"], said["recompute-full"]) == (12, 16)
    assert "recompute-full" not in planned


def test_entries_whose_modes_lengthen_ops_are_left_out():
    """Recomputing before the backward makes it 7: the same ops, 16 in place of 12."""
    result = recomputed("before_backward", 12.5)
    planned = {
        entry.name: entry.planned
        for entry in ppsolve.stress(result, 0.0, runs=1).entries
    }
    said = {entry.name: entry.makespan for entry in result.heuristics}
    assert (planned["keep-all"], said["recompute-full"]) == (12, 16)
    assert "recompute-full" not in planned


def test_entries_with_the_modes_of_the_best_schedule_are_replayed():
    """Without room for an activation all is recomputed: 2 x (1 + 2 + 5)."""
    assert not unlike(recomputed("anytime", 10))


def test_entries_with_other_blocks_are_left_out():
    """Blocks of 3 + 4 gain nothing: 1F1B runs none and takes 4 x 7, combined 1F1B runs two."""
    pipeline = ppsolve.PipelineInstance(
        num_devices=2,
        num_microbatches=3,
        times={"forward": 3, "backward": 4},
        overlap={"ratio": 1},
    )
    result = ppsolve.optimize(pipeline, time_limit=0)
    fused = {entry.name: bool(entry.fused) for entry in result.heuristics}
    assert (result.best_by, fused["1f1b"], fused["combined-1f1b"]) == (
        "1f1b",
        False,
        True,
    )
    planned = {
        entry.name: entry.planned
        for entry in ppsolve.stress(result, 0.0, runs=1).entries
    }
    assert planned["gpipe"] == planned["1f1b"] == 28
    assert "combined-1f1b" not in planned
