"""The steps of pipelines that leave the layers of each stage open, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.models.kinds.pipeline.layers import CHOSEN_LAYERS
from ppsolve.solver.heuristics.heuristic import (
    Heuristic,
    Proposal,
    Request,
    Requirement,
)
from ppsolve.solver.heuristics.list_scheduling import (
    PriorityRule,
    backward_first,
    fillers,
    longest_tail,
)
from ppsolve.solver.kinds.pipeline.actions import action_strings
from ppsolve.solver.kinds.pipeline.choice_lists import valid_lists
from ppsolve.solver.kinds.pipeline.chosen import (
    has_best_choice,
    search_orders,
)
from ppsolve.solver.kinds.pipeline.layers.ordered import (
    ORDERED_STEPS,
    OrderedSplits,
    even_counts,
)
from ppsolve.solver.kinds.pipeline.layers.search import LayerSearch
from ppsolve.solver.kinds.pipeline.published import PUBLISHED
from ppsolve.solver.run.step import Step, Turn
from ppsolve.solver.run.steps import (
    EXACT_SLACK,
    SEARCHES,
    has_time_to_search,
)

SPLITS = "splits"
"""Name of the search over splits in reports."""


def _ordered(heuristic: Heuristic) -> Heuristic:
    """Return the heuristic that searches the best split under a published order."""

    def propose(request: Request) -> Proposal:
        splits = OrderedSplits.of_heuristic(request.instance, heuristic)
        effort = request.effort
        found = splits.search(effort.clock, effort.board.bound.value, 1, ORDERED_STEPS)
        if found.counts is None:
            raise NotApplicableError(
                "needs a split that fits its memory: there is none"
            )
        return Proposal(splits.schedule(found.counts), action_strings(splits.orders))

    return Heuristic(
        f"split-{heuristic.name}",
        f"the best split of layers found under {heuristic.name}",
        propose,
        "layers",
        (HAS_LAYERS, *heuristic.requirements),
        is_search=True,
        source=heuristic.source,
    )


HAS_LAYERS = Requirement("layers", lambda instance: instance.layers is not None)

SPLIT_HEURISTICS = tuple(
    _ordered(each)
    for each in PUBLISHED
    if each.name
    in {"1f1b", "zb-h1", "interleaved-1f1b", "interleaved-less-memory", "zbv"}
)
"""Published orders, each with the best split that local search finds for it."""


def is_split(turn: Turn) -> bool:
    """Apply where nothing is chosen but the layers of each stage."""
    return has_time_to_search(turn) and turn.task.alone == CHOSEN_LAYERS


def has_split(turn: Turn) -> bool:
    """Apply where layers are chosen alone, and some split has a schedule."""
    return is_split(turn) and has_best_choice(turn)


def listed(problem: Problem) -> Schedule | None:
    """Return the best of a few list schedules of a split, None where all get stuck."""
    filler = fillers(problem)
    rules = (
        (PriorityRule(longest_tail(problem), filler, 1.0, 1.0, frees_memory=True),),
        (PriorityRule(backward_first(problem), filler),),
    )
    schedules = (schedule for _, schedule in valid_lists(problem, rules))
    return min(schedules, key=lambda schedule: schedule.value, default=None)


def search_splits(turn: Turn, again: int = 0) -> StopReason | None:
    """Search over splits by list schedules, from the best one known.

    `again`: added to the seed.
    Returns: what ended a deterministic search.
    """
    task, board = turn.task, turn.board
    units = turn.options.limits(turn.clock).deterministic
    steps = ORDERED_STEPS if turn.options.deterministic else 10**9
    if units is not None:
        steps = min(
            steps, int(units * turn.params.modes.split_ops / task.problem.num_ops)
        )

    def schedule_of(counts: IntArray) -> Schedule | None:
        return listed(task.space.problem({CHOSEN_LAYERS: counts}))

    def rate(counts: IntArray) -> int | None:
        schedule = schedule_of(counts)
        return None if schedule is None else schedule.value

    least = task.instance.layers.least(task.instance.num_stages)
    search = LayerSearch(rate, turn.options.seed + again, steps, least=least)
    start = even_counts(task.instance) if task.balanced is None else task.balanced
    if board.schedule is not None:
        start = board.schedule.problem.chosen(CHOSEN_LAYERS)
    search.run(start, turn.clock, board.bound.value)
    schedule = None if search.best is None else schedule_of(search.best)
    if schedule is not None:
        board.propose(schedule, SPLITS)
    return StopReason.DETERMINISTIC if turn.options.deterministic else None


def search_again(turn: Turn) -> StopReason | None:
    """Search splits with other seeds, and the orders of each better one, until time is over.

    Returns: what ended the last search of orders.
    """
    again, reason = 0, None
    while turn.clock.is_limited and not (
        turn.clock.is_over or turn.board.is_good_enough or reason
    ):
        again, known = again + 1, turn.board.value
        search_splits(turn.share(0.5), again)
        if turn.board.value != known:
            reason = search_orders(turn)
    return reason


SPLIT_SEARCHES = replace(SEARCHES, applies=is_split)
SPLIT_STEP = Step(
    SPLITS, is_split, lambda t: t.params.modes.choice_share, search_splits
)
SPLIT_ORDERS = Step("orders", has_split, lambda t: 0.95, search_orders, EXACT_SLACK)
FURTHER_SPLITS = Step(
    "further splits", has_split, lambda t: 0.95, search_again, EXACT_SLACK
)
