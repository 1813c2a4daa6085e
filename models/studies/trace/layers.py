"""Layers of a model that was recorded: their times, and which of them form which stage."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from ppsolve.models.documents.base import Number, StrictModel, Whole
from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.plan.profile import MAX_LAYERS

FloatArray = np.typing.NDArray[np.float64]


class LayerTime(StrictModel):
    """One layer, or `count` equal layers in a row.

    Times of one micro-batch are in any unit: only their proportions within a stage count.
    """

    name: str = "layer"
    count: Annotated[Whole, Field(ge=1, le=MAX_LAYERS)] = 1
    forward: Number
    backward: Number


class Layers(StrictModel):
    """All layers of a model in order, and how many of them each stage had.

    Parameters
    ----------
    layers : tuple of LayerTime
        From the first to the last.
    stages : tuple of int
        Number of layers of each recorded stage.
    """

    layers: tuple[LayerTime, ...] = Field(min_length=1)
    stages: tuple[Annotated[Whole, Field(ge=1)], ...] = Field(min_length=1)

    @field_validator("layers")
    @classmethod
    def _not_too_many(cls, layers: tuple[LayerTime, ...]) -> tuple[LayerTime, ...]:
        if sum(layer.count for layer in layers) > MAX_LAYERS:
            raise ValueError(f"expected at most {MAX_LAYERS} layers in all")
        return layers

    @model_validator(mode="after")
    def _all_are_placed(self) -> Self:
        placed, there = sum(self.stages), sum(layer.count for layer in self.layers)
        if placed != there:
            raise InputError(f"expected {there} layers in all, got {placed}", field="stages")
        return self

    @property
    def stage(self) -> list[int]:
        """Recorded stage of each layer."""
        return [stage for stage, count in enumerate(self.stages) for _ in range(count)]

    def shares(self, field: str) -> FloatArray:
        """Return the part of the time of its recorded stage that each layer takes, float64[layers].

        They sum to 1 over each stage, and are equal where none of its layers is given any time.
        `field` is ``forward`` or ``backward``.
        """
        given = [float(getattr(layer, field)) for layer in self.layers for _ in range(layer.count)]
        times, stage = np.array(given), np.array(self.stage)
        total = np.bincount(stage, weights=times)
        times[total[stage] == 0] = 1.0
        total = np.bincount(stage, weights=times)
        parts: FloatArray = times / total[stage]
        return parts
