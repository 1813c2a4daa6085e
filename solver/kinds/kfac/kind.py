"""The kind ``kfac``: iterations around a pinned pipeline, or the makespan of a refresh cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ppsolve.models.core.documents import parse_given
from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.kinds.kfac.cycle import lower_cycle
from ppsolve.models.kinds.kfac.instance import FREE_PIPELINE, KfacInstance
from ppsolve.models.kinds.kfac.pattern import RefreshPattern
from ppsolve.models.kinds.kfac.result import RefreshEntry, RefreshResult
from ppsolve.models.kinds.kfac.unrolling import lower_refresh
from ppsolve.models.kinds.pipeline.transfers import doubtful_units
from ppsolve.solver.heuristics.generic import GENERIC
from ppsolve.solver.heuristics.heuristic import OURS, Heuristic, HeuristicOutcome
from ppsolve.solver.kinds.kfac.claims import (
    check_refresh,
    iterations_in,
    without_counts,
)
from ppsolve.solver.kinds.kfac.heuristics import (
    REFRESH_HEURISTICS,
    refresh_entry,
    run_refresh_heuristic,
)
from ppsolve.solver.kinds.kfac.pattern import pattern_of
from ppsolve.solver.kinds.kfac.pinned import pin_and_fill, pinned_cycle
from ppsolve.solver.kinds.kfac.refresh import RefreshTask
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.kinds.pipeline.published import FUSING, PUBLISHED
from ppsolve.solver.run.task import Task

A_CYCLE = "K-FAC work around a described pipeline (objective makespan)"


PINNED = tuple(
    Heuristic(
        f"pinned-{published.name}",
        f"the pipeline as {published.name} runs it, K-FAC work greedily around it",
        partial(pin_and_fill, pattern=published.name),
        A_CYCLE,
        source=f"{OURS}, around {published.source}",
    )
    for published in PUBLISHED
    if FUSING not in published.requirements
)
"""Published schedules that are pinned and repeated, K-FAC work placed around them."""


def is_refresh(instance: KfacInstance) -> bool:
    """Whether an instance asks for the fewest iterations around a pinned pipeline."""
    return instance.judged_by is Objective.ITERATIONS


@dataclass(frozen=True)
class KfacKind(Kind[KfacInstance]):
    """K-FAC work in a pipeline."""

    schedules_of: ClassVar[str | None] = "K-FAC iterations"

    def problem_of(
        self, instance: KfacInstance, *, exact: bool, document: Any
    ) -> Problem:
        """Lower an instance to the problem that a document is a schedule of."""
        if is_refresh(instance):
            pattern = pattern_of(instance)
            return lower_refresh(pattern, iterations_in(document, pattern)).problem
        if instance.pattern == FREE_PIPELINE:
            return lower_cycle(instance, exact=exact)
        return pinned_cycle(instance, instance.pattern, exact=exact)

    def heuristics_of(self, instance: KfacInstance) -> tuple[Heuristic, ...]:
        """Return the heuristics of a refresh, or those of a cycle."""
        return REFRESH_HEURISTICS if is_refresh(instance) else (*PINNED, *GENERIC)

    def obstacle(self, heuristic: Heuristic, instance: KfacInstance) -> str | None:
        """Return why a heuristic cannot be run; a refresh has a problem per iteration count."""
        if is_refresh(instance) and heuristic.is_generic:
            return "needs an instance that is one problem (here: objective makespan)"
        return super().obstacle(heuristic, instance)

    def objective_of(self, instance: KfacInstance) -> Objective:
        """Return the objective, with its default filled in."""
        return instance.judged_by

    def value_unit(self, instance: KfacInstance) -> str:
        """Return ``iterations`` for a refresh, else the unit of time."""
        return "iterations" if is_refresh(instance) else instance.time_unit

    def documents(
        self, value_unit: str | None
    ) -> tuple[type[Result], type[HeuristicEntry]]:
        """Return the models of documents that count iterations, or of those that count time."""
        if value_unit == "iterations":
            return RefreshResult, RefreshEntry
        return Result, HeuristicEntry

    def doubts(self, instance: KfacInstance) -> Iterator[str]:
        """Yield what is doubtful about the pipeline of an instance."""
        if instance.pipeline is not None:
            yield from (
                f"pipeline.{line}" for line in doubtful_units(instance.pipeline)
            )

    def task(self, instance: KfacInstance, *, exact: bool = False) -> Task:
        """Return the task of solving an instance."""
        if is_refresh(instance):
            return RefreshTask(self, instance, pattern_of(instance))
        return super().task(instance, exact=exact)

    def run_on_pattern(
        self, heuristic: Heuristic, instance: KfacInstance, pattern: RefreshPattern
    ) -> HeuristicOutcome:
        """Run a heuristic of refreshes and check its schedule; one of cycles does not apply."""
        obstacle = self.obstacle(heuristic, instance)
        if obstacle is None:
            return run_refresh_heuristic(heuristic, pattern)
        return HeuristicOutcome(
            heuristic.name, HeuristicStatus.NOT_APPLICABLE, reason=obstacle
        )

    def simulate(
        self,
        heuristic: Heuristic,
        instance: KfacInstance,
        *,
        group_size: int | None = None,
        exact: bool = False,
    ) -> HeuristicEntry:
        """Run one heuristic."""
        if not is_refresh(instance):
            return super().simulate(
                heuristic, instance, group_size=group_size, exact=exact
            )
        pattern = pattern_of(instance)
        outcome = self.run_on_pattern(heuristic, instance, pattern)
        return refresh_entry(outcome, pattern, with_schedule=True)

    def read(
        self,
        instance: KfacInstance,
        problem: Problem,
        data: Any,
        source: str | None = None,
    ) -> tuple[Schedule | None, list[Violation]]:
        """Read a schedule from a document.

        A refresh counts iterations: those fields of its document are no times of the schedule.
        """
        document = without_counts(data) if is_refresh(instance) else data
        return parse_given(document, problem, source)

    def check(
        self, instance: KfacInstance, given: Any, *, exact: bool = False
    ) -> list[Violation]:
        """Check a schedule, and the claims of its document, against every rule of an instance."""
        if is_refresh(instance):
            return check_refresh(instance, given)
        return super().check(instance, given, exact=exact)


KFAC = KfacKind("kfac", KfacInstance, lower_cycle, (*PINNED, *REFRESH_HEURISTICS))
