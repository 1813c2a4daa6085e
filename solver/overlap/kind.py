"""The kind ``overlap``: a schedule counts as the program order that it runs as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result, StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.overlap.instance import OverlapInstance
from ppsolve.models.overlap.lowering import LoweredOverlap, lower_overlap
from ppsolve.models.overlap.result import OverlapEntry, OverlapResult
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome, Proposal
from ppsolve.solver.heuristics.own import op_numbers
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.kinds.scheduling import ScheduleTask
from ppsolve.solver.kinds.task import EXACT, Control, load_exact_solver
from ppsolve.solver.kinds.watch import ProgressRelay
from ppsolve.solver.overlap.heuristics import OVERLAP_HEURISTICS, plan_of_order, plan_of_schedule
from ppsolve.solver.overlap.realise import realised, run_order
from ppsolve.solver.overlap.report import ProgramReport, check_order


@dataclass(frozen=True)
class OverlapKind(Kind[OverlapInstance]):
    """Programs of kernels and collectives."""

    orders_are: ClassVar[str | None] = "program order"

    def task(self, instance: OverlapInstance, *, exact: bool = False) -> ScheduleTask:
        """Return the task of solving a program."""
        return ProgramTask(self, instance, self.lower(instance, exact=exact))

    def adapt(self, instance: OverlapInstance, schedule: Schedule) -> Proposal:
        """Turn a schedule into a program order and the schedule that it runs as."""
        return plan_of_schedule(instance, schedule)

    def follow(
        self, instance: OverlapInstance, problem: Problem, orders: Sequence[Sequence[Any]]
    ) -> Proposal:
        """Run a program order, or time an order of ops per stream."""
        ops = op_numbers(problem, orders)
        if len(ops) != 1 or sorted(ops[0].tolist()) != list(range(len(instance.nodes))):
            return super().follow(instance, problem, orders)
        return plan_of_order(instance, problem, ops[0].tolist())

    def entry_of(
        self,
        instance: OverlapInstance,
        problem: Problem,
        outcome: HeuristicOutcome,
        best: int | None = None,
        *,
        with_schedule: bool = False,
    ) -> HeuristicEntry:
        """Return the entry of a heuristic with the figures of its program order."""
        entry = super().entry_of(instance, problem, outcome, best, with_schedule=with_schedule)
        found: dict[str, Any] = dict(entry)
        if outcome.order is not None:
            found |= ProgramReport(instance, problem, outcome.order).figures()
        return OverlapEntry.model_validate(found)

    def order_lines(self, found: Result | HeuristicEntry) -> list[str] | None:
        """Return the names of the nodes in program order, None where there is no order."""
        return found.order if isinstance(found, OverlapResult | OverlapEntry) else None

    def refuted(
        self, instance: OverlapInstance, problem: Problem, data: Any, schedule: Schedule | None
    ) -> list[Violation]:
        """Return the claims of a document about its program order that do not hold."""
        return check_order(instance, problem, data, schedule)


class ProgramTask(ScheduleTask):
    """A program that is being solved: only schedules that a program order runs as count."""

    is_one_free_problem = orders_are_all = False
    schedules_of = "programs of kernels and collectives"
    least_bytes: float | None = None

    @property
    def lowered(self) -> LoweredOverlap:
        """The program and its problem."""
        return LoweredOverlap.of(self.instance, self.problem)

    def hear(self, schedule: Schedule, by: str) -> bool:
        """Keep the program order of a schedule that a search tells of, if it is the best one."""
        found = realised(self.instance, self.lowered, schedule)
        return found is not None and self.offer(found[1], by, found[0])

    def _listeners(
        self, relay: ProgressRelay, learn: Callable[[Schedule], None] | None
    ) -> tuple[Callable[[int], None] | None, Callable[[Schedule], None] | None]:
        """Return nobody for values, as not all are of programs, and who keeps the programs."""

        def heard(schedule: Schedule) -> None:
            # Errors of what is below the bound belong to the thread of the run.
            if schedule.value >= self.bound.value and self.hear(schedule, EXACT):
                assert self.value is not None
                relay.incumbent(self.value)
            if learn is not None:
                learn(schedule)

        return None, heard

    def offer_exact(self, schedule: Schedule, control: Control) -> StopReason | None:
        """Keep the program order of CP-SAT's schedule, if there is one."""
        from ppsolve.solver.overlap.least_bytes import idle_free_schedule

        found = realised(self.instance, self.lowered, schedule)
        if found is None:
            early = idle_free_schedule(schedule, control.limits())
            found = None if early is None else realised(self.instance, self.lowered, early)
        if found is None:
            return StopReason.NO_PROGRAM
        if self.offer(found[1], EXACT, found[0]):
            control.tell("incumbent", EXACT)
        return None

    def finish(self, control: Control) -> StopReason | None:
        """Lower the peak of live bytes at the best makespan, where that is asked for."""
        best = self.best
        if self.instance.objective != "makespan_then_bytes" or best is None or best.order is None:
            return None
        load_exact_solver()
        from ppsolve.solver.overlap.least_bytes import least_bytes

        assert best.schedule is not None
        control.tell("phase", "live bytes")
        least = least_bytes(self.instance, best.order, best.schedule.makespan, control.limits())
        schedule = run_order(self.instance, self.lowered, least.order)[0]
        self.refuse_wrong(schedule, "live bytes")
        self.best = HeuristicOutcome(
            best.name, HeuristicStatus.FEASIBLE, schedule, order=least.order
        )
        self.least_bytes = float(least.lower)
        return None

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result that the best program order has."""
        found = super().figures()
        if self.best is not None and self.best.order is not None:
            program = ProgramReport(self.instance, self.problem, self.best.order)
            found |= program.figures() | program.curves()
        return found | {"least_peak_bytes": self.least_bytes}


OVERLAP = OverlapKind(
    "overlap",
    OverlapInstance,
    lower_overlap,
    OVERLAP_HEURISTICS,
    OverlapResult,
    OverlapEntry,
)
