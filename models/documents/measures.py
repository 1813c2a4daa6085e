"""Measures of the numbers of a document, as its models annotate their fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, GetJsonSchemaHandler

Entry = TypeVar("Entry")


class Measure(Enum):
    """What is measured; documents declare the units of times and, some of them, of memory."""

    TIME = "time"
    MEMORY = "memory"
    BYTES = "bytes"
    BANDWIDTH = "bandwidth"

    def __get_pydantic_json_schema__(
        self, core_schema: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """JSON Schema of a field with this measure: each number may be a text with a unit."""
        return with_amounts(handler(core_schema), _UNITS[self])


_BYTE, _SECOND = "(?:[kMGT]?B|[KMGT]iB)", "[num]?s"
_UNITS = {
    Measure.TIME: _SECOND,
    Measure.MEMORY: _BYTE,
    Measure.BYTES: _BYTE,
    Measure.BANDWIDTH: f"{_BYTE}/{_SECOND}",
}
ANY_UNIT = f"(?:{_SECOND}|{_BYTE}(?:/{_SECOND})?)"

AMOUNT = r"[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][-+]?[0-9]{1,3})?"
"""Pattern of the number of a text with a unit."""


def with_amounts(schema: Any, unit: str) -> Any:
    """Return a JSON Schema that takes a text with a unit wherever the given one takes a number."""
    if isinstance(schema, list):
        return [with_amounts(inner, unit) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "number":
        text = {"type": "string", "pattern": rf"^\s*{AMOUNT} *{unit}\s*$"}
        return {"anyOf": [schema, text]}
    return {name: with_amounts(inner, unit) for name, inner in schema.items()}


@dataclass(frozen=True)
class NamesBeside:
    """Texts of the annotated field are names where another field stands beside it."""

    field: str


# Every number inside the entry, however deep, is such an amount: `Time[tuple[Number, ...]]`.
Time = Annotated[Entry, Measure.TIME]
MemoryAmount = Annotated[Entry, Measure.MEMORY]
ByteCount = Annotated[Entry, Measure.BYTES]
Bandwidth = Annotated[Entry, Measure.BANDWIDTH]


class MeasuredField(NamedTuple):
    """What a field measures, or which models lie inside it, by names or not."""

    measure: Measure | None
    names_beside: str | None
    models: tuple[type[BaseModel], ...]
    is_by_name: (
        bool  # whether its models are the values of an object with names for keys
    )


@cache
def measured_fields(model: type[BaseModel]) -> dict[str, MeasuredField]:
    """Return the fields of a model that measure something or have models inside, by name."""
    fields: dict[str, MeasuredField] = {}
    for name, info in model.model_fields.items():
        hints = [*info.metadata, *_parts(info.annotation)]
        field = MeasuredField(
            next((hint for hint in hints if isinstance(hint, Measure)), None),
            next((hint.field for hint in hints if isinstance(hint, NamesBeside)), None),
            tuple(p for p in hints if isinstance(p, type) and issubclass(p, BaseModel)),
            any(get_origin(hint) is dict for hint in hints),
        )
        if field.measure or field.models:
            fields |= {name: field, info.alias or name: field}
    return fields


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield an annotation, and all types and marks inside it."""
    yield annotation
    for inner in get_args(annotation):
        yield from _parts(inner)


def field_of(models: Iterable[type[BaseModel]], name: str) -> MeasuredField | None:
    """Return a field of the first of these models that has it."""
    return next(
        (f[name] for model in models if name in (f := measured_fields(model))), None
    )


def measure_at(model: type[BaseModel], path: Iterable[str | int]) -> Measure | None:
    """Return the measure of the number at a place in a document of the model."""
    models: tuple[type[BaseModel], ...] = (model,)
    is_by_name = False
    for key in path:
        if isinstance(key, int):
            continue
        if is_by_name:
            is_by_name = False
            continue
        field = field_of(models, key)
        if field is None or field.measure is not None:
            return field and field.measure
        models, is_by_name = field.models, field.is_by_name
    return None
