"""Strict pydantic base: exact numbers, no unknown fields, errors a user can act on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Context, Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from ppsolve.models.documents.errors import ErrorCode, InputError, did_you_mean

MAX_NUMBER = Decimal(10) ** 15
"""Times and amounts above this are taken for mistakes (a year is 3.2e13 microseconds)."""

MAX_CLOCK = Decimal(10) ** 19
"""Readings of a clock may be far from zero (nanoseconds since 1970 are 1.8e18)."""

MAX_MOMENT = Decimal(10) ** 30
"""Largest moment or figure of a result, a sum of many times; charts can still add and scale it."""

# Exact types first, in tuples: a union with an abstract type takes seven times as long to ask.
_INTEGRAL, _NUMBERS = (int, Integral), (Decimal, int, float, Real)


class WrongTypeError(ValueError):
    """A value that is no number, or none that is whole."""

    code = ErrorCode.TYPE


class OutOfRangeError(ValueError):
    """A number beyond its limits."""

    code = ErrorCode.RANGE


_DOUBLE = Context(prec=15)  # every decimal of so many digits survives as a double
_SHORT = Context(prec=10)


def as_finite(value: Any) -> Decimal:
    """Return a number of either sign as the exact decimal that its text says.

    A near-decimal, such as the double 0.30000000000000004, is the short decimal that it is in 15
    digits, if that has at most 10. A `ValueError` says that it is no number, NaN, infinite,
    absurdly large or absurdly small.
    """
    number = _within(value, MAX_NUMBER)
    if type(value) is int:
        return number
    rounded = _DOUBLE.plus(number)
    if rounded == number or _SHORT.plus(rounded) != rounded:
        return number
    return rounded.normalize()


def as_clock(value: Any) -> Decimal:
    """Return a reading of a clock as `as_finite` does, with room for time since 1970."""
    return _within(value, MAX_CLOCK)


def as_moment(value: Any) -> Decimal:
    """Return a moment or figure of a result as `as_finite` does, with room for sums of times."""
    return _within(value, MAX_MOMENT)


def _within(value: Any, limit: Decimal) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        raise WrongTypeError(f"expected a number, got {describe(value)}")
    if isinstance(value, Decimal):
        number = value
    elif isinstance(value, _INTEGRAL):
        number = Decimal(int(value))
    else:
        number = Decimal(repr(float(value)))
    if not number.is_finite():
        raise OutOfRangeError(f"expected a finite number, got {number}")
    if not number:
        return Decimal(0)
    if number.adjusted() > limit.adjusted() or abs(number) > limit:
        allowed = f"at most {limit:.0E}" if number > 0 else f"at least -{limit:.0E}"
        raise OutOfRangeError(f"expected {allowed}, got {number:.6E}")
    if number.adjusted() < -30:
        raise OutOfRangeError(f"expected 0 or at least 1E-30, got {number:.6E}")
    return number


def as_decimal(value: Any) -> Decimal:
    """Return a non-negative number as `as_finite` does."""
    number = as_finite(value)
    if number < 0:
        raise OutOfRangeError(f"expected a number >= 0, got {number}")
    return number


def as_json_number(number: Decimal | Fraction) -> int | float:
    """Return `number` as an int where whole, else as the nearest double."""
    numerator, denominator = number.as_integer_ratio()
    return numerator if denominator == 1 else float(number)


def series(items: Iterable[object]) -> str:
    """Return ``0``, ``0 and 3`` or ``0, 1 and 3``."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last


