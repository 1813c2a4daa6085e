"""MindFormers: lists of layers and of how many are recomputed, as its balancer SAPP writes them.

Read in MindFormers r1.6.0-beta1 (``toolkit/pipeline_balance``) and dev (``LayerSetting``): entries
are ``[chunk][stage]``. Of the layers of a chunk the first ones are recomputed; the lists of
selected operators and of communication both begin at the first layer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.modes import KEEP
from ppsolve.solver.formats.activations import layer_modes
from ppsolve.solver.formats.layers import DECODER, EMBEDDING, LOSS, letters_of
from ppsolve.solver.formats.program import RuntimeProgram, Settings, cannot_say
from ppsolve.solver.kinds.pipeline.layers.rules import FULL
from ppsolve.solver.kinds.pipeline.runtimes.families import MINDFORMERS

NAME = MINDFORMERS.title

LISTS = {
    "recompute": (FULL,),
    "select_recompute": ("select", "both", FULL),
    "select_comm_recompute": ("comm", "both", FULL),
}
"""Modes that each list counts."""


def mindformers_lists(program: RuntimeProgram, settings: Settings) -> str:
    """Write the layers of a program in the order 1F1B as settings of MindFormers.

    The JSON, which YAML contains, has ``parallel_config``, ``model`` and ``recompute_config``.
    Raises `InputError` where the placement, the order, a layer or the modes of a stage cannot be
    said.
    """
    MINDFORMERS.order_of(program.rows, program.shape)
    ranks, count, chunks = (
        len(program.rows),
        program.num_microbatches,
        program.shape.chunks,
    )
    stages = _stages(program, settings)
    layers = [sum(stage.values()) for stage in stages]
    even = sum(layers) // len(stages)

    def listed(values: list[int]) -> list[list[int]]:
        return [values[first : first + ranks] for first in range(0, len(values), ranks)]

    model = {"num_layers": sum(layers), "pp_interleave_num": chunks}
    document = {
        "parallel_config": {"pipeline_stage": ranks, "micro_batch_num": count},
        "model": {
            "model_config": model | {"offset": listed([size - even for size in layers])}
        },
        "recompute_config": {
            name: listed(
                [sum(stage.get(mode, 0) for mode in modes) for stage in stages]
            )
            for name, modes in LISTS.items()
        },
    }
    return json.dumps(document) + "\n"


def _stages(
    program: RuntimeProgram, settings: Settings
) -> tuple[Mapping[str, int], ...]:
    """Return the decoder layers of each stage by mode; refuse what no list says."""
    letters = letters_of(program, settings.model)
    if letters is None:
        text = f"{NAME} needs the layers of each stage: export a plan, or give them"
        raise InputError(text, field="--layers", code=ErrorCode.MISSING)
    for stage, text in enumerate(letters):
        first, last = EMBEDDING * (stage == 0), LOSS * (stage == len(letters) - 1)
        if text != first + DECODER * text.count(DECODER) + last:
            raise InputError(
                f"split: {NAME} shares out decoder layers t, with E before the first and L after "
                f'the last one; stage {stage} has "{text[:40]}"',
                field="--model",
                code=ErrorCode.UNSUPPORTED,
            )
    stages = layer_modes(program, settings)
    supported = {KEEP, *(mode for modes in LISTS.values() for mode in modes)}
    for stage, row in enumerate(stages):
        unsupported = min(set(row) - supported, default=None)
        if unsupported is not None:
            names = ", ".join(sorted(supported))
            text = f'modes: {NAME} has {names}, stage {stage} "{unsupported}"'
            raise cannot_say(text)
        if row.get("select") and row.get("comm"):
            raise cannot_say(
                f"modes: stage {stage} has layers of select and others of comm; {NAME} begins both "
                "at the first layer, which makes them both"
            )
    return stages
