"""K-FAC work around a pinned pipeline: the fewest iterations of each device, searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ppsolve.models.core.problem import Objective
from ppsolve.models.core.result import (
    HeuristicEntry,
    HeuristicStatus,
    ScheduleDocument,
    StopReason,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import errors_in
from ppsolve.models.kinds.kfac.instance import KfacInstance, TieBreak
from ppsolve.models.kinds.kfac.pattern import RefreshPattern
from ppsolve.models.kinds.kfac.result import TieBreakEntry
from ppsolve.models.kinds.kfac.unrolling import LoweredRefresh, lower_refresh
from ppsolve.solver.board import Incumbent, WrongScheduleError
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import EXACT
from ppsolve.solver.heuristics.heuristic import Effort, Heuristic, HeuristicOutcome
from ppsolve.solver.kinds.kfac.bounds import iterations_bound
from ppsolve.solver.kinds.kfac.component import (
    ComponentResult,
    ComponentSchedule,
    end_weights,
)
from ppsolve.solver.kinds.kfac.heuristics import (
    CAUSAL,
    RefreshOutcome,
    plans_of,
    refresh_entry,
    run_refresh_heuristic,
    scheduled,
)
from ppsolve.solver.kinds.kfac.pattern import refuse_overlaps
from ppsolve.solver.kinds.kfac.placement import DevicePlan, Refresh, common_interval
from ppsolve.solver.kinds.kfac.requirements import (
    coupled_devices,
    fits_one_period,
    iterations_until_steady,
    most_iterations,
    refuse_missing_data,
)
from ppsolve.solver.run.step import Step, Steps, Turn, whole
from ppsolve.solver.run.steps import BOUNDS, EXACT_SLACK, GREEDY, has_time_to_search
from ppsolve.solver.run.task import Task

if TYPE_CHECKING:
    from ppsolve.solver.kinds.kfac.exact import Budget, ComponentSearch

STOPS = (
    StopReason.INTERRUPTED,
    StopReason.TIME,
    StopReason.DETERMINISTIC,
    StopReason.TOO_LARGE,
)
"""Reasons that outweigh a proof on other devices, the gravest first."""


def find_fewest(turn: Turn) -> StopReason:
    """Search the fewest iterations of one component after the other."""
    task = turn.task

    def search(
        component: ComponentSearch, result: ComponentResult, remaining: int
    ) -> ComponentResult:
        if result.is_proved:
            return result
        return component.fewest(
            result, task.most_iterations(component.devices), remaining
        )

    return _search_components(turn, search)


def _search_components(
    turn: Turn,
    search: Callable[[ComponentSearch, ComponentResult, int], ComponentResult],
) -> StopReason:
    task = turn.task
    components = task.components(turn)
    for index, component in enumerate(components):
        task.results[index] = search(
            component, task.results[index], len(components) - index
        )
        task.report()
        if task.is_interrupted or task.infeasible is not None:
            break
    return task.stop_reason


def may_have_ties(turn: Turn) -> bool:
    """Apply unless it is proved that there is no schedule."""
    return has_time_to_search(turn) and turn.task.infeasible is None


def break_ties(turn: Turn) -> StopReason:
    """Let each device take its fewest iterations, then improve schedules by the tie-break.

    The search before stops once the device that takes most of them is proved.
    """
    task = turn.task
    reason: StopReason = task.stop_reason
    if not all(result.is_proved for result in task.results):
        reason = find_fewest(turn)
    if task.instance.tie_break is not TieBreak.NONE and not task.is_interrupted:
        from ppsolve.solver.kinds.kfac.exact import ComponentSearch

        turn.tell("phase", task.instance.tie_break.value)
        reason = _search_components(turn, ComponentSearch.break_tie)
    return reason


REFRESH_STEPS: tuple[Step | Steps, ...] = (
    BOUNDS,
    GREEDY,
    Step("fewest iterations", has_time_to_search, whole, find_fewest, EXACT_SLACK),
    Step("tie-break", may_have_ties, whole, break_ties, EXACT_SLACK, runs_anyway=True),
)
"""The steps of a refresh around a pinned pipeline, whose value counts iterations."""


class RefreshTask(Task):
    """A refresh; its value is the largest number of iterations that any device takes.

    Raises `InputError` where pipeline ops overlap, or a curvature part has no op that makes its
    data.
    """

    steps = REFRESH_STEPS
    kind: Any

    def __init__(
        self, kind: Any, instance: KfacInstance, pattern: RefreshPattern
    ) -> None:
        super().__init__(kind, instance, pattern.scale, Objective.ITERATIONS)
        refuse_overlaps(pattern)
        with errors_in(instance.name):
            refuse_missing_data(pattern)
            iterations_until_steady(pattern)
        self.pattern = pattern
        self.results: list[ComponentResult] = []
        self.infeasible_reason: str | None = None
        self.budget: Budget | None = None

    def admit(
        self, schedule: Schedule, by: str, best: int | None, order: list[int] | None
    ) -> Incumbent | None:
        """Count the iterations of a schedule of all devices, of which each part was checked."""
        value = max(result.iterations or 0 for result in self.results)
        return (
            None
            if best is not None and value >= best
            else Incumbent(value, by, schedule)
        )

    @property
    def found_by(self) -> str:
        """Method that found the schedule; the exact search where several had a part in it."""
        names = {result.best.by for result in self.results if result.best}
        return names.pop() if len(names) == 1 else EXACT

    def shown(self, value: int) -> int:
        """Return a number of iterations as it is."""
        return value

    def report(self) -> None:
        """Report to the board what is known of all components."""
        for result in self.results:
            self.board.raise_bound(result.lower, result.by)
        counts = [result.iterations for result in self.results]
        scheduled = [count for count in counts if count is not None]
        value = self.board.value
        if (
            scheduled
            and len(scheduled) == len(counts)
            and (value is None or max(scheduled) < value)
        ):
            self.board.propose(self._joined()[1], self.found_by)

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Bound the iterations of each component from below, by 1 where the time is over."""
        components = coupled_devices(self.pattern)
        self.results = [
            ComponentResult(tuple(devices), None, 1, "trivial", StopReason.TIME)
            for devices in components
        ]
        for index, devices in enumerate(components):
            bound = iterations_bound(self.pattern, devices, clock)
            if bound.infeasible_reason is not None:
                self.infeasible_reason = bound.infeasible_reason
                return
            self.results[index] = replace(
                self.results[index], lower=bound.value, by=bound.by
            )
        self.report()

    def run_heuristic(self, heuristic: Heuristic, effort: Effort | None = None) -> None:
        """Run one heuristic and keep its schedule of each component that it improves.

        A heuristic that breaks a rule on one device may keep them all on others.
        """
        outcome = self.kind.run_on_pattern(heuristic, self.instance, self.pattern)
        if isinstance(outcome, RefreshOutcome) and outcome.plans is not None:
            for index, result in enumerate(self.results):
                schedule = self._valid_part(
                    outcome.name, outcome.plans, result.devices, result.iterations
                )
                if schedule is not None:
                    self.results[index] = result.improved_by(schedule)
        self.report()
        self.note(outcome)

    def _valid_part(
        self,
        name: str,
        plans: Sequence[DevicePlan],
        devices: Sequence[int],
        limit: int | None,
    ) -> ComponentSchedule | None:
        """Return the part of plans for some devices; None if wrong or longer than `limit`."""
        iterations = max(plans[device].iterations for device in devices)
        if limit is not None and iterations > limit:
            return None
        lowered = lower_refresh(
            self.pattern,
            iterations,
            devices=devices,
            weight_of=end_weights(self.instance.tie_break),
        )
        schedule, unaligned = scheduled(
            self.pattern, [plans[d] for d in devices], lowered
        )
        if unaligned or check_schedule(lowered.problem, schedule):
            return None
        return ComponentSchedule(lowered, schedule, name)

    def components(self, turn: Turn) -> list[ComponentSearch]:
        """Return the exact search of each component; all share the time of the run."""
        from ppsolve.solver.kinds.kfac.exact import Budget, ComponentSearch

        if self.budget is None:
            self.budget = Budget(turn.limits())
        tie_break = self.instance.tie_break
        return [
            ComponentSearch(self.pattern, a.devices, tie_break, self.budget)
            for a in self.results
        ]

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C ended the search of a component."""
        return any(a.stop_reason is StopReason.INTERRUPTED for a in self.results)

    @property
    def stop_reason(self) -> StopReason:
        """The gravest reason for which the search of a component stopped."""
        reasons = {result.stop_reason for result in self.results}
        return next(
            (reason for reason in STOPS if reason in reasons), StopReason.PROVED
        )

    def most_iterations(self, devices: Sequence[int]) -> int:
        """Return the largest number of iterations worth trying.

        Where all iterations have the same holes, only memory can rule out every number. All
        saved tensors exist by the end of the first iteration, so one more than without memory
        is enough: curvature that frees memory in time runs first, all the rest one iteration later.
        """
        if self.instance.refresh_interval is not None:
            return self.instance.refresh_interval
        limit = most_iterations(self.pattern, devices)
        if not fits_one_period(self.pattern, devices) or self._without_memory is None:
            return limit
        return min(
            limit,
            max(self._without_memory[device].iterations for device in devices) + 1,
        )

    @cached_property
    def _without_memory(self) -> Sequence[DevicePlan] | None:
        return run_refresh_heuristic(CAUSAL, replace(self.pattern, capacities=())).plans

    @property
    def infeasible(self) -> str | None:
        """Why no schedule keeps the refresh interval or the memory, if that is proved."""
        if self.infeasible_reason is not None:
            return self.infeasible_reason
        interval = self.instance.refresh_interval
        for result in self.results:
            who = "devices " if len(result.devices) > 1 else "device "
            who += " and ".join(map(str, result.devices))
            if interval is not None and result.lower > interval:
                return (
                    f"{who} cannot refresh in {interval} iterations, the refresh interval: at "
                    f"least {result.lower} (proved by {result.by})"
                )
            if (
                interval is None
                and result.best is None
                and result.lower > self.most_iterations(result.devices)
            ):
                if self.pattern.capacities:
                    return f"{who} cannot keep the capacity for saved inputs and errors"
                return f"{who} cannot place all work, however many iterations there are"
        return None

    def entry(self, outcome: HeuristicOutcome) -> HeuristicEntry:
        """Return the entry of a heuristic, without its gap to the fewest iterations."""
        return refresh_entry(outcome, self.pattern)

    def value_of(self, outcome: HeuristicOutcome) -> int | None:
        """Return the iterations of a heuristic, None where it broke a rule."""
        is_valid = outcome.status is HeuristicStatus.FEASIBLE
        if not (is_valid and isinstance(outcome, RefreshOutcome) and outcome.plans):
            return None
        return common_interval(outcome.plans)

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result that bounds and the joint schedule have."""
        of_device = {
            device: result for result in self.results for device in result.devices
        }
        numbers = range(len(self.pattern.devices)) if of_device else []
        bounds = {
            "bound_of": [of_device[device].lower for device in numbers],
            "bounds_by": [of_device[device].by for device in numbers],
        }
        return bounds if self.board.value is None else bounds | self._of_schedule()

    def _of_schedule(self) -> dict[str, Any]:
        lowered, schedule = self._joined()
        violations = check_schedule(lowered.problem, schedule)
        if violations:
            raise WrongScheduleError(f"{violations[0]} ({len(violations)} in all)")
        refresh = Refresh(self.pattern, plans_of(self.pattern, lowered, schedule))
        time = self.scale.time
        return {
            "best_by": self.found_by,
            **refresh.figures(),
            "makespan": time(schedule.makespan),
            "device_span": time(schedule.device_span),
            "bubble_ratio": 1 - refresh.usage,
            "tie_break": self._tie(),
            "schedule": ScheduleDocument.of(schedule),
        }

    def _joined(self) -> tuple[LoweredRefresh, Schedule]:
        """Return one schedule of all devices, each with its own number of iterations."""
        counts = [1] * len(self.pattern.devices)
        for result in self.results:
            for device in result.devices:
                counts[device] = result.iterations or 1
        lowered = lower_refresh(self.pattern, counts)
        start = lowered.problem.pinned.copy()
        for result in self.results:
            assert result.best is not None
            for key, op in result.best.lowered.op_of.items():
                start[lowered.op_of[key]] = result.best.schedule.start[op]
        return lowered, Schedule(lowered.problem, start)

    def _tie(self) -> TieBreakEntry | None:
        ties = [result.tie for result in self.results if result.tie]
        names = {result.tie_break for result in self.results if result.tie_break}
        if not ties or len(ties) < len(self.results):
            return None
        value, bound = (sum(tie[side] for tie in ties) for side in (0, 1))
        return TieBreakEntry(
            name=names.pop(), value=self.scale.time(value), bound=self.scale.time(bound)
        )
