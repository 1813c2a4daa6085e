"""Questions to CP-SAT by keywords, as tests ask them."""

from __future__ import annotations

from typing import Any

from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.board import Board
from ppsolve.solver.exact import exact, search
from ppsolve.solver.exact.params import BisectionParams
from ppsolve.solver.exact.question import Company, ExactAnswer, Question, SearchLimits
from ppsolve.solver.structure.implied import ImpliedOrder


def solve(
    implied: ImpliedOrder,
    *,
    lower: int,
    limits: SearchLimits,
    incumbent: Schedule | None = None,
    board: Board | None = None,
    **question: Any,
) -> ExactAnswer:
    return search.solve(implied, Question(lower, incumbent, **question), limits, board)


def solve_exactly(
    implied: ImpliedOrder,
    *,
    lower: int,
    limits: SearchLimits,
    incumbent: Schedule | None = None,
    board: Board | None = None,
) -> ExactAnswer:
    board = board or Board.beginning(incumbent, lower)
    return exact.solve_exactly(implied, board, limits, Company.NEW, BisectionParams())
