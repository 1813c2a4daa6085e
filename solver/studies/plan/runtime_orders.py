"""Quick schedules of pipelines for a runtime that runs few orders: the best of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ppsolve.models.core.dag import chain_edges
from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.longest_paths import earliest_starts, sort_ops
from ppsolve.solver.kernels.records import PrecedenceGraph
from ppsolve.solver.kinds.pipeline.actions import Order, gradient_after_weight, resolved
from ppsolve.solver.kinds.pipeline.layers.linear import in_flight_of
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape, shape_of
from ppsolve.solver.kinds.pipeline.runtimes.family import RuntimeFamily
from ppsolve.solver.kinds.pipeline.runtimes.timing import RuntimeSettings, settings_of
from ppsolve.solver.kinds.pipeline.stage_arrays import lag_rows
from ppsolve.solver.structure.tables import graph_of
from ppsolve.solver.studies.plan.arrays import PipelineArrays, lowered, without_tails
from ppsolve.solver.studies.plan.list_scheduling import (
    QuickSchedule,
    end_of,
    fitting_schedule,
    unit_time,
    with_tails,
)

RECENT_SHAPES = 4
"""Shapes of pipelines whose orders are kept."""

MOST_KEPT = 1_000_000
"""Ops of all orders of a shape, roughly, up to which they are kept: 64 MB."""


class RuntimeScheduler:
    """Times pipelines of one request under every order of a runtime."""

    def __init__(self, family: RuntimeFamily) -> None:
        self._family = family
        self._orders: dict[PipelineShape, list[_TimedOrder]] = {}
        self._known: dict[tuple[object, ...], QuickSchedule | None] = {}

    def num_ops(self, arrays: PipelineArrays) -> int:
        """Return the ops that are timed to rate a pipeline, those of all orders, at the most."""
        shape = shape_of(without_tails(arrays)[0])
        return arrays.num_ops * len(self._orders.get(shape, range(arrays.microbatches)))

    def makespan(self, arrays: PipelineArrays) -> int | None:
        """Return the makespan of the best order that fits the memory, in ticks of the profile.

        None where none fits.
        """
        if _orders_decide_memory(arrays):
            return min((ticks for ticks, _ in self._times(arrays)), default=None)
        schedule = self.schedule(arrays)
        tick = arrays.pipeline.layers.tick
        return schedule and round(schedule.makespan / float(tick))

    def schedule(self, arrays: PipelineArrays) -> QuickSchedule | None:
        """Return the schedule of the best order, checked; None where none fits the memory."""
        if arrays.key not in self._known:
            self._known[arrays.key] = self._scheduled(arrays)
        return self._known[arrays.key]

    def _scheduled(self, arrays: PipelineArrays) -> QuickSchedule | None:
        expect(self.num_ops(arrays))
        problem = lowered(arrays)[1]
        for _, order in sorted(self._times(arrays), key=lambda pair: pair[0]):
            settings = order.settings
            schedule = fitting_schedule(
                partial(resolved, problem, settings.orders), problem
            )
            if schedule is not None:
                return QuickSchedule(
                    unit_time(schedule), settings.words, start=schedule.start
                )
        return None

    def _times(self, arrays: PipelineArrays) -> Iterator[tuple[int, _TimedOrder]]:
        # Of the orders that may fit the memory, in ticks.
        problem = without_tails(arrays)[1]
        row = lag_rows(problem, problem.before, problem.after)
        lags = np.concatenate([[0], arrays.stages.lag[row, 0]])
        duration = np.repeat(arrays.duration.ravel(), arrays.microbatches)
        is_decided = _orders_decide_memory(arrays)
        for order in self._orders_of(arrays):
            if not is_decided or order.fits(arrays):
                start = order.starts(duration, lags)
                yield end_of(arrays, with_tails(arrays, start)), order

    def _orders_of(self, arrays: PipelineArrays) -> Iterable[_TimedOrder]:
        instance, problem = without_tails(arrays)
        shape = shape_of(instance)
        if shape in self._orders:
            return self._orders[shape]
        orders = (
            _TimedOrder.of(settings, shape.stage_to_rank, problem)
            for settings in settings_of(self._family, instance)
        )
        if self.num_ops(arrays) > MOST_KEPT:
            return orders
        if len(self._orders) == RECENT_SHAPES:
            del self._orders[next(iter(self._orders))]
        self._orders[shape] = list(orders)
        return self._orders[shape]


def _orders_decide_memory(arrays: PipelineArrays) -> bool:
    """Whether the memory in use follows from orders alone, see `open_moments`."""
    return bool((arrays.duration[:2] > 0).all(axis=1).any())


@dataclass(frozen=True, eq=False)
class _TimedOrder:
    # One order of pipelines of one shape; the lags of `graph` are places in those of the problem,
    # counted from 1, or 0 for none.

    settings: RuntimeSettings
    graph: PrecedenceGraph
    ops: IntArray  # int64[n], in topological order
    own: list[IntArray]  # int64[...]: stages of each device
    in_flight: list[IntArray]  # int64[rows, stages of the device]

    @classmethod
    def of(
        cls, settings: RuntimeSettings, stage_to_rank: tuple[int, ...], problem: Problem
    ) -> _TimedOrder:
        orders: list[Order] = list(settings.orders)
        marked = replace(problem, lag=np.arange(1, len(problem.lag) + 1))
        chains = resolved(marked, orders)
        fused = gradient_after_weight(marked, chains.inputs, chains.weights)
        graph = graph_of(marked, chain_edges(chains.ops), fused)
        ops = np.zeros(problem.num_ops, dtype=np.int64)
        sort_ops(graph, graph.num_predecessors.copy(), ops)
        owner = np.array(stage_to_rank)
        stages = [np.flatnonzero(owner == rank) for rank in range(len(orders))]
        return cls(settings, graph, ops, stages, in_flight_of(stage_to_rank, orders))

    def fits(self, arrays: PipelineArrays) -> bool:
        """Whether every device has room at each of its forwards."""
        held, room = arrays.stages.held[:, 0], arrays.stages.room[:, 0].tolist()
        rows = zip(self.own, self.in_flight, room, strict=True)
        return all(
            (counts @ held[stages]).max() <= most for stages, counts, most in rows
        )

    def starts(self, duration: IntArray, lags: IntArray) -> IntArray:
        """Return the earliest starts; `lags` are 0 and those of the problem."""
        start = np.zeros_like(duration)
        graph = self.graph._replace(duration=duration, lag=lags[self.graph.lag])
        earliest_starts(graph, self.ops, start)
        return start
