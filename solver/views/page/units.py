"""The one time unit of a page, and results told in it."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel

from ppsolve.models.core.result import Result, ScheduleDocument
from ppsolve.models.core.timescale import UNITS_PER_SECOND
from ppsolve.solver.views.figures import figure

# Fields of results that hold times, the first two only where the result counts its value in them.
COUNTS = frozenset({"value", "bound"})
TIMES = COUNTS | {
    *("makespan", "device_span", "without_memory", "bubbles_of", "free_value", "free_bound"),
    *("work", "exposed_wait", "waited", "estimate", "estimate_seed", "tick_error"),
}
MOST = 1e6  # of more than six digits people count the digits


def ratio_of_units(unit: str, wanted: str) -> float:
    """Return the factor from one time unit to another; 1 where it is the same or unknown.

    Parameters
    ----------
    unit, wanted : str

    Returns
    -------
    float
    """
    known = UNITS_PER_SECOND
    if unit == wanted or unit not in known or wanted not in known:
        return 1.0
    return known[wanted] / known[unit]


def readable_unit(unit: str, longest: float) -> str:
    """Return the unit itself, or the next larger one in which a time has at most six digits.

    Parameters
    ----------
    unit : str
    longest : float
        The time, in that unit.

    Returns
    -------
    str
    """
    units = list(UNITS_PER_SECOND)
    larger = units[units.index(unit) :] if unit in units else []
    return next((u for u in larger if longest * ratio_of_units(unit, u) < MOST), unit)


def in_unit(result: Result, unit: str) -> Result:
    """Return a result with its times in another unit, its schedule as it is.

    Parameters
    ----------
    result : Result
    unit : str

    Returns
    -------
    Result
        Itself where no factor leads to the unit. Times in its reasons are told in it too.
    """
    factor, own = ratio_of_units(result.time_unit, unit), result.time_unit
    if factor == 1.0:
        return result

    def told(found: Any, times: frozenset[str]) -> Any:
        if isinstance(found, tuple):
            return tuple(told(each, times) for each in found)
        if not isinstance(found, BaseModel) or isinstance(found, ScheduleDocument):
            return found
        return found.model_copy(update={name: field(name, v, times) for name, v in found})

    def field(name: str, value: Any, times: frozenset[str]) -> Any:
        if name in times and isinstance(value, int | float):
            return value * factor
        if name in times and isinstance(value, list):
            return [each * factor for each in value]
        if name == "reason" and value:
            return re.sub(rf"\b([0-9.]+) {own}\b", time, value)
        if name.endswith("_unit") and value == own:
            return unit
        return told(value, TIMES if name == "tie_break" else times)

    def time(found: re.Match[str]) -> str:
        return f"{figure(float(found[1]) * factor)} {unit}"

    found: Result = told(result, TIMES if result.value_unit in {None, own} else TIMES - COUNTS)
    return found
