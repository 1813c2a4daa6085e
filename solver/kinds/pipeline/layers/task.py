"""Pipelines with layers that are being solved: the table of their steps."""

from __future__ import annotations

from typing import Any

from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.models.kinds.pipeline.layers import CHOSEN_LAYERS
from ppsolve.models.kinds.pipeline.lowering import lower_split
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import ExactAnswer, SearchLimits
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
from ppsolve.solver.kinds.pipeline.layers.linear import SplitTimes, rounding_of
from ppsolve.solver.kinds.pipeline.layers.ordered import (
    LAYERS,
    ORDERED_STEPS,
    OrderedSplits,
    balanced_split,
    even_counts,
)
from ppsolve.solver.kinds.pipeline.layers.search import LayerSearch
from ppsolve.solver.kinds.pipeline.open.decisions import LayersDecision
from ppsolve.solver.kinds.pipeline.published import PUBLISHED
from ppsolve.solver.run.schedule_task import ScheduleTask, search_below
from ppsolve.solver.run.step import Step, Steps, Turn
from ppsolve.solver.run.steps import (
    BOUNDS,
    EXACT_SLACK,
    GREEDY,
    SEARCHES,
    SETTLED,
    has_time_to_search,
)
from ppsolve.solver.structure.holds import MemoryInfeasible

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
        f"the best split of layers under {heuristic.name}",
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

    def rate(counts: IntArray) -> int | None:
        found = task.listed(counts)
        return None if found is None else found.value

    search = LayerSearch(rate, turn.options.seed + again, steps)
    start = even_counts(task.instance) if task.balanced is None else task.balanced
    if board.schedule is not None:
        start = board.schedule.problem.chosen(CHOSEN_LAYERS)
    search.run(start, turn.clock, board.bound.value)
    if search.best is not None:
        board.propose(task.listed(search.best), SPLITS)
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


LAYER_STEPS: tuple[Step | Steps, ...] = (
    BOUNDS,
    GREEDY,
    SEARCHES,
    Step(
        SPLITS, has_time_to_search, lambda t: t.params.modes.choice_share, search_splits
    ),
    Step("orders", has_best_choice, lambda t: 0.95, search_orders, EXACT_SLACK),
    Step("further splits", has_best_choice, lambda t: 0.95, search_again, EXACT_SLACK),
    SETTLED,
)
"""The steps of a pipeline whose layers are shared out."""


class LayersTask(ScheduleTask):
    """A pipeline whose layers are shared out.

    Every split has a problem of its own; `problem` is that of an even one.

    `kind`: the kind of pipelines.
    `problem`: that of an even split.
    """

    steps = LAYER_STEPS
    unproved: str | None = "stages may share out the layers in other ways"
    balanced: IntArray | None = None

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Raise the bound by the work of all layers, then by the busiest device of any split."""
        times, devices = (
            SplitTimes.of(self.instance, self.scale),
            self.instance.num_devices,
        )
        work = int(
            self.instance.layers.body.count * times.each[:, 0].sum() + times.fixed.sum()
        )
        mean = -(-self.instance.num_microbatches * work // devices)
        rounding = rounding_of(self.instance, self.scale)
        self.board.raise_bound(max(0, mean - rounding), LAYERS)
        if self.objective is not Objective.MAKESPAN:
            return
        answer = balanced_split(self.instance, self.scale, times, clock)
        self.balanced = answer.counts
        self.board.raise_bound(answer.bound, LAYERS)

    def problem_of(self, given: Any) -> Problem:
        """Return the problem of the split of a document, or of a `Schedule`."""
        if isinstance(given, Schedule):
            given = self.kind.claims_of(self.instance, given)
        return self.kind.problem_of(self.instance, exact=False, document=given)

    def listed(self, counts: IntArray) -> Schedule | None:
        """Return the best of a few list schedules of a split, None where all get stuck."""
        problem = lower_split(self.instance, counts, scale=self.scale)
        filler = fillers(problem)
        rules = (
            PriorityRule(longest_tail(problem), filler, 1.0, 1.0, frees_memory=True),
            PriorityRule(backward_first(problem), filler),
        )
        found = (made for _, made in valid_lists(problem, rules))
        return min(found, key=lambda each: each.value, default=None)

    def wrong_choice(self, schedule: Schedule) -> str | None:
        """Return that the layers are not shared out."""
        decision = LayersDecision(self.instance.layers, self.instance.num_stages)
        is_split = decision.allows(schedule.problem.chosen(CHOSEN_LAYERS))
        return None if is_split else "no split of the layers"

    def search_below(
        self, analytic: int, claimed: int | None, limits: SearchLimits
    ) -> ExactAnswer:
        """Search for a schedule of the even split, which refutes a bound but proves none."""
        try:
            return search_below(self.implied, analytic, claimed, limits)
        except MemoryInfeasible:
            return ExactAnswer(None, claimed, True, StopReason.INFEASIBLE, True, 0.0)

    def verify(self, limits: SearchLimits) -> bool | None:
        """Nothing is proved by CP-SAT alone but the bound of all splits."""
        return None
