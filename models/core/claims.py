"""Claims of a document about its schedule, checked against the schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import repeat
from typing import Any

from ppsolve.models.core.metrics import measure
from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.base import as_moment, describe
from ppsolve.models.documents.errors import ErrorCode, InputError

NUMBERS = (int, float, Fraction)
MEASURED = ("bubble_ratio", "bubble_over_compute", "peak_memory")
NAMES = (*Status, *HeuristicStatus)
WITHOUT_SCHEDULE = (
    Status.INFEASIBLE,
    Status.UNKNOWN,
    HeuristicStatus.NOT_APPLICABLE,
    HeuristicStatus.FAILED,
)
"""States in which there is no schedule; that of an infeasible heuristic breaks a rule."""


def figure(data: Mapping[str, Any], field: str) -> Fraction | None:
    """Return a number of a document exactly, None where it is left out.

    An `InputError` says that it is no number.
    """
    if data.get(field) is None:
        return None
    try:
        return Fraction(as_moment(data[field]))
    except ValueError as error:
        raise InputError(
            str(error), field=field, code=getattr(error, "code", ErrorCode.VALUE)
        ) from None


def refuted(
    data: Mapping[str, Any],
    actual: Mapping[str, Any],
    *,
    slack: Fraction = Fraction(0),
    owner: str = "the schedule",
    unit: str = "",
) -> Iterator[Violation]:
    """Compare every figure that a document gives with the computed one.

    A violation of the rule ``objective`` is yielded for each field that differs. Missing and null
    fields of the document claim nothing. Computed figures are numbers, texts, lists and mappings of
    them, or None. A number may be off by `slack` in its own unit, relative beyond a million.
    Messages name the owner of the figures and their unit. An `InputError` says that a number is
    expected and something else is given.
    """
    for field, computed in actual.items():
        if data.get(field) is None:
            continue
        claimed = figure(data, field) if _is_number(computed) else data[field]
        if not agrees(claimed, computed, slack):
            has = f"{_short(computed)} {unit}".rstrip()
            yield wrong(f"{field} is given as {_short(claimed)}, {owner} has {has}")


def agrees(claimed: Any, computed: Any, slack: Fraction) -> bool:
    """Whether a value of a document equals the computed one; only a number equals a number.

    Values are numbers, texts, None, or lists and mappings of them.
    """
    if isinstance(computed, list | tuple):
        is_alike = isinstance(claimed, list | tuple) and len(claimed) == len(computed)
        return is_alike and all(map(agrees, claimed, computed, repeat(slack)))
    if not _is_number(computed) or not slack:
        return not isinstance(claimed, bool) and bool(claimed == computed)
    try:
        number = (
            claimed if isinstance(claimed, Fraction) else Fraction(as_moment(claimed))
        )
    except ValueError:
        return False
    exact = Fraction(computed)
    return abs(number - exact) <= slack * max(Fraction(1), abs(exact) / 10**6)


def contradictions(
    data: Mapping[str, Any],
    value: Fraction | None,
    *,
    slack: Fraction,
    share: Fraction,
    unit: str,
) -> Iterator[Violation]:
    """Report a status, bound, gap or heuristics that contradict the value, as rule ``objective``.

    The bound may be off by `slack`, in `unit`, and the gap by `share`. An `InputError` names a
    value, bound or gap that is no finite number.
    """
    yield from _status_claims(data)
    yield from _heuristic_claims(data, slack, share, unit)
    bound, gap = figure(data, "bound"), figure(data, "gap")
    if value is None or bound is None:
        return
    figures = f"bound {_short(bound)} {unit}", f"value {_short(value)} {unit}"
    if bound > value + slack:
        yield wrong(f"the {figures[0]} is above the {figures[1]}")
    elif data.get("status") == Status.OPTIMAL and bound < value - slack:
        yield wrong(
            f"status is OPTIMAL, but the {figures[0]} is below the {figures[1]}"
        )
    expected = (value - bound) / value if value else Fraction(0)
    if gap is not None and abs(gap - expected) > share:
        explanation = f"{' and '.join(figures)} make it {_short(expected)}"
        yield wrong(f"gap is given as {_short(gap)}, {explanation}")


def measured(
    data: Mapping[str, Any], schedule: Schedule, *, share: Fraction
) -> Iterator[Violation]:
    """Compare bubbles and peak memory of a document with those of its schedule.

    Ratios and, relative beyond a million, amounts may be off by `share`. Violations are of the rule
    ``objective``.
    """
    peaks = data.get("peak_memory")
    if all(data.get(field) is None for field in MEASURED):
        return
    metrics = measure(schedule)
    ratio = metrics.bubble_of(schedule.problem.objective)
    actual = {"bubble_ratio": ratio, "bubble_over_compute": metrics.bubble_over_compute}
    yield from refuted(data, actual, slack=share)
    if peaks is None:
        return
    if not isinstance(peaks, Mapping):
        raise InputError(
            f"expected an object, got {describe(peaks)}",
            field="peak_memory",
            code=ErrorCode.TYPE,
        )
    names = [pool.name for pool in schedule.problem.pools]
    peak_of = dict(zip(names, metrics.peak_memory, strict=True))
    claimed, expected = (
        {f"peak_memory of {n}": table[n] for n in table} for table in (peaks, peak_of)
    )
    yield from refuted(claimed, expected, slack=share)
    for name in [name for name in peak_of if peaks.get(name) is None]:
        yield wrong(
            f"peak_memory leaves {name} out, the schedule has {_short(peak_of[name])}"
        )
    for name in [str(name)[:40] for name in peaks if name not in peak_of]:
        yield wrong(f'peak_memory has "{name}", the instance has no such pool')


def _status_claims(data: Mapping[str, Any]) -> Iterator[Violation]:
    status = data.get("status")
    if status is None:
        return
    if status not in NAMES:
        yield wrong(
            f"status is given as {_short(status)}, expected {', '.join(Status)}"
        )
    elif (
        status in WITHOUT_SCHEDULE and data.get("schedule", data.get("ops")) is not None
    ):
        yield wrong(f"status is {status}, but there is a schedule")


def _heuristic_claims(
    data: Mapping[str, Any], slack: Fraction, share: Fraction, unit: str
) -> Iterator[Violation]:
    entries, value = data.get("heuristics"), figure(data, "value")
    for index, entry in enumerate(entries if isinstance(entries, list | tuple) else ()):
        if not isinstance(entry, Mapping):
            continue
        if entry.get("status") not in tuple(HeuristicStatus):
            yield wrong(
                f"heuristics[{index}].status is given as {_short(entry.get('status'))}"
            )
        if entry.get("status") != HeuristicStatus.FEASIBLE:
            continue
        fields = {
            f"heuristics[{index}].{key}": entry.get(key) for key in ("value", "gap")
        }
        reached, gap = (figure(fields, field) for field in fields)
        if value is None or reached is None:
            continue
        name = f"{str(entry.get('name'))[:40]} is feasible with value {_short(reached)} {unit}"
        expected = (reached - value) / value if value else None
        if reached < value - slack:
            yield wrong(f"{name}, below the value {_short(value)} {unit} of the best")
        elif gap is not None and expected is not None and abs(gap - expected) > share:
            yield wrong(
                f"{name}, its gap is given as {_short(gap)}, it is {_short(expected)}"
            )


def wrong(message: str) -> Violation:
    """Return a violation of the rule ``objective``."""
    return Violation("objective", message, ())


def _is_number(value: Any) -> bool:
    return isinstance(value, NUMBERS) and not isinstance(value, bool)


def _short(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, float | Fraction):
        return f"{float(value):.12g}"
    return describe(value) if isinstance(value, dict) else str(value)[:80]
