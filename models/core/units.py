"""Amounts with a unit, such as ``80GB`` and ``24 ms``, in the unit that a document declares."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Context, Decimal
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ModelWrapValidatorHandler, model_validator

from ppsolve.models.core.timescale import UNITS_PER_SECOND
from ppsolve.models.documents.base import StrictModel, field_path, leaves
from ppsolve.models.documents.errors import InputError, errors_about

SECONDS = {unit: Fraction(1, count) for unit, count in UNITS_PER_SECOND.items()}
BYTES = {f"{prefix}B": Fraction(1000) ** power for power, prefix in enumerate(("", *"kMGT"))}
BYTES |= {f"{prefix}iB": Fraction(1024) ** power for power, prefix in enumerate("KMGT", 1)}
SIZES = (SECONDS, BYTES, {f"{a}/{b}": BYTES[a] / SECONDS[b] for a in BYTES for b in SECONDS})

_NUMBERS = frozenset({int, float, Decimal})
UNDECLARED = ', no "unit" is declared here, as "memory" of a pipeline may'

_AMOUNT = re.compile(r"(\d{1,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,3})?) *([a-zA-Z/]+)", re.ASCII)
_SECOND = re.compile(r"([num]?)(?:ano|illi)?-?s(?:ec(?:ond)?s?)?")
_FIELDS = {
    "time": "times latency allreduce optimizer forward backward backward_input backward_weight "
    "time duration lag release start alltoall reduce_scatter all_gather pieces out back "
    "curvature_a curvature_b sync_a sync_b inverse_a inverse_b precondition",
    "memory": "memory capacity activation static forward_peak left_to_weight key_value held "
    "waiting running amount host_capacity acquire release_at_end initial input error "
    "input_bytes error_bytes",
    "B": "bytes max_live_bytes activation_bytes output_bytes parameter_bytes state_bytes",
    "B/time": "bandwidth",
    "words": "name id kind decide deps after users producer released_by_backward_weight",
}
_NAMED = {"programs", "acquire", "release_at_end"}  # fields of names of the user's


class WithUnits(StrictModel):
    """A document whose amounts may be texts with a unit, where `time_unit` or another is declared.

    Time units of unknown length are taken as they are; those that look misspelt are refused.
    """

    memory_unit: ClassVar[str] = ""

    @model_validator(mode="wrap")
    @classmethod
    def _in_declared_units(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        unit = data.get("time_unit", "us") if isinstance(data, dict) else None
        if isinstance(unit, str):
            data = _read(data, None, _units(unit, cls.memory_unit), ())
        return handler(data)


@lru_cache(maxsize=64)
def _units(time: str, memory: str) -> dict[str, str | None]:
    """Return the unit of each field, empty where it is not declared, None of words."""
    found = _SECOND.fullmatch(re.sub("micro|µ|μ", "u", time.lower()))
    meant = [f"{found[1]}s"] if found else get_close_matches(time, SECONDS, 1, cutoff=0.7)
    if meant and time not in SECONDS:
        raise InputError(f'unknown unit "{time}"; did you mean "{meant[0]}"?', field="time_unit")
    of = {"time": time, "memory": memory, "B": "B", "B/time": f"B/{time}", "words": None}
    return {field: of[kind] for kind, fields in _FIELDS.items() for field in fields.split()}


def _read(value: Any, unit: str | None, units: dict[str, str | None], at: tuple[Any, ...]) -> Any:
    if isinstance(value, str):
        with errors_about(field_path(at)):
            return value if unit is None else amount_in(value, unit)
    if len(at) > 12:  # no field lies so deep
        return value
    if isinstance(value, list | tuple) and not _NUMBERS.issuperset(map(type, value)):
        return [_read(inner, unit, units, (*at, place)) for place, inner in enumerate(value)]
    if not isinstance(value, dict):
        return value
    pipeline = value.get("pipeline", value)
    memory = pipeline.get("memory") if isinstance(pipeline, dict) else None
    declared = memory.get("unit") if isinstance(memory, dict) else None
    if isinstance(declared, str):
        if declared not in BYTES:
            raise InputError(_unknown(declared, BYTES), field=field_path((*at, "memory", "unit")))
        units = units | dict.fromkeys(_FIELDS["memory"].split(), declared)
    found = dict(value)
    for key, inner in value.items():
        own = unit if at[-1:] and at[-1] in _NAMED else units.get(key, unit)
        # Times of blocks may be names of programs.
        is_name = own is None or (key == "time" and "programs" in value)
        if isinstance(inner, list | tuple | dict) or (isinstance(inner, str) and not is_name):
            found[key] = _read(inner, None if is_name else own, units, (*at, key))
    return found


def _unknown(unit: str, known: Iterable[str]) -> str:
    # The nearest name is often another unit, as B of GBytes and kB of gb.
    return f'unknown unit "{unit[:40]}"; expected one of {", ".join(known)}'


def amount_in(text: str, unit: str) -> Decimal | str:
    """Return an amount in another unit, exactly; a text that is none of a known unit stays.

    Parameters
    ----------
    text, unit : str
        ``1.5 GiB`` and ``B``, ``24 ms`` and ``us``, ``25GB/s`` and ``B/us``.

    Returns
    -------
    Decimal or str

    Raises
    ------
    InputError
        They are units of different things, or `unit` is empty.
    """
    found = _AMOUNT.fullmatch(text.strip())
    if found is None or found[2] in "pP":
        return text
    sizes = next((sizes for sizes in SIZES if found[2] in sizes), None)
    if sizes is None:
        raise InputError(_unknown(found[2], SECONDS | BYTES))
    if unit not in sizes:
        more = UNDECLARED if sizes is BYTES else ""
        message = f"expected a number in {unit}" if unit else f"expected a plain number{more}"
        raise InputError(f'{message}, got the text "{text[:40]}"')
    amount = Fraction(found[1]) * sizes[found[2]] / sizes[unit]
    return Context(prec=400).divide(Decimal(amount.numerator), Decimal(amount.denominator))


def finest_time(document: BaseModel) -> str | None:
    """Return the time with the finest last digit, as in ``times.forward[3] = 0.333333333``.

    Only one too fine for a common tick counts; otherwise a product or a quotient of fields is.
    """
    times = {*_FIELDS["time"].split()}
    found = leaves(document.model_dump(exclude_none=True))
    given = {at: Decimal(str(number)) for at, number in found if times & {*at}}
    finest = min(given, key=lambda at: given[at].as_tuple().exponent, default=None)
    if finest is None:
        return None
    digits = max(given.values()).adjusted() - int(given[finest].as_tuple().exponent)
    return f"{field_path(finest)} = {given[finest]}" if digits > 11 else None
