"""Entries of pipeline instances: numbers, costs over lengths, and capacities such as ``1.25p``.

A number may be one per stage, micro-batch, device or boundary. Time and memory of a transformer
layer have a part that grows with the tokens (matrix products, activations) and one that grows with
the square of each sequence (attention), as counted by Narayanan et al. 2021, "Efficient Large-Scale
Language Model Training on GPU Clusters Using Megatron-LM". Packed sequences do not attend to each
other: each length is squared alone. A capacity of 1p is the memory of 1F1B: its first device, with
as many stages as any other, holds one activation for each of the p devices and stages on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from ppsolve.models.documents.base import (
    MAX_NUMBER,
    Number,
    StrictModel,
    alternatives,
    as_decimal,
    describe,
    error_at,
)
from ppsolve.models.documents.errors import ErrorCode, InputError, did_you_mean
from ppsolve.models.documents.measures import ANY_UNIT, with_amounts

EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Sums and products of decimals are exact in it, however many digits they have."""

_MULTIPLE = re.compile(r"(\d{1,15}(?:\.\d{0,30})?|\.\d{1,30})? *[pP]", re.ASCII)

MAX_LAYERS = 100_000
"""Most layers of a model."""

MAX_SEGMENTS = 10_000
"""Most segments of one op: far more than a stage has layers, each with two all-reduces at most."""


def _with_units(schema: dict[str, Any]) -> None:
    schema["properties"] = with_amounts(schema["properties"], ANY_UNIT)


class LengthCost(StrictModel):
    """An amount per micro-batch: per_token · Σ length + per_square · Σ length² + constant.

    The sums go over its sequences; a field that is left out is 0, but not all three are.
    """

    model_config = ConfigDict(json_schema_extra=_with_units)

    per_token: Number = Field(default=0, validate_default=True)
    per_square: Number = Field(default=0, validate_default=True)
    constant: Number = Field(default=0, validate_default=True)

    @classmethod
    def read(cls, data: dict[str, Any], path: tuple[int, ...]) -> LengthCost:
        """Read a cost that lies somewhere inside an entry, at a path of indices from its field.

        A `PydanticCustomError` is located at a field that is unknown or no number >= 0, or at a
        cost that is always 0.
        """
        numbers: dict[str, Decimal] = {}
        for name, value in data.items():
            if name not in cls.model_fields:
                hint = did_you_mean(str(name)[:60], cls.model_fields)
                text = f'unknown field "{str(name)[:60]}"{hint}'
                raise error_at(path, text, ErrorCode.UNKNOWN_FIELD)
            try:
                numbers[name] = as_decimal(value)
            except ValueError as error:
                raise error_at((*path, name), error) from None
        if not any(numbers.values()):
            listed = ", ".join(cls.model_fields)
            raise error_at(
                path, f"expected one of {listed} above 0, or the number 0 for no cost"
            )
        return cls(**numbers)

    def of(self, tokens: int, squares: int) -> Decimal:
        """Return the exact amount of one micro-batch, in the unit of the entry.

        The arguments are the sums of the lengths of its sequences, and of their squares.
        """
        with localcontext(EXACT):
            return self.per_token * tokens + self.per_square * squares + self.constant


def _whole(
    value: Any,
    path: tuple[int, ...],
    limit: int | Decimal,
    expected: str,
    least: int = 1,
) -> int:
    try:
        number = as_decimal(value)
    except ValueError:
        number = Decimal(-1)
    if not least <= number <= limit or number != number.to_integral_value():
        raise error_at(path, f"expected {expected}, got {describe(value)}")
    return int(number)


