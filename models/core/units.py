"""Amounts with a unit, such as ``80GB`` and ``24 ms``, in the unit that a document declares."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Context, Decimal
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ModelWrapValidatorHandler, model_validator

from ppsolve.models.core.timescale import UNITS_PER_SECOND
from ppsolve.models.documents.base import StrictModel, field_path, leaves
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_about
from ppsolve.models.documents.measures import AMOUNT, Measure, field_of, measure_at

SECONDS = {unit: Fraction(1, count) for unit, count in UNITS_PER_SECOND.items()}
BYTES = {
    f"{prefix}B": Fraction(1000) ** power for power, prefix in enumerate(("", *"kMGT"))
}
BYTES |= {
    f"{prefix}iB": Fraction(1024) ** power for power, prefix in enumerate("KMGT", 1)
}
SIZES = (
    SECONDS,
    BYTES,
    {f"{a}/{b}": BYTES[a] / SECONDS[b] for a in BYTES for b in SECONDS},
)

_NUMBERS = frozenset({int, float, Decimal})
_DEEPEST = 12  # no field lies deeper
UNDECLARED = ' (a unit needs a "unit" beside it, such as memory.unit)'

_AMOUNT = re.compile(rf"({AMOUNT}) *([a-zA-Z/]+)")
_SECOND = re.compile(r"([num]?)(?:ano|illi)?-?s(?:ec(?:ond)?s?)?")


class WithUnits(StrictModel):
    """A document whose amounts may be texts with a unit, where `time_unit` or another is declared.

    Its models annotate their fields with what these measure (`ppsolve.models.documents.measures`).
    Time units of unknown length are taken as they are; those that look misspelt are refused.
    """

    memory_unit_at: ClassVar[tuple[str, ...]] = ()  # path of the field that declares it

    @model_validator(mode="wrap")
    @classmethod
    def _in_declared_units(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self]
    ) -> Self:
        unit = data.get("time_unit", "us") if isinstance(data, dict) else None
        if isinstance(unit, str):
            _refuse_misspelt(unit)
            data = _read_models(data, (cls,), _units(unit), ())
        return handler(data)


_Path = tuple[str | int, ...]


def _refuse_misspelt(time: str) -> None:
    match = _SECOND.fullmatch(re.sub("micro|µ|μ", "u", time.lower()))
    meant = (
        [f"{match[1]}s"] if match else get_close_matches(time, SECONDS, 1, cutoff=0.7)
    )
    if meant and time not in SECONDS:
        raise InputError(
            f'unknown unit "{time}"; did you mean "{meant[0]}"?',
            field="time_unit",
            code=ErrorCode.UNIT,
        )


def _units(time: str) -> dict[Measure, str]:
    """Return the unit of each measure, empty where none is declared."""
    return {
        Measure.TIME: time,
        Measure.MEMORY: "",
        Measure.BYTES: "B",
        Measure.BANDWIDTH: f"B/{time}",
    }


def _read_models(
    value: Any,
    models: tuple[type[BaseModel], ...],
    units: dict[Measure, str],
    location: _Path,
) -> Any:
    """Return the data of a model, or lists of such data, with numbers for texts with a unit."""
    if isinstance(value, list | tuple):
        if len(location) > _DEEPEST:
            return value
        return [
            _read_models(inner, models, units, (*location, i))
            for i, inner in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    for model in models:
        units = _with_memory_unit(
            units, value, getattr(model, "memory_unit_at", ()), location
        )
    read = dict(value)
    for name, inner in value.items():
        field = field_of(models, name)
        if field is None or field.names_beside in value:
            continue
        if field.measure is not None:
            read[name] = _read_amounts(inner, units[field.measure], (*location, name))
        elif field.is_by_name and isinstance(inner, dict):
            read[name] = {
                key: _read_models(entry, field.models, units, (*location, name, key))
                for key, entry in inner.items()
            }
        else:
            read[name] = _read_models(inner, field.models, units, (*location, name))
    return read


def _with_memory_unit(
    units: dict[Measure, str], data: Any, path: tuple[str, ...], location: _Path
) -> dict[Measure, str]:
    declared = data
    for name in path:
        declared = declared.get(name) if isinstance(declared, dict) else None
    if not path or not isinstance(declared, str):
        return units
    if declared not in BYTES:
        raise InputError(
            _unknown(declared, BYTES),
            field=field_path((*location, *path)),
            code=ErrorCode.UNIT,
        )
    return units | {Measure.MEMORY: declared}


def _read_amounts(value: Any, unit: str, location: _Path) -> Any:
    if isinstance(value, str):
        with errors_about(field_path(location)):
            return amount_in(value, unit)
    if len(location) > _DEEPEST:
        return value
    if isinstance(value, list | tuple) and not _NUMBERS.issuperset(map(type, value)):
        return [
            _read_amounts(inner, unit, (*location, index))
            for index, inner in enumerate(value)
        ]
    if isinstance(value, dict):
        return {
            key: _read_amounts(inner, unit, (*location, key))
            for key, inner in value.items()
        }
    return value


def _unknown(unit: str, units: Iterable[str]) -> str:
    # The nearest name is often another unit, as B of GBytes and kB of gb.
    return f'unknown unit "{unit[:40]}"; expected one of {", ".join(units)}'


def amount_in(text: str, unit: str) -> Decimal | str:
    """Return an amount in another unit, exactly; a text that is none of a known unit stays.

    Texts are such as ``1.5 GiB`` for ``B``, ``24 ms`` for ``us`` and ``25GB/s`` for ``B/us``. An
    `InputError` says that they are units of different things, or that `unit` is empty.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match[2] in "pP":
        return text
    sizes = next((sizes for sizes in SIZES if match[2] in sizes), None)
    if sizes is None:
        raise InputError(_unknown(match[2], SECONDS | BYTES), code=ErrorCode.UNIT)
    if unit not in sizes:
        note = UNDECLARED if sizes is BYTES else ""
        message = (
            f"expected a number in {unit}" if unit else f"expected a plain number{note}"
        )
        raise InputError(f'{message}, got the text "{text[:40]}"', code=ErrorCode.UNIT)
    amount = Fraction(match[1]) * sizes[match[2]] / sizes[unit]
    return Context(prec=400).divide(
        Decimal(amount.numerator), Decimal(amount.denominator)
    )


