"""The enumeration of program orders alone, against one that shares no code."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.lowering import LoweredOverlap, lower_overlap
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.overlap.program_orders import OrderEnumeration
from tests.kinds.overlap.bruteforce import (
    Document,
    optimum,
    program,
    random_document,
    with_buffers,
    with_caps,
)
from tests.marks import first


def least_makespan(document: Document) -> Fraction | None:
    """Return the least makespan of all orders that keep the caps, None where none does."""
    instance = OverlapInstance.parse(document)
    problem = lower_overlap(instance)
    search = OrderEnumeration(
        instance, LoweredOverlap.of(instance, problem), Clock(60), 10**6
    )
    assert search.run()
    return (
        None if search.best == math.inf else Fraction(search.best) * problem.scale.tick
    )


@pytest.mark.parametrize("seed", first(60, range(1500)))
def test_caps_in_flight_and_over_time_are_counted_while_orders_are_tried(
    seed: int,
) -> None:
    rng = random.Random(seed)
    document = random_document(rng, most=8)
    document = (
        with_buffers(rng, document) if seed % 4 == 0 else with_caps(rng, document)
    )
    assert least_makespan(document) == optimum(document).makespan


def test_a_collective_that_stays_behind_another_of_its_group_runs_behind_it() -> None:
    """c0 holds 2 bytes until w0, behind w1, so behind c1: c1 has to end before c0 begins.

    But c1 is launched behind c0, on one stream: no order keeps the 4 bytes.
    """
    nodes = ["c0 7 b=2", "c1 9 b=4", "w1 <- c1", "w0 <- c0"]
    document = program(*nodes, max_live_bytes=4, collective_order="free")
    document["nodes"][1]["after"], document["nodes"][3]["after"] = ["c0"], ["w1"]
    instance = OverlapInstance.parse(document)
    problem = lower_overlap(instance)
    assert (0, 1) in zip(problem.before.tolist(), problem.after.tolist(), strict=True)
    result = ppsolve.optimize(instance, time_limit=10, workers=1)
    assert result.status is Status.INFEASIBLE
