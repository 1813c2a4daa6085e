"""Splits of a configuration under fixed orders of its ops: annealing, order by order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.timescale import MAX_TICKS
from ppsolve.models.studies.plan.result import Configuration
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.compilation import expect, is_compiled
from ppsolve.solver.kernels.split_annealing import (
    DRAWS,
    LACKING,
    LayerSums,
    anneal_split,
)
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.fixed_orders import TimedOrder
from ppsolve.solver.studies.plan.split import Boundaries

MOST_ROOM = 2**59
"""Grains of a device that count."""

OPS_OF_CALL = 20_000_000
"""Ops that compiled code times between two looks at the clock: some 0.1 s."""

STEPS_OF_ALL = 10
"""Steps under one order for each split that there is, at the most."""

OPS_UNCOMPILED = 100_000
"""The same of Python."""

CALLS = 64
"""In which the temperature falls, at least."""


def layer_sums(builder: PipelineBuilder, configuration: Configuration) -> LayerSums:
    """Return the layers of a configuration as kernels read them."""
    c, layers = configuration, builder.layers(configuration.microbatch_size)
    devices = builder.stage_to_device(c)
    is_fused = c.backward == "fused"
    fields = ("forward", "backward") if is_fused else FIELDS_OF_SPLIT
    hops = [frozenset(hop) for hop in pairwise(devices)]
    passing: list[int] = []
    for a, b in pairwise(devices):
        passing += builder.passing_ticks(c, a, b)
    capacity = builder.capacity
    room = [] if capacity is None else [min(layers.grains(capacity), MOST_ROOM)]
    has_optimizer = any(layers.optimizer)
    return LayerSums(
        len(devices),
        len(layers.work),
        len(fields),
        np.concatenate([np.array(layers.prefix(field)) for field in fields]),
        _whole([*passing, *[0] * len(layers.work)]),
        np.array([*map(hops.index, hops), 0]),
        np.array(devices),
        np.array(room * c.pipeline_depth, dtype=np.int64),
        np.array(layers.prefix("activation")),
        np.array(layers.prefix("state")),
        _reduced(builder, c) if c.replicas > 1 else np.zeros(0, dtype=np.int64),
        _whole(layers.prefix("optimizer") if has_optimizer else []),
    )


def _whole(ticks: Sequence[int]) -> IntArray:
    # Pipelines with longer times are refused.
    return np.array([min(time, MAX_TICKS + 1) for time in ticks], dtype=np.int64)


FIELDS_OF_SPLIT = ("forward", "backward_input", "backward_weight")


def _reduced(builder: PipelineBuilder, configuration: Configuration) -> IntArray:
    c, width = configuration, builder.request.model.num_layers + 1
    tables: dict[object, IntArray] = {}
    rows = []
    for device in range(c.pipeline_depth):
        link = builder.ring(device, (c.pipeline_depth, c.replicas), c.rank_order)
        key = repr(link)
        if key not in tables:
            tables[key] = np.zeros((width, width), dtype=np.int64)
            for end in range(1, width):
                times = builder.allreduces_before(c, device, end)
                tables[key][end - 1 :: -1, end] = _whole(times)
        rows.append(tables[key].ravel())
    return np.concatenate(rows)


@dataclass(frozen=True)
class OrderedSplit:
    """A split, the order under which it was timed, and its makespan in ticks."""

    makespan: int
    boundaries: Boundaries
    order: TimedOrder

    @property
    def fits(self) -> bool:
        """Whether it fits the memory."""
        return self.makespan < LACKING


class _AnnealingRound(NamedTuple):
    steps: int  # under each order, of splits whose ops are timed
    most: int  # of all splits
    seed: tuple[int, int]
    heat: float
    enough: int


class SplitAnnealing:
    """Anneals splits of one configuration under several orders, long under the best ones only."""

    def __init__(self, sums: LayerSums, orders: list[TimedOrder], clock: Clock) -> None:
        self._sums, self._orders, self._clock = sums, orders, clock

    def run(
        self, start: Boundaries, ops: int, seed: int, heat: float, enough: int
    ) -> OrderedSplit | None:
        """Return the best split that is found, None where there is no order.

        A quarter of the work goes to all orders, a quarter of what is left to the better half of
        them, and so on; the best one gets the rest.

        `start`: where the search begins, under each order.
        `ops`: how many are timed at most.
        `heat`: share of the makespan by which a worse split is taken at the beginning.
        `enough`: makespan in ticks at which nothing better can be.
        """
        splits = [OrderedSplit(LACKING, start, order) for order in self._orders]
        most = STEPS_OF_ALL * math.comb(self._sums.layers - 1, self._sums.stages - 1)
        level = 0
        while splits:
            is_last = len(splits) == 1
            share = ops if is_last else ops // 4
            ops -= share
            steps = min(most, share // (len(splits) * len(splits[0].order.ops)))
            search = _AnnealingRound(max(1, steps), most, (seed, level), heat, enough)
            splits = sorted(
                self._annealed_all(splits, search), key=lambda split: split.makespan
            )
            is_enough = self._clock.is_over or splits[0].makespan <= enough
            if is_last or is_enough or steps < 1:
                return splits[0]
            splits, level = splits[: -(-len(splits) // 2)], level + 1
        return None

    def _annealed_all(
        self, splits: Sequence[OrderedSplit], search: _AnnealingRound
    ) -> Iterator[OrderedSplit]:
        for number, split in enumerate(splits):
            # The first one is always timed: a plan that is late needs a split too.
            if number and self._clock.is_over:
                return
            yield self._annealed(split, search, number)

    def _annealed(
        self, split: OrderedSplit, search: _AnnealingRound, number: int
    ) -> OrderedSplit:
        sums, order = self._sums, split.order.record
        ops, stages = len(order.row), sums.stages
        expect(ops * search.steps)
        current = np.array(split.boundaries, dtype=np.int64)
        best, trial = current.copy(), current.copy()
        values = np.array([-1, -1, 0])
        scratch = [
            np.zeros(size, dtype=np.int64)
            for size in (ops, sums.rows * stages, 2 * stages + 1, 4 * stages)
        ]
        rng = np.random.default_rng((*search.seed, number))
        none = np.zeros(0, dtype=np.int64)
        state = (search.enough, current, best, values, *scratch, trial)
        # Without a step the split itself is timed.
        anneal_split(sums, order, none, none.copy(), *state)
        untimed = (sums.rows * stages + len(order.in_flight)) / ops
        taken, spent = 0, 0.0
        size = _steps_of_call(search.steps, ops)
        while spent < 1 and values[1] > search.enough and not self._clock.is_over:
            draws = rng.integers(0, 2**30, size=size * DRAWS)
            # Where memory lacks, less of it is all that counts.
            scale = values[1] if values[1] < LACKING else 0
            slack = search.heat * scale * (1 - spent) ** 3 * rng.exponential(size=size)
            anneal_split(sums, order, draws, slack.astype(np.int64), *state)
            taken += size
            timed = values[2] + untimed * taken
            spent = max(timed / search.steps, taken / search.most)
        return OrderedSplit(int(values[1]), tuple(best.tolist()), split.order)


def _steps_of_call(steps: int, ops: int) -> int:
    # Between two looks at the clock, and at what was spent.
    most = (OPS_OF_CALL if is_compiled() else OPS_UNCOMPILED) // ops
    return max(1, min(most, -(-steps // CALLS)))
