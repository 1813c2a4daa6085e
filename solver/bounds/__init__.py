"""Lower bounds on the objective, each with the name and the sentence that reports show."""

from ppsolve.solver.board import Bound
from ppsolve.solver.bounds.registry import best_bound, lower_bounds
from ppsolve.solver.bounds.relaxations import work_bound

__all__ = ["Bound", "best_bound", "lower_bounds", "work_bound"]
