"""Results with fused blocks: documents, corruptions, parts of few devices, determinism."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.dag import find_cycle
from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.result import ScheduleDocument
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.fused import fused_problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.board import WrongScheduleError
from ppsolve.solver.bounds.frontier_devices import JOINT_FRONTIER
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.exact.search import CpsatSearch, SharedIncumbent
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.kinds.pipeline.options.joint_model import OptionsModel
from ppsolve.solver.views.chart import chart_rows
from tests.bruteforce import brute_force

BLOCKS = PipelineInstance.parse(
    {
        "name": "blocks",
        "num_devices": 2,
        "num_microbatches": 4,
        "placement": "vshape",
        "times": {"forward": 85, "backward": 159},
        "p2p": {"latency": 2},
        "memory": {"capacity": 6, "activation": 1},
        "overlap": {"time": 129},
    }
)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found = ppsolve.optimize(BLOCKS, time_limit=60)
    assert (found.value, found.bound, found.bound_by) == (1788, 1788, "last-forward")
    data: dict[str, Any] = json.loads(found.model_dump_json(exclude_none=True))
    return data


def test_blocks_in_tight_memory_are_proved_by_frontiers() -> None:
    uneven = {"forward": [85, 90, 70, 110], "backward": [120, 110, 125, 90]}
    instance = PipelineInstance.parse(
        {
            "num_devices": 2,
            "num_microbatches": 4,
            "placement": "interleaved",
            "times": uneven,
            "memory": {"capacity": 3, "activation": 1},
            "overlap": {"time": 170},
        }
    )
    result = ppsolve.optimize(instance, deterministic=True)
    assert (result.value, result.bound, result.bound_by) == (2085, 2085, JOINT_FRONTIER)


def test_a_result_names_its_blocks(document: dict[str, Any]) -> None:
    assert ppsolve.check(BLOCKS, document) == []
    names = [op["id"] for op in document["schedule"]["ops"]]
    assert {"+".join(block) for block in document["fused"]} == {
        n for n in names if "+" in n
    }
    assert all(
        block[0].startswith("F") and block[1].startswith("B")
        for block in document["fused"]
    )


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda data: data["fused"].pop(),
        lambda data: data.pop("fused"),
        lambda data: data["fused"].append(["F0.1", "B0.1"]),
        lambda data: data["fused"].append(data["fused"][0]),
        lambda data: data["fused"].__setitem__(0, ["F0.1"]),
        lambda data: data.__setitem__("fused", "F0.1"),
    ],
)
def test_blocks_that_are_not_those_of_the_schedule_are_refused(
    document: dict[str, Any], corrupt: Any
) -> None:
    data = json.loads(json.dumps(document))
    corrupt(data)
    with pytest.raises(InputError):
        assert ppsolve.check(BLOCKS, data) == []
        raise AssertionError("it was taken")


def test_a_block_that_starts_too_early_is_found(document: dict[str, Any]) -> None:
    data = json.loads(json.dumps(document))
    block = next(op for op in data["schedule"]["ops"] if "+" in op["id"])
    block["start"], block["end"] = block["start"] - 1, block["end"] - 1
    assert ppsolve.check(BLOCKS, data) != []


def test_a_run_begins_from_a_result(document: dict[str, Any]) -> None:
    again = ppsolve.optimize(BLOCKS, time_limit=0, start=document)
    assert again.value == 1788 and again.fused is not None


def test_the_board_refuses_options_that_cover_an_op_twice() -> None:
    task = PIPELINE.task(BLOCKS)
    one, other = (
        next(n for n, o in enumerate(task.blocks.options) if o.name == name)
        for name in ("F0.1+B0.0", "F0.2+B0.0")
    )
    problem = task.blocks.problem(np.array([one], dtype=np.int64))
    starts = Schedule(problem, np.zeros(problem.num_ops, dtype=np.int64))
    both = {"fused": np.array([one, other], dtype=np.int64)}
    object.__setattr__(problem, "choices", both)
    with pytest.raises(WrongScheduleError, match="cover one op"):
        task.board.propose(starts, "test")


def test_runs_without_a_clock_are_the_same() -> None:
    runs = [
        ppsolve.optimize(BLOCKS, deterministic=True, time_limit=1, seed=3)
        for _ in range(2)
    ]
    assert [run.value for run in runs] == [1788, 1788]
    assert runs[0].schedule == runs[1].schedule and runs[0].fused == runs[1].fused


@pytest.mark.parametrize("only", [[0], [1]])
def test_parts_of_few_devices_are_no_longer_than_the_whole(only: list[int]) -> None:
    model = OptionsModel(fused_problem(BLOCKS), 0, 1788, only)
    limits = SearchLimits(seconds=60, workers=1)
    found = CpsatSearch(model, SharedIncumbent(model), limits, limits.start()).execute()
    assert found.bound is not None and 984 <= found.bound <= 1788


def test_a_block_is_one_bar_with_both_labels(document: dict[str, Any]) -> None:
    for known in (None, PIPELINE.lower(BLOCKS, document=document)):
        rows = chart_rows(ScheduleDocument.model_validate(document["schedule"]), known)
        labels = {bar.label for row in rows for bar in row.bars if bar.kind == "F+B"}
        stages = [
            dict(zip("sn", name[1:].split("."), strict=True))
            for name in document["fused"][0]
        ]
        first, second = stages
        small = [int(each["s"]) > 1 for each in stages]
        assert (
            f"{'f' if small[0] else 'F'}{first['n']}+{'b' if small[1] else 'B'}{second['n']}"
            in labels
        )


SPLIT = {"forward": [2, 3], "backward_input": [3, 2], "backward_weight": [1, 2]}
LINK = {"mode": "link", "latency": 1, "bytes": 2, "bandwidth": 1}
MEMORY = {"capacity": 5, "activation": 2, "forward_peak": 3}


@pytest.mark.parametrize(
    "fields",
    [
        {"p2p": LINK},
        {"p2p": LINK, "times": SPLIT, "num_devices": 1, "placement": "vshape"},
        {"placement": "bidirectional"},
        {"allreduce": 2, "optimizer": [1, 2], "num_microbatches": 2},
        {"memory": MEMORY, "overlap": {"time": [[4, None], [None, 5]], "memory": 1}},
        {"times": {"forward": [[2, 3], [1, 2]], "backward": [[3, 4], [4, 2]]}},
        {"times": {"forward": [[2, 3], 2], "backward": 4}, "overlap": {"ratio": 0.5}},
    ],
)
def test_optima_are_those_of_the_best_choice(fields: dict[str, Any]) -> None:
    """Every choice of a tiny pipeline is searched exhaustively, as the problem that it is."""
    data = {
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": [2, 3], "backward": [4, 3]},
        "overlap": {"time": 4},
    }
    instance = PipelineInstance.parse(data | fields)
    problem = fused_problem(instance)
    best = None
    for size in range(3):
        for chosen in itertools.combinations(range(len(problem.options)), size):
            choice = np.array(chosen, dtype=np.int64)
            if problem.allows(choice) and not find_cycle(
                *edges_of(problem.problem(choice))
            ):
                value = brute_force(problem.problem(choice))
                best = value if best is None or (value or best) < best else best
    found = ppsolve.optimize(instance, time_limit=60, verify=False)
    assert found.status == "OPTIMAL" and best is not None
    assert found.value == problem.base.scale.time(best)


def edges_of(problem: Problem) -> tuple[IntArray, IntArray]:
    return problem.before, problem.after
