"""Pipelines that leave several things open, while they are solved: the table of their steps."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.fused import CHOSEN_BLOCKS
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import VARIANTS, SearchLimits
from ppsolve.solver.heuristics.order_search import obstacle
from ppsolve.solver.kinds.pipeline.chosen import has_best_choice, search_orders
from ppsolve.solver.kinds.pipeline.layers.linear import least_times
from ppsolve.solver.kinds.pipeline.open.search import CHOICES, ChoiceSearch
from ppsolve.solver.kinds.pipeline.open.space import PipelineSpace, is_decided
from ppsolve.solver.kinds.pipeline.open.tree import ChoiceTree
from ppsolve.solver.kinds.pipeline.options.search import FUSED, FusedOrderSearch
from ppsolve.solver.run.schedule_task import ScheduleTask
from ppsolve.solver.run.step import Step, Steps, Turn, whole
from ppsolve.solver.run.steps import (
    BOUNDS,
    EXACT_SLACK,
    GREEDY,
    ROBUST,
    SETTLED,
    has_time_to_search,
)
from ppsolve.solver.structure.holds import MemoryInfeasible

LAYERS = "layers"
"""Name of the bound over all splits of layers in reports."""


def has_blocks(turn: Turn) -> bool:
    """Apply where a schedule is known, ops may run as one, and their orders say all."""
    schedule = turn.board.schedule
    if schedule is None or turn.task.instance.overlap is None:
        return False
    return has_time_to_search(turn) and obstacle(schedule.problem) is None


def search_choices(turn: Turn) -> None:
    """Search over choices by list schedules."""
    steps = turn.params.modes.rated if turn.options.deterministic else 10**9
    search = ChoiceSearch(turn.task.space, turn.board, turn.options.seed, steps)
    search.run(turn.clock)


def search_blocks(turn: Turn) -> None:
    """Search over lists of ops of the best choices, of which neighbours are fused."""
    params, board, space = turn.params, turn.board, turn.task.space
    schedule = board.schedule
    assert schedule is not None
    blocks = space.blocks(space.problem(space.chosen(schedule)))
    if not blocks.options:
        return
    if CHOSEN_BLOCKS not in schedule.problem.choices:
        schedule = Schedule(blocks.base, schedule.start)
    search = FusedOrderSearch(blocks, board, turn.options.seed)
    steps = params.options.steps_per_option * len(blocks.options)
    budget = replace(params.heuristics.orders, cold=params.options.cold)
    search.run(schedule, turn.clock, steps, budget)


def prove_choices(turn: Turn) -> StopReason | None:
    """Prove choices away, or find better schedules of them."""
    tree = ChoiceTree(
        turn.task.space, turn.board, turn.limits(), turn.params.modes.question_units
    )
    stop = tree.run(turn.clock)
    turn.board.units += tree.spent
    return stop


COMBINED_STEPS: tuple[Step | Steps, ...] = (
    BOUNDS,
    GREEDY,
    Step(
        CHOICES,
        has_time_to_search,
        lambda t: t.params.modes.choice_share,
        search_choices,
    ),
    Step(FUSED, has_blocks, lambda t: t.params.options.order_share, search_blocks),
    Step(
        "orders",
        has_best_choice,
        lambda t: t.params.modes.order_share,
        search_orders,
        EXACT_SLACK,
    ),
    Step(VARIANTS, has_time_to_search, whole, prove_choices, EXACT_SLACK),
    SETTLED,
    ROBUST,
)
"""The steps of a pipeline that leaves several things open."""


class CombinedTask(ScheduleTask):
    """A pipeline that leaves several things open; `problem` relaxes them all."""

    steps: ClassVar[tuple[Step | Steps, ...]] = COMBINED_STEPS

    def __init__(self, kind: Any, instance: PipelineInstance, *, exact: bool) -> None:
        self.space = PipelineSpace(instance, exact=exact)
        super().__init__(kind, instance, self.space.relaxed(self.space.open))

    @cached_property
    def tick_error(self) -> int:
        """The most of the usual choices: all have nearly the same ops."""
        return max(self.space.problem(c).tick_error for c in self.space.corners())

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Raise the bound by the relaxed problem, and by all splits of layers."""
        super().find_bounds(clock)
        instance = self.instance
        if instance.layers is None or self.objective is not Objective.MAKESPAN:
            return
        if instance.replicas is not None:
            return
        # The model is loaded and solved after that, for which a short clock may not suffice.
        from ppsolve.solver.kinds.pipeline.layers.model import LayerModel
        from ppsolve.solver.kinds.pipeline.layers.ordered import MODEL_LIMITS

        answer = LayerModel(
            instance,
            self.scale,
            times=least_times(instance, self.scale),
        ).solve(MODEL_LIMITS, clock or Clock())
        if answer.is_infeasible:
            raise MemoryInfeasible(
                "memory: no split of the layers fits, even with one micro-batch in flight"
            )
        self.board.raise_bound(answer.bound, LAYERS)

    def problem_of(self, given: Any) -> Problem:
        """Return the problem of the choices of a document, or of a `Schedule`."""
        if isinstance(given, Schedule):
            given = self.kind.claims_of(self.instance, given)
        return self.kind.problem_of(self.instance, exact=False, document=given)

    def wrong_choice(self, schedule: Schedule) -> str | None:
        """Return that decisions do not allow what the schedule chose."""
        choices = self.space.chosen(schedule)
        if not is_decided(choices) or not self.space.allows(choices):
            return "choices that may not be made"
        blocks = self.space.blocks(self.space.problem(choices))
        chosen = schedule.problem.chosen(CHOSEN_BLOCKS)
        if blocks is not None and not blocks.allows(chosen):
            return "blocks of which two have one op"
        return None

    def run_heuristic(self, heuristic: Any, effort: Any = None) -> None:
        """Run a heuristic on the usual choices; it may return a schedule of others."""
        problem = self.space.problem(self.space.first)
        self.note(
            self.kind.run_heuristic(heuristic, self.instance, problem, effort=effort)
        )

    def refuse_robust(self) -> None:
        """Refuse where the makespan is not what is minimised."""
        if self.objective is not Objective.MAKESPAN:
            raise InputError("expected the objective makespan", field="robust")

    def verify(self, limits: SearchLimits) -> bool | None:
        """Each choice is proved apart: there is no second proof of all."""
        return None
