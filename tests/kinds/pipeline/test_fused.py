"""Fused blocks of pipelines: the field, the blocks that there are, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.compose import joined, moved
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline import fused
from ppsolve.models.kinds.pipeline.fused import (
    choice_of_pairs,
    fused_problem,
    pairs_of_schedule,
)
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.kinds.pipeline.actions import orders_of

TIMES = {"forward": 3, "backward": 5}
SPLIT = {"forward": 3, "backward_input": 4, "backward_weight": 2}

MODE = {"name": "full", "time": 1, "held": 1}


def instance(**fields: Any) -> PipelineInstance:
    data = {
        "num_devices": 2,
        "num_microbatches": 3,
        "times": TIMES,
        "overlap": {"time": 6},
    }
    return PipelineInstance.parse(data | fields)


def blocks(**fields: Any) -> dict[str, int]:
    """Return the time of every block by its name."""
    problem = fused_problem(instance(**fields))
    assert all(option.resources for option in problem.options)
    return {option.name: option.duration for option in problem.options}


def test_forwards_run_with_backwards_of_earlier_microbatches() -> None:
    assert blocks() == {
        f"F{stage}.{i}+B{stage}.{h}": 6
        for stage in range(2)
        for i, h in ((1, 0), (2, 0), (2, 1))
    }


def test_all_stages_of_a_device_may_meet() -> None:
    found = blocks(placement="vshape", num_microbatches=2)
    assert list(found) == [
        f"F{s}.1+B{t}.0"
        for s, t in ((0, 0), (0, 3), (1, 1), (1, 2), (2, 1), (2, 2), (3, 0), (3, 3))
    ]


def test_times_are_a_matrix_or_a_ratio() -> None:
    assert blocks(num_microbatches=2, overlap={"time": [[7, 1], [1, None]]}) == {
        "F0.1+B0.0": 7
    }
    halves = fused_problem(instance(num_microbatches=2, overlap={"ratio": 0.5625}))
    assert halves.base.scale.tick == Fraction(1, 2), "of 0.5625 x 8"
    assert [option.duration for option in halves.options] == [9, 9]


def test_split_backwards_run_with_their_weight_gradient_or_without() -> None:
    fields: dict[str, Any] = {"times": SPLIT, "num_devices": 1, "num_microbatches": 2}
    assert blocks(**fields) == {"F0.1+I0.0+W0.0": 6}
    ratio = {"ratio": 0.5}
    assert fused_problem(instance(**fields, overlap=ratio)).options[0].duration == 9, (
        "half ticks"
    )
    assert blocks(**fields, overlap={"time": 5, "with_weight": False}) == {
        "F0.1+I0.0": 5
    }


def test_unequal_microbatches_meet_in_either_order() -> None:
    times = {"forward": [[1, 2]], "backward": 5}
    found = blocks(num_devices=1, num_microbatches=2, times=times, overlap={"ratio": 1})
    assert found == {"F0.0+B0.1": 6, "F0.1+B0.0": 7}


def test_pipes_of_both_ways_meet() -> None:
    found = blocks(placement="bidirectional", num_microbatches=4)
    assert "F0.0+B1.2" in found and "F0.2+B1.0" in found, "other ends of other pipes"
    assert "F0.1+B0.0" in found and "F0.0+B0.1" not in found, (
        "one pipe runs in index order"
    )
    assert "F0.0+B0.2" not in found, "other devices"


def test_a_block_holds_what_its_ops_hold_and_more() -> None:
    memory = {"capacity": 100, "activation": 7}
    problem = fused_problem(instance(memory=memory, overlap={"time": 6, "memory": 2}))
    (number,) = np.flatnonzero([o.name == "F1.2+B1.0" for o in problem.options])
    pool = problem.problem(np.array([number])).pools[1]
    taken = dict(
        zip(pool.acquire_op.tolist(), pool.acquire_amount.tolist(), strict=True)
    )
    freed = dict(
        zip(pool.release_op.tolist(), pool.release_amount.tolist(), strict=True)
    )
    op = int(problem.places(np.array([number]))[problem.options[number].ops[0]])
    assert pool.amounts[taken[op]] == pool.amounts[freed[op]] == 9


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"overlap": {}}, "overlap", 'expected either "time" or "ratio"'),
        (
            {"overlap": {"time": 1, "ratio": 1}},
            "overlap",
            'expected either "time" or "ratio"',
        ),
        ({"overlap": {"ratio": 0}}, "overlap.ratio", "greater than 0"),
        ({"overlap": {"ratio": 1.5}}, "overlap.ratio", "less than or equal to 1"),
        ({"overlap": {"time": "fast"}}, "overlap.time", "expected a number"),
        (
            {"overlap": {"time": [1, 2]}},
            "overlap.time[0]",
            "expected a row with an entry per",
        ),
        ({"overlap": {"time": [[1, -2], [1, 2]]}}, "overlap.time[0][1]", "number >= 0"),
        ({"overlap": {"time": [[1, 2]]}}, "overlap.time", "expected 2 entries"),
        ({"overlap": {"time": [[1], [1, 2]]}}, "overlap.time[0]", "expected 2 entries"),
        (
            {"overlap": {"time": [[1, 0], [0, 0]]}},
            "overlap.time",
            "expected a time > 0 of stages 1 and 1",
        ),
        ({"overlap": {"time": 0}}, "overlap.time", "expected a time > 0"),
        (
            {"overlap": {"time": 6, "memory": [[1]]}},
            "overlap.memory",
            "expected 2 entries",
        ),
        ({"objective": "device_span"}, "objective", 'expected "makespan"'),
        (
            {"replicas": {"count": 3}},
            "overlap",
            'expected no "overlap" beside "replicas"',
        ),
        (
            {"collectives": {"forward": {"allreduce": 1}}},
            "collectives",
            'expected no "collectives inside ops" beside "overlap"',
        ),
    ],
)
def test_what_is_wrong_is_named(
    fields: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        instance(**fields)
    assert error.value.field == field


def test_too_many_blocks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "MAX_BLOCKS", 5)
    with pytest.raises(InputError, match="expected at most 5 blocks") as error:
        fused_problem(instance())
    assert error.value.field == "num_microbatches"


def test_blocks_are_chosen_by_the_names_of_their_ops() -> None:
    problem = fused_problem(instance())
    choice = choice_of_pairs(problem, [["B1.0", "F1.1"], ["F0.2", "B0.1"]])
    assert [problem.options[n].name for n in choice] == ["F0.2+B0.1", "F1.1+B1.0"]


@pytest.mark.parametrize(
    ("pairs", "field", "message"),
    [
        ("F0.1", "fused", "expected a list of blocks"),
        ([["F0.1", "B0.1"]], "fused[0]", "expected the names of the ops of a block"),
        (
            [["F0.1", "B0.0"], ["F0.1", 3]],
            "fused[1]",
            "expected the names of the ops of a block",
        ),
        (
            [["F0.2", "B0.0"], ["F0.1", "B0.0"]],
            "fused[1]",
            "expected every op in one block",
        ),
    ],
)
def test_pairs_that_are_no_choice_are_refused(
    pairs: Any, field: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        choice_of_pairs(fused_problem(instance()), pairs)
    assert error.value.field == field


@pytest.mark.parametrize("times", [TIMES, SPLIT])
def test_blocks_know_their_ops_whatever_they_are_called(times: dict[str, int]) -> None:
    """F0.1 runs with the backward of micro-batch 0 there: one op of the three or four."""
    known = fused_problem(instance(times=times, overlap={"time": 9}))
    parts = ("B",) if times is TIMES else ("I", "W")
    names = ("F0.1", *(f"{part}0.0" for part in parts))
    oddly = replace(
        known,
        options=tuple(replace(o, name="a+b", kind="block") for o in known.options),
    )
    problem = oddly.problem(choice_of_pairs(oddly, [names]))
    ((op, joined),) = problem.joined.items()
    assert (problem.op_name(op), joined.names) == ("a+b", names)
    assert [(key.kind, key.stage, key.microbatch) for key in joined.keys] == [
        ("F", 0, 1), *((part, 0, 0) for part in parts),
    ]  # fmt: skip
    start = np.arange(problem.num_ops) * 10
    assert pairs_of_schedule(Schedule(problem, start)) == (names,)
    assert "(0F1;0B0)OVERLAP_F_B" in map(str, orders_of(Schedule(problem, start))[0])


def test_side_by_side_each_block_keeps_its_ops() -> None:
    known = fused_problem(instance())
    first = known.problem(choice_of_pairs(known, [["F0.1", "B0.0"]]))
    second = moved(known.problem(choice_of_pairs(known, [["F1.2", "B1.1"]])), 2)
    both = joined([first, second])
    assert sorted(each.names for each in both.joined.values()) == [
        ("F0.1", "B0.0"),
        ("F1.2", "B1.1"),
    ]
    for op, block in both.joined.items():
        assert both.op_name(op) == "+".join(block.names)
