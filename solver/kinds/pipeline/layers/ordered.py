"""Splits of layers under one published order: the best one, and a bound on all of them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ppsolve.models.core.dag import chain_edges
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_split
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.heuristics.heuristic import Heuristic, Request
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.longest_paths import earliest_starts, sort_ops
from ppsolve.solver.kinds.pipeline.actions import Order, resolved
from ppsolve.solver.kinds.pipeline.layers.fitting import MemoryFit
from ppsolve.solver.kinds.pipeline.layers.linear import (
    SplitAnswer,
    SplitTimes,
    memory_of_devices,
    peaks_of_order,
)
from ppsolve.solver.kinds.pipeline.layers.rules import RecomputeRule
from ppsolve.solver.kinds.pipeline.layers.search import LayerSearch
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.tables import graph_of, joined
from ppsolve.solver.structure.timing import time_orders

MODEL_LIMITS = SearchLimits(seconds=None, deterministic=2.0)
"""Effort for the model of splits, the same on every machine."""

PROOF_SHARE = 0.3
"""Share of the time in which the best split is looked for by proof."""

PATHS = 12
"""Paths at the most by which the model of splits grows."""

LAYERS = "layers"
"""Name of the bound over all splits in reports."""

ORDERED_STEPS = 5_000
"""Splits that are rated under one order."""


class OrderedSplits:
    """Splits of one pipeline under one order.

    Transfers that share a link go in the order of the even split.

    `instance`: a pipeline with layers.
    `even`: its even split.
    `orders`: of each device.
    """

    def __init__(
        self, instance: PipelineInstance, even: Problem, orders: Sequence[Order]
    ) -> None:
        self._instance, self._even = instance, even
        self.scale, self.orders = even.scale, orders
        chains = resolved(even, self.orders)
        timed = chains.timed(even)
        self._chains, self._waits = [*chains.ops, *timed.resource_orders()], timed.waits
        assert self._waits is not None
        edges = chain_edges(self._chains), self._waits
        self._edges = joined(even, *edges)
        self._graph = graph_of(even, *edges)
        self._sorted = np.zeros(even.num_ops, dtype=np.int64)
        sort_ops(self._graph, self._graph.num_predecessors.copy(), self._sorted)
        self._times = SplitTimes.of(instance, self.scale)
        self.in_flight = peaks_of_order(instance.stage_to_device, self.orders)
        self._memory = memory_of_devices(instance, self.in_flight)
        assert instance.layers is not None
        self.fit = MemoryFit(instance.layers, self._memory)
        self._least = instance.layers.least(instance.num_stages)
        kinds = [even.kinds.index(kind) for kind in instance.times.by_kind()]
        self._moved = np.flatnonzero(
            np.isin(even.kind, kinds) & (even.microbatch != FREE)
        )
        place = [kinds.index(kind) for kind in even.kind[self._moved].tolist()]
        self._place = np.array(place, dtype=np.int64), even.stage[self._moved]
        expect(ORDERED_STEPS * even.num_ops)

    @classmethod
    def of_heuristic(
        cls, instance: PipelineInstance, heuristic: Heuristic
    ) -> OrderedSplits:
        """Return the splits under the order of a heuristic, which does not depend on times."""
        assert heuristic.orders is not None
        even = lower_split(instance, even_counts(instance))
        return cls(instance, even, heuristic.orders(Request(instance, even)))

    def fits(self, counts: IntArray) -> bool:
        """Whether the memory of all devices is large enough for a split."""
        return not any(
            np.any((amounts * counts[:, stages]).sum(axis=(1, 2)) > limits)
            for stages, amounts, limits in self._memory
        )

    def rate(self, counts: IntArray) -> int | None:
        """Return the makespan of a split in ticks, None where memory is too small."""
        if not self.fits(counts):
            return None
        duration, start = self._timed(counts)
        return int((start + duration).max())

    def _timed(self, counts: IntArray) -> tuple[IntArray, IntArray]:
        """Return the durations and starts of all ops under a split."""
        duration, start = self._even.duration.copy(), self._graph.earliest.copy()
        duration[self._moved] = self._times.ticks(counts)[self._place]
        earliest_starts(self._graph._replace(duration=duration), self._sorted, start)
        return duration, start

    def schedule(self, counts: IntArray) -> Schedule:
        """Return the schedule of a split."""
        return time_orders(
            lower_split(self._instance, counts), self._chains, self._waits
        )

    def search(
        self, clock: Clock, enough: int, seed: int = 1, steps: int = 10**9
    ) -> SplitAnswer:
        """Search the best split.

        `enough`: makespan in ticks at which nothing better is asked for.
        `steps`: splits that are rated at the most.
        Returns: the split, and a bound on those under this order.
        """
        found = self.by_paths(clock.share(PROOF_SHARE))
        if found.is_infeasible:
            return found
        search = LayerSearch(self.rate, seed, steps, self.fit.fitted, least=self._least)
        everywhere = np.ones(self._instance.num_stages, dtype=np.bool_)
        even = self.fit.fitted(
            even_counts(self._instance), everywhere, random.Random(seed)
        )
        starts = [each for each in (found.counts, even) if each is not None]
        if starts:
            best = min(starts, key=lambda each: self.rate(each) or math.inf)
            search.run(best, clock, max(enough, found.bound))
        return replace(found, counts=search.best)

    def by_paths(
        self,
        clock: Clock,
        rule: RecomputeRule | None = None,
        paths: int = PATHS,
        below: int | None = None,
        tried: list[IntArray] | None = None,
    ) -> SplitAnswer:
        """Solve the model, with the longest path of each answer, until that is no news.

        `rule`: optional, the only layers that recompute.
        `paths`: longest paths at the most.
        `below`: optional, only shorter makespans are asked for; a bound is not above it.
        `tried`: optional, splits whose longest paths the model begins with; those of further
            answers are appended.
        """
        from ppsolve.solver.kinds.pipeline.layers.model import LayerModel

        model = LayerModel(self._instance, self.scale, self.in_flight, rule=rule)
        if below is not None:
            model.cp.add(model.makespan < below)
        tried = [] if tried is None else tried
        for counts in tried:
            model.add_path(*self._longest_path(*self._timed(counts)))
        best, value, bound = None, 2**62, 0
        for _ in range(paths):
            answer = model.solve(MODEL_LIMITS, clock)
            if answer.is_infeasible and below is not None:
                return SplitAnswer(best, below)
            if answer.counts is None:
                return replace(answer, counts=best, bound=max(bound, answer.bound))
            bound = max(bound, answer.bound)
            duration, start = self._timed(answer.counts)
            found = int((start + duration).max())
            if found < value:
                best, value = answer.counts, found
            if value <= bound or clock.is_over:
                break
            tried.append(answer.counts)
            model.add_path(*self._longest_path(duration, start))
        return SplitAnswer(best, bound)

    def _longest_path(
        self, duration: IntArray, start: IntArray
    ) -> tuple[IntArray, int]:
        """Return the ops of layers on a longest path, int64[fields, S], and the ticks beside."""
        before, after, lag = self._edges
        tight = start[before] + duration[before] + lag == start[after]
        cause = dict(zip(after[tight].tolist(), before[tight].tolist(), strict=True))
        op: int | None = int(np.argmax(start + duration))
        path = np.zeros(len(start), dtype=np.int64)
        fixed = int((start + duration).max())
        while op is not None:
            path[op] = 1
            op = cause.get(op)
        ops = np.zeros_like(self._times.fixed)
        np.add.at(ops, self._place, path[self._moved])
        return ops, fixed - int(path[self._moved] @ duration[self._moved])


def even_counts(instance: PipelineInstance) -> IntArray:
    """Return an even split of the layers of a pipeline, all kept."""
    assert instance.layers is not None
    return instance.layers.evenly(instance.num_stages)


def balanced_split(
    instance: PipelineInstance,
    scale: TimeScale,
    times: SplitTimes,
    clock: Clock | None,
) -> SplitAnswer:
    """Return the split with the least time of the busiest device, a bound in any order.

    The model is loaded and solved for it, for which a short clock may not suffice.

    Raises `MemoryInfeasible` where no split fits.
    """
    from ppsolve.solver.kinds.pipeline.layers.model import LayerModel

    model = LayerModel(instance, scale, times=times)
    answer = model.solve(MODEL_LIMITS, clock or Clock())
    if answer.is_infeasible:
        raise MemoryInfeasible(
            "memory: no split of the layers fits, even with one micro-batch in flight"
        )
    return answer
