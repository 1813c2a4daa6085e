"""Lower bounds that users write: functions whose numbers are compared, never believed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial
from importlib.metadata import entry_points
from numbers import Real
from typing import Any

from ppsolve.models.core.result import OwnBound, OwnBoundStatus, Result
from ppsolve.models.documents.base import as_json_number, describe
from ppsolve.models.documents.errors import ErrorCode, InputError, NotApplicableError
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.own import (
    OwnFunction,
    arguments_of,
    exception_line,
    load_function,
    name_of,
    read_only,
)
from ppsolve.solver.interruptible import call_within

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
        raise InputError(
            "expected a list of functions, got one", field="bounds", code=ErrorCode.TYPE
        )
    chosen: dict[str, OwnFunction | str] = {
        point.name: point.value
        for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda p: p.name)
    }
    for bound in bounds:
        function = load_function(bound) if isinstance(bound, str) else bound
        if not callable(function):
            raise InputError(
                f"expected a function, got {bound!r:.40}",
                field="bounds",
                code=ErrorCode.TYPE,
            )
        arguments_of(function)
        chosen[bound if isinstance(bound, str) else name_of(bound)] = function
    return list(chosen.items())


def proposed_bounds(
    bounds: Iterable[tuple[str, OwnFunction | str]],
    instance: Instance,
    clock: Clock,
    *,
    exact: bool,
) -> Iterator[OwnBound]:
    """Yield what each function says before the clock is over; none is refuted yet."""
    for name, function in bounds:
        answers: list[OwnBound] = []
        ask = partial(_ask, name, function, instance, answers, exact=exact)
        try:
            is_answered = call_within(ask, clock)
        except KeyboardInterrupt:
            is_answered = False
        yield answers[0] if is_answered else _failed(name, LATE)


LATE = "no answer within its share of the time limit"


def _ask(
    name: str,
    function: OwnFunction | str,
    instance: Instance,
    answers: list[OwnBound],
    *,
    exact: bool,
) -> None:
    try:
        value = _value_of(function, instance, exact=exact)
    except NotApplicableError as error:
        reason = error.reason or str(error)
    except InputError as error:
        return answers.append(_failed(name, error.message))
    except (Exception, SystemExit) as error:
        return answers.append(_failed(name, exception_line(error)))
    else:
        reason = "it returned None"
        if value is not None:
            status = OwnBoundStatus.NOT_REFUTED
            return answers.append(OwnBound(name=name, status=status, value=value))
    status = OwnBoundStatus.NOT_APPLICABLE
    return answers.append(OwnBound(name=name, status=status, reason=reason))


def _failed(name: str, reason: str) -> OwnBound:
    return OwnBound(name=name, status=OwnBoundStatus.FAILED, reason=reason)


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
        raise InputError(
            f"expected a finite number, got {describe(answer)}", code=ErrorCode.TYPE
        )
    if isinstance(answer, Decimal):
        return as_json_number(answer)
    whole = Fraction(answer)
    return int(whole) if whole.denominator == 1 else float(answer)


def compared(bound: OwnBound, result: Result) -> OwnBound:
    """Return a bound, refuted if the schedule of the result is below it."""
    best = result.value
    if best is None or bound.value is None or bound.value <= best * (1 + TOLERANCE):
        return bound
    text = f"there is a valid schedule of {best}"
    return bound.model_copy(update={"status": OwnBoundStatus.REFUTED, "reason": text})
