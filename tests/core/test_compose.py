"""Problems made of other problems: what is shared, what is moved, what is kept."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ppsolve.models.core.compose import columns_of, joined, moved, without_resources
from ppsolve.models.core.problem import Problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.solver.exact.question import Question, SearchLimits
from ppsolve.solver.exact.search import solve
from ppsolve.solver.structure.implied import ImpliedOrder


def pipeline(forward: int, backward: int, capacity: int, static: int = 0) -> Problem:
    """Return one device with two micro-batches."""
    return lower_pipeline(
        PipelineInstance.parse(
            {
                "num_devices": 1,
                "num_microbatches": 2,
                "times": {"forward": forward, "backward": backward},
                "memory": {"capacity": capacity, "activation": 1, "static": static},
            }
        )
    )


def optimum(problem: Problem) -> int:
    limits = SearchLimits(seconds=20, deterministic=None, workers=1)
    answer = solve(ImpliedOrder(problem), Question(0), limits)
    assert answer.schedule is not None
    return answer.schedule.makespan


def test_models_that_share_a_device_share_its_stream_and_its_memory() -> None:
    both = joined([pipeline(1, 2, 9, static=1), pipeline(3, 4, 5, static=2)])
    assert both.resource_names == ("device 0",)
    (pool,) = both.pools
    # The least capacity, and what either holds before it runs.
    assert (pool.capacity, pool.initial) == (5, 3)
    assert optimum(both) == 2 * (1 + 2) + 2 * (3 + 4)


def test_models_on_devices_of_their_own_run_side_by_side() -> None:
    both = joined([pipeline(1, 2, 9), moved(pipeline(3, 4, 5), 1)])
    assert both.resource_names == ("device 0", "device 1")
    assert [pool.capacity for pool in both.pools] == [9, 5]
    assert both.device.tolist() == [0] * 4 + [1] * 4
    assert optimum(both) == 2 * (3 + 4)


def test_amounts_of_shared_pools_are_numbered_anew() -> None:
    light, heavy = (
        lower_pipeline(
            PipelineInstance.parse(
                {
                    "num_devices": 1,
                    "num_microbatches": 1,
                    "times": {"forward": 1, "backward": 1},
                    "memory": {"capacity": 9, "activation": activation},
                }
            )
        )
        for activation in (2, 7)
    )
    (pool,) = joined([light, heavy]).pools
    taken = [pool.amounts[number] for number in pool.acquire_amount.tolist()]
    given = [pool.amounts[number] for number in pool.release_amount.tolist()]
    assert taken == given == [Fraction(2), Fraction(7)]
    assert pool.acquire_op.tolist() == [0, 2]


def test_columns_of_ops_come_in_their_order_and_may_repeat() -> None:
    problem = pipeline(1, 2, 9)
    columns = columns_of(problem, np.array([3, 0, 0]))
    assert columns["duration"].tolist() == [2, 1, 1]
    assert columns["resource_ptr"].tolist() == [0, 1, 2, 3]
    assert columns["resource_idx"].tolist() == [0, 0, 0]
    assert "replica" not in columns


def test_ops_without_resources_run_beside_all_others() -> None:
    problem = pipeline(1, 2, 9)
    free = without_resources(problem, problem.kind_mask("F"))
    assert [len(free.resources_of(op)) for op in range(4)] == [0, 0, 1, 1]
    # Both backwards on the stream, after a forward of 1.
    assert optimum(free) == 1 + 2 + 2
