"""Names of modes that recompute, as runtimes have them."""

from __future__ import annotations

import re

from ppsolve.models.documents.errors import did_you_mean
from ppsolve.solver.kinds.pipeline.layers.rules import FULL

SELECTIVE = "selective"
"""Name of the mode that recomputes what Megatron-LM does where no modules are named."""

MODULES = (
    "core_attn",
    "layernorm",
    "mhc",
    "mla_up_proj",
    "mlp",
    "moe",
    "moe_act",
    "shared_experts",
)
"""Modules of a layer that Megatron-LM recomputes in every layer, by these names."""

INTERVAL = re.compile(r"interval ([1-9]\d{0,3})")
"""Mode of DeepSpeed that keeps the inputs of every N-th layer of a stage."""

REFUSED_BESIDE_BLOCKS = frozenset({FULL, "moe"})
"""What Megatron-LM does not recompute where forwards and backwards are combined."""


def modules_of(mode: str) -> list[str]:
    """Return the modules that a mode names, ``mla_up_proj mlp``; none where it names others too."""
    names = mode.split()
    return names if set(MODULES).issuperset(names) else []


def is_selective(mode: str) -> bool:
    """Whether a mode recomputes modules of every layer, named or those that Megatron-LM has."""
    return mode == SELECTIVE or bool(modules_of(mode))


def stands_beside_blocks(mode: str) -> bool:
    """Whether Megatron-LM recomputes a mode where forwards and backwards are combined."""
    return REFUSED_BESIDE_BLOCKS.isdisjoint(mode.split())


def unknown_to_megatron(mode: str) -> str | None:
    """Say which name of a mode no flag of Megatron-LM has, None where flags say the mode."""
    if mode == FULL or is_selective(mode):
        return None
    known = (FULL, SELECTIVE, *MODULES)
    name = next((name for name in mode.split() if name not in MODULES), mode)
    return f'recomputes {", ".join(known)}, not "{name}"{did_you_mean(name, known)}'


def interval_of(mode: str) -> int | None:
    """Return the layers of each checkpoint of a mode of DeepSpeed, None where it is none."""
    if mode == FULL:
        return 1
    match = INTERVAL.fullmatch(mode)
    return None if match is None else int(match[1])


def unknown_to_deepspeed(mode: str) -> str | None:
    """Say that DeepSpeed recomputes layers in intervals, None where a mode says how many."""
    if interval_of(mode) is not None:
        return None
    return f'recomputes {FULL} or "interval N", of N layers, not "{mode}"'


def unknown_to_primus(mode: str) -> str | None:
    """Say that Primus recomputes whole layers, None where a mode does."""
    return None if mode == FULL else f'recomputes whole layers ({FULL}), not "{mode}"'
