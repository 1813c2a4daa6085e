"""Memory of a schedule in the making: what fits, what is promised, what is set aside."""

from __future__ import annotations

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.kernels.memory_state import give_back, shortage, take
from ppsolve.solver.structure.tables import memory_of, memory_state_of
from tests.small import holding, number, op, small


class Pools:
    """The pools of one problem, whose ops start and finish."""

    def __init__(
        self, problem: Problem, *, reserve: bool = True, promise: bool = True
    ) -> None:
        self.problem, self.reserve = problem, int(reserve)
        self.memory = memory_of(problem)
        if not promise:
            self.memory = self.memory._replace(promises=self.memory.promises * 0)
        self.state = memory_state_of(self.memory)

    def start(self, op: int) -> None:
        take(self.state, self.memory, op)

    def finish(self, op: int) -> None:
        give_back(self.state, self.memory, op)

    def fits(self, op: int) -> bool:
        return bool(shortage(self.state, self.memory, op, self.reserve) < 0)


def v_device(capacity: float) -> Problem:
    """One device with two stages of one unit each, three micro-batches."""
    instance = PipelineInstance(
        num_devices=1,
        num_microbatches=3,
        placement="vshape",
        times={"forward": 1, "backward": 1},
        memory={"capacity": capacity, "activation": 1},
    )
    return lower(instance)


def fits(pools: Pools, name: str) -> bool:
    return pools.fits(number(pools.problem, name))


def test_only_what_is_free_can_be_taken() -> None:
    problem = small([holding("a", 1, 2), holding("b", 1, 1.5)], capacity=3.5)
    pools = Pools(problem)
    pools.start(number(problem, "a"))
    assert fits(pools, "b")
    pools = Pools(small([holding("a", 1, 2), holding("b", 1, 1.5)], capacity=3.4))
    pools.start(0)
    assert not fits(pools, "b")
    pools.finish(0)
    assert fits(pools, "b")


def test_op_without_length_needs_only_what_it_keeps() -> None:
    ops = [op("a", 0, acquire={"m": 3}, release_at_end={"m": 2}), holding("b", 1, 2)]
    pools = Pools(small(ops, capacity=1))
    memory = pools.memory
    assert memory.net_amount[0] * 3 == memory.acquire_amount[0]
    assert fits(pools, "a")
    assert not fits(pools, "b")


@pytest.mark.parametrize(("capacity", "room"), [(2, False), (2.9, False), (3, True)])
def test_older_micro_batch_could_still_finish(capacity: float, room: bool) -> None:
    # Micro-batch 0 holds one unit and needs one more: a forward of micro-batch 1 may take the
    # third unit, but not the second one.
    pools = Pools(v_device(capacity), reserve=False)
    pools.start(number(pools.problem, "F0.0"))
    assert fits(pools, "F0.1") is room
    assert fits(pools, "F1.0")


@pytest.mark.parametrize(("capacity", "room"), [(3, False), (3.9, False), (4, True)])
def test_all_that_a_micro_batch_will_take_is_set_aside(
    capacity: float, room: bool
) -> None:
    pools = Pools(v_device(capacity), reserve=True)
    pools.start(number(pools.problem, "F0.0"))
    assert fits(pools, "F0.1") is room
    assert fits(pools, "F1.0")


def test_without_promises_only_room_counts() -> None:
    pools = Pools(v_device(2), reserve=False, promise=False)
    pools.start(number(pools.problem, "F0.0"))
    assert fits(pools, "F0.1")


def test_micro_batch_that_has_given_all_back_is_forgotten() -> None:
    pools = Pools(v_device(2))
    for name in ("F0.0", "F1.0"):
        pools.start(number(pools.problem, name))
    assert not fits(pools, "F0.1")
    pools.finish(number(pools.problem, "B1.0"))
    assert not fits(pools, "F0.1")
    pools.finish(number(pools.problem, "B0.0"))
    assert fits(pools, "F0.1")
