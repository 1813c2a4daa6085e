"""Layers that stages share out: where each goes and how many are recomputed is open."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, Field, model_validator

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.base import (
    Number,
    StrictModel,
    Whole,
    as_json_number,
    describe,
)
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.measures import MemoryAmount, Time
from ppsolve.models.kinds.pipeline.entries import (
    MAX_LAYERS,
    TIME_FIELDS,
    HasBackward,
    WholePerStage,
    check_length,
)

if TYPE_CHECKING:
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance

KEPT = "keep"

CHOSEN_LAYERS = "layers"
"""Key of a split in the choices of a problem, int64[types, S]."""


class LayerCost(HasBackward):
    """What one layer adds to its stage, for each micro-batch; `static` once."""

    forward: Time[Number]
    backward: Time[Number] | None = None
    backward_input: Time[Number] | None = None
    backward_weight: Time[Number] | None = None
    activation: MemoryAmount[Number] = Field(default=0, validate_default=True)
    static: MemoryAmount[Number] = Field(default=0, validate_default=True)


class BodyLayers(LayerCost):
    """Equal layers, such as those of a transformer."""

    count: Annotated[Whole, Field(ge=1, le=MAX_LAYERS)]


class LayerMode(StrictModel):
    """A way to recompute a layer before its backward: the time that takes, and what is held.

    Layers are recomputed one by one. What the one that runs needs for a moment is not counted: it
    is the same for any number of layers, and a part of what is static.
    """

    name: Annotated[str, Field(min_length=1, max_length=60)]
    time: Time[Number]
    held: MemoryAmount[Number] = Field(default=0, validate_default=True)


class Layers(StrictModel):
    """The layers of a model: equal ones between a first and a last one.

    The first layer lies on the first stage, the last one on the last.

    Parameters
    ----------
    body : BodyLayers
        The equal layers.
    first, last : LayerCost, optional
        Such as the embedding and the head.
    min_per_stage : int or list of int
        The least number of equal layers that a stage gets, for all stages or for each.
    recompute : list of LayerMode
        Types of recomputing; any number of the layers of a stage may be of each.
    """

    body: BodyLayers
    min_per_stage: WholePerStage = 1
    first: LayerCost | None = None
    last: LayerCost | None = None
    recompute: tuple[LayerMode, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for field in ("first", "last"):
            other = getattr(self, field)
            if other is not None and other.is_split != self.body.is_split:
                names = (
                    "backward_input and backward_weight"
                    if self.body.is_split
                    else "backward"
                )
                text = f"expected {names}, as of the body; 0 where there is none"
                raise InputError(text, field=field, code=ErrorCode.CONFLICT)
        seen = {KEPT}
        for number, mode in enumerate(self.recompute):
            if mode.name in seen:
                raise InputError(
                    f'expected a name of its own, other than "{KEPT}", got "{mode.name}"',
                    field=f"recompute[{number}].name",
                    code=ErrorCode.CONFLICT,
                )
            seen.add(mode.name)
            if mode.held > self.body.activation:
                raise InputError(
                    f"expected at most the activation of a layer ({self.body.activation}), got "
                    f"{mode.held}",
                    field=f"recompute[{number}].held",
                    code=ErrorCode.RANGE,
                )
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the types of a layer: kept, then those that recompute."""
        return (KEPT, *(mode.name for mode in self.recompute))

    @property
    def held(self) -> tuple[Decimal, ...]:
        """What a layer of each type holds until its backward."""
        return (self.body.activation, *(mode.held for mode in self.recompute))

    @property
    def extra(self) -> tuple[Decimal, ...]:
        """Time that a layer of each type adds to its backward."""
        return (Decimal(0), *(mode.time for mode in self.recompute))

    def least(self, stages: int) -> IntArray:
        """Return the least number of equal layers of each stage, int64[S]."""
        least = np.asarray(self.min_per_stage, dtype=np.int64)
        return np.broadcast_to(least, stages)

    def evenly(self, stages: int) -> IntArray:
        """Return as equal numbers of layers as can be, all kept, int64[types, S]."""
        least, count = self.least(stages), self.body.count

        def exceeds(level: int) -> bool:
            return bool(np.maximum(least, level).sum() > count)

        level = bisect_left(range(1, count + 2), True, key=exceeds)
        counts = np.zeros((len(self.names), stages), dtype=np.int64)
        counts[0] = np.maximum(least, level)
        lowest = np.flatnonzero(least <= level)
        counts[0, lowest[: count - int(counts.sum())]] += 1
        return counts

    def amounts(
        self, counts: IntArray
    ) -> tuple[dict[str, Any], list[Decimal], list[Decimal]]:
        """Return the times by field, the activations and the static memory of all stages.

        `counts`: int64[types, S], layers of each type and stage.
        Returns: an entry per stage.
        """
        layers: list[int] = counts.sum(axis=0).tolist()
        fields = [TIME_FIELDS[kind] for kind in self.body.by_kind()]
        times = {
            field: [n * getattr(self.body, field) for n in layers] for field in fields
        }
        backward = fields[1]
        again = [_weighed(self.extra, column) for column in counts.T.tolist()]
        times[backward] = [a + b for a, b in zip(times[backward], again, strict=True)]
        held = [_weighed(self.held, column) for column in counts.T.tolist()]
        static = [n * self.body.static for n in layers]
        for place, other in ((0, self.first), (-1, self.last)):
            if other is None:
                continue
            for field in fields:
                times[field][place] += getattr(other, field)
            held[place] += other.activation
            static[place] += other.static
        return times, held, static


