"""The result or the heuristic's entry that a schedule stands in."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from pydantic import ValidationError

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.documents.base import MAX_MOMENT, as_moment, explain, field_path
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.optimize.kinds import known_kind


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
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), data)]
    while waiting:
        at, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [((*at, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [((*at, index), inner) for index, inner in enumerate(value)]
        elif isinstance(value, Decimal) and value.adjusted() > MAX_MOMENT.adjusted():
            try:
                as_moment(value)
            except ValueError as error:
                raise InputError(str(error), source=source, field=field_path(at)) from None
