"""The fused forward-and-backward block of DeepSeek's profile: its measured parts and their order.

From `train.json` of deepseek-ai/profile-data: a PyTorch profiler trace of one rank, H800, expert
parallelism over 64, four MoE layers, read on 2026-11-21. The repository names no licence; the table
holds durations that were derived from it and nothing else. `docs/making/experiments.md` says how.
"""

from __future__ import annotations

SPAN, BUSY, NET = range(3)
"""From first to last kernel, time with a kernel, and that without waiting for peers."""

MEASURED: dict[str, tuple[tuple[int, int, int], ...]] = {
    "combine_b": (
        (4424, 4380, 3372),
        (5227, 5224, 3909),
        (6210, 6207, 3962),
        (7275, 7266, 3459),
    ),
    "attn_f": (
        (4833, 4311, 4311),
        (4393, 4263, 4263),
        (4567, 4438, 4438),
        (4602, 4467, 4467),
    ),
    "dispatch_f": (
        (6087, 6059, 4678),
        (5746, 5706, 4270),
        (7129, 7077, 4515),
        (7988, 7919, 4330),
    ),
    "mlp_b": (
        (5746, 5693, 5693),
        (5467, 5408, 5408),
        (5467, 5407, 5407),
        (4772, 4716, 4716),
    ),
    "dispatch_b": (
        (7338, 7302, 6549),
        (7912, 7909, 6543),
        (7517, 7271, 5889),
        (7466, 7465, 6492),
    ),
    "mlp_w": (
        (5333, 5325, 5325),
        (5059, 5050, 5050),
        (5260, 5249, 5249),
        (4639, 4627, 4627),
    ),
    "mlp_f": (
        (4289, 4250, 4250),
        (4420, 4384, 4384),
        (5212, 5175, 5175),
        (4644, 4606, 4606),
    ),
    "combine_f": (
        (7327, 7325, 6002),
        (8262, 8260, 6074),
        (9541, 9521, 5847),
        (9653, 9630, 6052),
    ),
    "attn_b": (
        (9215, 9018, 9018),
        (9563, 9368, 9368),
        (9646, 9452, 9452),
        (9737, 9525, 9525),
    ),
    "attn_w": (
        (2381, 2375, 2375),
        (2390, 2382, 2382),
        (2400, 2392, 2392),
        (2412, 2405, 2405),
    ),
}
"""Span, busy and net time of each block in microseconds, layer by layer; `_b` returns gradients of
inputs, `_w` those of weights."""

DEPS = {
    "combine_b": "",
    "attn_f": "",
    "dispatch_f": "attn_f",
    "mlp_b": "combine_b",
    "dispatch_b": "mlp_b",
    "mlp_w": "mlp_b",
    "mlp_f": "dispatch_f",
    "combine_f": "mlp_f",
    "attn_b": "dispatch_b",
    "attn_w": "attn_b",
}
"""What each block reads in its own layer."""

BETWEEN_LAYERS = {"attn_f": "combine_f", "combine_b": "attn_b"}
"""What each block reads in the layer before it in the block; backward layers run in reverse."""

LAYERS = 4
"""Layers of the block. The backward layers run in reverse and are numbered as they run."""

_LAYER = "attn_f dispatch_f mlp_b dispatch_b mlp_w mlp_f combine_f attn_b"


def program() -> list[tuple[str, int]]:
    """Return the blocks with their layers in DeepSeek's order, as the trace has them.

    `combine_b` of the next layer starts before `attn_w`, and every collective stands behind the
    kernels that it waited for, although some were launched later.
    """
    order = [("combine_b", 0)]
    for layer in range(LAYERS):
        order += [(block, layer) for block in _LAYER.split()]
        if layer + 1 < LAYERS:
            order.append(("combine_b", layer + 1))
        order.append(("attn_w", layer))
    return order
