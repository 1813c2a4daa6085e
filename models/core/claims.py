"""What a document says of a schedule beside its ops, held against the schedule itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from ppsolve.models.core.result import Status
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.base import as_moment, describe
from ppsolve.models.documents.errors import InputError

NUMBERS = (int, float, Fraction)


def figure(data: Mapping[str, Any], field: str) -> Fraction | None:
    """Return a number of a document exactly, None where it is left out.

    Parameters
    ----------
    data : mapping
        The document.
    field : str
        The field.

    Returns
    -------
    Fraction or None
        In the unit of the field.

    Raises
    ------
    InputError
        It is there and no finite number.
    """
    if data.get(field) is None:
        return None
    try:
        return Fraction(as_moment(data[field]))
    except ValueError as error:
        raise InputError(str(error), field=field) from None


def refuted(
    data: Mapping[str, Any],
    actual: Mapping[str, Any],
    *,
    slack: Fraction = Fraction(0),
    owner: str = "the schedule",
    unit: str = "",
) -> Iterator[Violation]:
    """Compare every figure that a document gives with what was computed again.

    Parameters
    ----------
    data : mapping
        The document; fields that it leaves out or null claim nothing.
    actual : mapping
        Figures by field: numbers, texts, lists and mappings of them, or None.
    slack : Fraction
        By how much a number may be off, in its own unit; relative beyond a million.
    owner, unit : str
        What has the figures, and their unit, for messages.

    Yields
    ------
    Violation
        One of the rule ``objective`` for each field that differs.

    Raises
    ------
    InputError
        A number is expected, and something else is given.
    """
    for field, found in actual.items():
        if data.get(field) is None:
            continue
        given = figure(data, field) if _is_number(found) else data[field]
        if not agrees(given, found, slack):
            has = f"{_short(found)} {unit}".rstrip()
            yield wrong(f"{field} is given as {_short(given)}, {owner} has {has}")


def agrees(given: Any, found: Any, slack: Fraction) -> bool:
    """Whether a value of a document is what was computed.

    Parameters
    ----------
    given : object
        Parsed JSON.
    found : object
        A number, a text, None, or lists and mappings of them.
    slack : Fraction
        As in `refuted`; 0 compares exactly.

    Returns
    -------
    bool
        False also where `given` is no number and should be one.
    """
    if isinstance(found, list | tuple):
        return (
            isinstance(given, list | tuple)
            and len(given) == len(found)
            and all(agrees(a, b, slack) for a, b in zip(given, found, strict=True))
        )
    if not _is_number(found) or not slack:
        return not isinstance(given, bool) and bool(given == found)
    try:
        number = given if isinstance(given, Fraction) else Fraction(as_moment(given))
    except ValueError:
        return False
    exact = Fraction(found)
    return abs(number - exact) <= slack * max(Fraction(1), abs(exact) / 10**6)


def contradictions(
    data: Mapping[str, Any], value: Fraction | None, *, slack: Fraction, share: Fraction, unit: str
) -> Iterator[Violation]:
    """Report a bound, a status and a gap that do not go with the value.

    Parameters
    ----------
    data : mapping
        The document.
    value : Fraction or None
        Value of the objective, None where it is not known.
    slack, share : Fraction
        By how much the bound, in `unit`, and the gap may be off.
    unit : str
        Unit of value and bound.

    Yields
    ------
    Violation
        Of the rule ``objective``.

    Raises
    ------
    InputError
        Bound or gap is no finite number.
    """
    bound, gap = figure(data, "bound"), figure(data, "gap")
    if value is None or bound is None:
        return
    figures = f"bound {_short(bound)} {unit}", f"value {_short(value)} {unit}"
    if bound > value + slack:
        yield wrong(f"the {figures[0]} is above the {figures[1]}")
    elif data.get("status") == Status.OPTIMAL and bound < value - slack:
        yield wrong(f"status is OPTIMAL, but the {figures[0]} is below the {figures[1]}")
    expected = (value - bound) / value if value else Fraction(0)
    if gap is not None and abs(gap - expected) > share:
        shown = f"{' and '.join(figures)} make it {_short(expected)}"
        yield wrong(f"gap is given as {_short(gap)}, {shown}")


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
