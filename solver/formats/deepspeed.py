"""DeepSpeed: 1F1B with one stage per rank; where stages begin in the list of layers.

Read in DeepSpeed master (2026-11): a subclass of ``PipelineModule`` overrides
``_partition_layers``, sets ``self.parts`` and calls ``self._set_bounds``.
"""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.modes import KEEP
from ppsolve.solver.formats.activations import modes_in
from ppsolve.solver.formats.layers import entries_of
from ppsolve.solver.formats.program import RuntimeProgram, Settings
from ppsolve.solver.kinds.pipeline.runtimes.families import DEEPSPEED
from ppsolve.solver.kinds.pipeline.runtimes.recomputing import interval_of


def deepspeed_parts(program: RuntimeProgram, settings: Settings) -> str:
    """Write a program in the order 1F1B as the parts of the layers of a ``PipelineModule``.

    Raises `InputError` where the placement or the order is one that DeepSpeed does not run, or the
    split is not known.

    The JSON has ``num_stages``, ``gradient_accumulation_steps`` (micro-batches) and ``parts``:
    stage s has the layers parts[s] to parts[s + 1] - 1; where all layers recompute also
    ``activation_checkpoint_interval``, N for a mode ``interval N``, else 1.
    """
    DEEPSPEED.order_of(program.rows, program.shape)
    ranks, count = len(program.rows), program.num_microbatches
    layers = entries_of(program, settings.model)
    if layers is None:
        text = "DeepSpeed needs the layers of each stage: export a plan, or give them"
        raise InputError(text, field="--layers", code=ErrorCode.MISSING)
    bounds = list(accumulate(layers, initial=0))
    document: dict[str, Any] = {
        "num_stages": ranks,
        "gradient_accumulation_steps": count,
        "parts": bounds,
    }
    for mode in modes_in(program) - {KEEP}:
        document["activation_checkpoint_interval"] = interval_of(mode) or 1
    return json.dumps(document) + "\n"
