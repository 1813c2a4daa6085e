"""Schedules of any kind of instance as files that a viewer shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from ppsolve.models.core.problem import Objective
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import DeadlockError, InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.export.perfetto import TracedSchedule, perfetto_json
from ppsolve.solver.export.program import entry_in, winner_in
from ppsolve.solver.optimize.kinds import instance_in, kind_of, schedule_in

PICTURES: Mapping[str, Callable[[Sequence[TracedSchedule]], str]] = {"perfetto": perfetto_json}
"""What writes the file of a viewer, by the name that ``--to`` says."""


def shown_in(
    data: Any,
    source: str,
    *,
    heuristic: str | None = None,
    otherwise: Instance | None = None,
) -> tuple[Instance, TracedSchedule]:
    """Read the schedule of a document, for a picture.

    Parameters
    ----------
    data : object
        A result, a heuristic's entry, a bare schedule or a plan, as read from JSON.
    source : str
        How errors name it.
    heuristic : str, optional
        Take the order of this heuristic of a result.
    otherwise : Instance, optional
        The instance of a document that carries none.

    Returns
    -------
    Instance, TracedSchedule
        What was solved, and its schedule under the name of the method, else of the status. The
        bound is there where it is one of the makespan.

    Raises
    ------
    InputError
        There is no instance or no whole schedule, or the result has no such heuristic.
    """
    try:
        if not isinstance(data, dict):
            raise InputError(f"expected a result or a plan (an object), got {describe(data)}")
        if data.get("kind") == "plan-result":
            data, otherwise, _, _ = winner_in(data)
        if heuristic is not None:
            otherwise = instance_in(data, otherwise=otherwise)
            data = entry_in(data, heuristic)
        instance, schedule = _read(data, otherwise)
    except InputError as error:
        raise error.located(source) from None
    title = data.get("name") or data.get("best_by") or data.get("status") or "schedule"
    return instance, TracedSchedule(str(title), schedule, _makespan_bound(data))


def picture(name: str, shown: Sequence[TracedSchedule], sources: Sequence[str]) -> str:
    """Return schedules as the file of a viewer; those of one title are told apart by their sources.

    Parameters
    ----------
    name : str
        One of `PICTURES`.
    shown : sequence of TracedSchedule
        The schedules.
    sources : sequence of str
        Where each comes from.

    Returns
    -------
    str
        The text of the file.
    """
    count = Counter(each.title for each in shown)
    named = [
        replace(each, title=f"{each.title}, {source}") if count[each.title] > 1 else each
        for each, source in zip(shown, sources, strict=True)
    ]
    return PICTURES[name](named)


def _read(data: dict[str, Any], otherwise: Instance | None) -> tuple[Instance, Schedule]:
    """Return the instance and the schedule of a document, or that of its orders."""
    orders, reason = data.get("orders"), data.get("reason")
    if data.get("schedule", data.get("ops")) is None and orders is None and reason:
        raise InputError(f"there is no schedule in it: {reason}", field="schedule")
    if data.get("schedule") is not None or orders is None:
        return schedule_in(data, otherwise=otherwise)
    instance = instance_in(data, otherwise=otherwise)
    if not isinstance(orders, list) or not all(isinstance(row, list) for row in orders):
        raise InputError("expected a list of ops for each device", field="orders")
    kind = kind_of(instance)
    try:
        return instance, kind.follow(instance, kind.lower(instance), orders).schedule
    except DeadlockError as error:
        raise InputError(str(error), field="orders") from None


def _makespan_bound(data: dict[str, Any]) -> float | None:
    """Return the bound of a result, None where it is not one of the end of the schedule."""
    bound, unit = data.get("bound"), data.get("time_unit")
    if data.get("objective") != Objective.MAKESPAN or data.get("value_unit") not in (None, unit):
        return None
    try:
        found = float(bound)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return found if isfinite(found) else None
