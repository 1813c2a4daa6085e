"""Annealing of splits under one order: figures by hand, and the same compiled or not."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.problem import IntArray
from ppsolve.models.studies.plan.request import parse_request
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels import compilation
from ppsolve.solver.kernels.split_annealing import (
    DRAWS,
    LACKING,
    LayerSums,
    OrderedOps,
    anneal_split,
)
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.fixed_orders import OrderScheduler, orders_by_name
from ppsolve.solver.studies.plan.list_scheduling import QuickScheduler
from ppsolve.solver.studies.plan.ordered_splits import SplitAnnealing, layer_sums
from ppsolve.solver.studies.plan.space import enumerate_space
from ppsolve.solver.studies.plan.split import even_split
from tests.marks import first
from tests.studies.plan.cases import reduced_document


def ints(*numbers: int) -> IntArray:
    return np.array(numbers, dtype=np.int64)


def two_ranks(room: IntArray) -> tuple[LayerSums, OrderedOps]:
    """Return four layers of 1, 1, 1, 5 forward and twice that back, one micro-batch, a lag of 1."""
    sums = LayerSums(
        stages=2,
        layers=4,
        rows=2,
        ticks=ints(0, 1, 2, 3, 8, 0, 2, 4, 6, 16),
        passing=ints(1, 1, 1, 1, 0, 0, 0, 0),
        link=ints(0, 0),
        device=ints(0, 1),
        room=room,
        held=ints(0, 1, 2, 3, 4),
        state=ints(0, 0, 0, 0, 0),
        reduced=ints(),
        optimizer=ints(),
    )
    # F0, F1, B1, B0.
    order = OrderedOps(
        microbatches=1,
        row=ints(0, 1, 3, 2),
        last=ints(0, 1, 3, 2),
        pointer=ints(0, 1, 2, 3, 3),
        successor=ints(1, 2, 3),
        lag=ints(1, 0, 4),
        own_pointer=ints(0, 1, 2),
        own=ints(0, 1),
        moment=ints(0, 1, 2),
        in_flight=ints(1, 1),
    )
    return sums, order


def annealed(
    sums: LayerSums, order: OrderedOps, split: IntArray, draws: IntArray, slack: int = 0
) -> tuple[list[int], list[int], list[int]]:
    """Return the last split, the best one, their values and how many splits were timed."""
    best, values, trial = split.copy(), ints(-1, -1, 0), split.copy()
    sizes = (len(order.row), sums.rows * sums.stages, 2 * sums.stages + 1)
    scratch = [np.zeros(size, dtype=np.int64) for size in (*sizes, 4 * sums.stages)]
    slacks = np.full(len(draws) // DRAWS, slack, dtype=np.int64)
    state = (split, best, values, *scratch, trial)
    anneal_split(sums, order, draws, slacks, 0, *state)
    return split.tolist(), best.tolist(), values.tolist()


def test_one_micro_batch_passes_all_layers_and_two_lags() -> None:
    """8 there, 16 back, and a transfer each way."""
    sums, order = two_ranks(ints())
    assert annealed(sums, order, ints(0, 2, 4), ints())[2] == [26, 26, 1]


def test_what_memory_lacks_is_lowered_first() -> None:
    """Three layers take 3 of 2 grains; one layer to the next stage, and both devices hold 2."""
    sums, order = two_ranks(ints(2, 2))
    split = ints(0, 3, 4)
    assert annealed(sums, order, split.copy(), ints())[2] == [
        LACKING + 1,
        LACKING + 1,
        0,
    ]
    # The neighbour of the first stage gets one layer.
    draws = ints(0, 0, 0, 0, 0, 0)
    assert annealed(sums, order, split, draws) == ([0, 2, 4], [0, 2, 4], [26, 26, 1])


def test_what_memory_refuses_is_not_timed() -> None:
    """The first stage may take none of the layers of the second one."""
    sums, order = two_ranks(ints(2, 2))
    draws = ints(0, 0, 0, 1, 0, 0)
    assert annealed(sums, order, ints(0, 2, 4), draws)[2] == [26, 26, 1]


def test_no_stage_is_left_without_a_layer() -> None:
    sums, order = two_ranks(ints())
    draws = ints(0, 0, 0, 0, 0, 0)
    assert annealed(sums, order, ints(0, 1, 4), draws)[0] == [0, 1, 4]


def _cases(seed: int) -> Any:
    data = reduced_document(seed)
    request = parse_request(data)
    builder = PipelineBuilder(request.alone(request.profiles[0]))
    quick, layers = QuickScheduler(builder), request.model.num_layers
    scheduler = OrderScheduler(orders_by_name(None))
    for c in enumerate_space(request).configurations:
        devices = builder.stage_to_device(c)
        if c.variant != request.profiles[0].variant or len(devices) > layers:
            continue
        split = even_split(layers, len(devices))
        yield builder, quick, scheduler, c, split


@pytest.mark.parametrize("seed", first(2, range(4)))
def test_splits_take_what_their_schedules_take(seed: int) -> None:
    """Shares no code with the arrays of pipelines, their tails and memory, but for orders."""
    rng, compared = random.Random(seed), 0
    for builder, quick, scheduler, c, split in _cases(seed):
        sums = layer_sums(builder, c)
        orders = scheduler.first_orders(quick.arrays(c, split))
        for order in rng.sample(orders, min(2, len(orders))):
            heat = rng.choice([0.01, 0.1])
            best = SplitAnnealing(sums, [order], Clock(None)).run(
                split, 50 * len(order.ops), seed, heat, 0
            )
            assert best is not None
            arrays = quick.arrays(c, best.boundaries)
            schedule = scheduler.schedule_under(arrays, order)
            if best.fits:
                assert schedule is not None
                tick = builder.layers(c.microbatch_size).tick
                assert schedule.makespan == pytest.approx(float(best.makespan * tick))
                compared += 1
    assert compared > 3


def test_the_same_compiled_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    sums, order = two_ranks(ints(3, 3))
    draws = rng.integers(0, 2**30, size=200 * DRAWS)
    answers = []
    for is_compiled in (False, True):
        monkeypatch.setitem(compilation._state, "compiled", is_compiled)
        answers.append(annealed(sums, order, ints(0, 3, 4), draws, slack=1))
    assert answers[0] == answers[1]