def _read_lengths(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise error_at(
            (), f"expected a list with one entry per micro-batch, got {describe(value)}"
        )
    return tuple(_read_sequences(item, index) for index, item in enumerate(value))


def _read_sequences(value: Any, index: int) -> Any:
    expected = f"a length (a whole number from 1 to {MAX_NUMBER:.0E})"
    if not isinstance(value, list | tuple):
        return _whole(value, (index,), MAX_NUMBER, expected)
    if not value:
        raise error_at(
            (index,), "expected a length, or a list of at least one, got a list of 0"
        )
    return tuple(
        _whole(length, (index, i), MAX_NUMBER, expected)
        for i, length in enumerate(value)
    )


Length = Annotated[
    int, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": int(MAX_NUMBER)})
]
Lengths = Annotated[
    tuple[Length | Annotated[tuple[Length, ...], Field(min_length=1)], ...],
    BeforeValidator(_read_lengths),
]
"""Tokens of the sequence of each micro-batch, or of each of its packed sequences."""


class LengthSums(NamedTuple):
    """Σ length and Σ length² of each micro-batch, length m each."""

    tokens: tuple[int, ...]
    squares: tuple[int, ...]


def sums_of(lengths: Sequence[int | Sequence[int]]) -> LengthSums:
    """Return the sums of the lengths of each micro-batch."""
    rows = [(row,) if isinstance(row, int) else tuple(row) for row in lengths]
    return LengthSums(
        tuple(map(sum, rows)),
        tuple(sum(length * length for length in row) for row in rows),
    )


def has_costs(entry: Any) -> bool:
    """Whether a cost stands anywhere in an entry (whole, or per stage or boundary)."""
    items = entry if isinstance(entry, tuple) else (entry,)
    return any(isinstance(item, LengthCost) for item in items)


def worked_out(field: str, entry: Any, count: int, sums: LengthSums | None) -> Any:
    """Return an entry with numbers per micro-batch in place of costs over lengths.

    An entry without costs is returned itself; others as one item per stage or boundary, of which
    there are `count`. An `InputError` names the field where there is a cost and no lengths, or a
    number is beyond `MAX_NUMBER`.
    """
    if isinstance(entry, LengthCost):
        return (_worked_out(field, entry, sums),) * count
    if not has_costs(entry):
        return entry
    return tuple(
        _worked_out(f"{field}[{index}]", item, sums)
        if isinstance(item, LengthCost)
        else item
        for index, item in enumerate(entry)
    )


def _worked_out(
    field: str, cost: LengthCost, sums: LengthSums | None
) -> tuple[Decimal, ...]:
    if sums is None:
        raise InputError(
            'expected "lengths" of the pipeline beside a cost over lengths, got none',
            field=field,
            code=ErrorCode.MISSING,
        )
    numbers = tuple(map(cost.of, sums.tokens, sums.squares))
    for microbatch, number in enumerate(numbers):
        if number > MAX_NUMBER:
            raise InputError(
                f"expected a cost of at most {MAX_NUMBER:.0E}, got {number:.6E} for micro-batch "
                f"{microbatch}",
                field=field,
                code=ErrorCode.RANGE,
            )
    return numbers


def _numbers(
    value: Any,
    depth: int,
    expected: str,
    path: tuple[int, ...] = (),
    *,
    costs: bool = False,
) -> Any:
    # Nested lists down to `depth`, the lengths of which are checked later; a cost over lengths may
    # stand for the innermost list.
    if costs and depth > 0 and isinstance(value, LengthCost | dict):
        return value if isinstance(value, LengthCost) else LengthCost.read(value, path)
    if depth > 0 and isinstance(value, list | tuple | np.ndarray):
        return tuple(
            _numbers(item, depth - 1, expected, (*path, index), costs=costs)
            for index, item in enumerate(value)
        )
    if isinstance(value, list | tuple | dict | str) or value is None:
        text = f"expected {expected}, got {describe(value)}"
        raise error_at(path, text, ErrorCode.TYPE)
    try:
        return as_decimal(value)
    except ValueError as error:
        raise error_at(path, error) from None


def _matrix(value: Any) -> Any:
    expected = "a number or a matrix with a row and a column per device"
    for row, values in enumerate(
        value if isinstance(value, list | tuple | np.ndarray) else ()
    ):
        if not isinstance(values, list | tuple | np.ndarray):
            raise error_at(
                (row,), f"expected {expected}, got {describe(values)} for a row"
            )
    return _numbers(value, 2, expected)


def _per(item: str) -> BeforeValidator:
    expected = f"a number or a list with one number per {item}"
    return BeforeValidator(lambda value: _numbers(value, 1, expected))


def _per_microbatch(item: str) -> BeforeValidator:
    expected = f"a number, or a list with one entry per {item} (a number or one per micro-batch)"
    return BeforeValidator(lambda value: _numbers(value, 2, expected, costs=True))


def _per_piece(value: Any) -> Any:
    expected = "a number, a list with one number per piece, or such a list per stage"
    return _numbers(value, 2, expected)


def _whole_per_stage(least: int, most: int) -> BeforeValidator:
    expected = f"a whole number from {least} to {most}"

    def read(value: Any) -> Any:
        if isinstance(value, list | tuple | np.ndarray):
            return tuple(
                _whole(count, (stage,), most, expected, least)
                for stage, count in enumerate(value)
            )
        return _whole(value, (), most, expected, least)

    return BeforeValidator(read)


Share = Annotated[
    Number,
    Field(le=1),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1}),
]
_Numbers = Number | tuple[Number, ...]
_Rows = Number | LengthCost | tuple[Number | LengthCost | tuple[Number, ...], ...]

