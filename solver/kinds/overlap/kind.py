"""The kind ``overlap``: a schedule counts as the program order that it runs as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicEntry, Result, StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_about
from ppsolve.models.kinds.overlap.instance import CHOSEN_ORDER, OverlapInstance
from ppsolve.models.kinds.overlap.lowering import LoweredOverlap, lower_overlap
from ppsolve.models.kinds.overlap.result import OverlapEntry, OverlapResult
from ppsolve.solver.board import Incumbent, admit_checked
from ppsolve.solver.exact.question import EXACT, ExactAnswer, SearchLimits
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome, Proposal
from ppsolve.solver.heuristics.own import op_numbers
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.kinds.overlap.heuristics import (
    OVERLAP_HEURISTICS,
    plan_of_order,
    plan_of_schedule,
)
from ppsolve.solver.kinds.overlap.program_orders import (
    MOVES,
    PROGRAM_ORDERS,
    has_few_nodes,
    move_nodes,
    search_orders,
)
from ppsolve.solver.kinds.overlap.realise import realised, run_order, valid_run
from ppsolve.solver.kinds.overlap.replay import is_valid_order
from ppsolve.solver.kinds.overlap.report import ProgramReport, check_order, positions
from ppsolve.solver.run.schedule_task import START, ScheduleTask
from ppsolve.solver.run.step import Outcome, Step, Steps, Turn, in_sequence, whole
from ppsolve.solver.run.steps import (
    BOUNDS,
    EXACT_SLACK,
    GREEDY,
    QUICK,
    SEARCHES,
    VERIFIED,
    WHOLE,
    has_time_to_search,
)

AnyRow = TypeVar("AnyRow", Step, Steps)


@dataclass(frozen=True)
class OverlapKind(Kind[OverlapInstance]):
    """Programs of kernels and collectives."""

    orders_are: ClassVar[str | None] = "program order"
    schedules_of: ClassVar[str | None] = "programs of kernels and collectives"

    def problem_of(
        self, instance: OverlapInstance, *, exact: bool, document: Any
    ) -> Problem:
        """Lower a program; under contention with the durations of the order of a document."""
        problem = super().problem_of(instance, exact=exact, document=document)
        names = document.get("order") if isinstance(document, dict) else None
        if not instance.contention or not isinstance(names, list | tuple):
            return problem
        order = positions(instance, names)
        if not is_valid_order(instance, order):
            return problem
        return run_order(instance, LoweredOverlap.of(instance, problem), order)[
            0
        ].problem

    def claims_of(
        self, instance: OverlapInstance, schedule: Schedule
    ) -> dict[str, Any] | None:
        """Return the order of a schedule under contention, which its durations depend on."""
        order = schedule.problem.choices.get(CHOSEN_ORDER)
        if order is None:
            return None
        return {"order": [instance.nodes[node].name for node in order.tolist()]}

    def task(self, instance: OverlapInstance, *, exact: bool = False) -> ScheduleTask:
        """Return the task of solving a program."""
        return ProgramTask(self, instance, self.lower(instance, exact=exact))

    def adapt(self, instance: OverlapInstance, schedule: Schedule) -> Proposal:
        """Turn a schedule into a program order and the schedule that it runs as."""
        return plan_of_schedule(instance, schedule)

    def follow(
        self,
        instance: OverlapInstance,
        problem: Problem,
        orders: Sequence[Sequence[Any]],
    ) -> Proposal:
        """Run a program order, or time an order of ops per stream."""
        ops = op_numbers(problem, orders)
        if len(ops) != 1 or sorted(ops[0].tolist()) != list(range(len(instance.nodes))):
            return super().follow(instance, problem, orders)
        return plan_of_order(instance, problem, ops[0].tolist())

    def entry_of(
        self, instance: OverlapInstance, problem: Problem, outcome: HeuristicOutcome
    ) -> HeuristicEntry:
        """Return the entry of a heuristic with the figures of its program order."""
        entry = super().entry_of(instance, problem, outcome)
        fields: dict[str, Any] = dict(entry)
        if outcome.order is not None:
            fields |= ProgramReport(instance, problem, outcome.order).figures()
        return OverlapEntry.model_validate(fields)

    def order_lines(self, found: Result | HeuristicEntry) -> list[str] | None:
        """Return the names of the nodes in program order, None where there is no order."""
        return found.order if isinstance(found, OverlapResult | OverlapEntry) else None

    def refuted(
        self,
        instance: OverlapInstance,
        problem: Problem,
        data: Any,
        schedule: Schedule | None,
    ) -> list[Violation]:
        """Return the claims of a document about its program order that do not hold."""
        return check_order(instance, problem, data, schedule)


def is_contended(turn: Turn) -> bool:
    """Apply to programs whose kernels and collectives slow each other down."""
    return has_time_to_search(turn) and bool(turn.task.instance.contention)


def unless_contended(row: AnyRow) -> AnyRow:
    """Leave a row of the table out of programs under contention."""

    def applies(turn: Turn) -> bool:
        return not turn.task.instance.contention and row.applies(turn)

    return replace(row, applies=applies)


def half(turn: Turn) -> float:
    """Give a step half of the time that is left."""
    return 0.5


def order_share(turn: Turn) -> float:
    """Give program orders all the time that is left, or half where nodes are moved later."""
    return 0.5 if turn.task.instance.contention else 1.0


def wants_least_bytes(turn: Turn) -> bool:
    """Apply where the peak of live bytes is to be lowered at the best makespan."""
    instance = turn.task.instance
    is_asked = instance.objective == "makespan_then_bytes" and not instance.contention
    return is_asked and turn.board.incumbent is not None and has_time_to_search(turn)


def lower_bytes(turn: Turn) -> None:
    """Lower the peak of live bytes at the best makespan."""
    from ppsolve.solver.kinds.overlap.least_bytes import least_bytes

    task, best = turn.task, turn.board.incumbent
    if best is None or best.order is None:
        return
    outcome = least_bytes(
        task.instance, best.order, best.schedule.makespan, turn.limits()
    )
    task.least_bytes = float(outcome.lower)
    # Nobody improves the makespan any more: an order of the same makespan takes the place.
    run = run_order(task.instance, task.lowered, outcome.order)[0]
    turn.board.propose(run, BYTES, order=outcome.order, ties=True)


def solve_alone(turn: Turn) -> Outcome:
    """Solve the program as if nothing slowed anything down, for orders and a bound."""
    task, board = turn.task, turn.board
    plain = task.instance.model_copy(update={"contention": ()})
    # The scale of stretched times divides exact ticks: those of nodes alone are easier to search.
    problem = task.kind.lower(plain) if task.scale.is_exact else task.problem
    relaxed = ProgramTask(task.kind, plain, problem)
    ratio = int(relaxed.scale.tick / task.scale.tick)
    relaxed.board.clock, relaxed.board.gap = turn.clock, turn.options.gap

    def tell(event: str, by: str) -> None:
        best = relaxed.board.incumbent
        if event == "bound":
            board.raise_bound(relaxed.board.bound.value * ratio, by)
        elif best is not None and best.order is not None:
            # Slowed down, outputs may be held longer than a cap allows.
            run = valid_run(task.instance, task.lowered, best.order)
            if run is not None:
                board.propose(run, by, order=best.order)

    relaxed.board.subscribe(tell)
    inner = replace(turn, task=relaxed, heuristics=())
    steps = [step for step in (BOUNDS, QUICK, WHOLE) if step.applies(inner)]
    return in_sequence(inner, steps)


BYTES = "live bytes"
PROGRAM_STEPS: tuple[Step | Steps, ...] = (
    BOUNDS,
    GREEDY,
    Step("without contention", is_contended, half, solve_alone, EXACT_SLACK),
    unless_contended(QUICK),
    unless_contended(SEARCHES),
    unless_contended(WHOLE),
    Step(PROGRAM_ORDERS, has_few_nodes, order_share, search_orders),
    Step(MOVES, is_contended, whole, move_nodes),
    unless_contended(VERIFIED),
    Step(BYTES, wants_least_bytes, whole, lower_bytes, EXACT_SLACK, runs_anyway=True),
)
"""The steps of a program of kernels and collectives."""


class ProgramTask(ScheduleTask):
    """A program that is being solved: only schedules that a program order runs as count.

    Under contention what is proved of nodes alone is a bound. Few nodes are searched order by
    order, more of them by moves of single nodes.
    """

    steps = PROGRAM_STEPS
    least_bytes: float | None = None

    @property
    def tick_error(self) -> int:
        """Ticks by which the optimum may exceed that of the given times, as the best order runs."""
        best = self.board.incumbent
        return super().tick_error if best is None else best.schedule.problem.tick_error

    @property
    def lowered(self) -> LoweredOverlap:
        """The program and its problem."""
        return LoweredOverlap.of(self.instance, self.problem)

    def begin_from(self, given: Any) -> None:
        """Begin with the program order of a document, or the one that a schedule runs as."""
        is_document = isinstance(given, dict)
        names = given.get("order") if is_document else getattr(given, "order", None)
        order, problem = None, self.problem
        if names is not None:
            with errors_about(START):
                order = positions(self.instance, names)
                plan = plan_of_order(self.instance, problem, order)
            if plan.broken:
                text = f"not a valid schedule of {self.instance.name}: {plan.broken}"
                raise InputError(text, field=START, code=ErrorCode.SCHEDULE)
            given, problem = plan.schedule, plan.schedule.problem
        schedule = self.known_schedule(given, problem)
        if not self.board.propose(schedule, START, order=order):
            raise InputError(
                "no program order of its schedule keeps the caps",
                field=START,
                code=ErrorCode.FAILED,
            )

    def admit(
        self, schedule: Schedule, by: str, best: int | None, order: list[int] | None
    ) -> Incumbent | None:
        """Return the program order of a schedule, None where there is none or it is not better."""
        if order is None:
            realisation = realised(self.instance, self.lowered, schedule)
            if realisation is None:
                return None
            order, schedule = realisation
        return admit_checked(schedule, by, best, order)

    def conclude(self, answer: ExactAnswer, limits: SearchLimits) -> StopReason | None:
        """Look for a program order of CP-SAT's schedule where it has none as it is."""
        from ppsolve.solver.kinds.overlap.least_bytes import idle_free_schedule

        schedule, value = answer.schedule, self.board.value
        if schedule is None or (value is not None and value <= schedule.value):
            return answer.stop_reason
        if realised(self.instance, self.lowered, schedule) is None:
            early = idle_free_schedule(schedule, limits)
            if early is None or realised(self.instance, self.lowered, early) is None:
                return StopReason.NO_PROGRAM
            self.board.propose(early, EXACT)
        return answer.stop_reason

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result that the best program order has."""
        fields, best = super().figures(), self.board.incumbent
        if best is not None and best.order is not None:
            program = ProgramReport(self.instance, self.problem, best.order)
            fields |= program.figures() | program.curves()
        return fields | {"least_peak_bytes": self.least_bytes}


OVERLAP = OverlapKind(
    "overlap",
    OverlapInstance,
    lower_overlap,
    OVERLAP_HEURISTICS,
    OverlapResult,
    OverlapEntry,
)
