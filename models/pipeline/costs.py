"""Costs over the lengths of the sequences of a micro-batch, and the numbers that they come to.

Time and memory of a transformer layer have a part that grows with the tokens (matrix products,
activations) and one that grows with the square of each sequence (attention), as counted by
Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM". Packed sequences do not attend to each other: each length is squared alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, localcontext
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, WithJsonSchema

from ppsolve.models.documents.base import (
    MAX_NUMBER,
    Number,
    StrictModel,
    as_decimal,
    describe,
    did_you_mean,
    error_at,
)
from ppsolve.models.documents.errors import InputError

EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Sums and products of decimals are exact in it, however many digits they have."""


class LengthCost(StrictModel):
    """An amount per micro-batch: per_token · Σ length + per_square · Σ length² + constant.

    The sums go over the sequences of the micro-batch; a field that is left out is 0, of all three
    one is not.
    """

    per_token: Number = Field(default=0, validate_default=True)
    per_square: Number = Field(default=0, validate_default=True)
    constant: Number = Field(default=0, validate_default=True)

    @classmethod
    def read(cls, data: dict[str, Any], at: tuple[int, ...]) -> LengthCost:
        """Read a cost that lies somewhere inside an entry.

        Parameters
        ----------
        data : dict
            The object of the document.
        at : tuple of int
            Indices from the field to the object, for errors.

        Returns
        -------
        LengthCost

        Raises
        ------
        PydanticCustomError
            Located at the first field that is unknown or no number >= 0, or at a cost that is
            always 0, as a number says that more plainly.
        """
        numbers: dict[str, Decimal] = {}
        for name, value in data.items():
            if name not in cls.model_fields:
                hint = did_you_mean(str(name)[:60], cls.model_fields)
                raise error_at(at, f'unknown field "{str(name)[:60]}"{hint}')
            try:
                numbers[name] = as_decimal(value)
            except ValueError as error:
                raise error_at((*at, name), str(error)) from None
        if not any(numbers.values()):
            listed = ", ".join(cls.model_fields)
            raise error_at(at, f"expected one of {listed} above 0, or the number 0 for no cost")
        return cls(**numbers)

    def of(self, tokens: int, squares: int) -> Decimal:
        """Return the amount of one micro-batch, exactly.

        Parameters
        ----------
        tokens, squares : int
            Sum of the lengths of its sequences, and sum of their squares.

        Returns
        -------
        Decimal
            In the unit of the entry.
        """
        with localcontext(EXACT):
            return self.per_token * tokens + self.per_square * squares + self.constant


def _read_lengths(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise error_at((), f"expected a list with one entry per micro-batch, got {describe(value)}")
    return tuple(_read_sequences(item, index) for index, item in enumerate(value))


def _read_sequences(value: Any, index: int) -> Any:
    if not isinstance(value, list | tuple):
        return _read_length(value, (index,))
    if not value:
        raise error_at((index,), "expected a length, or a list of at least one, got a list of 0")
    return tuple(_read_length(item, (index, place)) for place, item in enumerate(value))


def _read_length(value: Any, at: tuple[int, ...]) -> int:
    try:
        number = as_decimal(value)
    except ValueError:
        number = Decimal(0)
    if number < 1 or number != number.to_integral_value():
        largest = f"{MAX_NUMBER:.0E}"
        what = f"a length (a whole number from 1 to {largest})"
        raise error_at(at, f"expected {what}, got {describe(value)}")
    return int(number)


Length = Annotated[
    int, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": int(MAX_NUMBER)})
]
"""Tokens of one sequence."""

Lengths = Annotated[
    tuple[Length | Annotated[tuple[Length, ...], Field(min_length=1)], ...],
    BeforeValidator(_read_lengths),
]
"""Length of the sequence of each micro-batch, or the lengths of its packed sequences."""


class LengthSums(NamedTuple):
    """Σ length and Σ length² of each micro-batch, length m each."""

    tokens: tuple[int, ...]
    squares: tuple[int, ...]


def sums_of(lengths: Sequence[int | Sequence[int]]) -> LengthSums:
    """Return the sums of the lengths of each micro-batch."""
    rows = [(row,) if isinstance(row, int) else tuple(row) for row in lengths]
    return LengthSums(
        tuple(map(sum, rows)), tuple(sum(length * length for length in row) for row in rows)
    )


def has_costs(entry: Any) -> bool:
    """Whether a cost stands anywhere in an entry (whole, or per stage or boundary)."""
    return isinstance(entry, LengthCost) or (
        isinstance(entry, tuple) and any(isinstance(item, LengthCost) for item in entry)
    )


def worked_out(field: str, entry: Any, count: int, sums: LengthSums | None) -> Any:
    """Return an entry with numbers per micro-batch in place of costs.

    Parameters
    ----------
    field : str
        Path of the entry in errors.
    entry : number, cost, tuple or None
        The entry: one for all stages or boundaries, or one for each.
    count : int
        Number of stages or boundaries.
    sums : LengthSums or None
        Sums of m micro-batches; None where the instance has no lengths.

    Returns
    -------
    number, tuple or None
        The entry itself where it has no cost; else one item per stage or boundary, of which those
        that were costs are tuples of m numbers.

    Raises
    ------
    InputError
        There is a cost and no lengths, or a number is beyond `MAX_NUMBER`.
    """
    if isinstance(entry, LengthCost):
        return (_numbers(field, entry, sums),) * count
    if not has_costs(entry):
        return entry
    return tuple(
        _numbers(f"{field}[{index}]", item, sums) if isinstance(item, LengthCost) else item
        for index, item in enumerate(entry)
    )


def _numbers(field: str, cost: LengthCost, sums: LengthSums | None) -> tuple[Decimal, ...]:
    if sums is None:
        raise InputError(
            'expected "lengths" of the pipeline beside a cost over lengths, got none', field=field
        )
    numbers = tuple(map(cost.of, sums.tokens, sums.squares))
    for microbatch, number in enumerate(numbers):
        if number > MAX_NUMBER:
            raise InputError(
                f"expected a cost of at most {MAX_NUMBER:.0E}, got {number:.6E} for micro-batch "
                f"{microbatch}",
                field=field,
            )
    return numbers