def describe(value: Any) -> str:
    """Describe a wrong value shortly, in JSON's words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'the text "{value[:40]}"'
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        # The text of a long int is slow to make, and refused by Python beyond some length.
        return f"{Decimal(value):.6E}"
    return str(value)[:40]


NUMBER_SCHEMA = {"type": "number", "minimum": 0, "maximum": float(MAX_NUMBER)}

Number = Annotated[
    Decimal,
    BeforeValidator(as_decimal),
    PlainSerializer(as_json_number),
    WithJsonSchema(NUMBER_SCHEMA),
]
"""A non-negative exact decimal."""


def _whole(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise WrongTypeError(f"expected a whole number, got {describe(value)}")
    if isinstance(value, int | float | Decimal):
        number = as_finite(value)
        if number != number.to_integral_value():
            raise WrongTypeError(f"expected a whole number, got {describe(value)}")
        return int(number)
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
"""An integer; 4.0 is taken as 4, 4.5, true and "4" are refused."""


class StrictModel(BaseModel):
    """Immutable model that refuses unknown fields; `InputError` says what is wrong with others."""

    model_config = ConfigDict(
        defer_build=True,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        serialize_by_alias=True,
    )

    def __init__(self, /, **data: Any) -> None:
        """Validate fields; an `InputError` names the first offending one and its remedy."""
        with _explained(type(self), None):
            super().__init__(**data)

    # Models inside others are validated by pydantic, so that errors name the whole path.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @property
    def unsaid(self) -> frozenset[str]:
        """Fields whose default leaves something open, so that no text may say it."""
        return frozenset()

    @classmethod
    def parse(cls, data: Any, source: str | None = None) -> Self:
        """Validate a document; an `InputError` names the first offending field and its remedy.

        The file that the document came from is named in messages.
        """
        return validated(cls, data, source)


Document = TypeVar("Document", bound=BaseModel)


def validated(model: type[Document], data: Any, source: str | None) -> Document:
    """Validate parsed JSON; an `InputError` names its file and the first wrong field."""
    with _explained(model, source):
        return model.model_validate(data)


@contextmanager
def _explained(model: type[BaseModel], source: str | None) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise (error.located(source) if source else error) from None
    except ValidationError as error:
        raise explain(error, model, source) from None
    except UnicodeEncodeError:
        raise InputError(
            "expected text that can be written as UTF-8",
            source=source,
            code=ErrorCode.SYNTAX,
        ) from None


def field_names(model: type[BaseModel]) -> list[str]:
    """Return the names that `model` reads from JSON."""
    return [info.alias or name for name, info in model.model_fields.items()]


def alternatives(*groups: tuple[str, ...]) -> dict[str, Any]:
    """JSON Schema of objects that have all fields of one group, and none of another."""
    null = {"type": "null"}
    all_names = [name for names in groups for name in names]
    options = [
        {
            "properties": {n: {"not": null} if n in names else null for n in all_names},
            "required": list(names),
        }
        for names in groups
    ]
    return {"oneOf": options}


def error_at(
    location: tuple[int | str, ...],
    fault: str | ValueError,
    code: ErrorCode = ErrorCode.VALUE,
) -> PydanticCustomError:
    """Return an error for a validator to raise about an item deep inside its value.

    The location has the indices and fields from the value to the item, where `explain` finds it;
    the fault says in words what is expected, and an error its code too.
    """
    code = getattr(fault, "code", code)
    return PydanticCustomError(
        "value_at",
        "{message}",
        {"message": str(fault), "at": location, "code": code},
    )


def field_path(location: Iterable[int | str]) -> str:
    """Return ``times.forward[2]`` for ``("times", "forward", 2)``."""
    path = ""
    for key in location:
        if isinstance(key, int):
            path += f"[{key}]"
        # The rest names the member of a union that pydantic tried.
        elif key.isidentifier() and key not in {"int", "float", "str"}:
            path += f".{key[:60]}" if path else key[:60]
    return path


def leaves(data: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the place and the value of all inside a document that is no object and no list."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), data)]
    while waiting:
        location, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [((*location, key), inner) for key, inner in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [
                ((*location, index), inner) for index, inner in enumerate(value)
            ]
        else:
            yield location, value


def explain(
    error: ValidationError, model: type[BaseModel], source: str | None = None
) -> InputError:
    """Turn pydantic's report on a model into one error that names a field and a remedy.

    It is about the first unknown field, else about the first issue.
    """
    issues = error.errors(include_url=False)
    issue = next((i for i in issues if i["type"] == "extra_forbidden"), issues[0])
    context = issue.get("ctx", {})
    location = (*issue["loc"], *context.get("at", ()))
    code = _code_of(issue["type"], context)
    expected: str | tuple[str, ...] | None = None
    message = issue["msg"].removeprefix("Value error, ")
    if issue["type"] == "literal_error":
        message = re.sub(r"<\w+\.\w+: ('[^']*')>", r"\1", message)  # members of enums
        expected = re.sub(r"<\w+\.\w+: ('[^']*')>", r"\1", context["expected"])
    if issue["type"] == "extra_forbidden":
        owner = _model_at(model, location[:-1])
        name = str(location[-1])[:60]
        names = field_names(owner) if owner else []
        expected = tuple(names) or None
        message = f'unknown field "{name}"' + (
            did_you_mean(name, names) if names else ""
        )
    elif issue["type"] == "missing":
        message = "this field is required"
    elif issue["type"] in {"model_type", "model_attributes_type", "dict_type"}:
        message = f"expected an object, got {describe(issue['input'])}"
    elif issue["type"] in {"tuple_type", "list_type"}:
        message = f"expected a list, got {describe(issue['input'])}"
    elif issue["type"] == "too_short":
        length = context["actual_length"] or "none"
        message = f"expected at least {_entries(context['min_length'])}, got {length}"
    elif issue["type"] == "too_long":
        message = f"expected at most {_entries(context['max_length'])}"
    elif not message.startswith("expected"):
        text = f"{message[0].lower()}{message[1:]}"
        expected = expected or text.removeprefix("input should be ")
        message = f"{text}, got {describe(issue['input'])}"
    return InputError(
        message,
        source=source,
        field=field_path(location) or None,
        code=code,
        expected=expected,
    )


def _code_of(fault: str, context: dict[str, Any]) -> ErrorCode:
    """Code of an issue: that of its type, or what a validator of our own says."""
    said = context.get("code") or getattr(context.get("error"), "code", None)
    return _CODES.get(fault) or said or ErrorCode.VALUE


_CODES = {
    "extra_forbidden": ErrorCode.UNKNOWN_FIELD,
    "missing": ErrorCode.MISSING,
    "too_short": ErrorCode.LENGTH,
    "too_long": ErrorCode.LENGTH,
    **dict.fromkeys(
        ("union_tag_invalid", "literal_error", "enum"), ErrorCode.UNKNOWN_NAME
    ),
    **dict.fromkeys(
        ("greater_than", "greater_than_equal", "less_than", "less_than_equal"),
        ErrorCode.RANGE,
    ),
    **dict.fromkeys(
        (
            "model_type",
            "model_attributes_type",
            "dict_type",
            "tuple_type",
            "list_type",
            "string_type",
            "bool_type",
            "int_type",
            "float_type",
        ),
        ErrorCode.TYPE,
    ),
}
"""What pydantic calls faults, for programs; other faults say their code themselves."""


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _model_at(
    model: type[BaseModel], location: tuple[int | str, ...]
) -> type[BaseModel] | None:
    current: type[BaseModel] | None = model
    for key in location:
        if current is None or isinstance(key, int):
            continue
        named = {
            info.alias or name: info for name, info in current.model_fields.items()
        }
        if key in named:
            current = next(iter(_models_in(named[key].annotation)), None)
    return current


def _models_in(annotation: Any) -> Iterable[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _models_in(inner)
