"""The result or the heuristic's entry that a schedule stands in, and the schedule of an entry."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

from pydantic import ValidationError

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.base import MAX_MOMENT, as_moment, explain, field_path
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.optimize.kinds import kind_of, known_kind


def owner_in(data: dict[str, Any], source: str | None) -> Result | HeuristicEntry | None:
    """Return the result or heuristic's entry that a document is, None for a bare schedule.

    Parameters
    ----------
    data : dict
        Parsed JSON of a result, an entry or a bare schedule.
    source : str or None
        How errors name it.

    Returns
    -------
    Result, HeuristicEntry or None
        Of the kind that it names.

    Raises
    ------
    InputError
        Names `source`, the first wrong field and what would be right.
    """
    refuse_huge_numbers(data, source)
    models = _models_of(data)
    if "instance" in data:
        model: type[Result | HeuristicEntry] = models[0]
    elif "name" in data:
        model = models[1]
    else:
        return None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise explain(error, model, source) from None


def schedule_of(entry: HeuristicEntry, instance: Instance, problem: Problem) -> Schedule | None:
    """Return the schedule behind a heuristic's entry, with all that its ops wait for.

    Parameters
    ----------
    entry : HeuristicEntry
        An entry of a result, or of its own.
    instance : Instance
        The instance that it is of.
    problem : Problem
        Its problem.

    Returns
    -------
    Schedule or None
        What the heuristic makes again, where that is what the entry says; else the schedule in the
        entry, else that of its orders. None where it has neither.

    Raises
    ------
    InputError, DeadlockError
        The schedule or the orders are not of the problem.
    """
    kind = kind_of(instance)
    known = (each for each in kind.heuristics_of(instance) if each.name == entry.name)
    heuristic = next(known, None)
    if heuristic is not None and (entry.pattern or not heuristic.is_search):
        made = kind.run_heuristic(heuristic, instance, problem)
        found = made.schedule
        if (
            found is not None
            and made.orders == entry.orders
            and problem.scale.time(found.makespan) == entry.makespan
        ):
            return found
    followed = stored = None
    if entry.schedule is not None:
        stored = kind.read(instance, problem, entry.model_dump(mode="json"))[0]
    with suppress(*([InputError] if stored else [])):
        if entry.orders is not None:
            followed = kind.follow(instance, problem, entry.orders).schedule
    if stored is None or followed is None or followed.waits is None:
        return stored or followed
    before, after, lag = followed.waits
    kept = stored.start[after] >= stored.end[before] + lag
    return replace(stored, waits=(before[kept], after[kept], lag[kept]))


def _models_of(data: dict[str, Any]) -> tuple[type[Result], type[HeuristicEntry]]:
    """Return the models of a result and of an entry of the kind that `data` names."""
    named = data.get("kind")
    kind = known_kind(named) if isinstance(named, str) else None
    return (Result, HeuristicEntry) if kind is None else kind.documents(data.get("value_unit"))


def refuse_huge_numbers(data: Any, source: str | None) -> None:
    """Refuse numbers that would take the validation of whole numbers forever, or crash it.

    Parameters
    ----------
    data : object
        Parsed JSON.
    source : str or None
        How errors name it.

    Raises
    ------
    InputError
        Names the field of the number.
    """
    limit = MAX_MOMENT.adjusted()
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), data)]
    while waiting:
        at, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [((*at, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [((*at, index), inner) for index, inner in enumerate(value)]
        elif isinstance(value, Decimal | int) and Decimal(value).adjusted() > limit:
            try:
                as_moment(value)
            except ValueError as error:
                raise InputError(str(error), source=source, field=field_path(at)) from None
