"""DeepSpeed: 1F1B with one stage per rank; where stages begin in the list of layers.

Read in DeepSpeed master (2026-11): a subclass of ``PipelineModule`` overrides
``_partition_layers``, sets ``self.parts`` and calls ``self._set_bounds``.
"""

from __future__ import annotations

import json
from itertools import accumulate

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.formats.layers import required_counts
from ppsolve.solver.formats.placement import chunks_if_looped, refuse_other_orders
from ppsolve.solver.formats.program import RuntimeProgram, Settings
from ppsolve.solver.pipeline.one_stage import one_forward_one_backward

NAME = "DeepSpeed"


def deepspeed_parts(program: RuntimeProgram, settings: Settings) -> str:
    """Write a program as the parts of the list of layers given to ``PipelineModule``.

    Parameters
    ----------
    program : RuntimeProgram
        The program, in the order 1F1B.
    settings : Settings
        Not used.

    Returns
    -------
    str
        JSON with ``num_stages``, ``gradient_accumulation_steps`` (micro-batches) and ``parts``:
        stage s has the layers parts[s] to parts[s + 1] - 1.

    Raises
    ------
    InputError
        The placement or the order is one that DeepSpeed does not run, or the split is not known.
    """
    ranks, count = len(program.rows), program.num_microbatches
    if chunks_if_looped(program, NAME) != 1:
        raise InputError(
            f"placement: {NAME} has one stage per rank, stage {ranks} is on rank 0",
            field="schedule",
        )
    orders = one_forward_one_backward(ranks, count)
    refuse_other_orders(program, orders, f"{NAME} runs 1F1B")
    parts = [0, *accumulate(required_counts(program, NAME))]
    found = {"num_stages": ranks, "gradient_accumulation_steps": count, "parts": parts}
    return json.dumps(found) + "\n"