def _weighed(amounts: Sequence[Decimal], counts: Sequence[int]) -> Decimal:
    return sum((a * n for a, n in zip(amounts, counts, strict=True)), Decimal(0))


def with_even_layers(data: dict[str, Any], stages: int | None) -> dict[str, Any]:
    """Return the data of a pipeline whose layers stand in for times and activations.

    `data`: data of a pipeline that is not validated yet.
    `stages`: its stages, as far as they are known.
    Returns: with the times, activations and static memory of an even split.
    Raises `InputError`: the layers are not valid, or given together with what they
        stand in for.
    """
    times = data.get("times")
    if stages is None or not isinstance(times, dict | BaseModel | None):
        return data
    given, memory = data["layers"], data.get("memory")
    for name in ("recompute", "offload", "forward_peak"):
        if isinstance(memory, dict) and memory.get(name) is not None:
            raise InputError(
                "expected it in layers, got both",
                field=f"memory.{name}",
                code=ErrorCode.CONFLICT,
            )
    try:
        layers = given if isinstance(given, Layers) else Layers.parse(given)
    except InputError as error:
        field = ".".join(filter(None, ("layers", error.field)))
        raise error.about(field) from None
    check_length("layers.min_per_stage", layers.min_per_stage, stages, "stage")
    least = int(layers.least(stages).sum())
    if layers.body.count < least:
        each = "one for each stage" if least == stages else "min_per_stage"
        raise InputError(
            f"expected at least {least} layers ({each}), got {layers.body.count}",
            field="layers.body.count",
            code=ErrorCode.RANGE,
        )
    times, held, static = layers.amounts(layers.evenly(stages))
    filled = {**data, "times": _same("times", data.get("times"), times)}
    if isinstance(memory, dict):
        amounts = {"activation": held, "static": static}
        known = {name: memory[name] for name in amounts if name in memory}
        filled["memory"] = {**memory, **_same("memory", known or None, amounts)}
    return filled


def _same(path: str, given: Any, made: dict[str, Any]) -> dict[str, Any]:
    # Other numbers beside layers are refused.
    rows = {
        field: [as_json_number(number) for number in row] for field, row in made.items()
    }
    if isinstance(given, dict):
        for field, row in given.items():
            each = row if isinstance(row, list | tuple) else [row]
            # Files are read as decimals, what was written of them are doubles.
            found = [float(n) if isinstance(n, Decimal) else n for n in each]
            if row is not None and found != rows.get(field):
                raise InputError(
                    "expected it in layers, got both",
                    field=f"{path}.{field}",
                    code=ErrorCode.CONFLICT,
                )
    return rows


def split_by(
    instance: PipelineInstance, counts: IntArray, lightest: IntArray | None = None
) -> PipelineInstance:
    """Return the plain pipeline of a split of the layers, without layers.

    `instance`: a pipeline with layers.
    `counts`: int64[types, S], layers of each type and stage.
    `lightest`: the same, for what is held, where that is another split.
    """
    layers = instance.layers
    assert layers is not None
    times, held, static = layers.amounts(counts)
    if lightest is not None:
        held = layers.amounts(lightest)[1]
    made = instance.times.model_copy(
        update={field: tuple(row) for field, row in times.items()}
    )
    memory = instance.memory
    if memory is not None:
        memory = memory.model_copy(
            update={"activation": tuple(held), "static": tuple(static)}
        )
    return instance.model_copy(update={"times": made, "memory": memory, "layers": None})


def least_of_stages(
    layers: Layers, counts: IntArray, undecided: int
) -> tuple[IntArray, IntArray]:
    """Return the least layers of stages: for their times, and for their memory.

    `counts`: int64[types, S], `undecided` in stages of which nothing is known.
    Returns: twice int64[types, S]; an open stage has as few layers as it may, of the
        fastest type, and of the lightest.
    """
    fastest, lightest = counts.copy(), counts.copy()
    is_open = counts[0] == undecided
    least = layers.least(counts.shape[1])[is_open]
    for table, amounts in ((fastest, layers.extra), (lightest, layers.held)):
        table[:, is_open] = 0
        table[amounts.index(min(amounts)), is_open] = least
    return fastest, lightest


def has_open_chunks(instance: PipelineInstance) -> bool:
    """Whether a runtime may give each device any number of stages.

    The pipeline has layers, says no placement, and nothing of it is said stage by stage.
    """
    is_placed = "placement" in instance.model_fields_set or instance.stages_per_device
    of_stages = (
        instance.allreduce,
        instance.optimizer,
        instance.collectives,
        instance.plan,
    )
    memory = instance.memory
    rows = (instance.p2p.bytes, memory and memory.released_by_backward_weight)
    return (
        instance.layers is not None
        and not isinstance(instance.layers.min_per_stage, tuple)
        and instance.num_devices > 1
        and not is_placed
        and not any(entry is not None for entry in of_stages)
        and not any(isinstance(row, tuple) for row in rows)
    )


