"""Lower bounds on the objective, each with the name that reports show."""

from ppsolve.solver.board import Bound
from ppsolve.solver.bounds.lower_bounds import (
    best_bound,
    lower_bounds,
    work_bound,
    work_by_resource,
)

__all__ = ["Bound", "best_bound", "lower_bounds", "work_bound", "work_by_resource"]
