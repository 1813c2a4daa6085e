"""Reading what `ppsolve generate` is asked for from command-line texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Literal

from ppsolve.models.core.units import amount_in
from ppsolve.models.documents.base import as_decimal
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_about

RANGE = re.compile(r"(\d+)(?:\.\.|-)(\d+)")

TIMES = ("forward", "backward", "backward_input", "backward_weight")


@dataclass(frozen=True)
class IntegerRange:
    """Whole numbers from `low` to `high`, both included, to be drawn from."""

    low: int
    high: int

    def __str__(self) -> str:
        """Return ``low..high``."""
        return f"{self.low}..{self.high}"


@dataclass(frozen=True)
class PerDevice:
    """A capacity of `factor` times p activations for every stage of a device: ``1.5p``."""

    factor: Decimal

    def __str__(self) -> str:
        """Return the text that stands for it."""
        return f"{self.factor.normalize():f}p"


LAWS = ("lognormal", "normal")


@dataclass(frozen=True)
class Unequal:
    """Lengths of micro-batches to be drawn: their spread and the law of distribution."""

    sigma: Decimal
    law: str = LAWS[0]

    def __str__(self) -> str:
        """Return the law and the spread in one word: ``lognormal0.6``."""
        return f"{self.law}{self.sigma}"


Numbers = Decimal | tuple[Decimal, ...]


def parse_number(text: str, unit: str = "") -> Decimal:
    """Read one non-negative number, exactly as it is written, or an amount in another unit.

    Errors of this module lack the option, which `read_options` adds.

    `unit`: the unit of the amounts that it may be, as for `amount_in`.
    """
    try:
        return as_decimal(Decimal(amount_in(text.strip(), unit)))
    except InvalidOperation:
        raise InputError(
            f'expected a number, got "{text}"', code=ErrorCode.TYPE
        ) from None
    except ValueError as error:
        raise InputError(
            str(error), code=getattr(error, "code", ErrorCode.VALUE)
        ) from None


def parse_numbers(text: str, unit: str = "") -> Numbers:
    """Read one number, or several separated by commas (one per stage or device)."""
    numbers = [parse_number(word, unit) for word in text.split(",")]
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def parse_times(text: str) -> Numbers | IntegerRange:
    """Read numbers as `parse_numbers` does, or a range ``50..150`` (also ``50-150``)."""
    span = _range(text)
    return parse_numbers(text) if span is None else span


def parse_count(text: str) -> int | IntegerRange:
    """Read a whole number >= 1, or a range of them."""
    span = _range(text)
    if span is None and not re.fullmatch(r"\d{1,15}", text.strip()):
        raise InputError(
            f'expected a whole number or a range such as 4..8, got "{text}"',
            code=ErrorCode.TYPE,
        )
    low = int(text) if span is None else span.low
    if low < 1:
        raise InputError(f"expected at least 1, got {low}", code=ErrorCode.RANGE)
    return low if span is None else span


def _range(text: str) -> IntegerRange | None:
    match = RANGE.fullmatch(text.strip())
    if match is None:
        return None
    if max(map(len, match.groups())) > 15:  # numpy draws below 2^63
        raise InputError(
            f"expected at most 15 digits, got {text}", code=ErrorCode.RANGE
        )
    low, high = map(int, match.groups())
    if low > high:
        message = f"expected the smaller number first, got {text}; did you mean {high}..{low}?"
        raise InputError(message, code=ErrorCode.RANGE)
    return IntegerRange(low, high)


def parse_unequal(text: str) -> Unequal:
    """Read a spread, ``0.6``, that may have a law behind it, ``0.6:normal``."""
    number, colon, law = text.strip().partition(":")
    sigma = parse_number(number)
    if sigma > 10:  # almost every length is cut to the shortest or longest one
        raise InputError(
            f"expected a spread of at most 10, got {sigma}", code=ErrorCode.RANGE
        )
    if colon and law not in LAWS:
        raise InputError(
            f'expected {" or ".join(LAWS)} behind the colon, got "{law[:40]}"',
            code=ErrorCode.UNKNOWN_NAME,
        )
    return Unequal(sigma, law or LAWS[0])


def parse_capacity(text: str) -> Numbers | PerDevice | Literal["none"]:
    """Read an amount, several (one per device), a multiple such as ``1.5p``, or ``none``."""
    word = text.strip().lower()
    if word == "none":
        return "none"
    return parse_amount(word) if word.endswith("p") else parse_numbers(text)


def parse_amount(text: str) -> Decimal | PerDevice:
    """Read an amount, or a multiple of activations such as ``1.5p``."""
    word = text.strip().lower()
    is_multiple = word.endswith("p")
    return (
        PerDevice(parse_number(word[:-1] or "1")) if is_multiple else parse_number(text)
    )


def parse_placement(text: str) -> str | dict[str, tuple[int, ...]]:
    """Read the name of a placement, or the device of every stage: ``0,1,1,0``."""
    if "," not in text and not text.strip().isdigit():
        return text.strip()
    words = [word.strip() for word in text.split(",")]
    wrong = next((word for word in words if not re.fullmatch(r"\d{1,9}", word)), None)
    if wrong is not None:
        message = (
            f'expected a device number for every stage, such as 0,1,1,0, got "{wrong}"'
        )
        raise InputError(message, code=ErrorCode.SYNTAX)
    return {"stage_to_device": tuple(map(int, words))}


READERS: Mapping[str, Callable[[str], Any]] = {
    "devices": parse_count,
    "microbatches": parse_count,
    "placement": parse_placement,
    "capacity": parse_capacity,
    "share": parse_number,
    "unequal": parse_unequal,
    **dict.fromkeys(TIMES, parse_times),
    **dict.fromkeys(("allreduce", "optimizer", "activation", "static"), parse_numbers),
    **dict.fromkeys(("p2p", "bandwidth"), parse_numbers),
    "p2p_bytes": partial(parse_numbers, unit="B"),
}
"""How the text of an option is read; other options are taken as they are."""


def read_options(texts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `generate` (`instances.py`) that texts stand for.

    An `InputError` names the option and what would be right.
    """
    options = {}
    for name, text in texts.items():
        with errors_about(option_of(name)):
            options[name] = READERS[name](text) if name in READERS else text
    return options


def option_of(name: str) -> str:
    """Return the option of the command line by that name: ``--p2p-mode``."""
    return "--" + name.replace("_", "-")
