"""One run of `optimize` on a refresh: heuristics, bounds, exact search, tie-break."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ppsolve.models.core.result import StopReason
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kfac.instance import KfacInstance, TieBreak
from ppsolve.models.kfac.pattern import RefreshPattern, meetings
from ppsolve.models.kfac.unrolling import lower_refresh
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.kfac.bounds import iterations_bound
from ppsolve.solver.kfac.component import Answer, Found, weigher
from ppsolve.solver.kfac.heuristics import (
    REFRESH_HEURISTICS,
    RefreshOutcome,
    run_refresh_heuristic,
    scheduled,
)
from ppsolve.solver.kfac.pattern import refuse_overlaps
from ppsolve.solver.kfac.placement import DevicePlan
from ppsolve.solver.kfac.requirements import (
    coupled_devices,
    is_tidy,
    most_iterations,
    refuse_missing_data,
    settled_after,
)
from ppsolve.solver.optimize.options import Options
from ppsolve.solver.optimize.progress import Progress, ProgressListener

EXACT = "cp-sat"
CAUSAL = "pipefisher-causal"


@dataclass
class RefreshState:
    """What a run has found out.

    Parameters
    ----------
    outcomes : list of RefreshOutcome
        The heuristics that ran.
    answers : list of Answer
        Component by component.
    infeasible : str or None
        Why there can be no schedule.
    """

    outcomes: list[RefreshOutcome] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    infeasible: str | None = None


class RefreshRun:
    """Finds the fewest iterations of each device (or of devices coupled by syncs).

    Parameters
    ----------
    instance : KfacInstance
        An instance with a pinned pipeline.
    pattern : RefreshPattern
        Its pattern.
    options : Options
        Limits, seed and the heuristics to run.
    listener : callable, optional
        Told about progress; values and bounds are iterations.

    Raises
    ------
    InputError
        Pipeline ops overlap, or a curvature part has no op that makes its data.
    """

    def __init__(
        self,
        instance: KfacInstance,
        pattern: RefreshPattern,
        options: Options,
        listener: ProgressListener | None = None,
    ) -> None:
        refuse_overlaps(pattern)
        try:
            refuse_missing_data(pattern)
            settled_after(pattern)
        except InputError as error:
            raise error.located(instance.name) from None
        self.instance = instance
        self.pattern = pattern
        self.options = options
        self.state = RefreshState()
        self._listener = listener
        self._began = time.monotonic()
        self._components = [tuple(d) for d in coupled_devices(pattern, meetings(pattern))]

    def execute(self) -> RefreshState:
        """Run every phase until each device's fewest iterations are proved or a limit is hit."""
        try:
            self._run_heuristics()
            self._find_bounds()
            if self.state.infeasible is None:
                self._solve()
        except KeyboardInterrupt:
            self.state.answers = [
                replace(answer, stop_reason=StopReason.INTERRUPTED) for answer in self.state.answers
            ]
        return self.state

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def _tell(self, event: str, source: str) -> None:
        if self._listener is None:
            return
        answers = self.state.answers
        bound = max((answer.lower for answer in answers), default=1)
        values = [answer.iterations for answer in answers]
        known = [value for value in values if value is not None]
        value = max(known) if known and len(known) == len(values) else None
        gap = None if value is None else (value - bound) / value
        self._listener(Progress(event, self.elapsed, source, value, bound, gap))

    def _run_heuristics(self) -> None:
        for name in self.options.heuristics or REFRESH_HEURISTICS:
            if name in REFRESH_HEURISTICS:
                self.state.outcomes.append(run_refresh_heuristic(name, self.pattern))
                self._tell("heuristic", name)

    def _find_bounds(self) -> None:
        for devices in self._components:
            bound = iterations_bound(self.pattern, devices)
            if bound.hopeless is not None:
                self.state.infeasible = bound.hopeless
                return
            found = self._known(devices)
            answer = Answer(devices, found, bound.value, bound.by, StopReason.TIME)
            proved = StopReason.PROVED if answer.is_proved else StopReason.TIME
            self.state.answers.append(replace(answer, stop_reason=proved))
        self._tell("bound", "work")

    def _known(self, devices: Sequence[int]) -> Found | None:
        """Return the best valid schedule of `devices` that a heuristic has found.

        A heuristic that breaks a rule on one device may keep them all on others.
        """
        found: list[tuple[int, int, int, Found]] = []
        for outcome in self.state.outcomes:
            if outcome.plans is None:
                continue
            plans = [outcome.plans[device] for device in devices]
            most = max(plan.iterations for plan in plans)
            lowered = lower_refresh(
                self.pattern,
                [most] * len(self.pattern.devices),
                devices=devices,
                weigh=weigher(self.instance.tie_break),
            )
            schedule, unaligned = scheduled(self.pattern, plans, lowered)
            if not unaligned and not check_schedule(lowered.problem, schedule):
                candidate = Found(lowered, schedule, outcome.name)
                found.append((most, schedule.value, len(found), candidate))
        return min(found, key=lambda item: item[:3])[3] if found else None

    def _solve(self) -> None:
        limits = self.options.limits(self.elapsed)
        tie_break = self.instance.tie_break
        is_done = all(a.is_proved for a in self.state.answers) and tie_break is TieBreak.NONE
        if is_done or limits.seconds == 0:
            self.state.infeasible = self._within_limits()
            return
        from ppsolve.solver.kfac.exact import Budget, Component

        self._tell("phase", EXACT)
        budget, count = Budget(limits), len(self._components)
        parts = [Component(self.pattern, d, tie_break, budget) for d in self._components]
        for place, part in enumerate(parts):
            if self._is_interrupted():
                return
            known = self.state.answers[place]
            if not known.is_proved:
                most = self._most(part.devices)
                self.state.answers[place] = part.fewest(known, most, count - place)
            self._tell("bound", EXACT)
            self.state.infeasible = self._within_limits()
            if self.state.infeasible is not None:
                return
        self._tell("phase", tie_break.value)
        for place, part in enumerate(parts):
            if self._is_interrupted():
                return
            self.state.answers[place] = part.break_tie(self.state.answers[place], count - place)

    def _is_interrupted(self) -> bool:
        return any(a.stop_reason is StopReason.INTERRUPTED for a in self.state.answers)

    def _most(self, devices: Sequence[int]) -> int:
        """Return the largest number of iterations worth trying.

        Where all iterations have the same holes, only memory can rule out every number. All
        saved tensors exist by the end of the first iteration, so one more than without memory
        is enough: what frees memory in time is done first, and all the rest one iteration later.
        """
        if self.instance.refresh_interval is not None:
            return self.instance.refresh_interval
        most = most_iterations(self.pattern, devices)
        if not is_tidy(self.pattern, devices):
            return most
        if self._without_memory is None:
            return most
        return min(most, max(self._without_memory[device].iterations for device in devices) + 1)

    @cached_property
    def _without_memory(self) -> Sequence[DevicePlan] | None:
        return run_refresh_heuristic(CAUSAL, replace(self.pattern, saved=())).plans

    def _within_limits(self) -> str | None:
        """Return why no schedule keeps the refresh interval or the memory, if that is proved."""
        interval = self.instance.refresh_interval
        for answer in self.state.answers:
            who = "devices " if len(answer.devices) > 1 else "device "
            who += " and ".join(map(str, answer.devices))
            if interval is not None and answer.lower > interval:
                return (
                    f"{who} cannot refresh in {interval} iterations, the refresh interval: at "
                    f"least {answer.lower} (proved by {answer.by})"
                )
            if (
                interval is None
                and answer.found is None
                and (answer.lower > self._most(answer.devices))
            ):
                if self.pattern.saved:
                    return f"{who} cannot keep the capacity for saved inputs and errors"
                return f"{who} cannot place all work, however many iterations there are"
        return None
