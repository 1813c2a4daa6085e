"""What files of runtimes can say of activations that are recomputed or offloaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.modes import KEEP, OFFLOAD, modes_of
from ppsolve.solver.formats.layers import DECODER, RECOMPUTE, letters_of
from ppsolve.solver.formats.program import RuntimeProgram, Settings, cannot_say
from ppsolve.solver.kinds.pipeline.layers.rules import FULL
from ppsolve.solver.kinds.pipeline.runtimes.families import MEGATRON
from ppsolve.solver.kinds.pipeline.runtimes.recomputing import is_selective

HAND_MADE = frozenset({"torch", "torchtitan"})
"""Runtimes whose users wrap the modules of a stage themselves."""

COUNTED = frozenset({"megatron", "primus"})
"""Runtimes that count the layers of each stage that are recomputed."""

OFFLOADS = {
    "megatron": "copies out as soon as it can, and keeps the last groups of the first backward",
    "primus": "set offload_ops to the ops whose activations are copied out",
}
"""Runtimes that copy activations to the host, and what has to be known of that."""

WINDOW_FLAG = "--num-microbatches-with-partial-activation-checkpoints"


def layer_modes(
    program: RuntimeProgram, settings: Settings
) -> tuple[Mapping[str, int], ...]:
    """Return the decoder layers of each stage by mode.

    Where layers of a stage recompute, its one mode says how many: ``2 full``. The result is empty
    where the split is not known, or a stage has several modes.
    """
    letters = letters_of(program, settings.model)
    if letters is None or any(len(set(row)) > 1 for row in program.modes):
        return ()
    if program.layer_modes:
        return program.layer_modes
    modes = [row[0] for row in program.modes] or [KEEP] * len(letters)
    return tuple(
        {mode: stage.count(DECODER)} for mode, stage in zip(modes, letters, strict=True)
    )


def modes_in(program: RuntimeProgram) -> set[str]:
    """Return the modes of all stages, layers and micro-batches."""
    return {mode for row in program.modes or program.layer_modes for mode in row}


def recomputed_modes(program: RuntimeProgram) -> set[str]:
    """Return the modes of all stages, without what the first micro-batches of windows keep."""
    kept = {KEEP} if _window(program, "megatron") is not None else set()
    return modes_in(program) - kept


def with_recomputed(
    program: RuntimeProgram, settings: Settings, target: str
) -> Settings:
    """Return settings that say how many layers a runtime recomputes as a whole.

    Stages or layers in the mode `FULL` recompute all of a layer. Settings stay as they are where
    they say the number, or a mode has another name. `target` is the name of the runtime.
    """
    if target not in COUNTED or settings.recomputed is not None:
        return settings
    if program.plan is not None and program.plan.recompute == FULL:
        letters = letters_of(program, settings.model) or ()
        return replace(
            settings, recomputed=tuple(stage.count(DECODER) for stage in letters)
        )
    stages = layer_modes(program, settings)
    if not any(FULL in stage for stage in stages) or set().union(*stages) - {
        KEEP,
        FULL,
        OFFLOAD,
    }:
        return settings
    return replace(settings, recomputed=tuple(stage.get(FULL, 0) for stage in stages))


def notes_on_modes(
    program: RuntimeProgram, settings: Settings, target: str
) -> Iterator[str]:
    """Yield what the reader of an exported file has to set by hand.

    Raises `InputError` where the runtime, named by `target`, cannot do what a stage does with its
    activations, or has to be told in layers; names the stage.
    """
    rows = [sorted(set(row)) for row in program.modes or program.layer_modes]
    if target == "json" or all(row == [KEEP] for row in rows):
        return
    offloading = next((stage for stage, row in enumerate(rows) if OFFLOAD in row), None)
    if offloading is not None and target not in OFFLOADS:
        raise cannot_say(
            f"modes: stage {offloading} offloads, which no file for {target} can say"
        )
    if offloading is not None:
        yield f"{target}: {OFFLOADS[target]}"
    window = _window(program, target)
    if window is not None and target == "megatron":
        kept, caution = window
        yield f"megatron: set {WINDOW_FLAG} {kept}{caution}"
    stages = [stage for stage, row in enumerate(rows) if set(row) - {KEEP, OFFLOAD}]
    partly = [stage for stage in stages if len(rows[stage]) > 1 and program.modes]
    if partly and (window is None or target not in {"megatron", *HAND_MADE}):
        raise cannot_say(
            f"modes: stage {partly[0]} recomputes some micro-batches only, which no file for "
            f"{target} can say"
        )
    named = recomputed_modes(program) if target == "megatron" else modes_in(program)
    has_modules = any(map(is_selective, named))
    if target == "deepspeed" and len(named) == 1:
        yield (
            f"deepspeed: set activation_checkpoint_interval of PipelineModule; what a layer "
            f"recomputes ({min(named)}) is what its activation_checkpoint_func does"
        )
        return
    if stages and not (target == "megatron" and (named == {FULL} or has_modules)):
        listed = ", ".join(
            f"{stage} ({_said(program, stage, rows[stage])})" for stage in stages
        )
        if target == "primus" and has_modules:
            raise cannot_say(
                f"modes: primus recomputes whole layers, not what stages {listed} do"
            )
        yield from _notes_on_recomputing(listed, settings, target)
    modes = None if program.instance is None else modes_of(program.instance)
    if modes is not None and modes.is_anytime:
        yield f"{target}: recomputes right before a backward, the schedule does so earlier"


def _said(program: RuntimeProgram, stage: int, modes: list[str]) -> str:
    if not program.layer_modes:
        return " or ".join(modes)
    layers = program.layer_modes[stage].items()
    return ", ".join(f"{count} {mode}" for mode, count in layers if mode != KEEP)


def _notes_on_recomputing(
    listed: str, settings: Settings, target: str
) -> Iterator[str]:
    if target in HAND_MADE:
        yield (
            f"{target}: the file orders ops only: wrap what stages {listed} recompute in "
            "torch.utils.checkpoint"
        )
    elif target in COUNTED and settings.recomputed is None:
        text = f"expected the layers of each stage that are recomputed: stages {listed}"
        raise InputError(f"{text}; whole layers are counted", field=RECOMPUTE)
    elif target not in {*COUNTED, "mindformers"}:
        raise cannot_say(
            f"modes: stages {listed} recompute, which no file for {target} can say"
        )


def _window(program: RuntimeProgram, target: str) -> tuple[int, str] | None:
    """Return the micro-batches of each window that are kept, and a word of caution, if any.

    Megatron-LM counts windows by the groups that it runs; an instance may ask for the windows of
    groups of p where the order has others.
    """
    modes = None if program.instance is None else modes_of(program.instance)
    is_partly = any(len(set(row)) > 1 for row in program.modes)
    if modes is None or not (
        modes.decide == "window" or (is_partly and target == "megatron")
    ):
        return None
    try:
        order = MEGATRON.order_of(program.rows, program.shape)
    except InputError:
        order = None
    size = None if order is None else order.group_size
    keeps = np.array(
        [[modes.names.index(name) == 0 for name in row] for row in program.modes]
    )
    of_groups = _kept(keeps, modes.windows_of(size))
    if of_groups is not None:
        return of_groups, ""
    usual = _kept(keeps, modes.windows_of())
    caution = (
        f" (in groups of {size} it counts otherwise and recomputes other micro-batches)"
    )
    return None if usual is None else (usual, caution)


def _kept(keeps: Any, windows: IntArray) -> int | None:
    counts = range(int(windows.max()) + 2)
    return next((n for n in counts if np.array_equal(keeps, windows < n)), None)
