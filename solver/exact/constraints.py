"""CP-SAT constraints: one method per rule, called from one list (the layout of PyJobShop)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.models.core.problem import FREE, Objective
from ppsolve.solver.exact.memory import (
    Demands,
    OrderLiterals,
    add_monotony,
    integer_demands,
)
from ppsolve.solver.exact.params import MODEL
from ppsolve.solver.exact.question import Rounding
from ppsolve.solver.exact.variables import Variables
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.holds import ALWAYS, Holds
from ppsolve.solver.structure.implied import ImpliedOrder, PoolOrder


class Constraints:
    """Adds the rules of the problem to a model.

    `memory_is_exact`: the memory rules added so far are exactly the problem's.
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
        self.has_many_literals, self.has_plain_intervals = False, True

    def add_all(self) -> Iterator[None]:
        """Add every rule, then the redundant ones: a new one is a module and one more line here.

        Parts of some milliseconds end with a yield.
        """
        yield from self._pins()
        yield from self._precedences()
        yield from self._no_overlap()
        yield from self._memory()

    def _pins(self) -> Iterator[None]:
        for op in np.flatnonzero(self.problem.pinned != FREE).tolist():
            self.model.add(self.variables.start[op] == int(self.problem.pinned[op]))
        yield

    def _precedences(self) -> Iterator[None]:
        start = self.variables.start
        for number, (delay, before, after) in enumerate(
            longest_delays(self.implied.full)
        ):
            self.model.add(start[before] + delay <= start[after])
            if not number % MODEL.edges_at_once:
                yield

    def _no_overlap(self) -> Iterator[None]:
        for ops in self.problem.ops_by_resource:
            busy = ops[self.problem.holds_place[ops]]
            if len(busy) > 1:
                self.model.add_no_overlap(
                    [self.variables.interval(op) for op in busy.tolist()]
                )
                self.has_plain_intervals &= bool(self.problem.duration[busy].all())
            yield

    def _memory(self) -> Iterator[None]:
        orders = [o for o in self.implied.pools if not o.is_exact and o.holds.amount]
        in_order, unordered = self._split(orders)
        events = sum(2 * len(order.holds.amount) for order in unordered)
        divisor = 2 if all(order.is_whole for order in unordered) else 1
        limit = MODEL.reservoir_events // divisor
        for order in unordered:
            demands = self._demands(order)
            if events <= limit and demands.capacity <= MODEL.reservoir_level:
                self._reservoir(order.holds, demands)
            else:
                self._cumulative(order.holds, demands)
            yield
        for order in in_order:
            self._pairs.add_levels(order.holds, self._demands(order))
            yield
        if self.variables.orders:
            self._complete_orders(MODEL.complete_pairs)
            yield
        elif self.problem.objective is Objective.DEVICE_SPAN:
            self._complete_orders(MODEL.floating_pairs)
            yield
        add_monotony(self.variables)
        self.has_many_literals |= bool(self.variables.orders)

    def _split(
        self, orders: list[PoolOrder]
    ) -> tuple[list[PoolOrder], list[PoolOrder]]:
        in_order: list[PoolOrder] = []
        unordered: list[PoolOrder] = []
        for order in orders:
            (
                in_order if self._pairs.shares_resource(order.holds) else unordered
            ).append(order)
        holds = [order.holds for order in in_order]
        pairs = sum(
            len(set(hold.acquire.tolist())) * len(hold.acquire) for hold in holds
        )
        limit = MODEL.order_literals
        if not holds or pairs > 20 * limit or self._pairs.count(holds) > limit:
            return [], orders
        return in_order, unordered

    def _complete_orders(self, limit: int) -> None:
        pairs = sorted(self._pairs.open_pairs())
        if len(pairs) <= limit:
            for first, second in pairs:
                self.variables.order(first, second)

    @cached_property
    def _pairs(self) -> OrderLiterals:
        return OrderLiterals(self.variables, self.implied.full)

    def _demands(self, order: PoolOrder) -> Demands:
        horizon = self.variables.windows.horizon
        demands = integer_demands(order.holds, order.pool.limit, self.rounding, horizon)
        self.memory_is_exact &= demands.is_exact
        return demands

    def _reservoir(self, holds: Holds, demands: Demands) -> None:
        self.has_many_literals = True
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
        amounts = [demands.demand[index] for index in indices]
        intervals = [self.variables.hold(holds, index) for index in indices]
        self.model.add_cumulative(intervals, amounts, demands.capacity)
        self.has_plain_intervals &= sum(sorted(amounts)[-2:]) <= demands.capacity


def longest_delays(graph: Dag) -> Iterator[tuple[int, int, int]]:
    """Yield (delay in ticks, before, after) of each pair of ops, the longest delay of each."""
    order = np.lexsort((graph.after, graph.before, graph.delay))
    before, after, delay = graph.before[order], graph.after[order], graph.delay[order]
    pair = before * (1 + int(after.max(initial=0))) + after
    _, first, number = np.unique(pair, return_index=True, return_inverse=True)
    longest = delay[first]
    np.maximum.at(longest, number, delay)
    kept = np.argsort(first)
    first = first[kept]
    return zip(
        longest[kept].tolist(),
        before[first].tolist(),
        after[first].tolist(),
        strict=True,
    )
