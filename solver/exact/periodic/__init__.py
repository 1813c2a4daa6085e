"""Periodic schedules: a steady state between the fill and the drain of a shorter schedule."""

from ppsolve.solver.exact.periodic.steady_state import steady_schedule, stretched

__all__ = ["steady_schedule", "stretched"]