PerStage = Annotated[_Numbers, _per("stage")]
PerStageShare = Annotated[Share | tuple[Share, ...], _per("stage")]
PerDevice = Annotated[_Numbers, _per("device")]
PerStageAndMicrobatch = Annotated[_Rows, _per_microbatch("stage")]
PerBoundaryAndMicrobatch = Annotated[_Rows, _per_microbatch("stage boundary")]
PerPiece = Annotated[
    Number | tuple[Number | tuple[Number, ...], ...], BeforeValidator(_per_piece)
]
SegmentsPerStage = Annotated[int | tuple[int, ...], _whole_per_stage(1, MAX_SEGMENTS)]
WholePerStage = Annotated[int | tuple[int, ...], _whole_per_stage(0, MAX_LAYERS)]
DeviceMatrix = Annotated[
    Number | tuple[tuple[Number, ...], ...], BeforeValidator(_matrix)
]


TIME_FIELDS = {
    "F": "forward",
    "B": "backward",
    "I": "backward_input",
    "W": "backward_weight",
}
"""Field of the time of each kind of op."""


BACKWARDS = alternatives(("backward",), ("backward_input", "backward_weight"))
"""JSON Schema of an object with the time of the backward, or with those of its two parts."""


class HasBackward(StrictModel):
    """A model with a field for the whole backward, and one for each of its two parts."""

    model_config = ConfigDict(json_schema_extra=BACKWARDS)

    @model_validator(mode="after")
    def _one_backward(self) -> Self:
        fields = ("backward", "backward_input", "backward_weight")
        present = [getattr(self, field) is not None for field in fields]
        if present not in ([True, False, False], [False, True, True]):
            raise ValueError(
                'expected either "backward", or both "backward_input" and "backward_weight"'
            )
        return self

    @property
    def is_split(self) -> bool:
        """True if input- and weight-gradient backwards are apart (zero-bubble papers)."""
        return getattr(self, "backward", None) is None

    def by_kind(self) -> dict[str, Any]:
        """Return the time of each kind of op, in the order F, B or F, I, W."""
        kinds = "FIW" if self.is_split else "FB"
        return {kind: getattr(self, TIME_FIELDS[kind]) for kind in kinds}


def entry_at(entry: Any, *indices: int) -> Fraction:
    """Return the exact number that a scalar or nested entry has at some indices.

    A number stands for every index. The outermost index comes first: of a stage, of a device, or of
    a stage, then a micro-batch.
    """
    for index in indices:
        entry = entry[index] if isinstance(entry, tuple) else entry
    return Fraction(entry)


def row_of(entry: Any, index: int) -> tuple[Decimal, ...]:
    """Return the numbers of one stage or boundary: one for all micro-batches, or one for each.

    The entry is one without costs, per stage or boundary and per micro-batch.
    """
    value = entry[index] if isinstance(entry, tuple) else entry
    return value if isinstance(value, tuple) else (value,)


