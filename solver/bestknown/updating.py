"""Improving a best-known file: upper bounds only fall, lower bounds only rise."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from ppsolve.models.core.documents import parse_given
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import Result
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.base import as_decimal
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import fingerprint
from ppsolve.models.instances import Instance
from ppsolve.models.kfac.result import RefreshResult
from ppsolve.solver.bestknown.entries import (
    SCHEDULES,
    BestKnown,
    Claim,
    Entry,
    instance_files,
    load_best_known,
    save_best_known,
)
from ppsolve.solver.bestknown.judging import Judge
from ppsolve.solver.bestknown.schedules import load_schedule, save_schedule, stored_iterations
from ppsolve.solver.bestknown.verification import schedule_problems
from ppsolve.solver.optimize.kinds import load_instance


@dataclass(frozen=True)
class Updated:
    """Outcome for one instance: its entry before and after, and what is wrong if anything is."""

    name: str
    before: Entry | None
    after: Entry | None
    problem: str | None = None


def update(
    directory: Path,
    *,
    time_limit: float = 60.0,
    only: str | None = None,
    workers: int | None = None,
    seed: int = 0,
    again: bool = False,
    today: datetime.date | None = None,
) -> Iterator[Updated]:
    """Solve the instances below `directory` and keep whatever is better than what is known.

    The file is written, whole or not at all, after each instance. What optimize returns is
    checked before it is believed; a result that contradicts what is known changes nothing.

    Parameters
    ----------
    directory : Path
        Instance files, and the best-known file that is made or improved.
    time_limit : float
        Seconds per instance.
    only : str, optional
        Pattern such as ``uniform/*``; other instances are left alone.
    workers, seed
        As for `optimize`.
    again : bool
        Solve closed instances too.
    today : datetime.date, optional
        Date of new claims.

    Raises
    ------
    InputError
        No instance matches, one is not valid, or the file cannot be read or written.
    """
    names = [name for name in instance_files(directory) if only is None or fnmatch(name, only)]
    if not names:
        raise InputError(f'no instance matches "{only}"', source=str(directory))
    for name in names:
        instance = load_instance(directory / name)
        before = _known_of(load_best_known(directory), name, instance)
        if before is not None and before.is_closed and not again:
            yield Updated(name, before, before)
            continue
        result = _solve(instance, time_limit, workers, seed)
        # Read again: another process may have written the file since.
        known = load_best_known(directory)
        before = _known_of(known, name, instance)
        outcome = _merged(directory, name, instance, before, result, today)
        if outcome.problem is None and outcome.after is not None:
            entries = {**known.instances, name: outcome.after}
            save_best_known(directory, known.model_copy(update={"instances": entries}))
        yield outcome


def _known_of(known: BestKnown, name: str, instance: Instance) -> Entry | None:
    """Return the entry of an instance unless it is about an older version of it."""
    entry = known.instances.get(name)
    if entry is None or entry.instance_sha256 != fingerprint(instance):
        return None
    return entry


def _solve(instance: Instance, time_limit: float, workers: int | None, seed: int) -> Result:
    from ppsolve.solver.optimize.api import optimize

    return optimize(instance, time_limit=time_limit, workers=workers, seed=seed)


def _merged(
    directory: Path,
    name: str,
    instance: Instance,
    before: Entry | None,
    result: Result,
    today: datetime.date | None,
) -> Updated:
    judge = Judge(instance)
    iterations = result.iterations_of if isinstance(result, RefreshResult) else None
    problem = judge.problem(iterations)
    day = today or datetime.datetime.now(datetime.UTC).date()
    fresh = Entry(
        objective=judge.objective(problem),
        time_unit=problem.scale.unit,
        status="open",
        upper=_claim(result, result.value, result.best_by, day),
        lower=_claim(result, result.bound, result.bound_by, day),
        schedule=f"{SCHEDULES}/{name}.gz" if result.value is not None else None,
        instance_sha256=fingerprint(instance),
    )
    schedule, wrong = _checked(judge, problem, result, fresh)
    if wrong:
        return Updated(name, before, before, "optimize returned a wrong result: " + wrong[0])
    replaces = _replaces_schedule(directory, judge, before, fresh)
    after = _better_of(before, fresh, take_upper=replaces)
    if contradictions := after.contradictions():
        return Updated(name, before, before, "CONTRADICTION: " + contradictions[0])
    if replaces and schedule is not None:
        path = directory / SCHEDULES / f"{name}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_schedule(path, schedule, iterations)
    return Updated(name, before, after)


def _checked(
    judge: Judge, problem: Problem, result: Result, fresh: Entry
) -> tuple[Schedule | None, list[str]]:
    """Return the result's schedule and everything that is wrong with it."""
    if fresh.upper is None:
        return None, []
    if result.schedule is None:
        return None, ["a value without a schedule"]
    # What a document claims of iterations is no time that could be read with the schedule.
    given = result.schedule if judge.counts_iterations else result
    schedule, violations = parse_given(given, problem)
    if schedule is None or violations:
        return None, [str(violation) for violation in violations]
    iterations = result.iterations_of if isinstance(result, RefreshResult) else None
    return schedule, schedule_problems(schedule, fresh, judge.value(schedule, iterations))


def _claim(
    result: Result, value: float | None, method: str | None, day: datetime.date
) -> Claim | None:
    if value is None:
        return None
    versions = result.versions
    return Claim(
        value=as_decimal(value),
        method=method or "unknown",
        version=f"ppsolve {versions.ppsolve}, ortools {versions.ortools or 'not used'}",
        date=day,
        seconds=round(as_decimal(result.wall_seconds), 2),
        workers=result.workers,
    )


def _replaces_schedule(directory: Path, judge: Judge, before: Entry | None, fresh: Entry) -> bool:
    """Return whether the fresh upper bound is better, or as good and the stored one unproven."""
    if fresh.upper is None:
        return False
    if before is None or before.upper is None or before.schedule is None:
        return True
    if fresh.upper.value != before.upper.value:
        return fresh.upper.value < before.upper.value
    try:
        path = directory / before.schedule
        iterations = stored_iterations(path)
        stored = load_schedule(path, judge.problem(iterations))
    except InputError:
        return True
    return bool(schedule_problems(stored, before, judge.value(stored, iterations)))


def _better_of(before: Entry | None, fresh: Entry, *, take_upper: bool) -> Entry:
    lowers = [entry.lower for entry in (before, fresh) if entry is not None and entry.lower]
    lower_claim = max(lowers, key=lambda claim: claim.value, default=None)
    best = fresh if take_upper or before is None else before
    merged = best.model_copy(update={"lower": lower_claim})
    return merged.model_copy(update={"status": "closed" if merged.is_closed else "open"})
