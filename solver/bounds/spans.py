"""Bounds on device spans: heads and tails relative to the first and last op of a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ppsolve.models.core.dag import Dag
from ppsolve.models.core.problem import BoolArray, IntArray, Problem
from ppsolve.solver.bounds.first_return import RETURN_MOMENTS, return_bound
from ppsolve.solver.bounds.one_machine import preemptive_bound
from ppsolve.solver.structure.implied import PoolOrder

NEVER = -(2**62)
"""Head or tail of an op that no path connects with the device."""

MAX_CELLS = 40_000_000
"""Most cells (ops x devices) of the two tables, 320 MB each; beyond that devices are left out,
evenly spread, which keeps the bounds valid: each device gives one of its own."""

MAX_STRENGTHENED = 4
"""Devices whose heads are strengthened; the others keep the plain bound.

On 51 instances 1 to 64 devices give the same bounds, in 5 s of CPU time with 1, 9 s with 4, 21 s
with 64. On 62 of V and linear placement, half of them random, 1 device loses up to 2.8 % on two of
them against 4, and 64 devices gain 0.6 % on one.
"""


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
        The span resources, one per column: all of them unless the problem is huge.
    heads, tails : int64[n, columns]
        Longest paths from the first start, and to the last end, on each, in ticks; `NEVER` where
        no op of the resource precedes, or follows.
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
        """Return the ops of `ops` that lie between two ops of the device."""
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
        """Return the largest bound of a device with raised heads.

        Only the `MAX_STRENGTHENED` devices with the largest plain bounds are tried.

        Parameters
        ----------
        pools : sequence of PoolOrder
            Pools for the first-return bound.
        strengthen : callable
            Maps heads relative to a device, int64[n] in ticks, to valid heads that are no lower.

        Returns
        -------
        int
            Lower bound on the device span in ticks.
        """
        best = 0
        for bound, device in sorted(self._own_bounds(), reverse=True)[:MAX_STRENGTHENED]:
            heads = strengthen(self.heads[:, device].copy())
            alone = self._on(device, self._ops(device), heads)
            best = max(best, bound, alone, self._returns(device, pools, heads, RETURN_MOMENTS))
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
        """Bound each device's span by the resource with the most work between its ops."""
        best = 0
        for device in range(len(self.resources)):
            estimate, resource = max(
                ((self._work_between(device, ops), r) for r, ops in enumerate(self.busy)),
                default=(0, 0),
            )
            if estimate > best:
                best = max(best, self._on(device, self.busy[resource]))
        return best

    def _on(self, device: int, ops: IntArray, heads: IntArray | None = None) -> int:
        ops = self._between(device, ops)
        lengths = self.problem.duration[ops]
        starts = self.heads[ops, device] if heads is None else heads[ops]
        return preemptive_bound(starts, lengths, self.tails[ops, device] - lengths)

    def _work_between(self, device: int, ops: IntArray) -> int:
        """Return least head + load + least tail of the ops that lie between ops of the device."""
        ops = self._between(device, ops)
        if not len(ops):
            return 0
        lengths = self.problem.duration[ops]
        ends = self.tails[ops, device] - lengths
        return int(self.heads[ops, device].min() + lengths.sum() + ends.min())
