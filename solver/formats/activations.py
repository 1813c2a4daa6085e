"""What files of runtimes can say of activations that are recomputed or offloaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.modes import KEEP, OFFLOAD, MemoryModes, choice_of, modes_of
from ppsolve.solver.formats.layers import RECOMPUTE
from ppsolve.solver.formats.program import RuntimeProgram, Settings, cannot_say

HAND_MADE = frozenset({"torch", "torchtitan"})
"""Runtimes whose users wrap the modules of a stage themselves."""

COUNTED = frozenset({"megatron", "primus"})
"""Runtimes that count the layers of each stage that are recomputed."""

WINDOW_FLAG = "--num-microbatches-with-partial-activation-checkpoints"


def chosen_modes(data: dict[str, Any], instance: PipelineInstance | None) -> list[list[str]]:
    """Return the modes of each stage, by micro-batch, in a result or a given pipeline.

    Parameters
    ----------
    data : dict
        A result as read from JSON.
    instance : PipelineInstance or None
        Its pipeline.

    Returns
    -------
    list of list of str
        Empty where every activation is kept.
    """
    modes = None if instance is None else modes_of(instance)
    if modes is None:
        return []
    choice, _ = choice_of(modes, data)
    return [[modes.names[number] for number in row] for row in choice.tolist()]


def notes_on_modes(program: RuntimeProgram, settings: Settings, target: str) -> Iterator[str]:
    """Yield what the reader of an exported file has to set by hand.

    Parameters
    ----------
    program : RuntimeProgram
        With the modes of its stages.
    settings : Settings
        Layers that are recomputed, where they are given.
    target : str
        Name of the runtime.

    Yields
    ------
    str

    Raises
    ------
    InputError
        The runtime cannot do what a stage does with its activations, or it has to be told in
        layers; names the stage.
    """
    rows = [sorted(set(row)) for row in program.modes]
    if target == "json" or all(row == [KEEP] for row in rows):
        return
    for stage, row in enumerate(rows):
        if OFFLOAD in row:
            raise cannot_say(f"modes: stage {stage} offloads, which no file for {target} can say")
    window = _window(program)
    if window is not None and target == "megatron":
        yield f"megatron: set {WINDOW_FLAG} {window}"
    for stage, row in enumerate(rows):
        if len(row) > 1 and window is None:
            raise cannot_say(
                f"modes: stage {stage} recomputes some micro-batches only, which no file for "
                f"{target} can say"
            )
    stages = [stage for stage, row in enumerate(rows) if row != [KEEP]]
    listed = ", ".join(f"{stage} ({' or '.join(rows[stage])})" for stage in stages)
    if target in HAND_MADE:
        yield (
            f"{target}: the file orders ops only: wrap what stages {listed} recompute in "
            "torch.utils.checkpoint"
        )
    elif target in COUNTED and settings.recomputed is None:
        raise InputError(
            f"expected the layers of each stage that are recomputed: stages {listed}",
            field=RECOMPUTE,
        )
    elif target not in COUNTED:
        raise cannot_say(f"modes: stages {listed} recompute, which no file for {target} can say")
    modes = None if program.instance is None else modes_of(program.instance)
    if modes is not None and modes.is_anytime:
        yield f"{target}: recomputes right before a backward, the schedule does so earlier"


def _window(program: RuntimeProgram) -> int | None:
    modes = None if program.instance is None else modes_of(program.instance)
    if modes is None or modes.decide != "window":
        return None
    choice = np.array([[modes.names.index(name) for name in row] for row in program.modes])
    return _kept(modes, choice)


def _kept(modes: MemoryModes, choice: Any) -> int:
    for kept in range(int(modes.windows.max()) + 2):
        if np.array_equal(choice == 0, modes.windows < kept):
            return kept
    return 0
