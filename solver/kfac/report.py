"""From what a refresh run has found out to its result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ppsolve.models.core.problem import Objective
from ppsolve.models.core.result import BoundEntry, ScheduleDocument, Status, StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kfac.pattern import RefreshPattern
from ppsolve.models.kfac.result import RefreshResult, TieBreakEntry
from ppsolve.models.kfac.unrolling import LoweredRefresh, lower_refresh
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.kfac.component import Answer
from ppsolve.solver.kfac.figures import Refresh
from ppsolve.solver.kfac.heuristics import plans_of, refresh_entry
from ppsolve.solver.kfac.run import RefreshRun
from ppsolve.solver.optimize.report import relative_gap, versions

_STOPS = (StopReason.INTERRUPTED, StopReason.TIME, StopReason.DETERMINISTIC)
"""Reasons that outweigh a proof elsewhere, the gravest first."""


class WrongRefreshError(Exception):
    """A schedule that is about to be reported does not pass the checker."""


def refresh_result(run: RefreshRun) -> RefreshResult:
    """Return the result of a run that has been executed."""
    pattern, state, options = run.pattern, run.state, run.options
    found = {} if state.infeasible else _figures(pattern, state.answers)
    value = found.get("value")
    return RefreshResult.model_validate(
        {
            "instance": pattern.name,
            "objective": Objective.ITERATIONS,
            "time_unit": pattern.scale.unit,
            "reason": state.infeasible,
            "wall_seconds": round(run.elapsed, 3),
            "seed": options.seed,
            "workers": options.used_workers,
            "deterministic": options.deterministic,
            "rounding_error": pattern.scale.worst_relative_error,
            "versions": versions(),
            "heuristics": [refresh_entry(o, pattern, value) for o in state.outcomes],
            **_verdict(pattern, state.answers, state.infeasible, value),
            **found,
        }
    )


def _verdict(
    pattern: RefreshPattern, answers: list[Answer], infeasible: str | None, value: int | None
) -> dict[str, Any]:
    """Return status, bounds and why the search stopped."""
    if infeasible:
        return {"status": Status.INFEASIBLE, "stop_reason": StopReason.INFEASIBLE}
    of_device = {device: answer for answer in answers for device in answer.devices}
    strongest = max(answers, key=lambda answer: answer.lower, default=None)
    bound = strongest.lower if strongest else 1
    status = Status.UNKNOWN
    if value is not None:
        status = Status.OPTIMAL if value == bound else Status.FEASIBLE
    reasons = {answer.stop_reason for answer in answers}
    stop = next((reason for reason in _STOPS if reason in reasons), StopReason.PROVED)
    if status is Status.OPTIMAL and stop is not StopReason.INTERRUPTED:
        stop = StopReason.PROVED
    numbers = range(len(pattern.devices)) if of_device else []
    return {
        "status": status,
        "stop_reason": stop,
        "bound": bound,
        "bound_by": strongest.by if strongest else "trivial",
        "bound_of": [of_device[device].lower for device in numbers],
        "bounds_by": [of_device[device].by for device in numbers],
        "bounds": tuple(_bound_entries(answers)),
        "gap": None if value is None else relative_gap(value, bound, value),
    }


def _bound_entries(answers: list[Answer]) -> Iterator[BoundEntry]:
    """Yield the largest bound of each rule."""
    for name in dict.fromkeys(answer.by for answer in answers):
        yield BoundEntry(name=name, value=max(a.lower for a in answers if a.by == name))


def _figures(pattern: RefreshPattern, answers: list[Answer]) -> dict[str, Any]:
    """Return the figures of the joint schedule; nothing where a component has none."""
    if not answers or any(answer.found is None for answer in answers):
        return {}
    lowered, schedule = _joined(pattern, answers)
    violations = check_schedule(lowered.problem, schedule)
    if violations:
        raise WrongRefreshError(f"{violations[0]} ({len(violations)} in all)")
    refresh = Refresh(pattern, plans_of(pattern, lowered, schedule))
    figures = refresh.figures()
    time = pattern.scale.time
    return {
        **figures,
        "value": figures["iterations"],
        "makespan": time(schedule.makespan),
        "device_span": time(schedule.device_span),
        "bubble_ratio": 1 - refresh.usage,
        "best_by": _best_by(answers),
        "tie_break": _tie(pattern, answers),
        "schedule": ScheduleDocument.of(schedule),
    }


def _joined(pattern: RefreshPattern, answers: list[Answer]) -> tuple[LoweredRefresh, Schedule]:
    """Return one schedule of all devices, each with its own number of iterations."""
    counts = [1] * len(pattern.devices)
    for answer in answers:
        for device in answer.devices:
            counts[device] = answer.iterations or 1
    lowered = lower_refresh(pattern, counts)
    start = lowered.problem.pinned.copy()
    for answer in answers:
        assert answer.found is not None
        for key, op in answer.found.lowered.op_of.items():
            start[lowered.op_of[key]] = answer.found.schedule.start[op]
    return lowered, Schedule(lowered.problem, start)


def _best_by(answers: list[Answer]) -> str:
    """Return what found the schedule; the exact search where several had a part in it."""
    names = {answer.found.by for answer in answers if answer.found}
    return names.pop() if len(names) == 1 else "cp-sat"


def _tie(pattern: RefreshPattern, answers: list[Answer]) -> TieBreakEntry | None:
    ties = [answer.tie for answer in answers if answer.tie]
    names = {answer.tie_break for answer in answers if answer.tie_break}
    if not ties or len(ties) < len(answers):
        return None
    time = pattern.scale.time
    value, bound = (sum(tie[side] for tie in ties) for side in (0, 1))
    return TieBreakEntry(name=names.pop(), value=time(value), bound=time(bound))
