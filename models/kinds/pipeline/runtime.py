"""Pipelines as PyTorch's runtime runs them (torch.distributed.pipelining, read and run: 2.13)."""

from __future__ import annotations

from decimal import Decimal

import numpy as np

from ppsolve.models.kinds.pipeline.entries import row_of
from ppsolve.models.kinds.pipeline.instance import PipelineInstance


def as_torch_runs(instance: PipelineInstance) -> PipelineInstance:
    """Return the pipeline with its times and memory as PyTorch's runtime has them.

    On stage 0 the runtime does nothing at an input-gradient backward and the whole backward at the
    weight-gradient backward (`PipelineStage.backward_one_chunk`): the first is made 0, the second
    the sum of both. A stage keeps its activations until the weight-gradient backward, all but those
    behind its last weight, as the input gradient is taken with ``retain_graph=True``: all are made
    to be held so long. Fused backwards stay as they are. Any order of the last stage's forwards can
    be run, as micro-batches are fed in it, and so none is forbidden here.

    A pipeline with times that were measured in this runtime has these times already.
    """
    plain = instance.in_numbers()
    if not plain.times.is_split:
        return plain
    times = plain.times
    stages = range(plain.num_stages)
    inputs = [list(row_of(times.backward_input, stage)) for stage in stages]
    weights = [list(row_of(times.backward_weight, stage)) for stage in stages]
    weights[0] = [
        *(np.array(inputs[0], dtype=object) + np.array(weights[0], dtype=object))
    ]
    inputs[0] = [Decimal(0)]
    changed: dict[str, object] = {
        "times": times.model_copy(
            update={
                "backward_input": tuple(map(_entry, inputs)),
                "backward_weight": tuple(map(_entry, weights)),
            }
        )
    }
    if plain.memory is not None:
        changed["memory"] = plain.memory.model_copy(
            update={"released_by_backward_weight": Decimal(1), "left_to_weight": None}
        )
    return plain.model_copy(update=changed)


def _entry(row: list[Decimal]) -> Decimal | tuple[Decimal, ...]:
    return row[0] if len(row) == 1 else tuple(row)
