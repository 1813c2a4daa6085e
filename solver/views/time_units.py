"""Times of results in the unit in which people read them."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from ppsolve.models.core.result import Figure, Result
from ppsolve.models.core.timescale import UNITS_PER_SECOND
from ppsolve.solver.views.figures import figure

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


def in_unit(result: Result, unit: str) -> Result:
    """Return a result with its times in another unit, its schedule as it is.

    Times in its reasons are told in it too. Where no factor leads to the unit it is the result
    itself.
    """
    old_unit, factor = result.time_unit, ratio_of_units(result.time_unit, unit)

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

    counts = frozenset() if result.value_unit in {None, old_unit} else COUNTS
    return result if factor == 1.0 else cast("Result", told(result, ""))


@cache
def _times_of(document: type[BaseModel]) -> frozenset[str]:
    hints = get_type_hints(document, include_extras=True)
    return frozenset(name for name, kind in hints.items() if _is_time(kind))


def _is_time(kind: Any) -> bool:
    # Curves are drawn in the instance's unit: pairs of a time and an amount stay.
    return kind == Figure or (
        get_origin(kind) is not tuple and any(map(_is_time, get_args(kind)))
    )


def in_readable_unit(result: Result) -> Result:
    """Return a result with its times in a unit in which they have at most six digits."""
    times = (result.makespan, result.device_span, result.value, result.bound)
    counted = times[: 2 if result.value_unit not in {None, result.time_unit} else 4]
    longest = max((time for time in counted if time is not None), default=0)
    return in_unit(result, readable_unit(result.time_unit, float(longest)))
