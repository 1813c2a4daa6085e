"""What `ppsolve generate` is asked for, and reading it from command-line texts."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from typing import Literal, Self

from ppsolve.models.documents.base import as_decimal
from ppsolve.models.documents.errors import InputError

RANGE = re.compile(r"(\d+)(?:\.\.|-)(\d+)")
MAX_RANGE_DIGITS = 15


@dataclass(frozen=True)
class Range:
    """Whole numbers from `low` to `high`, both included, to be drawn from."""

    low: int
    high: int

    def __str__(self) -> str:
        """Return ``low..high``."""
        return f"{self.low}..{self.high}"


@dataclass(frozen=True)
class Capacity:
    """Memory capacity of a device: an amount, or so many times all stages' activations.

    Parameters
    ----------
    amount : Decimal
        The capacity, or the factor where `per_device` is true.
    per_device : bool
        Whether `amount` counts p activations (times the stages per device): ``1.5p``.
    """

    amount: Decimal
    per_device: bool


Numbers = Decimal | tuple[Decimal, ...]
Durations = Numbers | Range


@dataclass(frozen=True)
class Recipe:
    """Everything an instance can be generated from; None where nothing was asked for.

    Times per stage are one number, a tuple of numbers, or a `Range` to be drawn from.
    """

    name: str | None = None
    devices: int | Range | None = None
    microbatches: int | Range | None = None
    placement: str | tuple[int, ...] | None = None
    stages_per_device: int | None = None
    forward: Durations | None = None
    backward: Durations | None = None
    backward_input: Durations | None = None
    backward_weight: Durations | None = None
    p2p: Numbers | None = None
    p2p_mode: str | None = None
    p2p_bytes: Numbers | None = None
    bandwidth: Numbers | None = None
    capacity: Capacity | Literal["none"] | tuple[Decimal, ...] | None = None
    activation: Numbers | None = None
    share: Decimal | None = None
    static: Numbers | None = None
    allreduce: Numbers | None = None
    optimizer: Numbers | None = None
    objective: str | None = None
    time_unit: str | None = None

    def over(self, base: Self) -> Self:
        """Return `base` with everything that this recipe asks for put in its place.

        Asking for one form of backward takes the other form out of `base`.
        """
        given = {
            entry.name: getattr(self, entry.name)
            for entry in fields(self)
            if getattr(self, entry.name) is not None
        }
        if self.backward is not None:
            base = replace(base, backward_input=None, backward_weight=None)
        elif self.backward_input is not None or self.backward_weight is not None:
            base = replace(base, backward=None)
        return replace(base, **given)


def parse_number(text: str, option: str) -> Decimal:
    """Read one non-negative number.

    Raises
    ------
    InputError
        Names `option` and what would be right.
    """
    try:
        return as_decimal(Decimal(text.strip()))
    except InvalidOperation:
        raise InputError(f'expected a number, got "{text}"', field=option) from None
    except ValueError as error:
        raise InputError(str(error), field=option) from None


def parse_numbers(text: str, option: str) -> Numbers:
    """Read one number, or several separated by commas (one per stage or device)."""
    parts = [parse_number(part, option) for part in text.split(",")]
    return parts[0] if len(parts) == 1 else tuple(parts)


def parse_durations(text: str, option: str) -> Durations:
    """Read numbers as `parse_numbers` does, or a range ``50..150`` (also ``50-150``)."""
    span = _range(text, option)
    return parse_numbers(text, option) if span is None else span


def parse_count(text: str, option: str) -> int | Range:
    """Read a whole number >= 1, or a range of them."""
    span = _range(text, option)
    if span is None and not re.fullmatch(r"\d{1,15}", text.strip()):
        raise InputError(
            f'expected a whole number or a range such as 4..8, got "{text}"', field=option
        )
    low = int(text) if span is None else span.low
    if low < 1:
        raise InputError(f"expected at least 1, got {low}", field=option)
    return low if span is None else span


def _range(text: str, option: str) -> Range | None:
    match = RANGE.fullmatch(text.strip())
    if match is None:
        return None
    if max(map(len, match.groups())) > MAX_RANGE_DIGITS:
        raise InputError(f"expected at most {MAX_RANGE_DIGITS} digits, got {text}", field=option)
    low, high = map(int, match.groups())
    if low > high:
        raise InputError(
            f"expected the smaller number first, got {text}; did you mean {high}..{low}?",
            field=option,
        )
    return Range(low, high)


def parse_capacity(text: str, option: str) -> Capacity | Literal["none"] | tuple[Decimal, ...]:
    """Read an amount, several (one per device), a multiple such as ``1.5p``, or ``none``."""
    word = text.strip().lower()
    if word == "none":
        return "none"
    if word.endswith("p"):
        return Capacity(parse_number(word[:-1] or "1", option), per_device=True)
    numbers = parse_numbers(word, option)
    return numbers if isinstance(numbers, tuple) else Capacity(numbers, per_device=False)


def parse_placement(text: str, option: str) -> str | tuple[int, ...]:
    """Read the name of a placement, or the device of every stage: ``0,1,1,0``."""
    if "," not in text and not text.strip().isdigit():
        return text.strip()
    parts = [part.strip() for part in text.split(",")]
    wrong = next((part for part in parts if not re.fullmatch(r"\d{1,9}", part)), None)
    if wrong is not None:
        raise InputError(
            f'expected a device number for every stage, such as 0,1,1,0, got "{wrong}"',
            field=option,
        )
    return tuple(map(int, parts))
