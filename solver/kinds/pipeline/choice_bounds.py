"""The analytic bound of the problem of a choice."""

from __future__ import annotations

from ppsolve.solver.bounds.registry import quick_bounds
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder

INFEASIBLE = 2**62
"""Stands for the bound of a choice that memory makes impossible, in ticks."""


def analytic_bound(implied: ImpliedOrder, enough: int = INFEASIBLE) -> int:
    """Return the best analytic bound in ticks, `INFEASIBLE` where memory holds too little.

    `enough`: ticks; no rule is begun once one has proved as much.
    """
    try:
        _ = implied.full
        best = 0
        for bound in quick_bounds(Relaxations(implied)):
            best = max(best, bound.value)
            if best >= enough:
                break
        return best
    except MemoryInfeasible:
        return INFEASIBLE
