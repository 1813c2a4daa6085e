"""Orders and models of pipelines that leave more open than orders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, MemoryDeadlockError
from ppsolve.solver.board import Board
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact.question import ExactAnswer, SearchLimits
from ppsolve.solver.heuristics.list_scheduling import PriorityRule, generate_parallel
from ppsolve.solver.run.schedule_task import ScheduleTask
from ppsolve.solver.run.second_proof import checked
from ppsolve.solver.run.step import Step, Turn, in_sequence
from ppsolve.solver.run.steps import GREEDY, STEPS, has_time_to_search
from ppsolve.solver.structure.implied import index_order


def has_best_choice(turn: Turn) -> bool:
    """Apply where some choice of modes has a schedule."""
    return has_time_to_search(turn) and turn.board.schedule is not None


def valid_lists(problem: Problem, rules: Iterable[PriorityRule]) -> Iterator[tuple[int, Schedule]]:
    """Yield the list schedules of a choice that break no rule.

    Parameters
    ----------
    problem : Problem
        The problem of the choice.
    rules : iterable of PriorityRule
        The rules.

    Yields
    ------
    (int, Schedule)
        Place of the rule, and its schedule; nothing of a rule that gets stuck.
    """
    edges = index_order(problem)
    for place, rule in enumerate(rules):
        try:
            made = generate_parallel(problem, rule, edges)
        except (MemoryDeadlockError, DeadlockError):
            continue
        if not check_schedule(problem, made):
            yield place, made


def search_orders(turn: Turn) -> StopReason | None:
    """Search the orders of the best choice, as those of a pipeline without modes."""
    task, board = turn.task, turn.board
    best = board.incumbent
    assert best is not None
    known = best.schedule
    alone = ScheduleTask(task.kind, task.instance, known.problem)
    alone.board.clock, alone.board.gap = turn.clock, turn.options.gap
    alone.board.raise_bound(board.bound.value, board.bound.name)
    alone.board.propose(known, best.by)

    def tell(event: str, by: str) -> None:
        if event == "incumbent" and alone.board.schedule is not None:
            board.propose(alone.board.schedule, by)

    alone.board.subscribe(tell)
    alone.find_bounds(turn.clock.share(turn.steps.bounds_share))
    turn = replace(turn, task=alone, heuristics=task.searches)
    for row in STEPS[STEPS.index(GREEDY) + 1 :]:
        rows = [row] if isinstance(row, Step) else row.make(turn)
        own = [step for step in rows if not step.runs_anyway and step.applies(turn)]
        if in_sequence(turn, own) is StopReason.INTERRUPTED:
            return StopReason.INTERRUPTED
    return None


def search_model(model: Any, board: Board, limits: SearchLimits) -> ExactAnswer:
    """Minimise with one model of all choices and orders, from the best schedule.

    Parameters
    ----------
    model : SearchedModel
        A model with `hint`; the board takes what it finds and proves.
    board : Board
    limits : SearchLimits

    Returns
    -------
    ExactAnswer
    """
    from ppsolve.solver.exact.search import CpsatSearch, SharedIncumbent

    if board.schedule is not None:
        model.hint(board.schedule)
    exact = model.memory_is_exact
    found = SharedIncumbent(model, board, proposes=exact, raises=exact)
    return CpsatSearch(model, found, limits, limits.start()).execute()


def any_schedule(model: Any, limits: SearchLimits) -> ExactAnswer:
    """Search for any schedule that a model of all choices and orders has.

    Parameters
    ----------
    model : SearchedModel
    limits : SearchLimits

    Returns
    -------
    ExactAnswer
        Its schedule, if any, breaks no rule.
    """
    from ppsolve.solver.exact.search import CpsatSearch, SharedIncumbent

    limits = replace(limits, gap=1.0)
    return checked(CpsatSearch(model, SharedIncumbent(model), limits, limits.start()).execute())
