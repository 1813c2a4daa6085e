"""Lower bounds that users write: functions whose numbers are compared, never believed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from importlib.metadata import entry_points
from numbers import Real
from typing import Any

from ppsolve.models.core.result import OwnBound, OwnBoundStatus, Result
from ppsolve.models.documents.base import as_json_number, describe
from ppsolve.models.documents.errors import InputError, NotApplicableError
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.heuristics.own import (
    OwnFunction,
    arguments_of,
    exception_line,
    load_function,
    name_of,
    read_only,
)

ENTRY_POINTS = "ppsolve.bounds"
"""Group of entry points in which other packages declare bounds: functions by name."""

NamedBound = str | OwnFunction
"""A bound as users give it: ``module:function``, ``file.py:function`` or a function."""

TOLERANCE = 1e-9
"""Share of a value by which a bound of floats may exceed it."""


def chosen_bounds(bounds: Iterable[NamedBound]) -> list[tuple[str, OwnFunction | str]]:
    """Return installed bounds and those of a call by name, each once.

    An `InputError` says that one of the call cannot be imported or called.
    """
    if isinstance(bounds, str) or callable(bounds):
        raise InputError("expected a list of functions, got one", field="bounds")
    chosen: dict[str, OwnFunction | str] = {
        point.name: point.value
        for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda p: p.name)
    }
    for bound in bounds:
        function = load_function(bound) if isinstance(bound, str) else bound
        if not callable(function):
            raise InputError(f"expected a function, got {bound!r:.40}", field="bounds")
        arguments_of(function)
        chosen[bound if isinstance(bound, str) else name_of(bound)] = function
    return list(chosen.items())


def compared_bounds(
    bounds: Iterable[tuple[str, OwnFunction | str]],
    instance: Instance,
    result: Result,
    *,
    exact: bool,
) -> Iterator[OwnBound]:
    """Yield what each function says, and whether the schedule of the result refutes it."""
    for name, function in bounds:
        try:
            value = _value_of(function, instance, exact=exact)
        except NotApplicableError as error:
            status, reason = OwnBoundStatus.NOT_APPLICABLE, error.reason or str(error)
            yield OwnBound(name=name, status=status, reason=reason)
        except InputError as error:
            status, reason = OwnBoundStatus.FAILED, error.message
            yield OwnBound(name=name, status=status, reason=reason)
        except (Exception, SystemExit) as error:
            status, reason = OwnBoundStatus.FAILED, exception_line(error)
            yield OwnBound(name=name, status=status, reason=reason)
        else:
            yield _judged(name, value, result)


def _value_of(
    function: OwnFunction | str, instance: Instance, *, exact: bool
) -> int | float | None:
    if isinstance(function, str):
        function = load_function(function)
    arguments: dict[str, Any] = {"instance": instance}
    words = arguments_of(function)
    if "problem" in words:
        problem = kind_of(instance).lower(instance, exact=exact)
        arguments["problem"] = read_only(problem)
    answer = function(*(arguments[word] for word in words))
    if answer is None:
        return None
    is_number = isinstance(answer, Real | Decimal) and not isinstance(answer, bool)
    if not is_number or not math.isfinite(answer):
        raise InputError(f"expected a finite number, got {describe(answer)}")
    if isinstance(answer, Decimal):
        return as_json_number(answer)
    whole = Fraction(answer)
    return int(whole) if whole.denominator == 1 else float(answer)


def _judged(name: str, value: float | None, result: Result) -> OwnBound:
    if value is None:
        text = "it returned None"
        return OwnBound(name=name, status=OwnBoundStatus.NOT_APPLICABLE, reason=text)
    best = result.value
    if best is not None and value > best * (1 + TOLERANCE):
        text = f"there is a valid schedule of {best}"
        status = OwnBoundStatus.REFUTED
        return OwnBound(name=name, status=status, value=value, reason=text)
    return OwnBound(name=name, status=OwnBoundStatus.NOT_REFUTED, value=value)
