"""A kind of instance as one object: how it is read, lowered, solved and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from pydantic import BaseModel

from ppsolve.models.core.documents import parse_given
from ppsolve.models.core.problem import FREE, Objective, Problem
from ppsolve.models.core.result import (
    BrokenRule,
    HeuristicEntry,
    HeuristicStatus,
    Result,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.timescale import no_common_tick
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import (
    DeadlockError,
    ErrorCode,
    HeuristicFailedError,
    InputError,
    MemoryDeadlockError,
    NotApplicableError,
)
from ppsolve.models.instances import Instance
from ppsolve.solver.checker import check_schedule

# Searches are imported where they run, so that a file is read and checked without them.
if TYPE_CHECKING:
    from ppsolve.solver.heuristics.heuristic import (
        Effort,
        Heuristic,
        HeuristicOutcome,
        Proposal,
        Request,
    )
    from ppsolve.solver.kinds.inner import InnerInstances
    from ppsolve.solver.kinds.narrowing import Narrowing
    from ppsolve.solver.run.task import Task

MAX_TOTAL_TICKS = 2.0**58
"""Sums of times stay below this, so that no path or horizon leaves int64."""

AnyInstance = TypeVar("AnyInstance", bound=Instance)


@dataclass(frozen=True)
class Kind(Generic[AnyInstance]):
    """A kind of instance.

    A kind that needs no more than its problem is made of the first four; others override methods.
    """

    orders_are: ClassVar[str | None] = None
    """What `order_lines` writes in words, of kinds whose schedules are orders."""

    schedules_of: ClassVar[str | None] = None
    """What is scheduled in words, of kinds whose schedules are more than orders of resources."""

    name: str  # the ``kind`` of its instances
    instance: type[AnyInstance]  # model of its instances, with the fields of `Instance`
    # takes an instance and ``exact`` as keyword; returns the `Problem`
    to_problem: Callable[..., Problem]
    # what was published for it, in the order of reports; or ``module:name`` of that
    heuristics: tuple[Heuristic, ...] | str = ()
    # result, entry: models of its results and of their heuristics
    result: type[Result] = Result
    entry: type[HeuristicEntry] = HeuristicEntry

    def parse(self, data: Any, source: str | None = None) -> AnyInstance:
        """Validate parsed JSON as an instance of this kind.

        The `InputError` names `source`, the field and what would be right.
        """
        return self.instance.parse(data, source)

    def lower(
        self, instance: AnyInstance, *, exact: bool = False, document: Any = None
    ) -> Problem:
        """Lower an instance to the problem that solvers and the checker work on, in ticks.

        Raises `InputError`, with the instance's name as source, where times have no common tick and
        `exact` is true or starts are pinned, or are too long in all, or the kind refuses the
        instance.

        `exact`: refuse times without a common tick within the limit instead of rounding them up.
        `document`: the schedule that the problem is for, of kinds where the number of ops depends
            on it.
        """
        try:
            problem = self.problem_of(instance, exact=exact, document=document)
            _refuse_times(problem)
        except InputError as error:
            raise error.located(instance.name) from None
        return problem

    def problem_of(
        self, instance: AnyInstance, *, exact: bool, document: Any
    ) -> Problem:
        """Lower an instance without the checks of `lower`; for kinds to override."""
        return self.to_problem(instance, exact=exact)

    @property
    def runtimes(self) -> tuple[str, ...]:
        """Runtimes that run schedules of the kind, each for `for_runtime`."""
        return ()

    @property
    def published(self) -> tuple[Heuristic, ...]:
        """The published heuristics, imported now where the kind only names them."""
        if isinstance(self.heuristics, str):
            heuristics: tuple[Heuristic, ...] = resolve_name(self.heuristics)
            return heuristics
        return self.heuristics

    def heuristics_of(self, instance: AnyInstance) -> tuple[Heuristic, ...]:
        """Return the heuristics that are run on an instance, in the order of reports."""
        from ppsolve.solver.heuristics.generic import GENERIC

        return (*self.published, *GENERIC)

    def value_unit(self, instance: AnyInstance) -> str:
        """Return the unit of values and bounds in an instance's results."""
        return instance.time_unit

    def objective_of(self, instance: AnyInstance) -> Objective:
        """Return the objective of an instance, which its task has too."""
        stated = getattr(instance, "objective", None)
        return stated if isinstance(stated, Objective) else Objective.MAKESPAN

    def doubts(self, instance: AnyInstance) -> Iterator[str]:
        """Yield a line for each field of an instance whose unit looks wrong: the field, and why."""
        yield from ()

    def documents(
        self, value_unit: str | None
    ) -> tuple[type[Result], type[HeuristicEntry]]:
        """Return the models of a result and of a heuristic's entry whose values have this unit."""
        return self.result, self.entry

    def order_lines(self, found: Result | HeuristicEntry) -> list[str] | None:
        """Return the orders of a result or entry as lines, of kinds whose schedules are orders."""
        return None

    def task(self, instance: AnyInstance, *, exact: bool = False) -> Task:
        """Return the instance as a task that knows only the problem yet; errors as in `lower`."""
        from ppsolve.solver.run.schedule_task import ScheduleTask

        return ScheduleTask(self, instance, self.lower(instance, exact=exact))

    def claimed_task(self, instance: AnyInstance, data: Any, *, exact: bool) -> Task:
        """Return the task that a result document is of, of kinds that have several."""
        return self.task(instance, exact=exact)

    def for_runtime(
        self, instance: AnyInstance, runtime: str, *, exact: bool
    ) -> Narrowing:
        """Return an instance for one of `runtimes`; an `InputError` says why there is none."""
        raise NotImplementedError

    def inner(self, instance: AnyInstance) -> InnerInstances | None:
        """Return the instances within an instance that are solved before it, None without any."""
        return None

    def with_files(self, data: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Return the data of an instance with what it names as files of its folder."""
        return data

    def adapt(self, instance: AnyInstance, schedule: Schedule) -> Proposal:
        """Turn a schedule of a generic heuristic into a proposal of this kind; ops may move."""
        from ppsolve.solver.heuristics.heuristic import Proposal

        return Proposal(schedule)

    def follow(
        self, instance: AnyInstance, problem: Problem, orders: Sequence[Sequence[Any]]
    ) -> Proposal:
        """Time orders of ops, for kinds to override; other ops start as soon as they can.

        Orders are numbers or names of ops that run one after the other. Each op starts as early as
        they allow, those of one resource first come, first served. Raises `InputError` for an
        unknown op, or one that appears twice, and `DeadlockError` where the orders wait for each
        other.
        """
        from ppsolve.solver.heuristics.heuristic import Proposal
        from ppsolve.solver.heuristics.own import op_numbers
        from ppsolve.solver.structure.timing import time_orders

        return Proposal(time_orders(problem, op_numbers(problem, orders)))

    def obstacle(self, heuristic: Heuristic, instance: AnyInstance) -> str | None:
        """Return why a heuristic cannot be run on an instance, or None if it can.

        The words follow "not applicable:" in reports.
        """
        names = {candidate.name for candidate in self.heuristics_of(instance)}
        if not heuristic.is_own and heuristic.name not in names:
            return f"needs {heuristic.made_for}"
        return heuristic.obstacle(instance)

    def run_heuristic(
        self,
        heuristic: Heuristic,
        instance: AnyInstance,
        problem: Problem,
        group_size: int | None = None,
        effort: Effort | None = None,
    ) -> HeuristicOutcome:
        """Run one heuristic; its status tells a valid schedule from one that breaks a rule.

        `group_size`: micro-batches per group of ``interleaved-1f1b``; PyTorch's choice by default.
        `effort`: how long a heuristic that searches may go on; its usual effort by default.
        """
        from ppsolve.solver.heuristics.heuristic import (
            Effort,
            HeuristicOutcome,
            Request,
        )

        name = heuristic.name
        obstacle = self.obstacle(heuristic, instance)
        if obstacle is not None:
            return HeuristicOutcome(
                name, HeuristicStatus.NOT_APPLICABLE, reason=obstacle
            )
        try:
            follow = partial(self.follow, instance, problem)
            request = Request(instance, problem, group_size, effort or Effort(), follow)
            proposal = self._proposal(heuristic, request)
        except NotApplicableError as error:
            return HeuristicOutcome(
                name, HeuristicStatus.NOT_APPLICABLE, reason=str(error)
            )
        except (DeadlockError, MemoryDeadlockError, HeuristicFailedError) as error:
            is_full = isinstance(error, MemoryDeadlockError)
            broken = BrokenRule(rule="memory") if is_full else None
            return HeuristicOutcome(
                name, HeuristicStatus.FAILED, reason=str(error), broken=broken
            )
        claims = self.claims_of(instance, proposal.schedule)
        judged_by = problem if claims is None else self.lower(instance, document=claims)
        violations = check_schedule(judged_by, proposal.schedule)
        reason = str(violations[0]) if violations else proposal.broken
        status = (
            HeuristicStatus.FEASIBLE if reason is None else HeuristicStatus.INFEASIBLE
        )
        return HeuristicOutcome(
            name,
            status,
            proposal.schedule,
            reason,
            proposal.orders,
            proposal.order,
            proposal.pattern,
            BrokenRule.first_of(violations),
        )

    def claims_of(
        self, instance: AnyInstance, schedule: Schedule
    ) -> dict[str, Any] | None:
        """Return the fields of a document of a schedule beside the starts of its ops.

        None where starts are all.
        """
        return None

    def _proposal(self, heuristic: Heuristic, request: Request) -> Proposal:
        proposal: Proposal = heuristic.propose(request)
        if not heuristic.is_generic or proposal.order is not None:
            return proposal
        # Of users' own schedules a wrong one is shown as it is.
        if heuristic.is_own and check_schedule(request.problem, proposal.schedule):
            return proposal
        return self.adapt(request.instance, proposal.schedule)

    def simulate(
        self,
        heuristic: Heuristic,
        instance: AnyInstance,
        *,
        group_size: int | None = None,
        exact: bool = False,
    ) -> HeuristicEntry:
        """Run one heuristic and return its entry with the schedule; errors as in `lower`.

        Figures are in the instance's unit, without a gap.
        """
        problem = self.lower(instance, exact=exact)
        outcome = self.run_heuristic(heuristic, instance, problem, group_size)
        entry = self.entry_of(instance, problem, outcome)
        timed = problem if outcome.schedule is None else outcome.schedule.problem
        error = problem.scale.time(timed.tick_error) or None
        return entry.model_copy(update={"tick_error": error})

    def entry_of(
        self, instance: AnyInstance, problem: Problem, outcome: HeuristicOutcome
    ) -> HeuristicEntry:
        """Return the entry of the outcome of one heuristic, of the kind's own model.

        Figures are in the instance's unit, without a gap.
        """
        from ppsolve.solver.run.entries import heuristic_entry

        return heuristic_entry(outcome)

    def check(
        self, instance: AnyInstance, given: Any, *, exact: bool = False
    ) -> list[Violation]:
        """Check a schedule, and the claims of its document, against every rule of an instance.

        Raises `InputError` where the document holds no readable schedule of this instance.
        """
        if isinstance(given, Schedule):
            claims = self.claims_of(instance, given)
            problem = self.lower(instance, exact=exact, document=claims)
            return self.refuted(instance, problem, claims, given) + check_schedule(
                problem, given
            )
        data = given
        if isinstance(given, BaseModel):
            # What nobody holds against the schedule: all other schedules of a large result.
            data = given.model_dump(
                mode="json",
                exclude={
                    "heuristics": {"__all__": {"orders", "schedule"}},
                    "orders": True,
                },
            )
        problem = self.lower(instance, exact=exact, document=data)
        schedule, violations = self.read(instance, problem, data)
        violations = violations + self.refuted(instance, problem, data, schedule)
        return violations + (
            [] if schedule is None else check_schedule(problem, schedule)
        )

    def read(
        self,
        instance: AnyInstance,
        problem: Problem,
        data: Any,
        source: str | None = None,
    ) -> tuple[Schedule | None, list[Violation]]:
        """Read the schedule of a document, see `ppsolve.models.core.documents.parse_given`.

        There is none if ops are missing; violations are errors of the document itself. `source` is
        its name in errors.
        """
        return parse_given(data, problem, source)

    def refuted(
        self,
        instance: AnyInstance,
        problem: Problem,
        data: Any,
        schedule: Schedule | None,
    ) -> list[Violation]:
        """Return the false claims of a result document, apart from its schedule.

        The schedule is what could be read of it.
        """
        return []


def _refuse_times(problem: Problem) -> None:
    total = sum(
        float(times.sum(dtype=np.float64)) for times in (problem.duration, problem.lag)
    )
    if total > MAX_TOTAL_TICKS:
        raise InputError(
            f"all times together are {total:.1E} ticks, expected at most {MAX_TOTAL_TICKS:.1E}; "
            "give fewer digits",
            field="times",
            code=ErrorCode.RANGE,
        )
    if not problem.scale.is_exact and (
        np.any(problem.pinned != FREE) or problem.windows
    ):
        raise no_common_tick("give fewer digits: pinned ops leave no room to round up")
