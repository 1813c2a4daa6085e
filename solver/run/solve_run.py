"""One run of `optimize`: a walk through the steps of a task, whatever its kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ppsolve.models.core.deferred import Deferred
from ppsolve.models.core.result import (
    BoundEntry,
    HeuristicEntry,
    HeuristicStatus,
    Result,
    Status,
    StepEntry,
    StopReason,
)
from ppsolve.models.documents.text import instance_data
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Heuristic, HeuristicOutcome
from ppsolve.solver.interruptible import call_within
from ppsolve.solver.kernels.compilation import answering_within
from ppsolve.solver.run.entries import relative_gap, versions
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.params import SearchParams
from ppsolve.solver.run.progress import ProgressListener, ProgressReporter
from ppsolve.solver.run.step import Outcome, Step, Steps, Stop, Turn
from ppsolve.solver.run.task import Task
from ppsolve.solver.structure.holds import MemoryInfeasible

OUT_OF_TIME = "stopped by the time limit"

UNCONDITIONAL = {StopReason.INFEASIBLE, StopReason.DISAGREEMENT, StopReason.INTERRUPTED}
"""Reasons that what is known afterwards does not outweigh."""


class SolveRun:
    """One run; `execute` returns its result.

    `task`: the instance that is solved.
    `heuristics`: what is run, in the order of the report.
    `listener`: told about progress, by one thread at a time.
    `clock`: clock of the whole call; one that begins now by default.
    `params`: budgets of the steps.
    """

    def __init__(
        self,
        task: Task,
        heuristics: Sequence[Heuristic],
        options: Options,
        listener: ProgressListener | None = None,
        clock: Clock | None = None,
        params: SearchParams | None = None,
    ) -> None:
        self.task, self.heuristics, self.options = task, heuristics, options
        self.params = params or SearchParams()
        self.whole = options.clock() if clock is None else clock
        self.board = task.board
        self.board.clock, self.board.gap = self.whole, options.gap
        budget, limit = (
            self.params.steps,
            self.whole.left if self.whole.is_limited else 0.0,
        )
        reserve = budget.reserved_seconds + budget.reserved_per_op * task.size
        self.ending = self.whole.before(min(reserve, budget.reserved_share * limit))
        is_robust = options.robust is not None
        self.clock = (
            self.ending.share(1 - budget.robust_share) if is_robust else self.ending
        )
        self._reporter = ProgressReporter(listener, self.whole, self.board, task.shown)
        self._reason: StopReason | None = None
        self._words: str | None = None
        self._steps: list[StepEntry] = []

    def execute(self) -> Result:
        """Run every step until the optimum is proved or a limit is reached."""
        turn = Turn(
            task=self.task,
            options=self.options,
            clock=self.clock,
            heuristics=tuple(self.heuristics),
            params=self.params,
            tell=self._reporter.tell,
        )
        with answering_within(self.clock.left):
            try:
                self._walk(self.task.steps, turn)
            except MemoryInfeasible as error:
                self._stop(StopReason.INFEASIBLE, str(error))
            except KeyboardInterrupt:
                self._stop(StopReason.INTERRUPTED)
        self._reporter.close()
        self.board.close()
        if self.board.failure is not None:
            raise self.board.failure
        return self._result()

    def _walk(self, steps: Iterable[Step | Steps], turn: Turn) -> None:
        for step in steps:
            if isinstance(step, Steps):
                if step.applies(turn):
                    began, count = self.whole.elapsed, len(self._steps)
                    self._walk(step.make(turn.share(step.share(turn))), turn)
                    if step.is_one_entry:
                        del self._steps[count:]
                        self._note(step.name, began)
                continue
            of_step = replace(turn, clock=self.ending) if step.uses_reserve else turn
            if not self._is_over(runs_anyway=step.runs_anyway) and step.applies(
                of_step
            ):
                self._run(step, of_step)

    def _is_over(self, *, runs_anyway: bool) -> bool:
        """Whether nothing is left for a step to do."""
        if self.task.infeasible is not None:
            self._stop(StopReason.INFEASIBLE, self.task.infeasible)
        if self._reason in {StopReason.INTERRUPTED, StopReason.DISAGREEMENT}:
            return True
        is_settled = self._reason is StopReason.INFEASIBLE or self.board.is_good_enough
        return is_settled and not runs_anyway

    def _run(self, step: Step, turn: Turn) -> None:
        """Run a step for its share of the time, and note what it gained."""
        step_turn, began = turn.share(step.share(turn)), self.whole.elapsed
        outcomes: list[Outcome] = []
        slack = max(
            step.slack,
            step.slack_share * step_turn.clock.left
            if step_turn.clock.is_limited
            else 0.0,
        )
        look = self._reporter.tick if self._reporter.is_heard else None
        if step_turn.clock.is_over:
            self._leave_out(step.name)
            return
        if all(heuristic.name != step.name for heuristic in self.heuristics):
            self._reporter.tell("phase", step.name)
        self._reporter.phase = step.name
        is_ended = call_within(
            lambda: outcomes.append(step.run(step_turn)), step_turn.clock, slack, look
        )
        if self.board.failure is not None:
            raise self.board.failure
        if not is_ended:
            self._leave_out(step.name)
        for outcome in outcomes:
            if isinstance(outcome, Stop):
                self._stop(outcome.reason, outcome.words)
            elif outcome is not None:
                self._stop(outcome)
        self._note(step.name, began)

    def _note(self, name: str, began: float) -> None:
        value, to_figure = self.board.value, self.task.shown
        self._steps.append(
            StepEntry(
                name=name,
                seconds=round(self.whole.elapsed - began, 4),
                value=None if value is None else to_figure(value),
                bound=to_figure(self.board.bound.value),
            )
        )

    def _leave_out(self, name: str) -> None:
        """Note that there was no time for a heuristic, or not enough."""
        heuristic = next(
            (entry for entry in self.heuristics if entry.name == name), None
        )
        if heuristic is None or heuristic.is_search or name in self.task.outcomes:
            return
        reason = self.task.kind.obstacle(heuristic, self.task.instance)
        status = (
            HeuristicStatus.FAILED if reason is None else HeuristicStatus.NOT_APPLICABLE
        )
        self.task.outcomes[name] = HeuristicOutcome(
            name, status, reason=reason or OUT_OF_TIME
        )

    def _stop(self, reason: StopReason, words: str | None = None) -> None:
        """Keep why the run ends, unless a graver reason is known."""
        if reason is StopReason.INFEASIBLE and words is None:
            words = "no schedule satisfies every rule (proved by cp-sat)"
        if self._reason not in UNCONDITIONAL or reason in UNCONDITIONAL:
            self._reason, self._words = reason, words

    def _end(self) -> StopReason:
        """Return why the run ended."""
        if self._reason in UNCONDITIONAL:
            return self._reason
        if self.board.is_closed:
            return StopReason.PROVED
        if self.board.is_good_enough:
            return StopReason.GAP
        if self.whole.is_stopped:
            return StopReason.CANCELLED
        return self._reason or StopReason.TIME

    def _status(self) -> Status:
        if self._end() is StopReason.INFEASIBLE:
            return Status.INFEASIBLE
        if self.board.value is None:
            return Status.UNKNOWN
        return Status.OPTIMAL if self.board.is_closed else Status.FEASIBLE

    def _result(self) -> Result:
        task, options, status = self.task, self.options, self._status()
        model, _ = task.kind.documents(task.kind.value_unit(task.instance))
        rank = {
            heuristic.name: number for number, heuristic in enumerate(self.heuristics)
        }
        outcomes = sorted(
            task.outcomes.values(), key=lambda o: rank.get(o.name, len(rank))
        )
        fields = {
            "instance": task.instance.name,
            "kind": task.kind.name,
            "status": status,
            "objective": task.objective,
            "time_unit": task.scale.unit,
            "value_unit": task.kind.value_unit(task.instance),
            "stop_reason": self._end(),
            "reason": self._words,
            "bound_verified": task.is_verified,
            "wall_seconds": round(self.whole.elapsed, 3),
            "seed": options.seed,
            "workers": options.used_workers,
            "deterministic": options.deterministic,
            "robust": options.robust,
            "tick_error": task.scale.time(task.tick_error),
            "versions": versions(),
            "instance_document": Deferred(partial(instance_data, task.instance)),
            "bounds": [
                BoundEntry(name=b.name, value=task.shown(b.value)) for b in task.bounds
            ],
            "heuristics": [self._entry(outcome) for outcome in outcomes],
            "steps": self._steps,
            **({} if status is Status.INFEASIBLE else self._found()),
        }
        return model.model_validate(fields)

    def _entry(self, outcome: HeuristicOutcome) -> HeuristicEntry:
        """Return the entry of a heuristic with its gap to the best value."""
        entry = self.task.entries.get(outcome.name) or self.task.entry(outcome)
        value, best = self.task.value_of(outcome), self.board.value
        if value is None or best is None:
            return entry
        return entry.model_copy(update={"gap": relative_gap(value, best, best)})

    def _found(self) -> dict[str, Any]:
        """Return the best schedule's figures, its bound and its gap."""
        task, board = self.task, self.board
        fields: dict[str, Any] = {
            "bound": task.shown(board.bound.value),
            "bound_by": board.bound.name,
            "bottleneck": task.bottleneck(),
        }
        if board.incumbent is not None:
            value = board.incumbent.value
            fields["value"] = task.shown(value)
            fields["gap"] = relative_gap(value, board.bound.value, value)
            fields["best_by"] = board.incumbent.by
        return fields | task.figures()
