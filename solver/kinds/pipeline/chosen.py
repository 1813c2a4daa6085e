"""Pipelines that leave more open than orders: lists, orders and models of what is chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ppsolve.models.core.result import StopReason
from ppsolve.solver.board import WrongScheduleError
from ppsolve.solver.exact.question import ExactAnswer, SearchLimits
from ppsolve.solver.heuristics.generic import GENERIC
from ppsolve.solver.run.schedule_task import ScheduleTask, checked
from ppsolve.solver.run.step import Step, Turn, in_sequence
from ppsolve.solver.run.steps import GREEDY, STEPS, has_time_to_search


def answered_jointly(
    task: Any, claimed: int | None, limits: SearchLimits
) -> ExactAnswer:
    """Search for a schedule of any choice below a bound with the one model of all."""
    from ppsolve.solver.exact.search import CpsatSearch, SharedIncumbent

    model = task.joint_model(0, None if claimed is None else claimed - 1)
    incumbent, limits = SharedIncumbent(model), replace(limits, gap=1.0)
    return checked(CpsatSearch(model, incumbent, limits, limits.start()).execute())


def solve_jointly(turn: Turn) -> StopReason | None:
    """Search choices and orders with one model of CP-SAT, from the best schedule."""
    from ppsolve.solver.exact.search import CpsatSearch, SharedIncumbent

    board, limits = turn.board, turn.limits()
    model = turn.task.joint_model(board.bound.value, board.value)
    if board.schedule is not None:
        model.hint(board.schedule)
    exact = model.memory_is_exact
    found = SharedIncumbent(model, board, proposes=exact, raises=exact)
    answer = CpsatSearch(model, found, limits, limits.start()).execute()
    if answer.infeasible:
        board.is_refuted = board.schedule is None
        if board.schedule is not None:
            raise WrongScheduleError(
                "cp-sat calls an instance infeasible that has a schedule"
            )
        return StopReason.INFEASIBLE
    board.units += answer.deterministic_time
    return answer.stop_reason


def has_best_choice(turn: Turn) -> bool:
    """Apply where some choice has a schedule."""
    return has_time_to_search(turn) and turn.board.schedule is not None


def search_orders(turn: Turn) -> StopReason | None:
    """Search the orders of the best choice, as those of a pipeline that leaves nothing else."""
    task, board = turn.task, turn.board
    best = board.incumbent
    assert best is not None
    known = best.schedule
    from ppsolve.solver.kinds.graph import GRAPH

    alone = ScheduleTask(GRAPH, task.instance, known.problem)
    alone.board.clock, alone.board.gap = turn.clock, turn.options.gap
    alone.board.raise_bound(board.bound.value, board.bound.name)
    alone.board.propose(known, best.by)

    def tell(event: str, by: str) -> None:
        if event == "incumbent" and alone.board.schedule is not None:
            board.propose(alone.board.schedule, by)

    alone.board.subscribe(tell)
    alone.find_bounds(turn.clock.share(turn.steps.bounds_share))
    searches = tuple(each for each in GENERIC if each.is_search)
    turn = replace(turn, task=alone, heuristics=searches)
    for row in STEPS[STEPS.index(GREEDY) + 1 :]:
        rows = [row] if isinstance(row, Step) else row.make(turn)
        own = [step for step in rows if not step.runs_anyway and step.applies(turn)]
        if in_sequence(turn, own) is StopReason.INTERRUPTED:
            return StopReason.INTERRUPTED
    return None
