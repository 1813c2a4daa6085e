"""Run CP-SAT on a problem: build the model, search it, answer."""

from __future__ import annotations

from dataclasses import dataclass

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.board import Board
from ppsolve.solver.cpsat.answer import ExactAnswer
from ppsolve.solver.cpsat.demands import Rounding
from ppsolve.solver.cpsat.found import SharedIncumbent
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.cpsat.model import CpsatModel, OutOfTimeError, index_ordered
from ppsolve.solver.cpsat.search import CpsatSearch
from ppsolve.solver.structure.implied import ImpliedOrder


@dataclass(frozen=True)
class Question:
    """What CP-SAT is asked about a problem.

    Parameters
    ----------
    lower : int
        A proved lower bound in ticks. It becomes part of the model, as CP-SAT's own bound can be
        far lower.
    known : Schedule, optional
        The best known schedule: gives the horizon and the hint.
    upper : int, optional
        Largest objective to look for, in ticks.
    rounding : {"up", "down"}
        Rounding of memory amounts that have no small exact scale.
    window_work : bool
        Count the work in every hole: proves more where holes are nearly full, takes longer.
    """

    lower: int
    known: Schedule | None = None
    upper: int | None = None
    rounding: Rounding = "down"
    window_work: bool = False


def solve(
    implied: ImpliedOrder, question: Question, limits: SearchLimits, board: Board | None = None
) -> ExactAnswer:
    """Minimise the problem's objective with CP-SAT.

    Parameters
    ----------
    implied : ImpliedOrder
        The problem and its implied order.
    question : Question
        Bounds, known schedule and form of the model.
    limits : SearchLimits
        Limits of the search.
    board : Board, optional
        A board of this problem. Better schedules are proposed to it, as far as the model keeps all
        limits of memory, and bounds are raised where `upper` is None. A better incumbent of the
        board ends the search at the bound, and is searched on from where it leads for long.

    Returns
    -------
    ExactAnswer
        Schedule, bound and reason of the stop; the schedule is None where the time did not suffice
        to build the model. Check the schedule before it is used.

    Raises
    ------
    MemoryInfeasible
        A pool's capacity cannot be kept.
    """
    clock, lower = limits.start(), question.lower
    known = None if question.known is None else index_ordered(implied, question.known)
    if known is not None and question.upper is None and known.value == lower:
        return ExactAnswer(known, lower, False, StopReason.PROVED, True, 0.0)
    try:
        model = CpsatModel.build(
            implied,
            lower=lower,
            upper=question.upper,
            hint=known,
            rounding=question.rounding,
            window_work=question.window_work,
            clock=clock,
        )
    except OutOfTimeError:
        return ExactAnswer(None, lower, False, StopReason.TIME, True, 0.0)
    if model is None:
        return ExactAnswer(None, None, True, StopReason.INFEASIBLE, True, 0.0)
    is_valid = model.constraints.memory_is_exact or question.rounding == "up"
    is_bound = question.upper is None and question.rounding == "down"
    found = SharedIncumbent(model, board, proposes=is_valid, raises=is_bound)
    return CpsatSearch(model, found, limits, clock).execute()
