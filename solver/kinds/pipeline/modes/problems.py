"""The problems of the choices of modes of one pipeline, and quick schedules of them."""

from __future__ import annotations

from typing import Any

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.errors import DeadlockError, MemoryDeadlockError
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline, scale_of
from ppsolve.models.kinds.pipeline.mode_ops import RECOMPUTE_KIND
from ppsolve.models.kinds.pipeline.modes import MemoryModes
from ppsolve.solver.bounds.registry import quick_bounds
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.list_scheduling import (
    PriorityRule,
    backward_first,
    fillers,
    generate_parallel,
    longest_tail,
)
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder, index_order

INFEASIBLE = 2**62
"""Stands for the bound of a choice that memory makes impossible, in ticks."""


class ModeProblems:
    """Problems of all choices, with one tick.

    Parameters
    ----------
    instance : PipelineInstance
        A pipeline with modes.
    modes : MemoryModes
        Its modes.
    scale : TimeScale, optional
        Its tick.
    """

    def __init__(self, instance: Any, modes: MemoryModes, scale: TimeScale | None = None) -> None:
        self.modes = modes
        self.instance = modes.instance
        self.scale = scale or scale_of(self.instance, exact=False)

    def problem(self, choice: IntArray) -> Problem:
        """Return the problem of a choice, int64[S, m], which may be `RELAXED` in places."""
        return lower_pipeline(self.instance, scale=self.scale, choice=choice)

    def bound(self, implied: ImpliedOrder, clock: Clock | None = None) -> int:
        """Return the best analytic bound in ticks, `INFEASIBLE` where memory holds too little."""
        try:
            _ = implied.full
            found = quick_bounds(Relaxations(implied, clock))
            return max((bound.value for bound in found), default=0)
        except MemoryInfeasible:
            return INFEASIBLE

    def schedule(self, choice: IntArray) -> Schedule | None:
        """Return the best of a few list schedules of a choice, None where all get stuck."""
        problem = self.problem(choice)
        filler = fillers(problem)
        tail = longest_tail(problem)
        rules = [
            PriorityRule(tail, filler, 1.0, 1.0, frees_memory=True),
            PriorityRule(backward_first(problem), filler),
        ]
        if RECOMPUTE_KIND in problem.kinds:
            # Recomputed where the device would idle: earlier it takes memory from forwards.
            late = filler | problem.kind_mask(RECOMPUTE_KIND)
            rules.append(PriorityRule(tail, late, 1.0, 1.0, frees_memory=True))
        edges, found = index_order(problem), []
        for rule in rules:
            try:
                made = generate_parallel(problem, rule, edges)
            except (MemoryDeadlockError, DeadlockError):
                continue
            if not check_schedule(problem, made):
                found.append(made)
        return min(found, key=lambda each: each.value, default=None)
