"""Proving a best-known file again: every upper bound by its schedule, with the checker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import fingerprint
from ppsolve.models.instances import Instance, load_instance
from ppsolve.solver.bestknown.entries import (
    FILE_NAME,
    Entry,
    instance_files,
    load_best_known,
)
from ppsolve.solver.bestknown.judging import Judge
from ppsolve.solver.bestknown.schedules import load_schedule, stored_iterations
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.structure.memory_requirements import MemoryInfeasible

SHOWN_VIOLATIONS = 3


@dataclass(frozen=True)
class Verified:
    """Outcome for one instance file; no problems means that all of it was proven again."""

    name: str
    entry: Entry | None
    problems: tuple[str, ...]


def verify(directory: Path) -> Iterator[Verified]:
    """Yield, for every instance file and every entry of the best-known file, what is wrong.

    Checked are the entry itself (lower <= upper, closed if and only if equal), that it is about
    the instance as it is now, that the stored schedule breaks no rule and has the upper bound as
    its value, and that no analytic lower bound exceeds the upper bound. A lower bound found by
    search is not proven again: that takes as long as finding it.

    Raises
    ------
    InputError
        The directory has no instances, or its best-known file is missing or not valid.
    """
    files = instance_files(directory)
    path = directory / FILE_NAME
    if not path.exists():
        raise InputError('no such file; "ppsolve bestknown update" makes it', source=str(path))
    known = load_best_known(directory)
    for name in files:
        entry = known.instances.get(name)
        if entry is None:
            yield Verified(name, None, (f"no entry in {FILE_NAME}",))
            continue
        try:
            problems = _entry_problems(directory, entry, load_instance(directory / name))
        except InputError as error:
            problems = [str(error)]
        yield Verified(name, entry, tuple(problems))
    for name in sorted(known.instances.keys() - set(files)):
        yield Verified(name, known.instances[name], ("an entry, but no such instance file",))


def _entry_problems(directory: Path, entry: Entry, instance: Instance) -> list[str]:
    problems = entry.contradictions()
    if entry.instance_sha256 != fingerprint(instance):
        return [*problems, "the instance has changed since; run the update again"]
    judge = Judge(instance)
    path = None if entry.schedule is None else directory / entry.schedule
    iterations = None if path is None else stored_iterations(path)
    problem = judge.problem(iterations)
    objective = judge.objective(problem)
    if entry.objective is not objective or entry.time_unit != problem.scale.unit:
        problems.append(
            f"the entry has {entry.objective} in {entry.time_unit}, the instance "
            f"{objective} in {problem.scale.unit}"
        )
    if path is not None:
        schedule = load_schedule(path, problem)
        problems += schedule_problems(schedule, entry, judge.value(schedule, iterations))
    return problems + _bound_problems(judge, problem, entry)


def schedule_problems(schedule: Schedule, entry: Entry, value: Decimal) -> list[str]:
    """Return what is wrong with the schedule that `entry` names: broken rules, another value."""
    violations = check_schedule(schedule.problem, schedule)
    problems = [str(violation) for violation in violations[:SHOWN_VIOLATIONS]]
    if len(violations) > SHOWN_VIOLATIONS:
        problems.append(f"{len(violations) - SHOWN_VIOLATIONS} more broken rules")
    if entry.upper is None or value != entry.upper.value:
        claimed = None if entry.upper is None else entry.upper.value
        problems.append(f"the schedule's value is {value}, the upper bound {claimed}")
    return problems


def _bound_problems(judge: Judge, problem: Problem, entry: Entry) -> list[str]:
    try:
        name, value = judge.bound(problem)
    except MemoryInfeasible as error:
        return [f"proven infeasible: {error}"] if entry.upper is not None else []
    if entry.upper is not None and value > entry.upper.value:
        return [f"the {name} bound {value} is above the upper bound {entry.upper.value}"]
    return []
