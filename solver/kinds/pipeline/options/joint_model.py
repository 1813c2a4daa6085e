"""One CP-SAT model of what is chosen and of the order of ops: optional intervals for options."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ppsolve.models.core.options import OpenProblem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.kinds.pipeline.modes.joint_model import ChoiceModel, MemoryEvent
from ppsolve.solver.kinds.pipeline.options.relaxed import at_their_fastest
from ppsolve.solver.structure.implied import ImpliedOrder


class OptionsModel(ChoiceModel):
    """Starts and ends of the ops of the base, and a literal for each option.

    An op that options cover runs by itself, or by one of them: then its start and its end are those
    of the option. Alike micro-batches are in index order.

    Each interval is of fixed size from the start on, and ends are tied to starts by constraints of
    their own: CP-SAT 9.15 calls feasible models infeasible whose optional intervals of alternatives
    share both a start and an end. An op of no time occupies nothing; it may run inside another one.

    `lower`, `upper`: smallest and largest makespan to look for, in ticks.
    `only`: resources that hold one op at a time; by default all. Ops of no such
        resource take their least time and get into nobody's way, so that a bound of the
        model holds for the whole.
    """

    def __init__(
        self,
        problem: OpenProblem,
        lower: int,
        upper: int,
        only: Sequence[int] | None = None,
    ) -> None:
        super().__init__(lower, upper)
        self.problem = problem
        base, fast = problem.base, ImpliedOrder(at_their_fastest(problem))
        self._only = frozenset(range(base.num_resources) if only is None else only)
        self._heads = fast.full.heads(base.release)
        self._tails = fast.full.tails(problem.fastest)
        latest = np.maximum(upper - self._tails, self._heads)
        bounds = zip(self._heads.tolist(), latest.tolist(), strict=True)
        self.start = [self.cp.new_int_var(low, high, "") for low, high in bounds]
        self.objective = self.cp.new_int_var(min(lower, upper), upper, "")
        self.chosen = {
            number: self.cp.new_bool_var("")
            for number, option in enumerate(problem.options)
            if self._only.issuperset(option.resources)
        }
        self.covering: dict[int, list[int]] = defaultdict(list)
        for number in self.chosen:
            for op in problem.options[number].ops:
                self.covering[op].append(number)
        self.alone = {op: self.cp.new_bool_var("") for op in self.covering}
        here = np.zeros(base.num_ops, dtype=np.bool_)
        for resource in self._only:
            here[base.ops_by_resource[resource]] = True
        self._ticks = np.where(here, base.duration, problem.fastest).tolist()
        self.end = [
            self.cp.new_int_var(0, upper, "")
            if op in self.alone
            else start + self._ticks[op]
            for op, start in enumerate(self.start)
        ]
        self._add_ops()
        self._add_order(fast)
        for number, pool in enumerate(base.pools):
            taken, given = self._events_of(pool)
            events = taken + self._extras(number, 1, self.start) + given
            events += self._extras(number, -1, self.end)
            self._add_pool(events, pool.limit - pool.initial)
        self.cp.minimize(self.objective)

    def _add_ops(self) -> None:
        problem, cp, base = self.problem, self.cp, self.problem.base
        busy: dict[int, list[Any]] = defaultdict(list)
        work: dict[int, list[Any]] = defaultdict(list)

        def occupy(resources: Sequence[int], interval: Any, *amount: Any) -> None:
            for resource in self._only.intersection(resources):
                busy[resource].append(interval)
                work[resource].append(amount)

        for op, (start, ticks) in enumerate(zip(self.start, self._ticks, strict=True)):
            cp.add(self.end[op] <= self.objective)
            alone = self.alone.get(op, True)
            if op in self.alone:
                cp.add_exactly_one(
                    [alone, *(self.chosen[n] for n in self.covering[op])]
                )
                cp.add(self.end[op] == start + ticks).only_enforce_if(alone)
            if base.holds_place[op]:
                interval = cp.new_optional_fixed_size_interval_var(
                    start, ticks, alone, ""
                )
                occupy(base.resources_of(op).tolist(), interval, op, ticks, alone)
        for number, literal in self.chosen.items():
            option = problem.options[number]
            first, *others = option.ops
            start, end, ticks = self.start[first], self.end[first], option.duration
            cp.add(end == start + ticks).only_enforce_if(literal)
            if ticks:
                interval = cp.new_optional_fixed_size_interval_var(
                    start, ticks, literal, ""
                )
                occupy(option.resources, interval, first, ticks, literal)
            for op in others:
                cp.add(self.start[op] == start).only_enforce_if(literal)
                cp.add(self.end[op] == end).only_enforce_if(literal)
        after = self._tails - problem.fastest
        for resource, intervals in busy.items():
            cp.add_no_overlap(intervals)
            # The linear relaxation sees by this which options save work.
            at = [op for op, _, _ in work[resource]]
            least = int(self._heads[at].min() + after[at].min())
            total = sum(ticks * literal for _, ticks, literal in work[resource])
            cp.add(total + least <= self.objective)

    def _add_order(self, fast: ImpliedOrder) -> None:
        base, cp = self.problem.base, self.cp
        edges = zip(
            base.before.tolist(), base.after.tolist(), base.lag.tolist(), strict=True
        )
        for before, after, lag in edges:
            rule = cp.add(self.end[before] + lag <= self.start[after])
            both = set(self.covering.get(before, ())) & set(
                self.covering.get(after, ())
            )
            if both:
                rule.only_enforce_if([~self.chosen[number] for number in sorted(both)])
        for befores, afters, lags in (fast.index_edges, fast.memory_edges):
            for a, b, ticks in zip(
                befores.tolist(), afters.tolist(), lags.tolist(), strict=True
            ):
                # Ops without a resource start in order only.
                first = self.start[a] if ticks else self.end[a]
                cp.add(first <= self.start[b])
        for ops in self.problem.numbered:
            for a, b in pairwise(ops.tolist()):
                cp.add(self.start[a] <= self.start[b])

    def _extras(self, pool: int, sign: int, moments: list[Any]) -> list[MemoryEvent]:
        chosen = (
            (self.problem.options[n], literal) for n, literal in self.chosen.items()
        )
        return [
            MemoryEvent(moments[option.ops[0]], sign * part, literal)
            for option, literal in chosen
            for place, part in option.extra
            if place == pool
        ]

    def hint(self, schedule: Schedule) -> None:
        """Hint a schedule of some choice."""
        choice = schedule.problem.chosen(self.problem.field)
        place, taken = self.problem.places(choice), set(choice.tolist())
        for variables, moments in (
            (self.start, schedule.start),
            (self.end, schedule.end),
        ):
            for op, moment in enumerate(moments[place].tolist()):
                if variables is self.start or op in self.alone:
                    self.cp.add_hint(variables[op], moment)
        for number, literal in self.chosen.items():
            self.cp.add_hint(literal, number in taken)
        for op, literal in self.alone.items():
            self.cp.add_hint(literal, taken.isdisjoint(self.covering[op]))
        self.cp.add_hint(self.objective, schedule.value)

    def schedule_of(self, solution: list[int]) -> Schedule:
        """Return the schedule of a solution of the model, of the problem of its choice."""
        taken = [number for number, each in self.chosen.items() if solution[each.index]]
        choice = np.array(taken, dtype=np.int64)
        problem, place = self.problem.problem(choice), self.problem.places(choice)
        starts = np.zeros(problem.num_ops, dtype=np.int64)
        starts[place] = [solution[each.index] for each in self.start]
        return Schedule(problem, starts)