def open_chunks(instance: PipelineInstance) -> range:
    """Return the numbers of stages that a runtime may give each device, none where they are given.

    There are layers for all stages, the first and the last one counted where a stage needs none
    of the equal ones.
    """
    layers = instance.layers
    if layers is None or not has_open_chunks(instance):
        return range(0)
    least = int(layers.least(1)[0])
    count = layers.body.count // max(1, least)
    if not least:
        count += (layers.first is not None) + (layers.last is not None)
    return range(1, max(1, count // instance.num_devices) + 1)


def in_chunks(instance: PipelineInstance, chunks: int) -> PipelineInstance:
    """Return a pipeline with layers with so many interleaved stages on each device.

    `instance`: a pipeline with layers, whose placement is open or interleaved.
    `chunks`: stages of each device; there are layers for all of them.
    """
    layers = instance.layers
    assert layers is not None
    if chunks * instance.num_devices == instance.num_stages:
        return instance
    shape: dict[str, Any] = {"placement": "interleaved", "stages_per_device": chunks}
    if chunks == 1:
        shape = {"placement": "linear", "stages_per_device": None}
    placed = instance.model_copy(update=shape)
    even = split_by(placed, layers.evenly(placed.num_stages))
    return even.model_copy(update={"layers": layers})


def with_whole_backwards(instance: PipelineInstance) -> PipelineInstance:
    """Return a pipeline with layers whose backwards are not split, and take as long."""
    layers = instance.layers
    assert layers is not None
    if not layers.body.is_split:
        return instance
    halves = ("backward_input", "backward_weight")
    costs: dict[str, LayerCost] = {}
    for field in ("body", "first", "last"):
        cost = getattr(layers, field)
        if cost is not None:
            backward = sum(getattr(cost, half) for half in halves)
            update = {"backward": backward, **dict.fromkeys(halves)}
            costs[field] = cost.model_copy(update=update)
    unsplit = layers.model_copy(update=costs)
    counts = unsplit.evenly(instance.num_stages)
    times = instance.times.model_copy(
        update={**dict.fromkeys(halves), **unsplit.amounts(counts)[0]}
    )
    return instance.model_copy(update={"layers": unsplit, "times": times})


def times_of_layers(instance: PipelineInstance) -> list[Fraction]:
    """Return all times of which those of stages are sums, none without layers."""
    layers = instance.layers
    if layers is None:
        return []
    costs = [layers.body, *filter(None, (layers.first, layers.last))]
    times = [time for cost in costs for time in cost.by_kind().values()]
    speeds = set(instance.device_speeds)
    return [Fraction(t) / speed for t in [*times, *layers.extra] for speed in speeds]


def counts_of_document(
    instance: PipelineInstance, document: Any
) -> tuple[IntArray, str | None]:
    """Return the split that a document claims.

    `instance`: a pipeline with layers.
    `document`: a result or a schedule; ``layers`` has an object per stage with the
        number of each type.
    Returns: int64[types, S], the split; an even one where the claim is none; what is
        wrong with the claim, in words.
    """
    layers, stages = instance.layers, instance.num_stages
    assert layers is not None
    even = layers.evenly(stages)
    claim = document.get("layers") if isinstance(document, dict) else None
    expected = f"expected the layers of each of {stages} stages"
    if not isinstance(claim, list | tuple) or len(claim) != stages:
        return even, f"{expected}, got {describe(claim)}"
    counts = np.zeros_like(even)
    for stage, row in enumerate(claim):
        if not isinstance(row, dict):
            return even, f"{expected}, got {describe(row)} for stage {stage}"
        for name, count in row.items():
            if name not in layers.names or type(count) is not int or count < 0:
                listed = ", ".join(layers.names)
                return (
                    even,
                    f"expected numbers of {listed} for stage {stage}, got {name}: {count}",
                )
            counts[layers.names.index(name), stage] = count
    least = layers.least(stages)
    if counts.sum() != layers.body.count or (counts.sum(axis=0) < least).any():
        each = "one on each stage" if (least == 1).all() else str(least.tolist())
        return even, (
            f"expected {layers.body.count} layers, at least {each}, got "
            f"{counts.sum(axis=0).tolist()}"
        )
    return counts, None


def layers_violations(instance: PipelineInstance, document: Any) -> list[Violation]:
    """Check the split that a document claims.

    Returns: at most one, of the rule ``layers``.
    """
    _, wrong = counts_of_document(instance, document)
    return [] if wrong is None else [Violation("layers", wrong, ())]


def named_counts(layers: Layers, counts: IntArray) -> tuple[dict[str, int], ...]:
    """Return a split by name.

    `counts`: int64[types, S], layers of each type and stage.
    Returns: one for each stage, without types that it has none of.
    """
    return tuple(
        {name: count for name, count in zip(layers.names, column, strict=True) if count}
        for column in counts.T.tolist()
    )
