"""Pipelines with collectives: lowering by hand, brute force, every message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import instance_text
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower, parse_instance
from tests.bruteforce import brute_force
from tests.marks import first
from tests.running import run_heuristic

FUSED = {"forward": 4, "backward": 6}
SPLIT = {"forward": 4, "backward_input": 3, "backward_weight": 2}
INSIDE = {"segments": 2, "allreduce": 1}
ENDS = {"reduce_scatter": 7, "all_gather": 5}


def instance(collectives: Any = None, **fields: Any) -> PipelineInstance:
    data = {"num_devices": 2, "num_microbatches": 2, "times": FUSED, **fields}
    return PipelineInstance.parse({**data, "collectives": collectives})


def edges(problem: Problem) -> dict[tuple[str, str], int]:
    """Lag of every precedence by the names of its ops."""
    pairs = zip(
        problem.op_names(problem.before), problem.op_names(problem.after), strict=True
    )
    return dict(zip(pairs, problem.lag.tolist(), strict=True))


def names(problem: Problem) -> list[str]:
    return problem.op_names(np.arange(problem.num_ops))


def durations(problem: Problem) -> dict[str, int]:
    return dict(zip(names(problem), problem.duration.tolist(), strict=True))


def resources(problem: Problem) -> dict[str, list[str]]:
    return {
        name: [problem.resource_names[r] for r in problem.resources_of(op)]
        for op, name in enumerate(names(problem))
    }


class TestLowering:
    def test_one_device_by_hand(self) -> None:
        tensor = {"forward": INSIDE, "backward": {"allreduce": 2}}
        problem = lower(instance({**tensor, **ENDS}, num_devices=1, num_microbatches=1))
        assert durations(problem) == {
            "F0.0/0": 2,
            "F0.0/1": 2,
            "B0.0": 6,
            "ARF0.0/0": 1,
            "ARF0.0/1": 1,
            "ARB0.0": 2,
            "AG0": 5,
            "RS0": 7,
        }
        assert edges(problem) == {
            ("F0.0/0", "ARF0.0/0"): 0,
            ("ARF0.0/0", "F0.0/1"): 0,
            ("F0.0/1", "ARF0.0/1"): 0,
            ("ARF0.0/1", "B0.0"): 0,
            ("B0.0", "ARB0.0"): 0,
            ("AG0", "F0.0/0"): 0,
            ("B0.0", "RS0"): 0,
        }
        compute = {"F0.0/0", "F0.0/1", "B0.0"}
        assert resources(problem) == {
            name: ["device 0" if name in compute else "comm 0"]
            for name in names(problem)
        }
        assert problem.kinds == ("F", "B", "ARF", "ARB", "AG", "RS")
        assert problem.device.tolist() == [0] * 8
        assert problem.span_resources.tolist() == [0]

    def test_transfers_leave_after_the_last_allreduce(self) -> None:
        tensor = {"forward": INSIDE, "backward_input": INSIDE}
        plain = {"times": SPLIT, "p2p": {"latency": 9}, "num_microbatches": 1}
        found = edges(lower(instance(tensor, **plain)))
        assert found["ARF0.0/1", "F1.0/0"] == 18
        assert found["ARI1.0/1", "I0.0/0"] == 18
        assert found["ARF1.0/1", "I1.0/0"] == 0
        assert found["I1.0/1", "W1.0"] == 0
        assert not any(
            after.startswith("W") and before[0] == "A" for before, after in found
        )

    @pytest.mark.parametrize("mode", ["link", "nic"])
    def test_transfers_over_links(self, mode: str) -> None:
        p2p = {"mode": mode, "latency": 3, "bytes": 4, "bandwidth": 2}
        tensor = {"forward": INSIDE, "backward": {"allreduce": 1}}
        problem = lower(instance(tensor, p2p=p2p))
        found = edges(problem)
        assert found["ARF0.1/1", "TF0.1"] == 0
        assert found["TF0.1", "F1.1/0"] == 3
        assert found["ARB1.0", "TB1.0"] == 0
        assert found["TB1.0", "B0.0"] == 3
        assert {"TF0.0", "TB1.0"} <= set(problem.op_names(problem.families[0][0]))

    def test_segments_and_times_per_stage(self) -> None:
        tensor = {
            "forward": {"segments": [1, 4], "allreduce": [3, 2]},
            "all_gather": [8, 9],
        }
        problem = lower(instance(tensor, num_microbatches=1))
        found = durations(problem)
        assert (found["F0.0"], found["ARF0.0"]) == (4, 3)
        assert [found[f"F1.0/{j}"] for j in range(4)] == [1] * 4
        assert [found[f"ARF1.0/{j}"] for j in range(4)] == [2] * 4
        assert (found["AG0"], found["AG1"]) == (8, 9)
        assert edges(problem)["ARF0.0", "F1.0/0"] == 0

    def test_pieces_are_exact(self) -> None:
        problem = lower(instance({"forward": {"segments": 3, "allreduce": 0.5}}))
        found = durations(problem)
        assert problem.scale.time(found["F0.0/0"]) * 3 == pytest.approx(4)
        assert found["F0.0/0"] * 3 * problem.scale.tick == 4
        assert found["ARF0.0/2"] * problem.scale.tick == 0.5
        assert problem.scale.is_exact

    def test_families_hold_pieces_and_allreduces(self) -> None:
        tensor = {"forward": INSIDE, "backward": {"allreduce": 2}, **ENDS}
        problem = lower(instance(tensor, num_microbatches=3, optimizer=1))
        (family,) = problem.families
        assert [problem.op_names(row) for row in family.T[:4]] == [
            [f"F0.{i}/0" for i in range(3)],
            [f"F0.{i}/1" for i in range(3)],
            [f"F1.{i}/0" for i in range(3)],
            [f"F1.{i}/1" for i in range(3)],
        ]
        alone = set(names(problem)) - set(problem.op_names(family.ravel()))
        assert alone == {"AG0", "AG1", "RS0", "RS1", "OPT0", "OPT1"}
        assert edges(problem)["RS1", "OPT1"] == 0
        assert ("B1.0", "OPT1") not in edges(problem)

    def test_microbatches_of_other_lengths(self) -> None:
        times = {"forward": [[4, 8, 4], 6], "backward": 6}
        problem = lower(instance({"forward": INSIDE}, times=times, num_microbatches=3))
        found = durations(problem)
        assert [found[f"F0.{i}/1"] for i in range(3)] == [2, 4, 2]
        assert found["F1.1/0"] == 3
        (family,) = problem.families
        assert set(problem.microbatch[family].tolist()[0]) == {0}
        assert set(problem.microbatch[family].tolist()[1]) == {2}

    @pytest.mark.parametrize("times", [FUSED, SPLIT])
    def test_activations_are_held_from_first_to_last_piece(
        self, times: dict[str, Any]
    ) -> None:
        back = "backward_input" if "backward_weight" in times else "backward"
        tensor = {"forward": INSIDE, back: INSIDE}
        memory = {"capacity": 4, "activation": 2, "released_by_backward_weight": 0.5}
        pool = lower(problem := instance(tensor, times=times, memory=memory)).pools[0]
        assert lower(problem).op_names(pool.acquire_op) == ["F0.0/0", "F0.1/0"]
        released = lower(problem).op_names(pool.release_op)
        split = ["I0.0/1", "I0.1/1", "W0.0", "W0.1"]
        assert released == (split if times is SPLIT else ["B0.0/1", "B0.1/1"])

    def test_two_comm_streams(self) -> None:
        tensor = {"forward": INSIDE, **ENDS, "comm_streams": "per_kind"}
        problem = lower(instance(tensor))
        found = resources(problem)
        assert found["ARF1.0/0"] == ["tp comm 1"]
        assert found["AG1"] == found["RS1"] == ["dp comm 1"]

    def test_allreduce_of_gradients_shares_the_stream(self) -> None:
        shared = resources(lower(instance({"forward": INSIDE}, allreduce=3)))
        assert shared["AR0"] == shared["ARF0.0/0"] == ["comm 0"]
        streams = {"forward": INSIDE, "comm_streams": "per_kind"}
        assert resources(lower(instance(streams, allreduce=3)))["AR0"] == ["dp comm 0"]

    def test_both_pipes_meet_in_collectives_of_a_stage(self) -> None:
        problem = lower(
            instance({"forward": INSIDE, **ENDS}, placement="bidirectional")
        )
        found = resources(problem)
        assert found["RS0"] == found["AG1"] == ["comm 0", "comm 1"]
        assert found["ARF0.0/0"] == ["comm 0"]
        assert found["ARF0.1/0"] == ["comm 1"]

    def test_no_collectives_is_the_plain_pipeline(self) -> None:
        plain, empty = lower(instance()), lower(instance({}))
        assert names(plain) == names(empty)
        assert edges(plain) == edges(empty)
        assert plain.resource_names == empty.resource_names

    def test_rounding_up(self) -> None:
        tensor = {"forward": {"segments": 7919, "allreduce": 0.0000001234567}}
        times = {"forward": 1e9, "backward": 1}
        with pytest.raises(InputError, match="no common tick"):
            lower(instance(tensor, times=times, num_devices=1), exact=True)
        fine = {"forward": {"segments": 7, "allreduce": 0.0000001234567}}
        coarse = instance(fine, times=times, num_devices=1)
        problem = lower(coarse)
        assert not problem.scale.is_exact
        assert (
            run_heuristic("gpipe", coarse, problem).status is HeuristicStatus.FEASIBLE
        )


class TestInput:
    @pytest.mark.parametrize(
        ("collectives", "fields", "message"),
        [
            (
                {"forwards": INSIDE},
                {},
                'collectives.forwards: unknown field "forwards"; did you mean "forward"?',
            ),
            (
                {"forward": {}},
                {},
                'collectives.forward: expected either "allreduce" or "alltoall"',
            ),
            (
                {"forward": {"allreduce": 1, "alltoall": 1}},
                {},
                'collectives.forward: expected either "allreduce" or "alltoall"',
            ),
            (
                {"forward": {"pieces": [[1, 2], [1], [1]], "alltoall": 1}},
                {},
                "collectives.forward.pieces: expected a number or 2 entries (one per stage), got 3",
            ),
            (
                {"forward": {"pieces": [1, [0, 0]], "alltoall": 1}},
                {},
                "collectives.forward.pieces[1]: expected a piece longer than 0",
            ),
            (
                {"forward": {"pieces": [], "alltoall": 1}},
                {},
                "collectives.forward.pieces: expected a piece longer than 0",
            ),
            (
                {"forward": {"pieces": [1, 2, 1], "alltoall": [3, 3]}},
                {},
                "collectives.forward.alltoall: expected a number or 3 entries (one per piece), "
                "got 2",
            ),
            (
                {"forward": {"pieces": [1, [2, 1]], "alltoall": [0, [3]]}},
                {},
                "collectives.forward.alltoall[1]: expected a number or 2 entries (one per piece), "
                "got 1",
            ),
            (
                {"forward": {"pieces": [[1, [2]], 1], "alltoall": 1}},
                {},
                "collectives.forward.pieces[0][1]: expected a number, a list with one number per "
                "piece, or such a list per stage, got a list of 1",
            ),
            (
                {"forward": {"alltoall": "3"}},
                {},
                "collectives.forward.alltoall: expected a number, a list with one number per "
                'piece, or such a list per stage, got the text "3"',
            ),
            (
                {"forward": INSIDE, "devices_per_node": 2},
                {},
                "collectives.devices_per_node: expected all-to-alls inside ops: nothing else runs "
                "on the streams of nodes",
            ),
            (
                {"forward": {"alltoall": 1}, "devices_per_node": 0},
                {},
                "collectives.devices_per_node: input should be greater than or equal to 1, got 0",
            ),
            ({"forward": 3}, {}, "collectives.forward: expected an object, got 3"),
            (
                {"forward": {"segments": 0, "allreduce": 1}},
                {},
                "collectives.forward.segments: expected a whole number from 1 to 10000, got 0",
            ),
            (
                {"forward": {"segments": [2, 1.5], "allreduce": 1}},
                {},
                "collectives.forward.segments[1]: expected a whole number from 1 to 10000, got 1.5",
            ),
            (
                {"forward": {"segments": True, "allreduce": 1}},
                {},
                "collectives.forward.segments: expected a whole number from 1 to 10000, got true",
            ),
            (
                {"forward": {"segments": [2, 2, 2], "allreduce": 1}},
                {},
                "collectives.forward.segments: expected a number or 2 entries (one per stage), "
                "got 3",
            ),
            (
                {"backward": {"allreduce": [1]}},
                {},
                "collectives.backward.allreduce: expected a number or 2 entries (one per stage), "
                "got 1",
            ),
            (
                {"all_gather": [1, 2, 3]},
                {},
                "collectives.all_gather: expected a number or 2 entries (one per stage), got 3",
            ),
            (
                {"reduce_scatter": -1},
                {},
                "collectives.reduce_scatter: expected a number >= 0, got -1",
            ),
            (
                {"backward_input": INSIDE},
                {},
                'collectives.backward_input: expected "backward", as in the times of the '
                'pipeline, got "backward_input"',
            ),
            (
                {"backward": INSIDE},
                {"times": SPLIT},
                'collectives.backward: expected "backward_input", as in the times of the '
                'pipeline, got "backward"',
            ),
            (
                {"reduce_scatter": 1},
                {"allreduce": 1},
                'collectives.reduce_scatter: expected either "allreduce" of the pipeline or '
                '"reduce_scatter", not both',
            ),
            (
                {"comm_streams": "two"},
                {},
                "collectives.comm_streams: input should be 'shared' or 'per_kind', "
                'got the text "two"',
            ),
            (
                {"forward": {"segments": 10000, "allreduce": 1}},
                {"num_microbatches": 1000},
                "collectives: expected at most 5000000 ops, collectives and pieces included",
            ),
        ],
    )
    def test_messages(
        self, collectives: Any, fields: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(InputError) as caught:
            instance(collectives, **fields)
        assert str(caught.value) == message

    def test_round_trip(self) -> None:
        given = instance(
            {"forward": {"segments": [2, 3], "allreduce": [1, 0.5]}, **ENDS}
        )
        assert PipelineInstance.model_validate_json(instance_text(given)) == given
        assert parse_instance(given.model_dump(mode="json")) == given
        assert "collectives" not in instance_text(instance())

    def test_whole_decimals_are_taken(self) -> None:
        given = instance({"forward": {"segments": [2.0, np.int64(3)], "allreduce": 1}})
        assert given.collectives is not None
        assert given.collectives.forward is not None
        assert given.collectives.forward.segments == (2, 3)


def tiny(seed: int) -> PipelineInstance:
    """Return a pipeline of up to 12 ops, some with memory, some with two comm streams."""
    rng = np.random.default_rng(seed)
    devices, microbatches = [(1, 1), (1, 2), (2, 1)][rng.integers(3)]
    split = bool(rng.random() < 0.4) and devices * microbatches == 1

    def times(least: int = 0) -> int:
        return int(rng.integers(least, 4))

    def inside(most: int) -> dict[str, int]:
        segments = int(rng.integers(1, most + 1))
        return {"segments": segments, "allreduce": times()}

    back = "backward_input" if split else "backward"
    duration = {"forward": 2 * times(), back: 2 * times()}
    collectives: dict[str, Any] = {
        "forward": inside(2 if devices * microbatches == 1 else 1)
    }
    if rng.random() < 0.5:
        collectives[back] = inside(2 if devices * microbatches == 1 else 1)
    elif devices * microbatches == 2:
        collectives["forward"]["segments"] = 2
    if rng.random() < 0.3:
        collectives["comm_streams"] = "per_kind"
    if rng.random() < 0.5:
        collectives["all_gather"] = times()
    if rng.random() < 0.5 and devices == 1:
        collectives["reduce_scatter"] = times()
    data: dict[str, Any] = {
        "num_devices": devices,
        "num_microbatches": microbatches,
        "times": {**duration, "backward_weight": times()} if split else duration,
        "p2p": {"latency": times()},
        "collectives": collectives,
        "objective": "makespan" if "all_gather" in collectives else "device_span",
    }
    if rng.random() < 0.4:
        data["memory"] = {"capacity": int(rng.integers(1, 3)), "activation": 1}
    return PipelineInstance.parse(data)


class TestOptimum:
    @pytest.mark.parametrize("seed", first(30, range(60)))
    @pytest.mark.slow
    def test_is_that_of_brute_force(self, seed: int) -> None:
        given = tiny(seed)
        problem = lower(given)
        result = ppsolve.optimize(given, workers=1)
        assert result.status is Status.OPTIMAL
        best = brute_force(problem)
        assert best is not None
        assert result.value == problem.scale.time(best)
        assert ppsolve.check(given, result) == []

    def test_pieces_of_two_microbatches_take_turns(self) -> None:
        tensor = {"forward": {"segments": 2, "allreduce": 2}}
        given = instance(
            tensor,
            num_devices=1,
            num_microbatches=2,
            times={"forward": 4, "backward": 0},
        )
        problem = lower(given)
        assert brute_force(problem) == 10
        assert ppsolve.optimize(given).value == 10
        greedy = run_heuristic("gpipe", given, problem).schedule
        assert greedy is not None
        assert greedy.value == 14

    def test_memory_of_one_activation_forbids_it(self) -> None:
        tensor = {"forward": {"segments": 2, "allreduce": 2}}
        given = instance(
            tensor,
            num_devices=1,
            times={"forward": 4, "backward": 2},
            memory={"capacity": 1, "activation": 1},
        )
        assert brute_force(lower(given)) == ppsolve.optimize(given).value == 20

    @pytest.mark.parametrize(
        "placement", ["linear", "vshape", "bidirectional", "interleaved"]
    )
    @pytest.mark.parametrize("times", [FUSED, SPLIT])
    def test_collectives_of_no_length_change_nothing(
        self, placement: str, times: dict[str, Any]
    ) -> None:
        fields: dict[str, Any] = {
            "placement": placement,
            "times": times,
            "num_microbatches": 4,
            "p2p": {"latency": 1},
            "memory": {"capacity": 4, "activation": 1},
        }
        back = "backward_input" if times is SPLIT else "backward"
        nothing = {"segments": 1, "allreduce": 0}
        given = instance({"forward": nothing, back: nothing, "all_gather": 0}, **fields)
        plain = ppsolve.optimize(instance(**fields))
        joint = ppsolve.optimize(given)
        assert plain.status is joint.status is Status.OPTIMAL
        assert joint.value == plain.value
        by_name = {entry.name: entry.value for entry in plain.heuristics}
        for entry in joint.heuristics:
            if entry.name in by_name and not entry.name.startswith("list"):
                assert entry.value == by_name[entry.name]


def test_every_piece_waits_for_the_allreduce_before_it_and_for_no_other() -> None:
    inside = {"segments": 3, "allreduce": 1}
    problem = lower(
        PipelineInstance(
            num_devices=1,
            num_microbatches=1,
            times={"forward": 3, "backward": 1},
            collectives={"forward": inside},
        )
    )
    names = problem.op_names(range(problem.num_ops))
    pairs = zip(problem.before.tolist(), problem.after.tolist(), strict=True)
    assert {(names[a], names[b]) for a, b in pairs if names[b].startswith("F")} == {
        ("ARF0.0/0", "F0.0/1"),
        ("ARF0.0/1", "F0.0/2"),
    }
