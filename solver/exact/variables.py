"""CP-SAT variables (starts, intervals, holds of memory) and the objective."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.models.core.problem import BoolArray, IntArray, Objective
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.exact.windows import Windows
from ppsolve.solver.structure.holds import ALWAYS, Holds
from ppsolve.solver.structure.implied import ImpliedOrder


class Variables:
    """All variables of one model: a start per op within its window, and the objective."""

    def __init__(
        self,
        model: cp_model.CpModel,
        implied: ImpliedOrder,
        windows: Windows,
        lower: int,
        upper: int,
    ) -> None:
        self.model = model
        self.problem = implied.problem
        self.windows = windows
        # The first variables of the model: op k is its variable k.
        self.start = [
            model.new_int_var_from_domain(cp_model.Domain.from_flat_intervals(flat), "")
            for flat in windows.starts(self.problem)
        ]
        self.duration: list[int] = self.problem.duration.tolist()
        self.objective = model.new_int_var(lower, upper, "objective")
        self.span_start: dict[int, cp_model.IntVar] = {}
        self._sizes: list[tuple[cp_model.IntVar, int, int]] = []
        self.orders: dict[tuple[int, int], cp_model.IntVar] = {}
        self._intervals: dict[int, cp_model.IntervalVar] = {}

    def end(self, op: int) -> cp_model.LinearExprT:
        """Return the end of an op as an expression."""
        return self.start[op] + self.duration[op]

    def interval(self, op: int) -> cp_model.IntervalVar:
        """Return the interval of an op, made on first use."""
        if op not in self._intervals:
            self._intervals[op] = self.model.new_fixed_size_interval_var(
                self.start[op], self.duration[op], ""
            )
        return self._intervals[op]

    def hold(self, holds: Holds, index: int) -> cp_model.IntervalVar:
        """Return a new interval of one hold, from the start of an op to the end of another."""
        first, last = int(holds.acquire[index]), int(holds.release[index])
        horizon = self.windows.horizon
        start = 0 if first == ALWAYS else self.start[first]
        end = horizon + 1 if last == ALWAYS else self.end(last)
        size = self.model.new_int_var(0, horizon + 1, "")
        self._sizes.append((size, first, last))
        return self.model.new_interval_var(start, size, end, "")

    def order(self, first: int, second: int) -> cp_model.IntVar:
        """Return the literal for the first of two ops running before the second, not after it.

        Both share a resource; the smaller number comes first.
        """
        if (first, second) not in self.orders:
            literal = self.model.new_bool_var("")
            self.model.add(self.end(first) <= self.start[second]).only_enforce_if(
                literal
            )
            self.model.add(self.end(second) <= self.start[first]).only_enforce_if(
                ~literal
            )
            self.orders[first, second] = literal
        return self.orders[first, second]

    def starts_in(self, solution: Sequence[int]) -> IntArray:
        """Return the start of every op in a solution of the model, int64[n] in ticks."""
        return np.array(solution[: len(self.start)], dtype=np.int64)

    def hint(self, schedule: Schedule) -> None:
        """Hint a complete schedule: starts, sizes of holds, orders and the objective.

        Without a hint of the objective CP-SAT may find no schedule for long.
        """
        start, end = schedule.start.tolist(), schedule.end.tolist()
        hints = dict(enumerate(start))
        for size, first, last in self._sizes:
            begin = 0 if first == ALWAYS else start[first]
            finish = self.windows.horizon + 1 if last == ALWAYS else end[last]
            hints[size.index] = finish - begin
        for (first, second), literal in self.orders.items():
            hints[literal.index] = int(end[first] <= start[second])
        for resource, variable in self.span_start.items():
            ops = self.problem.ops_by_resource[resource]
            hints[variable.index] = int(schedule.start[ops].min())
        hints[self.objective.index] = schedule.value
        proto = self.model.proto.solution_hint
        proto.vars.extend(list(hints))
        proto.values.extend(list(hints.values()))


def add_objective(variables: Variables, implied: ImpliedOrder) -> None:
    """Tie the objective variable to the starts and minimise it.

    The implied order leaves few ops that can be first or last.
    """
    match implied.problem.objective:
        case Objective.DEVICE_SPAN:
            _device_span(variables, implied)
        case Objective.COMPLETION:
            _completion(variables, implied)
        case _:
            _makespan(variables, implied)
    variables.model.minimize(variables.objective)


def _completion(variables: Variables, implied: ImpliedOrder) -> None:
    weight = implied.problem.weight
    weighed = np.flatnonzero(weight).tolist()
    total = cp_model.LinearExpr.weighted_sum(
        [variables.end(op) for op in weighed], weight[weighed].tolist()
    )
    variables.model.add(variables.objective == total)


def _makespan(variables: Variables, implied: ImpliedOrder) -> None:
    last = np.ones(implied.problem.num_ops, dtype=np.bool_)
    # What comes before another op ends no later, in index order without a resource too: alike
    # ops have one length.
    last[implied.full.before] = False
    for op in np.flatnonzero(last).tolist():
        variables.model.add(variables.end(op) <= variables.objective)


def _device_span(variables: Variables, implied: ImpliedOrder) -> None:
    problem, model = implied.problem, variables.model
    first_rows, last_rows = _outer_rows(implied)
    for resource in problem.span_resources.tolist():
        ops = problem.ops_by_resource[resource]
        if not len(ops):
            continue
        begin = model.new_int_var(0, variables.windows.horizon, "")
        variables.span_start[resource] = begin
        firsts = [variables.start[op] for op in ops[first_rows[ops]].tolist()]
        model.add_min_equality(begin, firsts)
        for op in ops[last_rows[ops]].tolist():
            model.add(variables.end(op) <= begin + variables.objective)


def _outer_rows(implied: ImpliedOrder) -> tuple[BoolArray, BoolArray]:
    first = np.ones(implied.problem.num_ops, dtype=np.bool_)
    last = first.copy()
    for family in implied.problem.families:
        first[family[1:]] = False
        last[family[:-1]] = False
    return first, last
