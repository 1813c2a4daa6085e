"""One run of `optimize`: heuristics, bounds, CP-SAT, every schedule checked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from ppsolve.models.core.metrics import measure
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import (
    HeuristicStatus,
    Result,
    ScheduleDocument,
    Status,
    StopReason,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.instances import Instance
from ppsolve.models.kfac.instance import KfacInstance
from ppsolve.models.overlap.instance import OverlapInstance
from ppsolve.models.overlap.lowering import LoweredOverlap
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.bounds import Bound, best_bound, lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome
from ppsolve.solver.optimize.options import Options
from ppsolve.solver.optimize.progress import Progress, ProgressListener
from ppsolve.solver.optimize.registry import HEURISTICS, heuristics_for, run_heuristic
from ppsolve.solver.optimize.report import (
    bound_entries,
    figures,
    heuristic_entry,
    relative_gap,
    versions,
)
from ppsolve.solver.structure.implied import ImpliedOrder
from ppsolve.solver.structure.memory_requirements import MemoryInfeasible

EXACT = "cp-sat"
"""Name of the exact solver in reports."""

MAX_EXACT_OPS = 50_000
"""Beyond this many ops no exact model is built; heuristics and analytic bounds remain."""


SEARCHED_OPS_PER_SECOND = 2_000
"""Ops for which a search heuristic needs about one second."""


class WrongScheduleError(Exception):
    """A solver returned a schedule that the checker refuses, or a bound above a schedule."""


@dataclass
class _Best:
    schedule: Schedule | None = None
    by: str | None = None
    order: list[int] | None = None


class _Watch:
    """Passes on what the exact search reports, from its threads, each with the latest of both."""

    def __init__(
        self, tell: Callable[[str, str, int | None, int], None], value: int | None, bound: int
    ) -> None:
        self._tell = tell
        self._value = value
        self._bound = bound
        self._lock = Lock()

    def incumbent(self, value: int) -> None:
        with self._lock:
            if self._value is None or value < self._value:
                self._value = value
                self._tell("incumbent", EXACT, value, self._bound)

    def bound(self, bound: int) -> None:
        with self._lock:
            if bound > self._bound:
                self._bound = bound
                self._tell("bound", EXACT, self._value, bound)


class Run:
    """State of one run; `execute` returns its result.

    Parameters
    ----------
    instance : Instance
        The instance.
    problem : Problem
        The lowered instance.
    options : Options
        SearchLimits, seed and the heuristics to run.
    listener : callable, optional
        Told about progress.
    """

    def __init__(
        self,
        instance: Instance,
        problem: Problem,
        options: Options,
        listener: ProgressListener | None = None,
    ) -> None:
        self.instance = instance
        self.problem = problem
        self.options = options
        self.implied = ImpliedOrder(problem)
        self._listener = listener
        self._began = time.monotonic()
        self._best = _Best()
        self._bound = Bound("trivial", 0)
        self._bounds: list[Bound] = []
        self._outcomes: list[HeuristicOutcome] = []
        self._stop: StopReason | None = None
        self._reason: str | None = None
        self._least_bytes: float | None = None

    def execute(self) -> Result:
        """Run every phase until the optimum is proved or a limit is reached."""
        try:
            self._find_bounds()
            self._run_heuristics()
            if self._stop is None:
                self._solve_exactly()
            self._minimise_bytes()
        except MemoryInfeasible as error:
            self._stop, self._reason = StopReason.INFEASIBLE, str(error)
        except KeyboardInterrupt:
            self._stop = StopReason.INTERRUPTED
        return self._result()

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def _value(self) -> int | None:
        return None if self._best.schedule is None else self._best.schedule.value

    def _tell(self, event: str, source: str, value: int | None, bound: int) -> None:
        if self._listener is None:
            return
        scale = self.problem.scale
        self._listener(
            Progress(
                event=event,
                seconds=self._elapsed,
                source=source,
                incumbent=None if value is None else scale.time(value),
                bound=scale.time(bound),
                gap=None if value is None else relative_gap(value, min(bound, value), value),
            )
        )

    def _find_bounds(self) -> None:
        self._bounds = lower_bounds(self.implied)
        self._bound = best_bound(self._bounds)
        self._tell("bound", self._bound.name, None, self._bound.value)

    def _run_heuristics(self) -> None:
        for name in self.options.heuristics or heuristics_for(self.instance):
            if HEURISTICS[name].is_search and (self._is_closed() or self._is_too_slow()):
                continue
            outcome = run_heuristic(name, self.instance, self.problem)
            self._outcomes.append(outcome)
            if outcome.status is HeuristicStatus.NOT_APPLICABLE:
                continue
            if outcome.status is HeuristicStatus.FEASIBLE and outcome.schedule is not None:
                self._offer(outcome.schedule, name, outcome.order)
            self._tell("heuristic", name, self._value, self._bound.value)
        self._is_closed()

    def _is_too_slow(self) -> bool:
        """Whether a search heuristic would take most of the time limit; judged by size alone."""
        limit = self.options.time_limit
        return limit is not None and 0 < limit * SEARCHED_OPS_PER_SECOND < self.problem.num_ops

    def _is_closed(self) -> bool:
        """Whether the best schedule is good enough; notes why."""
        if self._value is None:
            return False
        if self._value == self._bound.value:
            self._stop = StopReason.PROVED
        elif relative_gap(self._value, self._bound.value, self._value) <= self.options.gap:
            self._stop = StopReason.GAP
        return self._stop is not None

    def _offer(self, schedule: Schedule, by: str, order: list[int] | None = None) -> None:
        schedule = schedule.normalised()
        self._check(schedule, by)
        if schedule.value < self._bound.value:
            raise WrongScheduleError(
                f"{by} found {schedule.value} below the bound {self._bound.value} "
                f"of {self._bound.name}"
            )
        if self._value is None or schedule.value < self._value:
            self._best = _Best(schedule, by, order)
            self._tell("incumbent", by, schedule.value, self._bound.value)

    def _solve_exactly(self) -> None:
        limits = self.options.limits(self._elapsed)
        if self.problem.num_ops > MAX_EXACT_OPS:
            self._stop = StopReason.TOO_LARGE
            return
        if limits.seconds == 0:
            self._stop = StopReason.TIME
            return
        from ppsolve.solver.cpsat.exact import solve_exactly

        self._tell("phase", EXACT, self._value, self._bound.value)
        if isinstance(self.instance, KfacInstance):
            self._pin_first(self.instance, limits)
            if self._is_closed():
                return
            limits = self.options.limits(self._elapsed)
        plans_first = (
            isinstance(self.instance, PipelineInstance)
            and self.instance.collectives is not None
            and self.options.heuristics is None
        )
        if plans_first:
            self._plan_first(limits)
            if self._is_closed():
                return
            limits = self.options.limits(self._elapsed)
        watch = _Watch(self._tell, self._value, self._bound.value)
        answer = solve_exactly(
            self.implied,
            lower=self._bound.value,
            incumbent=self._best.schedule,
            limits=limits,
            on_incumbent=watch.incumbent,
            on_bound=watch.bound,
        )
        self._stop = answer.stop_reason
        if answer.infeasible:
            if self._best.schedule is not None:
                raise WrongScheduleError("cp-sat calls an instance infeasible that has a schedule")
            self._reason = "no schedule satisfies every rule (proved by cp-sat)"
            return
        if answer.bound is not None and answer.bound > self._bound.value:
            self._bound = Bound(EXACT, answer.bound)
        if answer.schedule is not None:
            self._offer_exact(answer.schedule)
        if self._value is not None and self._value == self._bound.value:
            self._stop = StopReason.PROVED

    def _offer_exact(self, schedule: Schedule) -> None:
        if not isinstance(self.instance, OverlapInstance):
            self._offer(schedule, EXACT)
            return
        from ppsolve.solver.overlap.idle_free import settled
        from ppsolve.solver.overlap.realise import realised

        lowered = LoweredOverlap.of(self.instance, self.problem)
        found = realised(self.instance, lowered, schedule)
        if found is None:
            early = settled(schedule, self.options.limits(self._elapsed))
            found = None if early is None else realised(self.instance, lowered, early)
        if found is None:
            self._stop = StopReason.NO_PROGRAM
        else:
            self._offer(found[1], EXACT, found[0])

    def _minimise_bytes(self) -> None:
        """Lower the peak of live bytes at the best makespan, where that is asked for."""
        instance, best = self.instance, self._best
        if not isinstance(instance, OverlapInstance) or best.order is None:
            return
        limits = self.options.limits(self._elapsed)
        if instance.objective != "makespan_then_bytes" or limits.seconds == 0:
            return
        from ppsolve.solver.overlap.least_bytes import least_bytes
        from ppsolve.solver.overlap.realise import run_order

        assert best.schedule is not None
        self._tell("phase", "live bytes", self._value, self._bound.value)
        least = least_bytes(instance, best.order, best.schedule.makespan, limits)
        lowered = LoweredOverlap.of(instance, self.problem)
        schedule = run_order(instance, lowered, least.order)[0]
        self._check(schedule, "live bytes")
        self._best = _Best(schedule, best.by, least.order)
        self._least_bytes = float(least.lower)

    def _check(self, schedule: Schedule, by: str) -> None:
        violations = check_schedule(self.problem, schedule)
        if violations:
            raise WrongScheduleError(f"{by}: {violations[0]} ({len(violations)} in all)")

    def _plan_first(self, limits: SearchLimits) -> None:
        from ppsolve.solver.pipeline.best_order import best_pipeline

        instance = self.instance
        assert isinstance(instance, PipelineInstance)
        outcome = best_pipeline(instance, self.problem, limits)
        if outcome is not None and outcome.schedule is not None:
            self._outcomes.append(outcome)
            self._offer(outcome.schedule, outcome.name)

    def _pin_first(self, instance: KfacInstance, limits: SearchLimits) -> None:
        from ppsolve.solver.kfac.pinned_search import pinned_first

        for name, schedule in pinned_first(instance, self.problem, self._outcomes, limits):
            self._offer(schedule, name)

    def _status(self) -> Status:
        if self._stop is StopReason.INFEASIBLE:
            return Status.INFEASIBLE
        if self._value is None:
            return Status.UNKNOWN
        return Status.OPTIMAL if self._value == self._bound.value else Status.FEASIBLE

    def _result(self) -> Result:
        problem, schedule, status = self.problem, self._best.schedule, self._status()
        infeasible = status is Status.INFEASIBLE
        found: dict[str, object] = {}
        if schedule is not None:
            found = figures(schedule)
            found["bubble_over_compute"] = measure(schedule).bubble_over_compute
            found["gap"] = relative_gap(schedule.value, self._bound.value, schedule.value)
            found["schedule"] = ScheduleDocument.of(schedule)
        result = Result.model_validate(
            {
                "instance": problem.name,
                "status": status,
                "objective": problem.objective,
                "time_unit": problem.scale.unit,
                "bound": None if infeasible else problem.scale.time(self._bound.value),
                "bound_by": None if infeasible else self._bound.name,
                "best_by": self._best.by,
                "stop_reason": self._stop or StopReason.PROVED,
                "reason": self._reason,
                "wall_seconds": round(self._elapsed, 3),
                "seed": self.options.seed,
                "workers": self.options.used_workers,
                "deterministic": self.options.deterministic,
                "rounding_error": problem.scale.worst_relative_error,
                "versions": versions(),
                "bounds": bound_entries(problem, self._bounds),
                "heuristics": [heuristic_entry(o, self._value) for o in self._outcomes],
                **found,
            }
        )
        if not isinstance(self.instance, OverlapInstance):
            return result
        from ppsolve.solver.overlap.report import overlap_result

        program = overlap_result(
            self.instance, self.problem, result, self._outcomes, self._best.order
        )
        return program.model_copy(update={"least_peak_bytes": self._least_bytes})
