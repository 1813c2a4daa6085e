"""Bounds on device spans: heads and tails relative to what runs on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ppsolve.models.core.dag import Dag
from ppsolve.models.core.problem import BoolArray, IntArray, Problem
from ppsolve.solver.bounds.first_return import MANY, return_bound
from ppsolve.solver.bounds.one_machine import preemptive_bound
from ppsolve.solver.structure.implied import PoolOrder

NEVER = -(2**62)
"""Head or tail of an op that is not connected with the device in question."""

MAX_CELLS = 40_000_000
"""Ops times devices that are looked at; beyond that devices are left out, evenly spread."""

MAX_STRENGTHENED = 4
"""Devices that are worth the effort of stronger heads; the others keep the plain bound."""


def busy_ops(problem: Problem) -> list[IntArray]:
    """Return, per resource, its ops of positive length."""
    return [ops[problem.duration[ops] > 0] for ops in problem.ops_by_resource]


class Spans:
    """Heads and tails relative to the first start and the last end on each span resource.

    Parameters
    ----------
    problem : Problem
        n ops, D span resources.
    graph : Dag
        Precedences that hold in some optimal schedule.

    Attributes
    ----------
    resources : list of int
        The resources looked at, one per column: all of them unless the problem is huge.
    heads, tails : int64[n, columns]
        Longest paths from the first start, and to the last end, on each; `NEVER` where no op of
        the resource comes before, or after.
    """

    def __init__(self, problem: Problem, graph: Dag) -> None:
        self.problem = problem
        self.busy = busy_ops(problem)
        every = problem.span_resources.tolist()
        columns = max(1, MAX_CELLS // max(1, problem.num_ops))
        self.resources: list[int] = every[:: -(-len(every) // columns)] if every else []
        heads = np.full((problem.num_ops, len(self.resources)), NEVER, dtype=np.int64)
        tails = heads.copy()
        for device, resource in enumerate(self.resources):
            ops = problem.ops_by_resource[resource]
            heads[ops, device] = 0
            tails[ops, device] = problem.duration[ops]
        self.heads = graph.heads(heads)
        self.tails = graph.tails(tails)

    def _between(self, device: int, ops: IntArray) -> IntArray:
        """Return those of `ops` that have an op of the device before and after them."""
        between: BoolArray = self.heads[ops, device] > NEVER // 2
        between &= self.tails[ops, device] > NEVER // 2
        return ops[between]

    def work(self) -> int:
        """Return the largest load of a device."""
        loads = (int(self.problem.duration[self.busy[r]].sum()) for r in self.resources)
        return max(loads, default=0)

    def longest_path(self) -> int:
        """Return the longest chain from an op of a device to an op of the same device."""
        both = (self.heads > NEVER // 2) & (self.tails > NEVER // 2)
        return int(np.where(both, self.heads + self.tails, 0).max(initial=0))

    def own(self) -> int:
        """Return the largest preemptive one-machine bound of a device."""
        return max((bound for bound, _ in self._own_bounds()), default=0)

    def returns(self, pools: Sequence[PoolOrder]) -> int:
        """Return the largest first-return bound of a device."""
        devices = range(len(self.resources))
        return max((self._returns(d, pools, self.heads[:, d], 1) for d in devices), default=0)

    def strongest(
        self, pools: Sequence[PoolOrder], strengthen: Callable[[IntArray], IntArray]
    ) -> int:
        """Return the largest bound once `strengthen` has raised the heads of a device.

        Only the few devices that promise most are worth that effort.
        """
        best = 0
        for bound, device in sorted(self._own_bounds(), reverse=True)[:MAX_STRENGTHENED]:
            heads = strengthen(self.heads[:, device].copy())
            alone = self._on(device, self._ops(device), heads)
            best = max(best, bound, alone, self._returns(device, pools, heads, MANY))
        return best

    def _own_bounds(self) -> list[tuple[int, int]]:
        devices = range(len(self.resources))
        return [(self._on(device, self._ops(device)), device) for device in devices]

    def _ops(self, device: int) -> IntArray:
        return self.busy[self.resources[device]]

    def _returns(
        self, device: int, pools: Sequence[PoolOrder], heads: IntArray, moments: int
    ) -> int:
        ops = self._between(device, self._ops(device))
        tails = self.tails[:, device] - self.problem.duration
        return max(
            (
                return_bound(self.problem, order, ops, heads, tails, moments)
                for order in pools
                if np.isin(ops, order.pool.acquire_op).any()
            ),
            default=0,
        )

    def through_others(self) -> int:
        """Bound each device's span by the resource that promises most between its ops."""
        best = 0
        for device in range(len(self.resources)):
            promise = max(
                ((self._promise(device, ops), r) for r, ops in enumerate(self.busy)),
                default=(0, 0),
            )
            if promise[0] > best:
                best = max(best, self._on(device, self.busy[promise[1]]))
        return best

    def _on(self, device: int, ops: IntArray, heads: IntArray | None = None) -> int:
        ops = self._between(device, ops)
        lengths = self.problem.duration[ops]
        starts = self.heads[ops, device] if heads is None else heads[ops]
        return preemptive_bound(starts, lengths, self.tails[ops, device] - lengths)

    def _promise(self, device: int, ops: IntArray) -> int:
        ops = self._between(device, ops)
        if not len(ops):
            return 0
        lengths = self.problem.duration[ops]
        ends = self.tails[ops, device] - lengths
        return int(self.heads[ops, device].min() + lengths.sum() + ends.min())
