"""Profiles of models: what each layer takes in time and bytes, by micro-batch size."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)

from ppsolve.models.documents.base import (
    NUMBER_SCHEMA,
    Number,
    StrictModel,
    Whole,
    as_decimal,
    describe,
    error_at,
)
from ppsolve.models.documents.measures import ByteCount, Time
from ppsolve.models.kinds.pipeline.entries import HasBackward
from ppsolve.models.kinds.pipeline.origin import LayerRecompute

MAX_LAYERS = 2_000
"""More layers are refused: the exact split looks at all pairs of them. It bounds time only."""


class Affine(StrictModel):
    """An amount that is `fixed` + `per_sample` x micro-batch size."""

    fixed: Number = Field(default=0, validate_default=True)
    per_sample: Number = Field(default=0, validate_default=True)


def _by_size(value: Any) -> Any:
    if isinstance(value, dict | Affine):
        return value
    if isinstance(value, list | tuple):
        return tuple(_number(item, (index,)) for index, item in enumerate(value))
    if isinstance(value, str) or value is None:
        raise ValueError(
            "expected a number (per sample), a list with one number per micro-batch size, or "
            f'{{"fixed": ..., "per_sample": ...}}, got {describe(value)}'
        )
    return Affine(per_sample=_number(value, ()))


def _number(value: Any, path: tuple[int, ...]) -> Decimal:
    try:
        return as_decimal(value)
    except ValueError as error:
        raise error_at(path, error) from None


# The tags have a dash, which keeps them out of the field paths of errors.
BySize = Annotated[
    Annotated[Affine, Tag("by-line")] | Annotated[tuple[Number, ...], Tag("by-list")],
    Discriminator(lambda value: "by-list" if isinstance(value, tuple) else "by-line"),
    BeforeValidator(_by_size),
    WithJsonSchema(
        {
            "anyOf": [
                NUMBER_SCHEMA,
                {"type": "array", "items": NUMBER_SCHEMA},
                {
                    "type": "object",
                    "properties": {
                        "fixed": NUMBER_SCHEMA,
                        "per_sample": NUMBER_SCHEMA,
                    },
                    "additionalProperties": False,
                },
            ]
        },
        mode="validation",
    ),
]
"""A number per sample, fixed + per sample, or one number per profiled micro-batch size."""

NOTHING = Affine()


class LayerProfile(HasBackward):
    """One layer, or `count` equal layers in a row.

    Parameters
    ----------
    forward, backward : number, list or Affine
        Time of one micro-batch. Instead of `backward` both `backward_input` and `backward_weight`
        may be given; a fused backward then takes their sum.
    optimizer : number
        Time of the optimizer per step.
    activation_bytes : number, list or Affine
        Kept by a micro-batch from its forward to its backward.
    output_bytes : number, list or Affine
        Sent by a micro-batch to a next layer on another device (and back as gradient).
    parameter_bytes : number
        Gradients that replicas all-reduce, and the parameters themselves.
    state_bytes : number, optional
        Always in memory; `ModelProfile.state_factor` x `parameter_bytes` by default.
    """

    name: str = "layer"
    count: Annotated[Whole, Field(ge=1, le=MAX_LAYERS)] = 1
    forward: Time[BySize]
    backward: Time[BySize] | None = None
    backward_input: Time[BySize] | None = None
    backward_weight: Time[BySize] | None = None
    optimizer: Time[Number] = Field(default=0, validate_default=True)
    activation_bytes: ByteCount[BySize] = NOTHING
    output_bytes: ByteCount[BySize] = NOTHING
    parameter_bytes: ByteCount[Number] = Field(default=0, validate_default=True)
    state_bytes: ByteCount[Number] | None = None

    def by_size(self) -> dict[str, Any]:
        """Return every amount that depends on the micro-batch size, by field."""
        fields = ("forward", "backward", "backward_input", "backward_weight")
        sizes = ("activation_bytes", "output_bytes")
        amounts = {field: getattr(self, field) for field in (*fields, *sizes)}
        return {
            field: amount for field, amount in amounts.items() if amount is not None
        }


class ModelProfile(StrictModel):
    """The layers of a model in order, measured at some micro-batch sizes.

    Lists in layers have one number per entry of `microbatch_sizes`. Other sizes are planned only if
    no layer has a list.

    Parameters
    ----------
    tensor_parallel : int
        Devices that share each layer; times, memory and transfers are those of one of them.
    recompute : str
        ``selective`` or ``full``: what backwards run again, which their times contain.
    """

    tensor_parallel: Annotated[Whole, Field(ge=1, le=4096)] = 1
    recompute: LayerRecompute = "none"
    microbatch_sizes: tuple[Annotated[Whole, Field(ge=1)], ...] = Field(min_length=1)
    layers: tuple[LayerProfile, ...] = Field(min_length=1)
    state_factor: Number = Field(default=8, validate_default=True)
    released_by_backward_weight: Annotated[Number, Field(le=1)] = Field(
        default=1, validate_default=True
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        sizes = self.microbatch_sizes
        if any(a >= b for a, b in pairwise(sizes)):
            text = f"expected ascending sizes, got {', '.join(map(str, sizes))}"
            raise error_at(("microbatch_sizes",), text)
        for index, layer in enumerate(self.layers):
            for field, amount in layer.by_size().items():
                if isinstance(amount, tuple) and len(amount) != len(sizes):
                    raise error_at(
                        ("layers", index, field),
                        f"expected {len(sizes)} numbers, one per micro-batch size, "
                        f"got {len(amount)}",
                    )
        if self.num_layers > MAX_LAYERS:
            text = f"expected at most {MAX_LAYERS} layers, got {self.num_layers}"
            raise error_at(("layers",), text)
        for size in sizes:
            if not sum(self.amounts("forward", size)) + sum(self.backward(size)):
                text = f"expected times > 0, all are 0 at micro-batch size {size}"
                raise error_at(("layers",), text)
        return self

    @property
    def variant(self) -> tuple[int, str]:
        """Tensor parallelism and recomputation, which tell the profiles of a request apart."""
        return self.tensor_parallel, self.recompute

    @property
    def num_layers(self) -> int:
        """Number of layers, repeated ones counted."""
        return sum(layer.count for layer in self.layers)

    @property
    def letters(self) -> str | None:
        """The layers as Megatron-LM writes them, where the names of both ends say what they are."""
        first, last = self.layers[0], self.layers[-1]
        is_decoder = (first.name, last.name, first.count, last.count) == (
            "embedding",
            "head",
            1,
            1,
        )
        return f"Et*{self.num_layers - 2}L" if is_decoder else None

    @property
    def is_split(self) -> bool:
        """Whether every layer has its input- and weight-gradient backward apart."""
        return all(layer.is_split for layer in self.layers)

    @property
    def is_measured(self) -> bool:
        """Whether some amount is known at the listed sizes only."""
        amounts = (
            amount for layer in self.layers for amount in layer.by_size().values()
        )
        return any(isinstance(amount, tuple) for amount in amounts)

    def amounts(self, field: str, size: int) -> list[Fraction]:
        """Return an amount of every layer at a micro-batch size, repeated layers one by one.

        `field`: a field of `LayerProfile`; amounts that are not given are 0.
        """
        amounts = (
            (self._amount(layer, field, size), layer.count) for layer in self.layers
        )
        return [amount for amount, count in amounts for _ in range(count)]

    def backward(self, size: int) -> list[Fraction]:
        """Return the time of a fused backward of every layer."""
        fields = ("backward", "backward_input", "backward_weight")
        return [
            sum(amounts)
            for amounts in zip(
                *(self.amounts(field, size) for field in fields), strict=True
            )
        ]

    def _amount(self, layer: LayerProfile, field: str, size: int) -> Fraction:
        amount = getattr(layer, field)
        if amount is None and field == "state_bytes":
            return Fraction(layer.parameter_bytes * self.state_factor)
        if isinstance(amount, tuple):
            return Fraction(amount[self.microbatch_sizes.index(size)])
        if isinstance(amount, Affine):
            return Fraction(amount.fixed) + Fraction(amount.per_sample) * size
        return Fraction(amount or 0)
