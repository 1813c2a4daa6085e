"""The schedule that a run begins with: read, and held to every rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.checker import check_schedule

START = "start"
"""Name of such a schedule in reports, and of the option in errors."""


def known_schedule(
    kind: Any, instance: Instance, problem_of: Callable[[Any], Problem], given: Any
) -> Schedule:
    """Return a schedule that is known, if it breaks no rule.

    Parameters
    ----------
    kind : Kind
        The kind of the instance.
    instance : Instance
        What is scheduled.
    problem_of : callable
        Takes a document, or a `Schedule`, and returns the problem that it is a schedule of.
    given : Schedule, pydantic model or dict
        A schedule of the instance, or a document that holds one.

    Returns
    -------
    Schedule
        A valid schedule.

    Raises
    ------
    InputError
        It breaks a rule, which is named, or is no schedule of this instance.
    """
    schedule = _read(kind, instance, problem_of, given)
    violations = check_schedule(schedule.problem, schedule)
    if violations:
        raise InputError(f"not a valid schedule of {instance.name}: {violations[0]}", field=START)
    return schedule


def _read(
    kind: Any, instance: Instance, problem_of: Callable[[Any], Problem], given: Any
) -> Schedule:
    if isinstance(given, Schedule):
        return Schedule(problem_of(given), given.start)
    data = given
    if isinstance(given, BaseModel):
        data = given.model_dump(mode="json", exclude={"heuristics", "orders"})
    schedule: Schedule | None
    try:
        schedule, violations = kind.read(instance, problem_of(data), data)
    except InputError as error:
        raise InputError(str(error), field=START) from None
    if schedule is None:
        raise InputError(f"not a whole schedule: {violations[0]}", field=START)
    return schedule
