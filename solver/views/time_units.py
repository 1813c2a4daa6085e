"""Times of results in the unit in which people read them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from ppsolve.models.core.result import Figure, HeuristicEntry, Result
from ppsolve.models.core.timescale import UNITS_PER_SECOND
from ppsolve.solver.views.figures import figure, figures

Document = TypeVar("Document", bound=BaseModel)
Answer = TypeVar("Answer", bound=Result | HeuristicEntry)

COUNTS = frozenset(
    {"value", "bound"}
)  # times only where the result counts its value in them
MOST = 1e6  # of more than six digits people count the digits


def ratio_of_units(unit: str, target: str) -> float:
    """Return the factor from one time unit to another; 1 where it is the same or unknown."""
    rates = UNITS_PER_SECOND
    if unit == target or unit not in rates or target not in rates:
        return 1.0
    return rates[target] / rates[unit]


def readable_unit(unit: str, longest: float) -> str:
    """Return the unit, or the next larger one in which the longest time has at most six digits."""
    units = list(UNITS_PER_SECOND)
    larger = units[units.index(unit) :] if unit in units else []
    return next((u for u in larger if longest * ratio_of_units(unit, u) < MOST), unit)


def readable_rate(unit: str, times: Iterable[float | None]) -> tuple[str, float]:
    """Return the unit in which people read these times, and the factor to it."""
    longest = max((time for time in times if time is not None), default=0.0)
    shown = readable_unit(unit, longest)
    return shown, ratio_of_units(unit, shown)


def readable_times(unit: str, *times: float | None) -> tuple[list[str], str]:
    """Return times as people read them, and the unit: ``384.7`` and ``ms``."""
    shown, factor = readable_rate(unit, times)
    if factor == 1.0:
        return figures(*times), shown
    return figures(*(None if t is None else t * factor for t in times)), shown


def scaled(document: Document, factor: float, *times: str) -> Document:
    """Return a document with these of its fields multiplied by a factor, where they are known."""
    if factor == 1.0:
        return document
    known = {name: getattr(document, name) for name in times}
    changes = {name: time * factor for name, time in known.items() if time is not None}
    return document.model_copy(update=changes)


def in_unit(answer: Answer, old_unit: str, unit: str) -> Answer:
    """Return a result or an entry with its times in another unit, its schedule as it is.

    Times in its reasons are told in it too. Where no factor leads to the unit the answer stays.
    """
    factor = ratio_of_units(old_unit, unit)
    counts = frozenset() if answer.value_unit in {None, old_unit} else COUNTS

    def told(value: Any, name: str, is_time: bool = False) -> Any:
        if isinstance(value, tuple):
            return tuple(told(element, name) for element in value)
        if isinstance(value, BaseModel) and name != "schedule":
            times = _times_of(type(value)) - (
                frozenset() if name == "tie_break" else counts
            )
            return value.model_copy(
                update={k: told(v, k, k in times) for k, v in value}
            )
        if isinstance(value, dict) and is_time:
            return {key: told(entry, name, True) for key, entry in value.items()}
        if is_time and value is not None:
            is_list = isinstance(value, list)
            return (
                [element * factor for element in value] if is_list else value * factor
            )
        if name == "reason" and value:
            return re.sub(rf"\b([0-9.]+) {old_unit}\b", time, value)
        return unit if name.endswith("_unit") and value == old_unit else value

    def time(match: re.Match[str]) -> str:
        return f"{figure(float(match[1]) * factor)} {unit}"

    if factor == 1.0:
        return answer
    scaled: Answer = told(answer, "")
    return scaled


@cache
def _times_of(document: type[BaseModel]) -> frozenset[str]:
    hints = get_type_hints(document, include_extras=True)
    return frozenset(name for name, kind in hints.items() if _is_time(kind))


def _is_time(kind: Any) -> bool:
    # Curves are drawn in the instance's unit: pairs of a time and an amount stay.
    return kind == Figure or (
        get_origin(kind) is not tuple and any(map(_is_time, get_args(kind)))
    )


def in_readable_unit(answer: Answer, unit: str) -> tuple[Answer, str]:
    """Return an answer with its times in a unit in which they have at most six digits, and it."""
    times = [answer.makespan, answer.device_span]
    if answer.value_unit in {None, unit}:
        times += [answer.value, getattr(answer, "bound", None)]
    longest = max((time for time in times if time is not None), default=0)
    shown = readable_unit(unit, float(longest))
    return in_unit(answer, unit, shown), shown
