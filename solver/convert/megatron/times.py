"""Layouts with times of layers: pipeline instances."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from ppsolve.models.documents.base import Number, StrictModel, Whole
from ppsolve.models.documents.errors import InputError
from ppsolve.models.pipeline.entries import check_backward
from ppsolve.models.pipeline.instance import P2P, PipelineInstance
from ppsolve.solver.convert.megatron.layout import DECODER, EMBEDDING, LOSS, MTP, MegatronLayout

KINDS = {EMBEDDING: "embedding", DECODER: "decoder", MTP: "mtp", LOSS: "loss"}
"""Field of `LayerTimes` of each layer."""


class OneLayer(StrictModel):
    """Times of one micro-batch in one layer."""

    forward: Number
    backward: Number | None = None
    backward_input: Number | None = None
    backward_weight: Number | None = None

    @model_validator(mode="after")
    def _one_backward(self) -> Self:
        check_backward(self.backward, self.backward_input, self.backward_weight)
        return self


NO_TIME = OneLayer(forward=Decimal(0), backward=Decimal(0))


class LayerTimes(StrictModel):
    """Times of the layers of a model, and what an instance needs beside them.

    Parameters
    ----------
    num_microbatches : int
        Micro-batches of a step.
    decoder : OneLayer or list of OneLayer
        Times of every decoder layer, or of each.
    embedding, mtp, loss : OneLayer, optional
        Times of the other layers; none by default.
    p2p : P2P
        Transfers between stages on different ranks.
    """

    name: str = "layout"
    time_unit: str = "us"
    num_microbatches: Annotated[Whole, Field(ge=1)]
    decoder: OneLayer | tuple[OneLayer, ...]
    embedding: OneLayer = NO_TIME
    mtp: OneLayer = NO_TIME
    loss: OneLayer = NO_TIME
    p2p: P2P = P2P()


def instance_of(layout: MegatronLayout, times: LayerTimes) -> PipelineInstance:
    """Return the pipeline of a layout.

    Parameters
    ----------
    layout : MegatronLayout
        Layers of each stage.
    times : LayerTimes
        Times of the layers; backwards are split where those of all given layers are.

    Returns
    -------
    PipelineInstance
        Stages take as long as their layers together; empty stages take no time.

    Raises
    ------
    InputError
        There are other numbers of decoder layers.
    """
    stages = _layers_of_stages(layout, times)
    given = [layer for stage in stages for layer in stage if layer is not NO_TIME]
    is_split = all(layer.backward is None for layer in given)

    def each(amount: Callable[[OneLayer], Decimal]) -> list[Decimal]:
        return [sum(map(amount, stage), Decimal(0)) for stage in stages]

    fields: dict[str, Any] = {"forward": each(lambda layer: layer.forward)}
    if is_split:
        fields["backward_input"] = each(lambda layer: layer.backward_input or Decimal(0))
        fields["backward_weight"] = each(lambda layer: layer.backward_weight or Decimal(0))
    else:
        fields["backward"] = each(_whole_backward)
    return PipelineInstance.parse(
        {
            "name": times.name,
            "time_unit": times.time_unit,
            "num_devices": layout.num_ranks,
            "num_microbatches": times.num_microbatches,
            "placement": "linear" if layout.chunks == 1 else "interleaved",
            "stages_per_device": layout.chunks,
            "times": fields,
            "p2p": times.p2p,
        }
    )


def _layers_of_stages(layout: MegatronLayout, times: LayerTimes) -> list[list[OneLayer]]:
    decoder = times.decoder
    count = layout.layers.count(DECODER)
    if isinstance(decoder, OneLayer):
        decoder = (decoder,) * count
    if len(decoder) != count:
        raise InputError(
            f"expected one entry for each of {count} layers t, got {len(decoder)}", field="decoder"
        )
    following = iter(decoder)
    return [
        [
            next(following) if letter == DECODER else getattr(times, KINDS[letter])
            for letter in stage
        ]
        for stage in layout.stages
    ]


def _whole_backward(layer: OneLayer) -> Decimal:
    parts = (layer.backward, layer.backward_input, layer.backward_weight)
    return sum((part for part in parts if part is not None), Decimal(0))
