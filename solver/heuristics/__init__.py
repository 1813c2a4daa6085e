"""Published pipeline schedules and list scheduling behind one registry."""

from ppsolve.solver.heuristics.heuristic import Heuristic, Outcome
from ppsolve.solver.heuristics.registry import (
    HEURISTICS,
    find_heuristic,
    heuristics_for,
    quick_heuristics,
    run_heuristic,
)
from ppsolve.solver.heuristics.spans import compact_spans

__all__ = [
    "HEURISTICS",
    "Heuristic",
    "Outcome",
    "compact_spans",
    "find_heuristic",
    "heuristics_for",
    "quick_heuristics",
    "run_heuristic",
]
