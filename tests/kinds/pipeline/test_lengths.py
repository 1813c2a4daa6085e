"""Costs over sequence lengths, amounts per micro-batch, peaks of forwards and send queues."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import instance_text
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.solver.bounds.flow.flow import flow_of
from ppsolve.solver.checker import check_schedule
from tests.small import number

LENGTHS = [4, [1, 2], [3]]
"""Sums 4, 3, 3 and sums of squares 16, 5, 9."""

COST = {"per_token": 2, "per_square": 0.5, "constant": 1}
"""17, 9.5 and 11.5 for `LENGTHS`."""


def pipeline(**fields: Any) -> PipelineInstance:
    times = {"forward": 1, "backward": 2}
    return PipelineInstance.parse(
        {"num_devices": 2, "num_microbatches": 3, "times": times} | fields
    )


def lowered(**fields: Any) -> Problem:
    return lower_pipeline(pipeline(**fields))


def times_of(problem: Problem, kind: str) -> list[list[float]]:
    return [problem.scale.times(row) for row in problem.duration[problem.grid(kind)]]


def held(problem: Problem, device: int) -> dict[str, tuple[Fraction, Fraction]]:
    """Acquired and released amount of a pool by op name."""
    pool = problem.pools[device]
    table = {}
    for place, (ops, amounts) in enumerate(
        ((pool.acquire_op, pool.acquire_amount), (pool.release_op, pool.release_amount))
    ):
        for op, index in zip(ops.tolist(), amounts.tolist(), strict=True):
            pair = table.setdefault(problem.op_name(op), [Fraction(0), Fraction(0)])
            pair[place] += pool.amounts[index]
    return {name: (pair[0], pair[1]) for name, pair in table.items()}


class TestCosts:
    def test_cost_is_tokens_and_squares_of_each_sequence_and_a_constant(self) -> None:
        problem = lowered(
            lengths=LENGTHS, times={"forward": [COST, 5], "backward": COST}
        )
        row = [17, 9.5, 11.5]
        assert times_of(problem, "F") == [row, [5] * 3]
        assert times_of(problem, "B") == [row, row]

    def test_missing_coefficients_are_zero(self) -> None:
        forward = [{"per_token": 3}, {"per_square": 1}]
        problem = lowered(
            lengths=LENGTHS, times={"forward": forward, "backward": {"constant": 7}}
        )
        assert times_of(problem, "F") == [[12, 9, 9], [16, 5, 9]]
        assert times_of(problem, "B") == [[7] * 3] * 2

    @pytest.mark.parametrize("cost", [{}, {"constant": 0}])
    def test_a_cost_that_is_always_0_is_refused(self, cost: Any) -> None:
        words = r"times.forward\[1\]: expected one of per_token, per_square, constant above 0"
        with pytest.raises(InputError, match=words):
            lowered(lengths=LENGTHS, times={"forward": [1, cost], "backward": 1})

    def test_costs_are_exact(self) -> None:
        times = {"forward": {"per_token": 0.1, "per_square": 0.01}, "backward": 1}
        problem = lowered(lengths=[3, 7, 1], times=times)
        assert problem.scale.tick == Fraction(1, 100)
        assert problem.duration[problem.grid("F")[0]].tolist() == [39, 119, 11]

    def test_costs_of_memory_and_transfers(self) -> None:
        problem = lowered(
            lengths=LENGTHS,
            memory={
                "capacity": 100,
                "activation": {"per_token": 1},
                "forward_peak": [{"per_token": 1, "per_square": 1}, 50],
            },
            p2p={
                "mode": "link",
                "bytes": [{"per_token": 2}],
                "bandwidth": 4,
                "latency": 1,
            },
        )
        assert held(problem, 0)["F0.1"] == (8, 5)
        assert held(problem, 0)["B0.1"] == (0, 3)
        assert held(problem, 1)["F1.0"] == (50, 46)
        transfers = [problem.duration[number(problem, f"TF0.{i}")] for i in range(3)]
        assert problem.scale.times(np.array(transfers)) == [2, 1.5, 1.5]

    def test_split_backwards_share_the_activation_of_their_microbatch(self) -> None:
        times = {"forward": 1, "backward_input": 1, "backward_weight": 1}
        memory = {
            "capacity": 9,
            "activation": [[1, 2, 4], 1],
            "released_by_backward_weight": 0.25,
        }
        found = held(lowered(times=times, memory=memory), 0)
        assert (found["F0.2"], found["I0.2"], found["W0.2"]) == ((4, 0), (0, 3), (0, 1))

    @pytest.mark.parametrize(
        "entry", [COST, [COST, 0], [[17, 9.5, 11.5], {"per_token": 3}]]
    )
    def test_written_as_it_was_read(self, entry: Any) -> None:
        given = {"lengths": LENGTHS, "times": {"forward": entry, "backward": 2}}
        instance = pipeline(**given)
        written = json.loads(instance_text(instance))
        assert written["lengths"] == LENGTHS
        assert written["times"]["forward"] == entry
        assert PipelineInstance.parse(written) == instance

    def test_in_numbers_is_the_pipeline_with_lists(self) -> None:
        given = pipeline(lengths=LENGTHS, times={"forward": [COST, 5], "backward": 2})
        lists = pipeline(
            lengths=LENGTHS, times={"forward": [[17, 9.5, 11.5], 5], "backward": 2}
        )
        assert given.in_numbers() == lists
        assert lists.in_numbers() is lists

    def test_segments_of_ops_with_collectives(self) -> None:
        collectives = {"forward": {"segments": 2, "allreduce": 1}}
        times = {"forward": {"per_token": 2}, "backward": 2}
        problem = lowered(lengths=LENGTHS, times=times, collectives=collectives)
        assert problem.duration[number(problem, "F0.0/1")] == 4
        assert problem.duration[number(problem, "F1.1/0")] == 3


class TestMemory:
    def test_forward_holds_its_peak_and_keeps_the_activation(self) -> None:
        problem = lowered(
            memory={"capacity": 9, "activation": [2, 1], "forward_peak": [[3, 4, 2], 1]}
        )
        assert {
            name: held(problem, 0)[name] for name in ("F0.0", "F0.1", "F0.2", "B0.1")
        } == {
            "F0.0": (3, 1),
            "F0.1": (4, 2),
            "F0.2": (2, 0),
            "B0.1": (0, 2),
        }
        assert held(problem, 1)["F1.0"] == (1, 0)

    def test_peak_is_checked_while_the_forward_runs_only(self) -> None:
        fields = {"num_devices": 1, "num_microbatches": 2}
        memory = {"capacity": 5, "activation": 2, "forward_peak": 3}
        problem = lowered(**fields, memory=memory)
        ops = [number(problem, name) for name in ("F0.0", "F0.1", "B0.0", "B0.1")]
        start = np.zeros(4, np.int64)
        start[ops] = [0, 1, 2, 4]
        assert check_schedule(problem, Schedule(problem, start)) == []
        tight = lowered(**fields, memory={**memory, "capacity": 4.5})
        (broken,) = check_schedule(tight, Schedule(tight, start))
        assert broken.rule == "memory"
        assert "holds 5 of 4.5 at 1 us (too much from 1 us to 2 us)" in broken.message

    def test_flow_has_the_amounts_of_each_microbatch(self) -> None:
        memory = {
            "capacity": 9,
            "activation": [[1, 2, 3], 1],
            "forward_peak": [[2, 4, 3], 1],
        }
        problem = lowered(memory=memory)
        flow = flow_of(problem)
        assert flow is not None
        forward = problem.kinds.index("F")
        (position,) = np.flatnonzero((flow.kind == forward) & (flow.stage == 0))
        unit = int(flow.room[0]) // 9
        assert flow.acquire[:, position].tolist() == [2 * unit, 4 * unit, 3 * unit]
        assert flow.release[:, position].tolist() == [unit, 2 * unit, 0]


class TestSendQueue:
    def queued(self) -> Problem:
        p2p = {
            "mode": "send_queue",
            "bytes": [[6, 2, 4], 2],
            "bandwidth": 2,
            "latency": 1,
        }
        return lowered(num_devices=3, p2p=p2p)

    def test_both_directions_share_the_queue_of_the_sender_alone(self) -> None:
        problem = self.queued()
        used = {
            name: [
                problem.resource_names[r]
                for r in problem.resources_of(number(problem, name))
            ]
            for name in ("TF0.0", "TF1.0", "TB1.0", "TB2.0")
        }
        assert used == {
            "TF0.0": ["send 0"],
            "TF1.0": ["send 1"],
            "TB1.0": ["send 1"],
            "TB2.0": ["send 2"],
        }

    def test_transfers_last_bytes_over_bandwidth_then_the_latency(self) -> None:
        problem = self.queued()
        assert [problem.duration[number(problem, f"TF0.{i}")] for i in range(3)] == [
            3,
            1,
            2,
        ]
        assert [problem.duration[number(problem, f"TB1.{i}")] for i in range(3)] == [
            3,
            1,
            2,
        ]
        edge = (problem.before == number(problem, "TF0.0")) & (
            problem.after == number(problem, "F1.0")
        )
        assert problem.lag[edge].tolist() == [1]

    def test_two_sends_at_once_are_refused(self) -> None:
        problem = self.queued()
        start = np.arange(problem.num_ops) * 100
        start[[number(problem, name) for name in ("TF1.0", "TB1.0")]] = 10**6
        rules = {
            v.rule: v.message for v in check_schedule(problem, Schedule(problem, start))
        }
        assert "send 1" in rules["overlap"]


class TestFamilies:
    @pytest.mark.parametrize(
        "fields",
        [
            {"memory": {"capacity": 9, "activation": [1, [1, 2, 1]]}},
            {
                "memory": {
                    "capacity": 9,
                    "activation": 1,
                    "forward_peak": [1, [1, 2, 1]],
                }
            },
            {"p2p": {"mode": "send_queue", "bytes": [[1, 2, 1]], "bandwidth": 1}},
            {
                "times": {"forward": {"per_token": 1}, "backward": 2},
                "lengths": [3, [1, 1], [2, 1]],
            },
        ],
    )
    def test_microbatches_are_alike_only_if_all_amounts_are(
        self, fields: dict[str, Any]
    ) -> None:
        (family,) = lowered(**fields).families
        assert lowered(**fields).microbatch[family[:, 0]].tolist() == [0, 2]

    def test_lengths_alone_make_no_difference(self) -> None:
        (family,) = lowered(lengths=LENGTHS).families
        assert len(family) == 3


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"times": {"forward": [1, COST], "backward": 1}},
        "times.forward[1]",
        'expected "lengths" of the pipeline beside a cost over lengths, got none',
    ),
    ({"lengths": [1, 2]}, "lengths", "expected 3 entries (one per micro-batch), got 2"),
    (
        {"lengths": 7},
        "lengths",
        "expected a list with one entry per micro-batch, got 7",
    ),
    (
        {"lengths": [1, 2.5, 3]},
        "lengths[1]",
        "(a whole number from 1 to 1E+15), got 2.5",
    ),
    (
        {"lengths": [1, [2, 0], 3]},
        "lengths[1][1]",
        "(a whole number from 1 to 1E+15), got 0",
    ),
    (
        {"lengths": [1, [], 3]},
        "lengths[1]",
        "or a list of at least one, got a list of 0",
    ),
    ({"lengths": [1, "a", 3]}, "lengths[1]", 'got the text "a"'),
    (
        {"lengths": LENGTHS, "times": {"forward": {"per_tokens": 1}, "backward": 1}},
        "times.forward",
        'unknown field "per_tokens"; did you mean "per_token"?',
    ),
    (
        {
            "lengths": LENGTHS,
            "times": {"forward": [1, {"per_token": -1}], "backward": 1},
        },
        "times.forward[1].per_token",
        "expected a number >= 0, got -1",
    ),
    (
        {"lengths": LENGTHS, "times": {"forward": [1, [1, COST, 1]], "backward": 1}},
        "times.forward[1][1]",
        "got an object",
    ),
    (
        {
            "lengths": [10**9, 1, 1],
            "times": {"forward": {"per_square": 1}, "backward": 1},
        },
        "times.forward",
        "expected a cost of at most 1E+15, got 1.000000E+18 for micro-batch 0",
    ),
    (
        {"memory": {"capacity": 1, "activation": [1, [1, 2]]}},
        "memory.activation[1]",
        "3 entries (one per micro-batch), got 2",
    ),
    (
        {"memory": {"capacity": 1, "activation": 1, "forward_peak": [1]}},
        "memory.forward_peak",
        "2 entries (one per stage), got 1",
    ),
    (
        {"memory": {"capacity": 1, "activation": [1, 2], "forward_peak": 1.5}},
        "memory.forward_peak",
        "expected at least the activation (2) of stage 1, got 1.5",
    ),
    (
        {"memory": {"capacity": 1, "activation": [1, [1, 3, 1]], "forward_peak": 2}},
        "memory.forward_peak",
        "expected at least the activation (3) of stage 1, micro-batch 1, got 2",
    ),
    (
        {"memory": {"capacity": 1, "activation": {"per_token": 1}}},
        "memory.activation",
        'expected "lengths" of the pipeline',
    ),
    (
        {"p2p": {"mode": "link", "bytes": [COST], "bandwidth": 1}},
        "p2p.bytes[0]",
        'expected "lengths" of the pipeline',
    ),
    (
        {"lengths": LENGTHS, "allreduce": COST},
        "allreduce",
        "expected a number or a list with one number per stage, got an object",
    ),
]


@pytest.mark.parametrize(("fields", "field", "message"), REFUSED)
def test_misuse_names_field_and_remedy(
    fields: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        pipeline(**fields)
    assert caught.value.field == field
    assert message in caught.value.message
