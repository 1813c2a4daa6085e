"""Sequence slices: a micro-batch passes every stage slice by slice.

TeraPipe (Li et al. 2021), Seq1F1B (Sun et al. 2024), SlimPipe (Li et al. 2025). A slice attends to
those before it: on each stage its forward follows theirs, its backward comes before theirs. Its
cost over lengths has the tokens of the slice, and as squares what it adds to those of the sequence:
(before + length)² - before². So slices cost as much as the whole, but for the constant of each.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Discriminator, Field, Tag

from ppsolve.models.core.builder import ProblemBuilder
from ppsolve.models.core.problem import IntArray
from ppsolve.models.documents.base import MAX_NUMBER, StrictModel, Whole, describe
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.cuts import CausalCost, balanced_bounds, squares
from ppsolve.models.kinds.pipeline.entries import (
    Length,
    LengthCost,
    LengthSums,
    check_length,
    row_of,
)
from ppsolve.models.kinds.pipeline.pools import exact

if TYPE_CHECKING:
    from ppsolve.models.kinds.pipeline.collective_ops import OpGrid
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance

MAX_SLICES = 10_000
"""Most slices of a micro-batch: far more than any published order has."""


class SliceCuts(StrictModel):
    """A number of slices, and where they are cut: in equal tokens, or equal forward times."""

    count: Annotated[Whole, Field(ge=1, le=MAX_SLICES)]
    cuts: Literal["uniform", "balanced"] = "uniform"


def _known(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(
        value, int | list | tuple | dict | SliceCuts
    ):
        raise ValueError(
            "expected a number of slices, a list with the tokens of each, or "
            f'{{"count": 4, "cuts": "balanced"}}, got {describe(value)}'
        )
    return value


def _tag(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "by-length"
    return "by-count" if isinstance(value, int) else "by-cut"


Slices = Annotated[
    Annotated[int, Field(ge=1, le=MAX_SLICES), Tag("by-count")]
    | Annotated[
        tuple[Annotated[Length, Field(ge=1, le=int(MAX_NUMBER))], ...],
        Field(min_length=1, max_length=MAX_SLICES),
        Tag("by-length"),
    ]
    | Annotated[SliceCuts, Tag("by-cut")],
    Discriminator(_tag),
    BeforeValidator(_known),
]


def check_slices(instance: PipelineInstance) -> None:
    """Refuse slices that contradict each other or the pipeline; an `InputError` says how."""
    slices, memory, count = instance.slices, instance.memory, instance.num_slices
    if slices is None:
        if memory is not None and memory.key_value is not None:
            raise InputError(
                'expected "slices" of the pipeline beside',
                field="memory.key_value",
                code=ErrorCode.MISSING,
            )
        return
    if _cuts(slices) == "balanced" and not (instance.lengths and _costs(instance)):
        raise InputError(
            'expected "lengths" and a cost over them in times.forward where cuts are balanced',
            field="slices.cuts",
            code=ErrorCode.CONFLICT,
        )
    for number, tokens in enumerate(map(_total, instance.lengths or ())):
        if isinstance(slices, tuple) and sum(slices) != tokens:
            raise InputError(
                f"expected the {tokens} tokens of micro-batch {number}, got {sum(slices)} in all",
                field="slices",
            )
        if tokens < count:
            raise InputError(
                f"expected at most the {tokens} tokens of micro-batch {number}, got {count} slices",
                field="slices",
                code=ErrorCode.RANGE,
            )


def check_row(field: str, item: Any, instance: PipelineInstance) -> None:
    """Refuse numbers of a stage that are not one for each micro-batch, or each slice.

    An `InputError` names the field.
    """
    sliced = instance.slices is not None
    if not (sliced and isinstance(item, tuple) and len(item) == instance.num_slices):
        label = (
            f"slice, or {instance.num_slices} of alike micro-batches" if sliced else ""
        )
        check_length(field, item, instance.num_units, label or "micro-batch")


def per_unit(entry: Any, instance: PipelineInstance) -> Any:
    """Return an entry without costs whose rows have a number for each slice of each micro-batch."""
    count, units = instance.num_slices, instance.num_units
    if not isinstance(entry, tuple) or count == units:
        return entry
    return tuple(
        item * (units // count)
        if isinstance(item, tuple) and len(item) == count
        else item
        for item in entry
    )


def unit_sums(instance: PipelineInstance) -> LengthSums | None:
    """Return Σ length and Σ length² of each micro-batch or slice; None where no lengths are known.

    Slice j of micro-batch i has place i · slices + j.
    """
    rows, slices = instance.lengths, instance.slices
    if rows is None and isinstance(slices, tuple):
        rows = (sum(slices),) * instance.num_microbatches
    if rows is None:
        return None

    @cache
    def sums(row: int | tuple[int, ...]) -> tuple[list[int], list[int]]:
        bounds = _bounds(instance, row)
        held = [squares(_sequences(row), bound) for bound in bounds]
        return [b - a for a, b in pairwise(bounds)], [b - a for a, b in pairwise(held)]

    tokens, of_squares = (
        tuple(chain.from_iterable(column))
        for column in zip(*map(sums, rows), strict=True)
    )
    return LengthSums(tokens, of_squares)


def add_slice_order(
    builder: ProblemBuilder,
    instance: PipelineInstance,
    forward: OpGrid,
    returning: OpGrid,
) -> None:
    """Let slices wait for each other on each stage: forwards, and the ops that return gradients."""
    units = np.arange(instance.num_units).reshape(-1, instance.num_slices)
    early, late = units[:, :-1].ravel(), units[:, 1:].ravel()
    builder.add_precedences(forward.last[:, early], forward.first[:, late])
    builder.add_precedences(returning.last[:, late], returning.first[:, early])
    if instance.memory is not None and instance.memory.key_value is not None:
        # Implied; whoever takes keys and values finds who gives them back one step away.
        first = np.repeat(units[:, 0], units.shape[1] - 1)
        builder.add_precedences(forward.last[:, late], returning.first[:, first])


def units_of(microbatches: IntArray, slices: int) -> IntArray:
    """Return the slices of n micro-batches, int64[n * slices], counted over all."""
    return (microbatches[:, None] * slices + np.arange(slices)).ravel()


def with_key_values(
    instance: PipelineInstance, entry: Any, acquired: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Return the amounts acquired with keys and values, and those that the last backwards release.

    The entry is the `key_value` of a pipeline with slices, in numbers. Without it, forwards of each
    stage acquire one amount, or one for each slice; with it, there is one for each.
    """
    none = np.zeros(instance.num_units, dtype=object)
    added = [none + exact(row_of(entry, stage)) for stage in range(instance.num_stages)]
    released = []
    for row in added:
        back = none.copy()
        back[:: instance.num_slices] = row.reshape(-1, instance.num_slices).sum(axis=1)
        released.append(back)
    return [a + b for a, b in zip(acquired, added, strict=True)], released


def _cuts(slices: Any) -> str | None:
    return getattr(slices, "cuts", None)


def _costs(instance: PipelineInstance) -> list[LengthCost]:
    entry = instance.times.forward
    items = entry if isinstance(entry, tuple) else (entry,)
    return [item for item in items if isinstance(item, LengthCost)]


def _sequences(row: int | tuple[int, ...]) -> tuple[int, ...]:
    return (row,) if isinstance(row, int) else row


def _total(row: int | tuple[int, ...]) -> int:
    return sum(_sequences(row))


def _bounds(instance: PipelineInstance, row: int | tuple[int, ...]) -> list[int]:
    slices, count, total = instance.slices, instance.num_slices, _total(row)
    if isinstance(slices, tuple):
        return [0, *accumulate(slices)]
    if _cuts(slices) != "balanced":
        return [total * index // count for index in range(count + 1)]
    costs = _costs(instance)
    linear = sum((Fraction(cost.per_token) for cost in costs), Fraction(0))
    square = sum((Fraction(cost.per_square) for cost in costs), Fraction(0))
    return balanced_bounds(CausalCost(_sequences(row), linear, square), count)
