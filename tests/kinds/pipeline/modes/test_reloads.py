"""Reloads just in time: what list schedules of offloaded pipelines wait for."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.problem import Problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.labels import RELOAD_KIND
from ppsolve.models.kinds.pipeline.modes import modes_of
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.kinds.pipeline.choice_lists import ChoiceLists
from ppsolve.solver.kinds.pipeline.open.space import PipelineSpace
from ppsolve.solver.kinds.pipeline.reloads import has_reloads, reloads_in_time
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.implied import index_order
from tests.kinds.pipeline.modes.drawn import drawn
from tests.paths import ROOT

LARGE = ROOT / "instances" / "memory" / "llama-70b-16x64.json"


def offloaded(document: dict[str, Any]) -> Problem:
    """Return the problem in which every activation is copied out and back."""
    instance = PipelineInstance.parse(document)
    modes = modes_of(instance)
    assert modes is not None
    choice = modes.of_stages([modes.offloading] * instance.num_stages)
    return PipelineSpace(instance).problem({"modes": choice})


def line(back: int) -> Problem:
    """Return four stages whose ops take 4 units, links 1, and reloads as long as given."""
    offload = {"amount": 1, "out": 1, "back": back}
    return offloaded(
        {
            "num_devices": 4,
            "num_microbatches": 1,
            "times": {"forward": 4, "backward": 4},
            "p2p": {"latency": 1},
            "memory": {"capacity": 9, "activation": 1, "offload": offload},
        }
    )


def waits(problem: Problem) -> set[str]:
    return {
        f"{problem.op_name(after)} {lag} after {problem.op_name(before)}"
        for before, after, lag in zip(*reloads_in_time(problem), strict=True)
    }


@pytest.mark.parametrize(
    ("back", "expected"),
    [
        (1, {"L0.0 0 after B1.0", "L1.0 0 after B2.0", "L3.0 4 after F2.0"}),
        (3, {"L0.0 3 after B2.0", "L1.0 3 after B3.0", "L2.0 2 after F3.0"}),
        (9, {"L0.0 2 after B3.0", "L3.0 1 after F1.0"}),
    ],
)
def test_a_reload_waits_for_the_last_op_that_leaves_it_time(
    back: int, expected: set[str]
) -> None:
    # The gradient of a stage arrives one unit after a backward, which takes 4, and so on back.
    assert expected <= waits(line(back))


@pytest.mark.parametrize("seed", range(20))
def test_reloads_wait_for_ops_before_them_in_any_pipeline(seed: int) -> None:
    document = drawn(seed)
    if "offload" not in document["memory"]:
        return
    document["memory"].pop("recompute", None)
    document["memory"]["offload"]["decide"] = "stage"
    problem = offloaded(document)
    if not has_reloads(problem):
        return
    edges = reloads_in_time(problem)
    assert problem.kind_mask(RELOAD_KIND)[edges[1]].all()
    free = np.zeros(problem.num_ops, dtype=np.int64)
    head = Dag.of(problem).heads(free)
    # A cycle would raise.
    Dag.of(problem, index_order(problem), edges).heads(free)
    end = head + problem.duration
    used_by = dict(zip(problem.before.tolist(), problem.after.tolist(), strict=True))
    for op, reload, lag in zip(*edges, strict=True):
        reloaded = end[op] + lag + problem.duration[reload]
        assert reloaded <= max(head[used_by[int(reload)]], end[reload])


def test_offloading_all_stages_of_a_large_model_is_close_to_the_bound() -> None:
    document = json.loads(LARGE.read_text()) | {"num_microbatches": 24}
    problem = offloaded(document)
    schedule = ChoiceLists().schedule(problem)
    assert schedule is not None
    assert check_schedule(problem, schedule) == []
    # The last stage works 24 * 654.9, after 15 hops of 176.7: copies cost 9 % more.
    assert schedule.value * problem.scale.tick <= 1.09 * 18_368.1
    # The same question with the modes given.
    for part in ("recompute", "offload"):
        document["memory"][part]["decide"] = ["offload"] * 16
    given = ppsolve.simulate(PipelineInstance.parse(document), "reload-in-time")
    assert given.value == pytest.approx(float(schedule.value * problem.scale.tick))