def check_length(field: str, entry: Any, expected: int, item: str) -> None:
    """Refuse a list of the wrong length; an `InputError` names its field, and what one item is."""
    if isinstance(entry, tuple) and len(entry) != expected:
        raise InputError(
            f"expected a number or {expected} entries (one per {item}), got {len(entry)}",
            field=field,
            code=ErrorCode.LENGTH,
        )


def rows_per_microbatch(entry: Any) -> list[tuple[Any, ...]]:
    """Return the lists of an entry that have one number per micro-batch, in the order of stages."""
    items = entry if isinstance(entry, tuple) else ()
    return [item for item in items if isinstance(item, tuple)]


def decimals(entry: Any) -> Iterator[Decimal]:
    """Yield all numbers of an entry, however deep; none of an absent one."""
    if isinstance(entry, tuple):
        for item in entry:
            yield from decimals(item)
    elif entry is not None:
        yield entry


def stages_per_device(count: int | None, placement: Any) -> int:
    """Return the stages of each device; the placement's name decides where no count is given."""
    return count or (2 if placement in ("vshape", "interleaved", "wave") else 1)


def in_amounts(data: Any) -> Any:
    """Return the data of a pipeline with capacities such as ``1.25p`` as amounts.

    Data without any, and what is wrong with other fields, is left as it is. An `InputError` says
    that the multiple is no number, or that stages have activations of their own.
    """
    memory = data.get("memory") if isinstance(data, dict) else None
    capacity = memory.get("capacity") if isinstance(memory, dict) else None
    entries = capacity if isinstance(capacity, list | tuple) else [capacity]
    stages = (
        count_stages(data) if any(isinstance(entry, str) for entry in entries) else None
    )
    if not isinstance(memory, dict) or stages is None:
        return data
    held = stages * count_slices(data.get("slices"))
    amounts = [_amount(entry, held, memory) for entry in entries]
    capacity = amounts if isinstance(capacity, list | tuple) else amounts[0]
    return {**data, "memory": {**memory, "capacity": capacity}}


def count_slices(slices: Any) -> int:
    """Return the slices of a micro-batch by a field that may not be validated yet, at least 1."""
    if isinstance(slices, list | tuple):
        return max(1, len(slices))
    count = (
        slices.get("count")
        if isinstance(slices, dict)
        else getattr(slices, "count", slices)
    )
    return count if isinstance(count, int) and count > 0 else 1


def count_stages(data: dict[str, Any]) -> int | None:
    """Return the stages of data that is not validated yet, None where they are unknown."""
    placement = data.get("placement", "linear")
    if isinstance(placement, dict):
        listed = placement.get("stage_to_device")
        return len(listed) if isinstance(listed, list | tuple) else None
    devices, chunks = data.get("num_devices"), data.get("stages_per_device")
    is_known = isinstance(devices, int) and isinstance(chunks, int | None)
    return (
        devices * stages_per_device(chunks, placement) if is_known and devices else None
    )


def _amount(entry: Any, held: int, memory: dict[str, Any]) -> Any:
    if not isinstance(entry, str):
        return entry
    match, field = _MULTIPLE.fullmatch(entry.strip()), "memory.capacity"
    if match is None:
        expected = 'expected an amount, or a multiple such as "1.25p"'
        raise InputError(f"{expected}, got {describe(entry)}", field=field)
    activation = memory.get("activation")
    if isinstance(activation, list | tuple) and all(
        amount == activation[0] for amount in activation
    ):
        activation = next(iter(activation), None)
    if isinstance(activation, list | tuple | dict):
        raise InputError(
            f"expected an amount, not {entry.strip()}, where activations differ",
            field=field,
            code=ErrorCode.CONFLICT,
        )
    try:
        return Decimal(match[1] or 1) * held * as_decimal(activation)
    except ValueError:
        return 0  # the activation is refused by itself


def with_multiples(schema: dict[str, Any]) -> None:
    """Add capacities such as ``1.25p`` to the JSON Schema of the capacity."""
    multiple = {"type": "string", "pattern": r"^ *[0-9.]* *[pP] *$"}
    for branch in schema["anyOf"]:
        if "items" in branch:
            branch["items"]["anyOf"].append(multiple)
    schema["anyOf"].append(multiple)
