"""Proof for few assignments: what each set of micro-batches takes alone, as far as that matters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import comb

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.joint import lower_replicas
from ppsolve.models.kinds.pipeline.replicas import Members, Replicas
from ppsolve.solver.bounds.flow.flow import flow_of
from ppsolve.solver.bounds.flow.states import solve_states
from ppsolve.solver.bounds.registry import flow_bounds
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.records import NEVER

NAME = "assignments"
"""Name of this search in reports."""


@dataclass(frozen=True)
class EnumerationParams:
    """Up to which sizes all assignments are gone through."""

    most_microbatches: int = 12  # of the step
    most_sets: int = (
        1_000  # of micro-batches that a replica may run: 924 for 12 on 2 replicas
    )
    most_ops: int = 48  # of a set, which is searched through states


MicrobatchSet = tuple[int, ...]
"""Micro-batches of a replica, ascending."""


def set_sizes(replicas: Replicas, num_microbatches: int) -> range:
    """Return the numbers of micro-batches that a replica may run if replicas exchange them."""
    if replicas.counts == "equal":
        size = num_microbatches // replicas.count
        return range(size, size + 1)
    return range(1, num_microbatches - replicas.count + 2)


def has_few(instance: PipelineInstance) -> bool:
    """Whether the assignments of a pipeline with replicas are few enough to go through."""
    assert instance.replicas is not None
    count, params = instance.num_microbatches, EnumerationParams()
    sizes = set_sizes(instance.replicas, count)
    ops = instance.num_stages * len(instance.times.by_kind())
    return (
        count <= params.most_microbatches
        and sizes[-1] * ops <= params.most_ops
        and sum(comb(count, size) for size in sizes) <= params.most_sets
    )


@dataclass
class _Known:
    bound: int
    value: int = NEVER
    starts: IntArray | None = None
    looks: int = 0


class AssignmentEnumeration:
    """All assignments of a step: the least makespan that each set may have, made exact on demand.

    The assignment whose slowest set has the least bound bounds all of them. While it does, its sets
    are looked at again: first by bounds, then by a search through states. Once nothing is left to
    look at, its makespan is the optimum.

    The load is the work of each micro-batch on each device of a replica, int64[m, R] in ticks. Only
    assignments below the upper bound are of use.
    """

    def __init__(
        self, instance: PipelineInstance, scale: TimeScale, load: IntArray, upper: int
    ) -> None:
        assert instance.replicas is not None
        self._instance, self._scale, self.upper = instance, scale, upper
        self._count = instance.replicas.count
        everyone = range(instance.num_microbatches)
        sizes = set_sizes(instance.replicas, instance.num_microbatches)
        self._known: dict[MicrobatchSet, _Known] = {
            subset: _Known(int(load[list(subset)].sum(axis=0).max()))
            for size in sizes
            for subset in combinations(everyone, size)
        }
        self._by_first: dict[int, list[MicrobatchSet]] = {}
        for subset in self._known:
            self._by_first.setdefault(subset[0], []).append(subset)
        self.members, self.bound = self._least()

    def _least(self) -> tuple[Members, int]:
        @cache
        def best(unassigned: frozenset[int], replicas: int) -> tuple[int, Members]:
            if not replicas:
                return (NEVER, ()) if unassigned else (0, ())
            cheapest: tuple[int, Members] = (NEVER, ())
            for subset in self._by_first[min(unassigned)] if unassigned else []:
                bound = self._known[subset].bound
                if bound < cheapest[0] and unassigned.issuperset(subset):
                    value, following = best(unassigned.difference(subset), replicas - 1)
                    cheapest = min(cheapest, (max(value, bound), (subset, *following)))
            return cheapest

        everyone = frozenset(range(self._instance.num_microbatches))
        value, members = best(everyone, self._count)
        return members, value

    def improve(self, clock: Clock) -> Iterator[tuple[Members, list[IntArray]]]:
        """Raise the bound until it is exact; yield assignments below the upper bound."""
        while self.bound < self.upper and not clock.is_over:
            sets = [self._known[subset] for subset in self.members]
            value = max(record.value for record in sets)
            if value < self.upper:
                self.upper = value
                yield (
                    self.members,
                    [record.starts for record in sets if record.starts is not None],
                )
                continue
            looked = [
                subset for subset in self.members if self._known[subset].looks < 2
            ]
            if not looked:
                return
            self._look(max(looked, key=lambda subset: self._known[subset].bound), clock)
            self.members, self.bound = self._least()
        self.bound = min(self.bound, self.upper)

    def _look(self, subset: MicrobatchSet, clock: Clock) -> None:
        record = self._known[subset]
        record.looks += 1
        (problem,) = lower_replicas(self._instance, (subset,), scale=self._scale)
        flow = flow_of(problem)
        if flow is None or flow.ops.size < problem.num_ops:
            record.looks = 2
        elif record.looks == 1:
            record.bound = max(record.bound, flow_bounds(flow, clock)[0].value)
        else:
            answer = solve_states(flow, self.upper, lower=record.bound, clock=clock)
            if answer is None:
                return
            record.bound = max(record.bound, answer.bound)
            if answer.value is not None and answer.starts is not None:
                starts = np.zeros_like(problem.duration)
                starts[flow.ops] = answer.starts
                record.value, record.starts = answer.value, starts
