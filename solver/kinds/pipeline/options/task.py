"""Pipelines in which ops may run as one or on other devices, while they are solved: their steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ppsolve.models.core.compose import without_resources
from ppsolve.models.core.options import OpenProblem
from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.instances import Instance
from ppsolve.solver.bounds.registry import quick_bounds
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import EXACT, FEW_DEVICES
from ppsolve.solver.exact.windows import latest_end
from ppsolve.solver.heuristics.heuristic import Effort, Heuristic
from ppsolve.solver.heuristics.order_search import obstacle
from ppsolve.solver.kinds.pipeline.chosen import (
    ChoiceTask,
    has_best_choice,
    search_orders,
    solve_jointly,
)
from ppsolve.solver.kinds.pipeline.options.last_forward import (
    LAST_FORWARD,
    last_forward,
)
from ppsolve.solver.kinds.pipeline.options.relaxed import relaxed
from ppsolve.solver.kinds.pipeline.options.search import FUSED, FusedOrderSearch
from ppsolve.solver.run.step import Step, Steps, Turn, replaced, whole
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

AVERAGE = "work of all devices"


def fits_a_model(turn: Turn) -> bool:
    """Apply where one model of all options, whose makespan it minimises, is not too large."""
    is_small = len(turn.task.open.options) <= turn.params.options.most_options
    return has_time_to_search(turn) and is_small and turn.task.obstacle_to_joint is None


def fits_at_once(turn: Turn) -> bool:
    """Apply to few options: they and the orders are soon proved together."""
    return (
        fits_a_model(turn)
        and len(turn.task.open.options) <= turn.params.options.quick_options
    )


def has_lists(turn: Turn) -> bool:
    """Apply where a schedule is known and the orders of ops say all."""
    return has_best_choice(turn) and obstacle(turn.task.open.base) is None


def has_time_for_parts(turn: Turn) -> bool:
    """Apply to many options where a schedule is known and a clock runs."""
    is_timed = turn.clock.is_limited and not turn.options.deterministic
    return (
        has_best_choice(turn)
        and fits_a_model(turn)
        and is_timed
        and not fits_at_once(turn)
    )


def search_lists(turn: Turn) -> None:
    """Search over lists of ops, of which neighbours are fused."""
    params, board = turn.params, turn.board
    assert board.schedule is not None
    is_timed = turn.clock.is_limited and not turn.options.deterministic
    steps = params.options.steps_per_option * len(turn.task.open.options)
    most = float("inf") if is_timed and not fits_at_once(turn) else steps
    search = FusedOrderSearch(turn.task.open, board, turn.options.seed)
    budget = replace(params.heuristics.orders, cold=params.options.cold)
    search.run(board.schedule, turn.clock, most, budget)


def bound_by_parts(turn: Turn) -> StopReason | None:
    """Raise the bound by models in which few devices hold one op at a time.

    They begin with the device of the best analytic bound, and get its neighbours one by one.
    """
    from ppsolve.solver.exact.search import CpsatSearch, SharedIncumbent
    from ppsolve.solver.kinds.pipeline.options.joint_model import OptionsModel

    task, board, devices = (
        turn.task,
        turn.board,
        turn.task.problem.span_resources.tolist(),
    )
    known = [bound.resource for bound in task.bounds if bound.resource in devices]
    low = high = devices.index(known[0]) if known else 0
    while not (turn.clock.is_over or board.is_closed):
        assert board.schedule is not None and board.value is not None
        limits = turn.share(0.5).limits()
        only = devices[low : high + 1]
        model = OptionsModel(task.open, board.bound.value, board.value, only)
        model.hint(board.schedule)
        answer = CpsatSearch(
            model, SharedIncumbent(model), limits, limits.start()
        ).execute()
        if model.memory_is_exact and answer.bound is not None:
            board.raise_bound(answer.bound, FEW_DEVICES)
        if answer.stop_reason is StopReason.INTERRUPTED or len(only) == len(devices):
            return answer.stop_reason if len(only) < len(devices) else None
        low, high = (low - 1, high) if low else (low, high + 1)
    return None


OPTION_STEPS: tuple[Step | Steps, ...] = (
    BOUNDS,
    GREEDY,
    Step(FUSED, has_lists, lambda t: t.params.options.order_share, search_lists),
    Step(
        FEW_DEVICES,
        has_time_for_parts,
        lambda t: t.params.options.part_share,
        bound_by_parts,
        EXACT_SLACK,
    ),
    Step(EXACT, fits_a_model, whole, solve_jointly, EXACT_SLACK),
    SETTLED,
    VERIFIED,
    ROBUST,
)
"""The steps of a pipeline with fused blocks."""

ORDERS = Step("orders", has_best_choice, lambda t: 0.3, search_orders, EXACT_SLACK)

FILLER_STEPS = replaced(replaced(OPTION_STEPS, FUSED, ORDERS), FEW_DEVICES)
"""The steps of a pipeline with fillers that several devices may run."""


def anywhere(problem: OpenProblem) -> Problem:
    """Return a problem whose bounds hold for all devices: fillers with a choice take none."""
    mobile = np.zeros(problem.base.num_ops, dtype=np.bool_)
    mobile[list(problem.covering)] = True
    return without_resources(problem.base, mobile)


class OpenTask(ChoiceTask):
    """A pipeline with an open problem.

    `kind`: the kind of pipelines.
    `problem`: its ops and options.
    `relaxation`: a plain problem whose bounds hold for all choices.
    """

    def __init__(
        self, kind: Any, instance: Instance, problem: OpenProblem, relaxation: Problem
    ) -> None:
        super().__init__(kind, instance, relaxation)
        self.open = problem

    @property
    def tick_error(self) -> int:
        """As of the base: no op of an option is longer than its ops by more than a tick."""
        return self.open.base.tick_error

    def wrong_choice(self, schedule: Schedule) -> str | None:
        """Return that options cover an op twice."""
        is_choice = self.open.allows(schedule.problem.chosen(self.open.field))
        return None if is_choice else "options of which two cover one op"

    def run_heuristic(self, heuristic: Heuristic, effort: Effort | None = None) -> None:
        """Run a heuristic on the base; it may return a schedule of any choice."""
        base = self.open.base
        self.note(
            self.kind.run_heuristic(heuristic, self.instance, base, effort=effort)
        )

    @property
    def obstacle_to_joint(self) -> str | None:
        """The joint model minimises the makespan only."""
        is_makespan = self.open.base.objective is Objective.MAKESPAN
        return None if is_makespan else "it minimises the makespan"

    def joint_model(self, lower: int, upper: int | None) -> Any:
        """Return a model with a literal for each option."""
        from ppsolve.solver.kinds.pipeline.options.joint_model import OptionsModel

        if upper is None:
            upper = latest_end(replace(self.open.base, duration=self.open.slowest))
        return OptionsModel(self.open, lower, upper)


class OptionsTask(OpenTask):
    """A pipeline whose ops may run as one."""

    steps: ClassVar[tuple[Step | Steps, ...]] = OPTION_STEPS

    def __init__(self, kind: Any, instance: Instance, problem: OpenProblem) -> None:
        super().__init__(kind, instance, problem, relaxed(problem))

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Raise the bound by every analytic rule of two relaxed problems."""
        super().find_bounds(clock)
        known = Relaxations(
            ImpliedOrder(relaxed(self.open, favours_firsts=True)), clock
        )
        for bound in quick_bounds(known):
            self.board.raise_bound(bound.value, bound.name, bound.resource)
        value, resource = last_forward(self.open)
        self.board.raise_bound(value, LAST_FORWARD, resource)


class FillersTask(OpenTask):
    """A pipeline with fillers that several devices may run."""

    steps: ClassVar[tuple[Step | Steps, ...]] = FILLER_STEPS

    def __init__(self, kind: Any, instance: Instance, problem: OpenProblem) -> None:
        super().__init__(kind, instance, problem, anywhere(problem))

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Raise the bound by every analytic rule, and by the mean work of the devices.

        Until the makespan no device works before the first op that it may run can start, nor in the
        time that must pass after the last one. Its span is its own work at least.
        """
        super().find_bounds(clock)
        base, dag = self.open.base, self.implied.full
        heads = dag.heads(base.release)
        rest = dag.tails(base.duration) - base.duration
        work, mobile = (
            int(base.duration[base.is_compute].sum()),
            list(self.open.covering),
        )
        is_makespan = base.objective is Objective.MAKESPAN
        for resource in base.span_resources.tolist() if is_makespan else ():
            ops = np.union1d(base.ops_by_resource[resource], mobile)
            work += int(heads[ops].min() + rest[ops].min())
        self.board.raise_bound(-(-work // len(base.span_resources)), AVERAGE)
