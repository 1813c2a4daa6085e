"""What one part makes of another: numbers of ops, names of micro-batches, boards of searches."""

from __future__ import annotations

from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.board import Board
from ppsolve.solver.kinds.pipeline.replicas.steps import members_by_start
from tests.outside.plain_model import Instance

BASE: Instance = {
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 2, "backward": 3},
}


def parsed(**fields: object) -> PipelineInstance:
    return PipelineInstance.parse(BASE | fields)


def test_replicas_of_slices_name_micro_batches() -> None:
    instance = parsed(slices=2, replicas={"count": 2, "assignment": "free"})
    result = ppsolve.optimize(instance, workers=1)
    assert sorted(result.assignment) == [(0,), (1,)]
    assert ppsolve.check(instance, result) == []


def test_micro_batches_of_slices_are_listed_by_their_first_start() -> None:
    replicas = {"count": 2, "members": [[0, 3], [1, 2]]}
    instance = parsed(num_microbatches=4, slices=2, replicas=replicas)
    problem = kind_of(instance).lower(instance)
    late_first = Schedule(problem, 100 - problem.microbatch)
    assert members_by_start(late_first) == ((3, 0), (2, 1))


def test_entries_of_slices_are_those_of_every_replica() -> None:
    times = {"forward": [[1, 2], [2, 1]], "backward": [[3, 4], [4, 3]]}
    instance = parsed(times=times, slices=2, replicas={"count": 2})
    result = ppsolve.optimize(instance, workers=1)
    # One micro-batch: 1 + 2 + 1 on the way down, 3 + 4 + 3 on the way back, and 4 slices between.
    assert result.status == "OPTIMAL"
    assert ppsolve.check(instance, result) == []


def test_modes_that_add_ops_leave_fillers_what_they_are() -> None:
    recompute = {"modes": [{"name": "full", "time": 1}], "place": "anytime"}
    memory = {"capacity": 3, "activation": 2, "recompute": recompute}
    filler = {"name": "x", "device": 0, "devices": [1], "pieces": [30]}
    instance = parsed(memory=memory, fillers=[filler], num_microbatches=3)
    result = ppsolve.optimize(instance, workers=1)
    assert result.status == "OPTIMAL"
    assert ppsolve.check(instance, result) == []


@pytest.mark.parametrize("objective", ["makespan", "device_span"])
def test_no_schedule_of_one_step_is_proposed_for_two(
    monkeypatch: pytest.MonkeyPatch, objective: str
) -> None:
    boards: list[Board] = []
    sizes: list[int] = []
    propose = Board.propose

    def noted(self: Board, schedule: Schedule, by: str, **more: Any) -> Any:
        boards.append(self)
        sizes.append(schedule.problem.num_ops)
        return propose(self, schedule, by, **more)

    monkeypatch.setattr(Board, "propose", noted)
    times = {"forward": [4, [3, 2, 1]], "backward": [3, [1, 2, 3]]}
    instance = parsed(
        num_microbatches=3,
        times=times,
        p2p={"latency": 3},
        allreduce=[2, 1],
        memory={"capacity": 2, "activation": [1.5, 2]},
        steps=2,
        objective=objective,
    )
    result = ppsolve.optimize(instance, workers=1, deterministic=True)
    assert result.status == "OPTIMAL"
    pairs = zip(boards, sizes, strict=True)
    assert len({(id(board), size) for board, size in pairs}) == len({*map(id, boards)})


def test_the_bound_of_splits_counts_the_layers_of_every_step() -> None:
    body = {"count": 4, "forward": 1, "backward": 2}
    data = {
        "num_devices": 2,
        "num_microbatches": 3,
        "layers": {"body": body},
        "steps": 2,
    }
    result = ppsolve.optimize(PipelineInstance.parse(data), time_limit=0)
    bounds = {bound.name: bound.value for bound in result.bounds}
    # Two layers on each: 6 for a micro-batch; stage 1 waits for one forward and one backward.
    assert bounds["layers"] == 2 * 3 * 6 + 2 + 4
