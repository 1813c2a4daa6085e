"""Memory of a schedule in the making: what fits, what is promised, what is set aside."""

from __future__ import annotations

import pytest

from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.heuristics.ledger import Ledger
from ppsolve.solver.optimize.kinds import lower
from tests.small import holding, number, op, small


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


def fits(ledger: Ledger, name: str) -> bool:
    return ledger.shortage(number(ledger.problem, name)) == FREE


def test_only_what_is_free_can_be_taken() -> None:
    problem = small([holding("a", 1, 2), holding("b", 1, 1.5)], capacity=3.5)
    ledger = Ledger(problem)
    ledger.start(number(problem, "a"))
    assert fits(ledger, "b")
    ledger = Ledger(small([holding("a", 1, 2), holding("b", 1, 1.5)], capacity=3.4))
    ledger.start(0)
    assert not fits(ledger, "b")
    assert ledger.finish(0) == [0]
    assert fits(ledger, "b")


def test_op_without_length_needs_only_what_it_keeps() -> None:
    ops = [op("a", 0, acquire={"m": 3}, release_at_end={"m": 2}), holding("b", 1, 2)]
    ledger = Ledger(small(ops, capacity=1))
    assert list(ledger.net(0)) == [(0, 10**0 * ledger.unit[0])]
    assert fits(ledger, "a")
    assert not fits(ledger, "b")


@pytest.mark.parametrize(("capacity", "room"), [(2, False), (2.9, False), (3, True)])
def test_older_micro_batch_could_still_finish(capacity: float, room: bool) -> None:
    # Micro-batch 0 holds one unit and needs one more: a forward of micro-batch 1 may take the
    # third unit, but not the second one.
    ledger = Ledger(v_device(capacity), reserve=False)
    ledger.start(number(ledger.problem, "F0.0"))
    assert fits(ledger, "F0.1") is room
    assert fits(ledger, "F1.0")


@pytest.mark.parametrize(("capacity", "room"), [(3, False), (3.9, False), (4, True)])
def test_all_that_a_micro_batch_will_take_is_set_aside(capacity: float, room: bool) -> None:
    ledger = Ledger(v_device(capacity), reserve=True)
    ledger.start(number(ledger.problem, "F0.0"))
    assert fits(ledger, "F0.1") is room
    assert fits(ledger, "F1.0")


def test_without_promises_only_room_counts() -> None:
    ledger = Ledger(v_device(2), reserve=False, promise=False)
    ledger.start(number(ledger.problem, "F0.0"))
    assert fits(ledger, "F0.1")


def test_micro_batch_that_has_given_all_back_is_forgotten() -> None:
    ledger = Ledger(v_device(2))
    for name in ("F0.0", "F1.0"):
        ledger.start(number(ledger.problem, name))
    assert not fits(ledger, "F0.1")
    assert ledger.finish(number(ledger.problem, "B1.0")) == [0]
    assert not fits(ledger, "F0.1")
    ledger.finish(number(ledger.problem, "B0.0"))
    assert fits(ledger, "F0.1")
