"""CP-SAT constraints: one method per rule, called from one list (the layout of PyJobShop)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.models.core.problem import FREE, Objective
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.cpsat.memory import (
    Demands,
    OrderLiterals,
    add_levels,
    add_monotony,
    integer_demands,
    open_pairs,
    shares_resource,
)
from ppsolve.solver.cpsat.question import Rounding
from ppsolve.solver.cpsat.variables import Variables
from ppsolve.solver.cpsat.window_work import add_window_work
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.holds import ALWAYS, Holds
from ppsolve.solver.structure.implied import ImpliedOrder, PoolOrder

MAX_EVENTS = 256
"""Events of all pools up to which they become reservoirs; half as many where every acquire is
released in one piece. Reservoirs prove more but grow with the square of their events: a V placement
of 4 x 8 with capacity 6 was proved (740,280 us) in 3 to 11 s over three seeds, where the cumulative
stood at 711,331 us after 15 s; on large pools they are up to 100 times slower."""

MAX_LEVEL = 2**24
"""Largest level of a reservoir: levels of 10 digits and more made CP-SAT 9.15 call feasible models
infeasible."""

MAX_ORDERS = 4_000
"""Literals up to which pools of one resource are modelled by orders of ops. Same run, 2 workers, a
busy machine: V placements of 4 x 8 proved in 1.0 to 1.5 s (reservoirs: 6.3 s) and 0.2 s (1.4 s);
8 x 16 (3,986 literals) at 10,215 of 10,064 after 12 s (cumulatives: 10,252 of 9,991); linear 8 x 21
with backwards in two parts (2,455) at 8,007 (8,026). With 15,792 literals (V 8 x 24) the search
began after 9.6 instead of 3.5 s and found nothing in 12 s, as did the cumulatives."""

MAX_COMPLETE = 4_000
"""Open pairs of all resources up to which each gets a literal where levels need some anyhow. The
question for anything better, one worker, CPU seconds with the levels' own literals and with all: a
V placement of 4 x 8 (1,611 pairs) proved in 6.3 and 5.2, beside other processes 9.7 and 4.4; for an
interleaved 4 x 8 (1,894) nothing below 4,827 in 20 s, and 4,816. More pairs were not tried. Where
no level needs one they do not pay: uneven 16 x 16 (2,327, 3,927) refuted in 1.3 and 3.8, 1.5 and
1.3 s."""

MAX_FLOATING = 1_000
"""The same where levels need none, but device spans are minimised. Devices may begin at any time,
so that orders which cannot be kept raise starts in turn, by as little as one tick, up to the end of
all windows; precedences of literals show such circles at once. Of 160 small pipelines (3 x 3 to
4 x 6) with times of 16 digits, a tick 1e-9 of the longest, 9 were open by 1e-6 after 4 s and 4 with
literals, one worker. In whole ticks 25 pipelines of 4 x 8 were proved in 2.9 s in place of 3.5, but
10 of 8 x 12, with more pairs, in 12.5 in place of 7.4."""

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

    Attributes
    ----------
    memory_is_exact : bool
        The memory rules added so far are exactly the problem's.
    has_many_literals, has_plain_intervals : bool
        As in `ppsolve.solver.cpsat.parameters.ModelTraits`, of the rules added so far.
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
                self.has_plain_intervals &= bool(self.problem.duration[busy].all())
            yield

    def _memory(self) -> Iterator[None]:
        orders = [o for o in self.implied.pools if not o.is_exact and o.holds.amount]
        in_order, others = self._split(orders)
        events = sum(2 * len(order.holds.amount) for order in others)
        most = MAX_EVENTS // 2 if all(order.is_whole for order in others) else MAX_EVENTS
        for order in others:
            demands = self._demands(order)
            if events <= most and demands.capacity <= MAX_LEVEL:
                self._reservoir(order.holds, demands)
            else:
                self._cumulative(order.holds, demands)
            yield
        for order in in_order:
            add_levels(self.variables, self._pairs, order.holds, self._demands(order))
            yield
        if self.variables.orders:
            self._complete_orders(MAX_COMPLETE)
            yield
        elif self.problem.objective is Objective.DEVICE_SPAN:
            self._complete_orders(MAX_FLOATING)
            yield
        add_monotony(self.variables)
        self.has_many_literals |= bool(self.variables.orders)

    def _split(self, orders: list[PoolOrder]) -> tuple[list[PoolOrder], list[PoolOrder]]:
        """Return the pools whose levels follow from orders of ops, and all others."""
        in_order: list[PoolOrder] = []
        others: list[PoolOrder] = []
        for order in orders:
            (in_order if shares_resource(self.problem, order.holds) else others).append(order)
        holds = [order.holds for order in in_order]
        pairs = sum(len(set(each.acquire.tolist())) * len(each.acquire) for each in holds)
        if not holds or pairs > 20 * MAX_ORDERS or self._pairs.count(holds) > MAX_ORDERS:
            return [], orders
        return in_order, others

    def _complete_orders(self, most: int) -> None:
        """Give the other open pairs of each resource literals too: monotony links them all."""
        pairs = sorted(open_pairs(self.problem, self._pairs))
        if len(pairs) <= most:
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
