"""CP-SAT constraints: one method per rule, called from one list (the layout of PyJobShop)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.models.core.dag import Dag
from ppsolve.models.core.problem import FREE
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.cpsat.demands import Demands, Rounding, integer_demands
from ppsolve.solver.cpsat.redundant.window_work import add_window_work
from ppsolve.solver.cpsat.variables import Variables
from ppsolve.solver.structure.holds import ALWAYS, Holds
from ppsolve.solver.structure.implied import ImpliedOrder

MAX_EVENTS = 256
"""Events of all pools up to which they become reservoirs; half as many where every acquire is
released in one piece. Reservoirs prove more but grow with the square of their events: a V placement
of 4 x 8 with capacity 6 was proved (740,280 us) in 3 to 11 s over three seeds, where the cumulative
stood at 711,331 us after 15 s; on large pools they are up to 100 times slower."""

MAX_LEVEL = 2**24
"""Largest level of a reservoir: levels of 10 digits and more made CP-SAT 9.15 call feasible models
infeasible."""

EDGES_AT_ONCE = 1_000
"""Precedences that are added between two looks at the clock; they take about 15 ms."""


class Constraints:
    """Adds the rules of the problem to a model.

    Parameters
    ----------
    variables : Variables
        The model's variables.
    implied : ImpliedOrder
        The problem and its implied order.
    rounding : {"up", "down"}
        Rounding of memory amounts that have no small exact scale.
    """

    def __init__(
        self, variables: Variables, implied: ImpliedOrder, rounding: Rounding = "down"
    ) -> None:
        self.variables = variables
        self.model = variables.model
        self.implied = implied
        self.problem = implied.problem
        self.rounding = rounding
        self.memory_is_exact = True

    def add_all(self, hint: Schedule | None = None, *, window_work: bool = False) -> Iterator[None]:
        """Add every rule, then the redundant ones: a new one is a module and one more line here.

        Parameters
        ----------
        hint : Schedule, optional
            Schedule that variables of redundant rules are hinted from.
        window_work : bool
            Count the work in every hole.

        Yields
        ------
        None
            Between parts that take some milliseconds: whoever asks for no more of them leaves the
            model unfinished.
        """
        yield from self._pins()
        yield from self._precedences()
        yield from self._no_overlap()
        yield from self._memory()
        if window_work:
            add_window_work(self.variables, hint)

    def _pins(self) -> Iterator[None]:
        for op in np.flatnonzero(self.problem.pinned != FREE).tolist():
            self.model.add(self.variables.start[op] == int(self.problem.pinned[op]))
        yield

    def _precedences(self) -> Iterator[None]:
        start = self.variables.start
        for number, (delay, before, after) in enumerate(longest_delays(self.implied.full)):
            self.model.add(start[before] + delay <= start[after])
            if not number % EDGES_AT_ONCE:
                yield

    def _no_overlap(self) -> Iterator[None]:
        for ops in self.problem.ops_by_resource:
            busy = ops[self.problem.holds_place[ops]]
            if len(busy) > 1:
                self.model.add_no_overlap([self.variables.interval(op) for op in busy.tolist()])
            yield

    def _memory(self) -> Iterator[None]:
        orders = [o for o in self.implied.pools if not o.is_exact and o.holds.amount]
        events = sum(2 * len(order.holds.amount) for order in orders)
        most = MAX_EVENTS // 2 if all(order.is_whole for order in orders) else MAX_EVENTS
        for order in orders:
            horizon = self.variables.windows.horizon
            demands = integer_demands(order.holds, order.pool.limit, self.rounding, horizon)
            self.memory_is_exact &= demands.is_exact
            if events <= most and demands.capacity <= MAX_LEVEL:
                self._reservoir(order.holds, demands)
            else:
                self._cumulative(order.holds, demands)
            yield

    def _reservoir(self, holds: Holds, demands: Demands) -> None:
        times: list[cp_model.LinearExprT] = []
        changes: list[int] = []
        for index, demand in enumerate(demands.demand):
            first, last = int(holds.acquire[index]), int(holds.release[index])
            times.append(0 if first == ALWAYS else self.variables.start[first])
            changes.append(demand)
            if last != ALWAYS:
                times.append(self.variables.end(last))
                changes.append(-demand)
        lowest = -sum(demands.demand)
        self.model.add_reservoir_constraint(times, changes, lowest, demands.capacity)

    def _cumulative(self, holds: Holds, demands: Demands) -> None:
        indices = [
            index
            for index, demand in enumerate(demands.demand)
            if demand and not holds.acquire[index] == holds.release[index] == ALWAYS
        ]
        self.model.add_cumulative(
            [self.variables.hold(holds, index) for index in indices],
            [demands.demand[index] for index in indices],
            demands.capacity,
        )


def longest_delays(graph: Dag) -> Iterator[tuple[int, int, int]]:
    """Yield the precedences of a graph as (delay, before, after), one for each pair of ops.

    Delays are in ticks, from start to start; of several precedences of a pair the longest counts.
    """
    order = np.lexsort((graph.after, graph.before, graph.delay))
    before, after, delay = graph.before[order], graph.after[order], graph.delay[order]
    pair = before * (1 + int(after.max(initial=0))) + after
    _, first, number = np.unique(pair, return_index=True, return_inverse=True)
    longest = delay[first]
    np.maximum.at(longest, number, delay)
    kept = np.argsort(first)
    first = first[kept]
    return zip(longest[kept].tolist(), before[first].tolist(), after[first].tolist(), strict=True)
