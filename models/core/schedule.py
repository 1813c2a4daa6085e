"""A schedule: one integer start for every op of a problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import IntArray, Objective, Problem


@dataclass(frozen=True, eq=False)
class Schedule:
    """Start of every op, in ticks.

    Parameters
    ----------
    problem : Problem
        The problem that is scheduled, n ops.
    start : int64[n]
        Start of each op.
    waits : Edges, optional
        Additional precedences that it was timed with, such as the order of its resources.
    """

    problem: Problem
    start: IntArray
    waits: Edges | None = None

    @cached_property
    def end(self) -> IntArray:
        """End of each op, int64[n]."""
        return self.start + self.problem.duration

    @property
    def makespan(self) -> int:
        """End of the last op, in ticks from time 0."""
        return int(self.end.max(initial=0))

    @cached_property
    def spans(self) -> IntArray:
        """Per span resource: end of its last op minus start of its first, in ticks."""
        problem = self.problem
        spans = []
        for resource in problem.span_resources:
            ops = problem.ops_by_resource[int(resource)]
            spans.append(
                int(self.end[ops].max() - self.start[ops].min()) if len(ops) else 0
            )
        return np.array(spans, dtype=np.int64)

    @property
    def device_span(self) -> int:
        """Largest span of a device, in ticks: what zero-bubble papers minimise."""
        return int(self.spans.max(initial=0))

    @property
    def value(self) -> int:
        """The problem's objective, in ticks."""
        match self.problem.objective:
            case Objective.DEVICE_SPAN:
                return self.device_span
            case Objective.COMPLETION:
                return int(self.problem.weight @ self.end)
            case _:
                return self.makespan

    def normalised(self) -> Schedule:
        """Return the schedule with its first op at 0, unless releases or pins fix time 0."""
        first = int(self.start.min()) if len(self.start) else 0
        if self.problem.is_anchored or first == 0:
            return self
        return replace(self, start=self.start - first)

    def resource_orders(self) -> list[IntArray]:
        """Return the ops of each resource, in order of start; ops of duration 0 are left out."""
        orders = []
        for ops in self.problem.ops_by_resource:
            busy = ops[self.problem.duration[ops] > 0]
            orders.append(busy[np.argsort(self.start[busy], kind="stable")])
        return orders
