"""Schedules of pipelines under fixed orders of their ops: of a runtime, or published ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import TypeVar

import numpy as np

from ppsolve.models.core.dag import chain_edges
from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.documents.errors import InputError, NotApplicableError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.modes import group_sizes
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.api.registry import chosen_heuristics
from ppsolve.solver.heuristics.heuristic import Heuristic, Request
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.longest_paths import earliest_starts, sort_ops
from ppsolve.solver.kernels.records import PrecedenceGraph
from ppsolve.solver.kernels.split_annealing import OrderedOps
from ppsolve.solver.kinds.pipeline.actions import Order, gradient_after_weight, resolved
from ppsolve.solver.kinds.pipeline.interleaved import torch_group_size
from ppsolve.solver.kinds.pipeline.layers.linear import fullest_rows, in_flight_of
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape, shape_of
from ppsolve.solver.kinds.pipeline.runtimes.family import RuntimeFamily
from ppsolve.solver.kinds.pipeline.stage_arrays import lag_rows
from ppsolve.solver.structure.tables import graph_of, renumbered
from ppsolve.solver.studies.plan.arrays import PipelineArrays, lowered, without_tails
from ppsolve.solver.studies.plan.list_scheduling import (
    QuickSchedule,
    end_of,
    fitting_schedule,
    unit_time,
    with_tails,
)

T = TypeVar("T")

RECENT_SHAPES = 16
"""Shapes of pipelines whose orders are kept."""

MOST_KEPT = 100_000
"""Ops of the first orders of a shape, which are kept and tried by quick schedules."""

IN_GROUPS = ("interleaved-1f1b", "interleaved-less-memory")
"""Heuristics that run micro-batches in groups, whose size may be chosen."""


@dataclass(frozen=True)
class NamedOrder:
    """An order of the ops of each device, and its name in reports."""

    words: str
    orders: Sequence[Order]


OrderSource = Callable[[PipelineInstance, Problem], Iterator[NamedOrder]]
"""Yields the orders that are allowed of a pipeline, the most usual ones first."""


def orders_of_runtime(family: RuntimeFamily) -> OrderSource:
    """Return the orders that a runtime runs."""

    def orders(instance: PipelineInstance, _: Problem) -> Iterator[NamedOrder]:
        shape = shape_of(instance)
        assert family.orders is not None
        if family.fits(shape, family.title) is None:
            listed = [NamedOrder(o.words, o.orders) for o in family.orders(shape)]
            yield from _extremes_first(listed)

    return orders


def orders_by_name(names: Sequence[str] | None) -> OrderSource:
    """Return the orders of some heuristics, as far as they do not depend on times.

    Those that run groups of micro-batches do so with every size that Megatron-LM runs.

    `names`: of heuristics; None for all published ones.
    """

    def orders(instance: PipelineInstance, problem: Problem) -> Iterator[NamedOrder]:
        kind = kind_of(instance)
        for heuristic in chosen_heuristics(instance, names):
            if heuristic.orders and kind.obstacle(heuristic, instance) is None:
                yield from _orders_in_groups(heuristic, Request(instance, problem))

    return orders


def _orders_in_groups(heuristic: Heuristic, request: Request) -> Iterator[NamedOrder]:
    sizes: list[int | None] = [None]
    ranks, count = request.instance.num_devices, request.instance.num_microbatches
    if heuristic.name in IN_GROUPS:
        sizes += _extremes_first(group_sizes(ranks, count))
    usual = None
    assert heuristic.orders is not None
    for size in sizes:
        words = (
            heuristic.name if size is None else f"{heuristic.name}, groups of {size}"
        )
        try:
            if size is None and len(sizes) > 1:
                usual = torch_group_size(ranks, count)
            if size is None or size != usual:
                orders = heuristic.orders(replace(request, group_size=size))
                yield NamedOrder(words, orders)
        except NotApplicableError:
            continue


def _extremes_first(items: Sequence[T]) -> list[T]:
    """Return the first and the last item before the others."""
    return [*items[:1], *items[1:][-1:], *items[1:-1]]


class OrderScheduler:
    """Times pipelines of one request under every order that is allowed."""

    def __init__(self, source: OrderSource) -> None:
        self._source = source
        self._orders: dict[PipelineShape, list[TimedOrder]] = {}
        self._known: dict[tuple[object, ...], QuickSchedule | None] = {}

    def makespan(self, arrays: PipelineArrays) -> int | None:
        """Return the makespan of the best of the first orders that fit the memory, in ticks.

        None where none fits.
        """
        if orders_decide_memory(arrays):
            orders = self.first_orders(arrays)
            times = self._times(arrays, orders)
            return min((ticks for ticks, _ in times), default=None)
        schedule = self.schedule(arrays)
        tick = arrays.pipeline.layers.tick
        return schedule and round(schedule.makespan / float(tick))

    def num_ops(self, arrays: PipelineArrays) -> int:
        """Return the ops of the first orders."""
        return arrays.num_ops * len(self.first_orders(arrays))

    def schedule(self, arrays: PipelineArrays) -> QuickSchedule | None:
        """Return the schedule of the best of the first orders, checked.

        None where none fits the memory.
        """
        if arrays.key not in self._known:
            self._known[arrays.key] = self._best(arrays, self.first_orders(arrays))
        return self._known[arrays.key]

    def best_schedule(self, arrays: PipelineArrays) -> QuickSchedule | None:
        """Return the schedule of the best of all orders, as `schedule`."""
        return self._best(arrays, self._all_orders(arrays))

    def schedule_under(
        self, arrays: PipelineArrays, order: TimedOrder
    ) -> QuickSchedule | None:
        """Return the schedule under one order, checked; None where it does not fit the memory."""
        return self._best(arrays, [order])

    def _best(
        self, arrays: PipelineArrays, orders: Iterable[TimedOrder]
    ) -> QuickSchedule | None:
        problem = lowered(arrays)[1]
        for _, order in sorted(self._times(arrays, orders), key=lambda pair: pair[0]):
            schedule = fitting_schedule(
                partial(resolved, problem, order.named.orders), problem
            )
            if schedule is not None:
                return QuickSchedule(
                    unit_time(schedule), order.named.words, start=schedule.start
                )
        return None

    def _times(
        self, arrays: PipelineArrays, orders: Iterable[TimedOrder]
    ) -> Iterator[tuple[int, TimedOrder]]:
        # Of the orders that may fit the memory, in ticks.
        duration = np.repeat(arrays.duration.ravel(), arrays.microbatches)
        is_decided = orders_decide_memory(arrays)
        expect(arrays.num_ops)
        for order in orders:
            if not is_decided or order.fits(arrays):
                start = order.starts(duration, arrays.stages.lag[:, 0])
                yield end_of(arrays, with_tails(arrays, start)), order

    def first_orders(self, arrays: PipelineArrays) -> list[TimedOrder]:
        """Return the first orders, at least one if there is any: as many as are kept."""
        shape = shape_of(without_tails(arrays)[0])
        if shape not in self._orders:
            if len(self._orders) == RECENT_SHAPES:
                del self._orders[next(iter(self._orders))]
            count = max(2, MOST_KEPT // arrays.num_ops)
            self._orders[shape] = list(islice(self._all_orders(arrays), count))
        return self._orders[shape]

    def _all_orders(self, arrays: PipelineArrays) -> Iterator[TimedOrder]:
        instance, problem = without_tails(arrays)
        devices = shape_of(instance).stage_to_rank
        timed = (
            TimedOrder.of(named, devices, problem)
            for named in self._source(instance, problem)
        )
        return (order for order in timed if order is not None)


def orders_decide_memory(arrays: PipelineArrays) -> bool:
    """Whether the memory in use follows from orders alone, see `open_moments`."""
    return bool((arrays.duration[:2] > 0).all(axis=1).any())


@dataclass(frozen=True, eq=False)
class TimedOrder:
    """One order of pipelines of one shape; the lags of `graph` are rows of `StageArrays.lag`."""

    named: NamedOrder
    graph: PrecedenceGraph
    ops: IntArray  # int64[n], in topological order
    own: list[IntArray]  # int64[...]: stages of each device
    in_flight: list[IntArray]  # int64[rows, stages of the device]
    microbatches: int

    @classmethod
    def of(
        cls, named: NamedOrder, stage_to_rank: tuple[int, ...], problem: Problem
    ) -> TimedOrder | None:
        """Return an order of a problem of all times 1, None where its ops wait for each other."""
        orders: list[Order] = list(named.orders)
        before, after = problem.before, problem.after
        # What one device runs is in the order of its chain.
        is_sent = problem.device[before] != problem.device[after]
        before, after = before[is_sent], after[is_sent]
        lag = lag_rows(problem, before, after)
        marked = replace(problem, before=before, after=after, lag=lag)
        try:
            chains = resolved(marked, orders)
        except InputError:
            return None
        fused = gradient_after_weight(marked, chains.inputs, chains.weights)
        graph = graph_of(marked, chain_edges(chains.ops), fused)
        ops = np.zeros(problem.num_ops, dtype=np.int64)
        if sort_ops(graph, graph.num_predecessors.copy(), ops) < len(ops):
            return None
        owner = np.array(stage_to_rank)
        stages = [np.flatnonzero(owner == rank) for rank in range(len(orders))]
        in_flight = [*map(fullest_rows, in_flight_of(stage_to_rank, orders))]
        count = int(problem.microbatch.max()) + 1
        return cls(named, graph, ops, stages, in_flight, count)

    def fits(self, arrays: PipelineArrays) -> bool:
        """Whether every device has room at each of its forwards."""
        held, room = arrays.stages.held[:, 0], arrays.stages.room[:, 0].tolist()
        rows = zip(self.own, self.in_flight, room, strict=True)
        return all(
            (counts @ held[stages]).max() <= most for stages, counts, most in rows
        )

    def starts(self, duration: IntArray, lags: IntArray) -> IntArray:
        """Return the earliest starts, as if micro-batches went by their index.

        `lags`: those of `StageArrays`.
        """
        start = np.zeros_like(duration)
        graph = self.graph._replace(duration=duration, lag=lags[self.graph.lag])
        earliest_starts(graph, self.ops, start)
        return np.sort(start.reshape(-1, self.microbatches), axis=1).ravel()

    @cached_property
    def record(self) -> OrderedOps:
        """The order as kernels read it."""
        count, rank = self.microbatches, np.empty_like(self.ops)
        rank[self.ops] = np.arange(len(self.ops))
        rows = np.arange(len(self.ops)) // count
        graph = renumbered(self.graph._replace(duration=rows), self.ops)
        sizes = [len(stages) for stages in self.own]
        cells = [table.size for table in self.in_flight]
        return OrderedOps(
            count,
            graph.duration,
            rank.reshape(-1, count).max(axis=1),
            graph.pointer,
            graph.successor,
            graph.lag,
            np.cumsum([0, *sizes]),
            np.concatenate(self.own),
            np.cumsum([0, *cells]),
            np.concatenate([table.ravel() for table in self.in_flight]),
        )