def finest_time(document: BaseModel) -> str | None:
    """Return the time with the finest last digit, as in ``times.forward[3] = 0.333333333``.

    Only one too fine for a common tick counts; otherwise a product or a quotient of fields is.
    """
    model = type(document)
    times = {
        location: Decimal(str(number))
        for location, number in leaves(document.model_dump(exclude_none=True))
        if isinstance(number, int | float)
        and measure_at(model, location) is Measure.TIME
    }
    finest = min(
        times, key=lambda location: times[location].as_tuple().exponent, default=None
    )
    if finest is None:
        return None
    digits = max(times.values()).adjusted() - int(times[finest].as_tuple().exponent)
    return f"{field_path(finest)} = {times[finest]}" if digits > 11 else None


def memory_unit(document: BaseModel) -> str:
    """Return the unit of memory that a document declares, empty where it declares none."""
    path = getattr(document, "memory_unit_at", ())
    declared: Any = document if path else None
    for name in path:
        declared = getattr(declared, name, None)
    return declared or ""


def readable_amounts(amounts: tuple[Fraction, ...], unit: str) -> tuple[list[str], str]:
    """Return amounts as people read them, and the unit: ``91.4`` and ``80.0`` for ``GB``.

    Bytes of five digits and more are scaled, other numbers have separators. Digits enough are
    shown to tell different amounts apart.
    """
    largest = max(amounts)
    family = [name for name in BYTES if ("i" in name) == ("i" in unit) or name == "B"]
    if unit not in family or largest < 10_000:
        return [_grouped(amount) for amount in amounts], unit
    sizes = [name for name in family if BYTES[name] <= largest * BYTES[unit]]
    larger = max(sizes, key=lambda name: BYTES[name])
    scaled = [amount * BYTES[unit] / BYTES[larger] for amount in amounts]
    for digits in range(1, 16):
        texts = [f"{float(amount):.{digits}f}" for amount in scaled]
        if len(set(texts)) == len(set(amounts)):
            return texts, larger
    return [_grouped(amount) for amount in amounts], unit


def _grouped(amount: Fraction) -> str:
    return (
        f"{amount.numerator:,}" if amount.denominator == 1 else f"{float(amount):.12g}"
    )
