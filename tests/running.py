"""Heuristics run by name."""

from __future__ import annotations

from typing import Any

from ppsolve.models.core.problem import Problem
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.api.registry import find_heuristic
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome


def run_heuristic(
    name: str, instance: Any, problem: Problem, group_size: int | None = None
) -> HeuristicOutcome:
    """Run a heuristic by its name and check its schedule, see `Kind.run_heuristic`."""
    heuristic = find_heuristic(name)
    return kind_of(instance).run_heuristic(heuristic, instance, problem, group_size)
