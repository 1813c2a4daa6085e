"""An instance that is solved as one `Problem`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from ppsolve.models.core.metrics import measure
from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.result import (
    Bottleneck,
    HeuristicEntry,
    HeuristicStatus,
    ScheduleDocument,
    StopReason,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.board import Bound, WrongScheduleError
from ppsolve.solver.bounds import best_bound
from ppsolve.solver.bounds.registry import bottleneck, quick_bounds
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import EXACT, ExactAnswer, Question, SearchLimits
from ppsolve.solver.heuristics.generic import settled
from ppsolve.solver.heuristics.heuristic import Effort, Heuristic, HeuristicOutcome
from ppsolve.solver.heuristics.stress.replay import ALL_KINDS, Jitter, refuse_unfit
from ppsolve.solver.heuristics.stress.robust import make_robust
from ppsolve.solver.run.entries import figures, is_lost
from ppsolve.solver.run.step import Step, Steps
from ppsolve.solver.run.steps import SEARCHED, STEPS
from ppsolve.solver.run.task import Task
from ppsolve.solver.structure.implied import ImpliedOrder

START = "start"
"""Name of the schedule that a run begins with, in reports and as the option in errors."""


class ScheduleTask(Task):
    """An instance that lowers to one problem.

    `problem`: what it lowers to.
    """

    steps: tuple[Step | Steps, ...] = STEPS

    unproved: str | None = None
    """Why what is proved of its problem is not proved of the instance; None where it is."""

    def __init__(self, kind: Any, instance: Instance, problem: Problem) -> None:
        super().__init__(kind, instance, problem.scale, problem.objective)
        self.problem = problem
        self.implied = ImpliedOrder(problem)

    @property
    def tick_error(self) -> int:
        """Ticks by which the optimum may exceed that of the given times, see `Problem`."""
        return self.problem.tick_error

    @property
    def size(self) -> int:
        """Number of ops."""
        return self.problem.num_ops

    @property
    def bounds(self) -> list[Bound]:
        """The analytic bounds, strongest first."""
        bounds = [bound for bound in self.board.bounds if bound.name not in SEARCHED]
        return sorted(bounds, key=lambda bound: -bound.value)

    def begin_from(self, given: Any) -> None:
        """Check a known schedule and keep it, see `Task.begin_from`."""
        if self.kind.schedules_of is not None:
            super().begin_from(given)
        self.board.propose(self.known_schedule(given), START)

    def known_schedule(self, document: Any, problem: Problem | None = None) -> Schedule:
        """Return a schedule of the instance, or that of a document, if it breaks no rule.

        By default it is one of the problem that `problem_of` says. An `InputError` names the rule
        that it breaks, or says that it is no schedule of this instance.
        """
        data, name = document, self.instance.name
        if isinstance(document, BaseModel):
            data = document.model_dump(mode="json", exclude={"heuristics", "orders"})
        try:
            problem = self.problem_of(data) if problem is None else problem
            if isinstance(data, Schedule):
                data = Schedule(problem, data.start)
            else:
                data, violations = self.kind.read(self.instance, problem, data)
        except InputError as error:
            raise InputError(str(error), field=START, code=error.code) from None
        if data is None:
            raise InputError(
                f"not a whole schedule: {violations[0]}",
                field=START,
                code=ErrorCode.SCHEDULE,
            )
        if violations := check_schedule(data.problem, data):
            raise InputError(
                f"not a valid schedule of {name}: {violations[0]}",
                field=START,
                code=ErrorCode.SCHEDULE,
            )
        return data

    def problem_of(self, given: Any) -> Problem:
        """Return the problem that a document, or a `Schedule`, is a schedule of."""
        return self.problem

    def refuse_robust(self) -> None:
        """Refuse where orders do not say all, or the makespan is not what is minimised."""
        if self.kind.schedules_of is not None:
            super().refuse_robust()
        if self.objective is not Objective.MAKESPAN:
            raise InputError(
                "expected the objective makespan",
                field="robust",
                code=ErrorCode.CONFLICT,
            )
        refuse_unfit(self.problem)

    def make_robust(self, variation: float, clock: Clock, seed: int) -> None:
        """Replace the best schedule by one of equal makespan that jitter delays less.

        All durations have the same coefficient of variation.
        """
        if self.schedule is not None:
            robust = make_robust(
                self.schedule, Jitter({ALL_KINDS: variation}), clock, seed
            )
            self.board.propose(robust, "robust", ties=True)

    def settle(self) -> None:
        """Let each op of a schedule of CP-SAT begin as early as its orders allow."""
        if self.schedule is not None:
            self.board.propose(settled(self.schedule), EXACT, ties=True)

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Raise the bound by every analytic rule, or by those that the time allows."""
        _ = (
            self.implied.full
        )  # refuses memory that holds too little, however little time there is
        for bound in quick_bounds(Relaxations(self.implied, clock)):
            self.board.raise_bound(bound.value, bound.name, bound.resource)

    def bottleneck(self) -> Bottleneck | None:
        """Return the bottleneck by the strongest analytic bound, None where no rule names one."""
        return bottleneck(self.problem, self.bounds, self.board.bound)

    def run_heuristic(self, heuristic: Heuristic, effort: Effort | None = None) -> None:
        """Run one heuristic, propose its schedule and note its outcome."""
        kind, problem = self.kind, self.problem
        self.note(kind.run_heuristic(heuristic, self.instance, problem, effort=effort))

    def note(self, outcome: HeuristicOutcome) -> None:
        """Propose the schedule of an outcome, and keep it for the report."""
        outcome = self.judged(outcome)
        # The schedule first: a report that is cut short must not list a better one than its best.
        if outcome.status is HeuristicStatus.FEASIBLE and outcome.schedule is not None:
            self.board.propose(outcome.schedule, outcome.name, order=outcome.order)
        super().note(outcome)

    def conclude(self, answer: ExactAnswer, limits: SearchLimits) -> StopReason | None:
        """Return why a search of CP-SAT ended; for kinds whose schedules have more to them."""
        return answer.stop_reason

    def verify(self, limits: SearchLimits) -> bool | None:
        """Search for any schedule below the bound, or for any at all, with CP-SAT's defaults.

        The answer is false where a schedule contradicts the first proof: it is kept, the proof is
        not. It is None where the limits ended the search.
        """
        claimed = None if self.schedule is None else self.board.bound.value
        analytic = best_bound(self.bounds).value
        answer = self.search_below(analytic, claimed, replace(limits, is_plain=True))
        if answer.infeasible:
            return True
        if answer.schedule is None:
            return None
        self.board.retract(SEARCHED)
        self.board.propose(settled(answer.schedule), EXACT)
        return False

    def search_below(
        self, analytic: int, claimed: int | None, limits: SearchLimits
    ) -> ExactAnswer:
        """Search for any schedule of the instance below a bound."""
        return search_below(self.implied, analytic, claimed, limits)

    def entry(self, outcome: HeuristicOutcome) -> HeuristicEntry:
        """Return the entry of a heuristic, without its distance over the best value."""
        entry = self.kind.entry_of(self.instance, self.problem, outcome)
        is_kept = is_lost(self.kind, self.instance, self.problem, outcome)
        return entry if is_kept else entry.model_copy(update={"schedule": None})

    def value_of(self, outcome: HeuristicOutcome) -> int | None:
        """Return the value that a heuristic reached in ticks, None where it broke a rule."""
        is_valid = (
            outcome.status is HeuristicStatus.FEASIBLE and outcome.schedule is not None
        )
        return outcome.schedule.value if is_valid and outcome.schedule else None

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result that the best schedule has, and what it chose."""
        if self.schedule is None:
            return {}
        return {
            **figures(self.schedule),
            "bubble_over_compute": measure(self.schedule).bubble_over_compute,
            "schedule": ScheduleDocument.of(self.schedule),
            **(self.kind.claims_of(self.instance, self.schedule) or {}),
        }


def search_below(
    implied: ImpliedOrder, analytic: int, claimed: int | None, limits: SearchLimits
) -> ExactAnswer:
    """Search for any schedule below a bound, trusting analytic bounds only.

    Without a claimed bound any schedule is searched. The answer is infeasible where the bound
    holds; its schedule, if any, breaks no rule, else a `WrongScheduleError` is raised.
    """
    from ppsolve.solver.exact.search import solve

    below = Question(analytic, upper=None if claimed is None else claimed - 1)
    return checked(solve(implied, below, replace(limits, gap=1.0)))


def checked(answer: ExactAnswer) -> ExactAnswer:
    """Return an answer whose schedule, if any, breaks no rule.

    Raises `WrongScheduleError` where it breaks a rule that the model has.
    """
    schedule = answer.schedule
    violations = [] if schedule is None else check_schedule(schedule.problem, schedule)
    if not violations:
        return answer
    if answer.memory_is_exact:
        raise WrongScheduleError(f"{EXACT}: {violations[0]}")
    # Memory that was rounded down lets schedules through that break a limit.
    return replace(answer, schedule=None)
