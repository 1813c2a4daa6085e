"""Pipelines with open memory modes that are being solved: the table of their steps."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.modes import CHOSEN_MODES, MemoryModes
from ppsolve.models.kinds.pipeline.replicas import ModeAlternative
from ppsolve.solver.exact.question import EXACT, VARIANTS, ExactAnswer, SearchLimits
from ppsolve.solver.exact.windows import latest_end
from ppsolve.solver.kinds.pipeline.chosen import (
    ChoiceTask,
    has_best_choice,
    search_orders,
    solve_jointly,
)
from ppsolve.solver.kinds.pipeline.modes.alternatives import (
    NEARBY,
    Alternative,
    alternatives_of,
    improve,
)
from ppsolve.solver.kinds.pipeline.modes.problems import INFEASIBLE, ModeProblems
from ppsolve.solver.kinds.pipeline.modes.search import MODES, ModeSearch
from ppsolve.solver.kinds.pipeline.modes.variants import Variants
from ppsolve.solver.run.schedule_task import search_below
from ppsolve.solver.run.step import Step, Steps, Turn, whole
from ppsolve.solver.run.steps import (
    BOUNDS,
    EXACT_SLACK,
    GREEDY,
    ROBUST,
    SETTLED,
    VERIFIED,
    has_time_to_search,
)
from ppsolve.solver.structure.implied import ImpliedOrder


def fits_at_once(turn: Turn) -> bool:
    """Apply to few stages and micro-batches: modes and orders are soon proved together."""
    return has_joint_model(turn) and turn.task.cells <= turn.params.modes.quick_cells


def has_joint_model(turn: Turn) -> bool:
    """Apply where modes and orders are one model that is not too large."""
    is_small = turn.task.cells <= turn.params.modes.joint_cells
    return has_time_to_search(turn) and is_small and turn.task.obstacle_to_joint is None


def decides_stages(turn: Turn) -> bool:
    """Apply where stages have modes of their own and a schedule is known."""
    return has_best_choice(turn) and turn.task.modes.decide == "stage"


def search_modes(turn: Turn) -> None:
    """Search over choices of modes by list schedules."""
    steps = turn.params.modes.rated if turn.options.deterministic else 10**9
    ModeSearch(turn.task.problems, turn.board, turn.options.seed, steps).run(turn.clock)


def search_variants(turn: Turn) -> StopReason | None:
    """Prove choices of modes away, or find better schedules of them."""
    limits = turn.limits()
    search = Variants(turn.task.problems, turn.board, limits, turn.params.modes)
    stop = search.run(turn.clock)
    turn.board.units += search.spent
    return stop


def _last_share(turn: Turn) -> float:
    return 1 - turn.params.modes.price_share if decides_stages(turn) else 1.0


def solve_small_jointly(turn: Turn) -> StopReason | None:
    """Search modes and orders of few micro-batches for a part of the time."""
    reason = solve_jointly(turn)
    return reason if reason in {StopReason.INFEASIBLE, StopReason.INTERRUPTED} else None


def is_timed_by_stage(turn: Turn) -> bool:
    """Apply where stages have modes of their own, and a clock runs."""
    is_timed = turn.clock.is_limited and not turn.options.deterministic
    return decides_stages(turn) and is_timed


def try_other_modes(turn: Turn) -> None:
    """Try every other mode of every stage, one at a time."""
    task, best = turn.task, turn.board.schedule
    if best is not None:
        task.alternatives = list(alternatives_of(task.problems, best, turn.clock))
        for each in task.alternatives:
            if each.schedule is not None:
                turn.board.propose(each.schedule, NEARBY)


MODE_STEPS: tuple[Step | Steps, ...] = (
    BOUNDS,
    GREEDY,
    Step(
        "quick exact",
        fits_at_once,
        lambda t: t.params.modes.quick_share,
        solve_small_jointly,
        EXACT_SLACK,
    ),
    Step(
        MODES, has_time_to_search, lambda t: t.params.modes.choice_share, search_modes
    ),
    Step(
        "orders",
        has_best_choice,
        lambda t: t.params.modes.order_share,
        search_orders,
        EXACT_SLACK,
    ),
    Step("nearby", is_timed_by_stage, lambda t: t.params.modes.near_share, improve),
    Step(
        VARIANTS,
        has_time_to_search,
        lambda t: (
            t.params.modes.variant_share if has_joint_model(t) else _last_share(t)
        ),
        search_variants,
        EXACT_SLACK,
    ),
    Step(EXACT, has_joint_model, _last_share, solve_jointly, EXACT_SLACK),
    SETTLED,
    Step(
        NEARBY, is_timed_by_stage, whole, try_other_modes, EXACT_SLACK, runs_anyway=True
    ),
    VERIFIED,
    ROBUST,
)
"""The steps of a pipeline whose modes are open."""


class ModesTask(ChoiceTask):
    """A pipeline whose memory modes are open.

    Every choice of modes has a problem of its own; `problem` is the relaxed one, whose bounds hold
    for all choices.

    `kind`: the kind of pipelines.
    """

    steps: ClassVar[tuple[Step | Steps, ...]] = MODE_STEPS

    def __init__(
        self,
        kind: Any,
        instance: PipelineInstance,
        modes: MemoryModes,
        problem: Problem,
    ) -> None:
        super().__init__(kind, instance, problem)
        self.modes = modes
        self.problems = ModeProblems(modes, problem.scale)
        self.alternatives: list[Alternative] = []

    @property
    def cells(self) -> int:
        """Number of stages times micro-batches."""
        return math.prod(self.modes.shape)

    def wrong_choice(self, schedule: Schedule) -> str | None:
        """Return that there are no such modes."""
        choice = schedule.problem.chosen(CHOSEN_MODES)
        is_choice = choice.shape == self.modes.shape and self.modes.allows(choice)
        return None if is_choice else "modes that may not be chosen"

    @cached_property
    def obstacle_to_joint(self) -> str | None:
        """Why modes and orders have no joint model, None where they have one."""
        from ppsolve.solver.kinds.pipeline.modes.joint_model import obstacle

        return obstacle(self.problems)

    def joint_model(self, lower: int, upper: int | None) -> Any:
        """Return a model with a literal for each mode of each stage and micro-batch."""
        from ppsolve.solver.kinds.pipeline.modes.joint_model import JointModel

        if upper is None:
            choices = (
                np.full(self.modes.shape, mode) for mode in range(len(self.modes.names))
            )
            made = map(self.problems.problem, choices)
            upper = sum(map(latest_end, made))
        return JointModel(self.problems, lower, upper)

    def search_below(
        self, analytic: int, claimed: int | None, limits: SearchLimits
    ) -> ExactAnswer:
        """Search for a schedule of any choice below a bound, see `ScheduleTask.search_below`."""
        if self.modes.decide in {"all", "window"}:
            return self._search_few_choices(claimed, limits)
        return super().search_below(analytic, claimed, limits)

    def _search_few_choices(
        self, claimed: int | None, limits: SearchLimits
    ) -> ExactAnswer:
        """Ask one choice after the other, but for those that analytic bounds settle."""
        answer = ExactAnswer(None, claimed, True, StopReason.INFEASIBLE, True, 0.0)
        clock = limits.start()
        for choice in self.modes.variants():
            implied = ImpliedOrder(self.problems.problem(choice))
            analytic = self.problems.bound(implied)
            if analytic < (INFEASIBLE if claimed is None else claimed):
                left = replace(limits, seconds=clock.left if clock.is_limited else None)
                answer = search_below(implied, analytic, claimed, left)
                limits = limits.less(0.0, answer.deterministic_time)
            if not answer.infeasible:
                break
        return answer

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result that the best schedule has, and other modes."""
        found = super().figures()
        if self.schedule is None:
            return found
        others = [
            ModeAlternative(
                stage=each.stage,
                mode=self.modes.names[each.mode],
                value=None
                if each.schedule is None
                else self.shown(each.schedule.value),
                peak=each.peak,
            )
            for each in self.alternatives
        ]
        return found | {"alternatives": others or None}
