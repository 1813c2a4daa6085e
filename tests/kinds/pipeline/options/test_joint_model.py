"""Optima of blocks, by the joint model alone and by whole runs, against a plain model."""

from __future__ import annotations

import json
from fractions import Fraction
from random import Random
from typing import Any

import pytest

import ppsolve
from ppsolve.models.kinds.pipeline.fused import fused_problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.board import WrongScheduleError
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.structure.holds import MemoryInfeasible
from tests.kinds.pipeline.joint import joint_optimum
from tests.kinds.pipeline.options.plain_blocks import blocks_optimum
from tests.marks import first
from tests.outside.plain_model import Instance
from tests.paths import DATA

CASES = json.loads((DATA / "choices" / "cases.json").read_text())["cases"]

HEURISTICS = (None, ["1f1b"], [])
"""All of them, one, and none."""

NESTED: Instance = {
    "num_devices": 3,
    "num_microbatches": 3,
    "times": {"forward": [2, 0, 1], "backward": [2, 6, 1]},
    "overlap": {"time": [[None] * 3, [None, 4, None], [None] * 3]},
}


def drawn(seed: int) -> Instance:
    """Return a pipeline with blocks: two chunks on each of two devices, or three devices."""
    draw = Random(seed)
    placement, devices, stages = draw.choice(
        [("vshape", 2, 4), ("vshape", 2, 4), ("interleaved", 2, 4), ("linear", 3, 3)]
    )
    least = draw.choice([0, 0, 1])
    kinds = ["forward", "backward"]
    if draw.random() < 0.4:
        kinds[1:] = ["backward_input", "backward_weight"]
    times = {
        kind: [0 if draw.random() < 0.3 * (1 - least) else draw.randint(1, 8)] * stages
        if draw.random() < 0.3
        else [draw.choice([least, draw.randint(1, 8)]) for _ in range(stages)]
        for kind in kinds
    }
    table = [
        [
            draw.choice([None, draw.randint(1, 9), draw.randint(1, 14)])
            for _ in range(stages)
        ]
        for _ in range(stages)
    ]
    data: Instance = {
        "num_devices": devices,
        "num_microbatches": 2 if stages == 4 else draw.choice([2, 3]),
        "placement": placement,
        "stages_per_device": stages // devices,
        "times": times,
        "p2p": {"latency": draw.choice([0, 0.5, 2])},
        "overlap": {"time": table},
    }
    if len(kinds) == 3:
        data["overlap"]["with_weight"] = draw.random() < 0.5
    if draw.random() < 0.5:
        data["memory"] = {"capacity": draw.choice([2, 2.5, 4]), "activation": 1}
        data["overlap"]["memory"] = draw.choice([0, 0.5])
    return data


def bound_of(instance: PipelineInstance) -> Fraction:
    """Return the best analytic bound, in the unit of the instance."""
    task = PIPELINE.task(instance)
    task.find_bounds()
    return task.board.bound.value * task.problem.scale.tick


def assert_right(data: Instance, ways: Any = HEURISTICS) -> None:
    """Hold the joint model, the analytic bounds, and runs to the plain model."""
    instance, best = PipelineInstance.parse(data), blocks_optimum(data)
    try:
        assert joint_optimum(instance) == best, data
        assert best is None or bound_of(instance) <= best, data
    except MemoryInfeasible:
        assert best is None, data
    assert_claims(instance, best, ways)


def assert_claims(
    instance: PipelineInstance, best: Any, ways: Any = HEURISTICS
) -> None:
    """Hold what runs claim with all heuristics, one, and none to the optimum."""
    for heuristics in ways:
        result = ppsolve.optimize(
            instance, workers=1, time_limit=20, heuristics=heuristics
        )
        claim = (
            result.status,
            None if result.value is None else Fraction(str(result.value)),
        )
        assert claim == ("INFEASIBLE" if best is None else "OPTIMAL", best), instance
        assert best is None or ppsolve.check(instance, result) == []


@pytest.mark.parametrize("case", CASES[:3], ids=lambda case: case["why"])
def test_the_joint_model_alone_is_right_about(case: dict[str, Any]) -> None:
    assert joint_optimum(PipelineInstance.parse(case["instance"])) == case["optimum"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_runs_with_all_heuristics_or_none_claim_the_same(case: dict[str, Any]) -> None:
    instance = PipelineInstance.parse(case["instance"])
    assert joint_optimum(instance) == case["optimum"]
    assert_claims(instance, case["optimum"])


def test_an_op_of_no_time_runs_inside_the_block_of_its_twin() -> None:
    """Device 1 cannot begin a backward before 2 + 1 + 1 = 4, and 2 follow on device 0.

    It works for 3 x 6 less 2 for each block, and a block needs a forward that waits for it. With
    one block the last backward ends at 4 + 4 + 6 + 6 + 2 = 22. Micro-batch 0 comes to stage 1 at 2,
    the others at 4 and 6. The first backward is that of 0; let its block be that with forward 1,
    from 4 to 8. Forward 2 runs in it at 6, so that backward 2 may begin at 6 + 1 + 1 = 8; that of 1
    may not before 10. In index order of that stage forward 2 would wait for 8, and both for 10.
    """
    assert joint_optimum(PipelineInstance.parse(NESTED)) == blocks_optimum(NESTED) == 22
    assert_claims(PipelineInstance.parse(NESTED), 22, [[]])


def test_blocks_have_any_two_micro_batches_only_where_an_op_may_run_in_one() -> None:
    def pairs(forward: list[int]) -> set[str]:
        times = {"forward": forward, "backward": [2, 6, 1]}
        instance = PipelineInstance.parse(NESTED | {"times": times})
        return {option.name for option in fused_problem(instance).options}

    later = {"F1.1+B1.0", "F1.2+B1.0", "F1.2+B1.1"}
    assert pairs([2, 1, 1]) == pairs([0, 1, 0]) == later
    assert pairs([2, 0, 1]) == later | {"F1.0+B1.1", "F1.0+B1.2", "F1.1+B1.2"}


@pytest.mark.parametrize("seed", first(2, range(5)))
def test_drawn_blocks_are_solved_to_the_optimum_of_a_plain_model(seed: int) -> None:
    assert_right(drawn(seed), [[]])


@pytest.mark.fuzz
@pytest.mark.parametrize("begin", range(12, 1012, 20))
def test_many_drawn_blocks_are_solved_to_the_optimum_of_a_plain_model(
    begin: int,
) -> None:
    for seed in range(begin, begin + 20):
        assert_right(drawn(seed))


def test_a_model_that_refutes_a_schedule_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuted(task: Any, lower: int, upper: int | None) -> Any:
        return model(task, 0, 1)

    kind = type(PIPELINE.task(PipelineInstance.parse(NESTED)))
    model = kind.joint_model
    monkeypatch.setattr(kind, "joint_model", refuted)
    with pytest.raises(WrongScheduleError):
        ppsolve.optimize(PipelineInstance.parse(NESTED), workers=1)


def test_pools_that_no_op_uses_do_not_count() -> None:
    """Activations of 0 with a capacity: a pool without an event."""
    data: Instance = {
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 2, "backward": 3},
        "overlap": {"time": 4},
        "memory": {"capacity": 1, "activation": 0},
    }
    without = {name: entry for name, entry in data.items() if name != "memory"}
    both = (joint_optimum(PipelineInstance.parse(each)) for each in (data, without))
    assert len(set(both)) == 1
