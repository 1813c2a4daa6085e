"""Bounds of open problems: their values by hand. Brute force holds them to optima elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from ppsolve.models.core.options import OpenProblem
from ppsolve.models.core.problem import Problem
from ppsolve.models.kinds.pipeline.fused import fused_problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.kinds.pipeline.options.last_forward import last_forward
from ppsolve.solver.kinds.pipeline.options.relaxed import (
    at_their_fastest,
    keeps_index_order,
    relaxed,
)


def blocks(**fields: Any) -> OpenProblem:
    data = {
        "num_devices": 1,
        "num_microbatches": 3,
        "times": {"forward": 3, "backward": 5},
        "overlap": {"time": 6},
    }
    return fused_problem(PipelineInstance.parse(data | fields))


def edges_of(problem: Problem) -> list[tuple[str, str, int]]:
    before, after = (problem.op_names(each) for each in (problem.before, problem.after))
    return list(zip(before, after, problem.lag.tolist(), strict=True))


def durations(problem: Problem) -> dict[str, int]:
    names = problem.op_names(range(problem.num_ops))
    return dict(zip(names, problem.duration.tolist(), strict=True))


def test_ops_share_the_time_of_a_block() -> None:
    """A forward has 1 of the 6 ticks at least, and all its 3 at most."""
    assert durations(relaxed(blocks())) == {
        **{f"F0.{i}": 1 for i in range(3)},
        **{f"B0.{i}": 5 for i in range(3)},
        "rest0.0": 2,
    }
    most = durations(relaxed(blocks(), favours_firsts=True))
    assert (most["F0.1"], most["B0.1"]) == (3, 3)
    assert most["rest0.2"] == 2, "of the last backward, which nobody covers"
    assert sum(most.values()) == 3 + 2 * 6 + 5, "two blocks, and what is alone"


def test_what_waits_for_an_op_waits_as_long_as_it_surely_takes() -> None:
    """The first forward on the next device comes 3 ticks after its start, with 1 tick of work."""
    problem = relaxed(blocks(num_devices=2, p2p={"latency": 1}))
    assert durations(problem)["F0.1"] == 1
    lags = {(before, after): lag for before, after, lag in edges_of(problem)}
    assert lags["F0.1", "F1.1"] == 2 + 1
    assert lags["B1.0", "B0.0"] == 0 + 1, "in a block it is the last one to work"
    shared = relaxed(blocks(num_devices=2, p2p={"latency": 1}), favours_firsts=True)
    rests = [
        edge
        for edge in edges_of(shared)
        if edge[0] == "rest1.2" or edge[1] == "rest1.2"
    ]
    assert rests == [("B1.2", "rest1.2", 0), ("rest1.2", "B0.2", 1)]


def test_weight_gradients_of_blocks_keep_no_order_of_their_own() -> None:
    split = {"forward": 3, "backward_input": 3, "backward_weight": 2}
    problem = blocks(times=split)
    kept = keeps_index_order(problem)
    names = np.array(problem.base.op_names(range(problem.base.num_ops)))
    assert set(names[~kept]) == {"W0.0", "W0.1"}
    fast = at_their_fastest(problem)
    assert [family.shape for family in fast.families] == [(3, 2)]
    assert -3 in fast.lag.tolist(), "a weight gradient begins with its block"


def test_behind_the_last_forward_nothing_is_fused() -> None:
    """F0.0 takes 3, two blocks of 4 follow and a backward of 5.

    On two devices the first backward of device 0 may start at 3 + 3 + 4. It is best there that all
    three, of 5 each, come behind its last forward.
    """
    assert last_forward(blocks(overlap={"time": 4})) == (3 + 2 * 4 + 5, 0)
    assert last_forward(blocks(num_devices=2, overlap={"time": 4})) == (10 + 3 * 5, 0)
    assert last_forward(blocks(num_microbatches=1)) == (0, -1), "there is no block"


def test_forwards_alone_fit_before_the_first_backward_and_into_memory() -> None:
    """Device 0 has 10 before its first backward, and 13 behind its last forward.

    With room for two activations only two of the backwards may come behind that. One forward of 3
    runs before the first backward, as a block needs the other activation. Best are a forward alone
    behind it and one block: 10 + 3 + 4 + 13. Forwards of 6 have 17, into which three of them do not
    fit: with a block of 5, three alone and as many backwards of 5 at the end are best.
    """
    two = {"num_devices": 2, "overlap": {"time": 4}}
    room = {"capacity": 2, "activation": 1}
    assert last_forward(blocks(**two, memory=room)) == (10 + 3 + 4 + 13, 0)
    long = {"times": {"forward": 6, "backward": 5}, "overlap": {"time": 5}}
    assert last_forward(blocks(**{**two, **long, "num_microbatches": 4})) == (
        17 + 1 + 5 + 15,
        0,
    )
