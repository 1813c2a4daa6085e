"""Time for which micro-batches hold memory, on pipelines small enough to add up by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds.flow.flow import Flow, Paths, flow_of
from ppsolve.solver.bounds.memory_time import memory_time


def flow(times: dict[str, Any], count: int, **memory: Any) -> Flow:
    data = {
        "num_devices": len(times["forward"]),
        "num_microbatches": count,
        "times": times,
    }
    found = flow_of(lower(PipelineInstance(**data, memory={"activation": 1, **memory})))
    assert found is not None
    return found


def test_with_room_for_one_all_pass_one_by_one() -> None:
    times = {"forward": [[1, 2, 3], 1], "backward": [2, [4, 5, 6]]}
    # 1 + 1 + 4 + 2, 2 + 1 + 5 + 2 and 3 + 1 + 6 + 2.
    assert memory_time(Paths(flow(times, 3, capacity=[1, 3]))) == 8 + 10 + 12


def test_with_room_for_two_half_of_that_time() -> None:
    times = {"forward": [[1, 2, 3], 1], "backward": [2, [4, 5, 6]]}
    assert memory_time(Paths(flow(times, 3, capacity=[2, 3]))) == (8 + 10 + 12) // 2


def test_room_for_one_and_a_half_is_room_for_one() -> None:
    times = {"forward": [[1, 2, 3], 1], "backward": [2, [4, 5, 6]]}
    assert memory_time(Paths(flow(times, 3, capacity=[1.5, 3]))) == 8 + 10 + 12


def test_time_before_the_first_acquire_and_after_the_last_release_is_added() -> None:
    # Stage 1 holds one micro-batch for 1 + 4; heads are 2 and 3, tails 7 and 9.
    times = {"forward": [[2, 3], 1], "backward": [[7, 9], 4]}
    assert memory_time(Paths(flow(times, 2, capacity=[2, 1]))) == 2 + 2 * (1 + 4) + 7


def test_what_an_input_gradient_releases_is_held_no_longer() -> None:
    # Half until I ends (1 + 2), the rest until W ends (1 + 2 + 4), room for one and a half.
    times = {"forward": [1], "backward_input": [2], "backward_weight": [4]}
    found = flow(times, 4, capacity=1.5, released_by_backward_weight=0.5)
    # 4 x (1 x 3 + 0.5 x 4) / 1.5, rounded up.
    assert memory_time(Paths(found)) == 14


def test_large_ones_do_not_fit_beside_each_other_though_small_ones_do() -> None:
    # Amounts 5, 5 and 1 of 9: the large ones hold for 3 each, one after the other.
    found = flow({"forward": [1], "backward": [2]}, 3, capacity=9)
    unit = found.room[0] // 9
    amount = np.array([5, 5, 1])[:, None] * unit
    found = replace(
        found,
        acquire=np.where(found.acquire > 0, amount, 0),
        release=np.where(found.release > 0, amount, 0),
    )
    assert memory_time(Paths(found)) == 3 + 3


def test_amounts_that_another_stage_releases_say_nothing() -> None:
    found = flow({"forward": [1], "backward": [2]}, 3, capacity=1)
    assert memory_time(Paths(found)) == 9
    assert memory_time(Paths(replace(found, release=found.release // 2))) == 0
