"""CP-SAT variables: starts, intervals, holds of memory, and the objective."""

from __future__ import annotations

from ortools.sat.python import cp_model

from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.cpsat.windows import Windows
from ppsolve.solver.structure.holds import ALWAYS, Holds
from ppsolve.solver.structure.implied import ImpliedOrder


class Variables:
    """All variables of one model.

    Parameters
    ----------
    model : CpModel
        The model that the variables are added to.
    implied : ImpliedOrder
        The problem, n ops.
    windows : Windows
        Domain of every start.
    lower, upper : int
        Domain of the objective, in ticks.
    """

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
        self.start = [
            model.new_int_var_from_domain(cp_model.Domain.from_flat_intervals(flat), "")
            for flat in windows.starts(self.problem)
        ]
        self.duration: list[int] = self.problem.duration.tolist()
        self.objective = model.new_int_var(lower, upper, "objective")
        self.span_start: dict[int, cp_model.IntVar] = {}
        self._sizes: list[tuple[cp_model.IntVar, int, int]] = []
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
        """Return the interval of one hold, from the start of an op to the end of another.

        Parameters
        ----------
        holds : Holds
            Holds of a pool.
        index : int
            Number of the hold.

        Returns
        -------
        IntervalVar
            A new interval of variable size.
        """
        first, last = int(holds.acquire[index]), int(holds.release[index])
        horizon = self.windows.horizon
        start = 0 if first == ALWAYS else self.start[first]
        end = horizon + 1 if last == ALWAYS else self.end(last)
        size = self.model.new_int_var(0, horizon + 1, "")
        self._sizes.append((size, first, last))
        return self.model.new_interval_var(start, size, end, "")

    def hint(self, schedule: Schedule) -> None:
        """Hint a complete schedule: every start, the sizes of holds and the objective.

        Without the hint of the objective some models of 8 x 24 found no schedule in 60 s.
        """
        starts, ends = schedule.start.tolist(), schedule.end.tolist()
        for variable, value in zip(self.start, starts, strict=True):
            self.model.add_hint(variable, value)
        for size, first, last in self._sizes:
            begin = 0 if first == ALWAYS else starts[first]
            finish = self.windows.horizon + 1 if last == ALWAYS else ends[last]
            self.model.add_hint(size, finish - begin)
        for resource, variable in self.span_start.items():
            ops = self.problem.ops_by_resource[resource]
            self.model.add_hint(variable, int(schedule.start[ops].min()))
        self.model.add_hint(self.objective, schedule.value)
