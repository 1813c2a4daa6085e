"""Write the K-FAC instances, byte for byte: ``python benchmarks/make_kfac_instances.py [DIR]``.

``measured`` are timelines as PipeFisher records them. The times of ``free`` and ``pinned`` are like
those of a BERT-large trained in PipeFisher's setting: a stage of transformer blocks takes some
30 ms forward and 60 ms backward, curvature of a factor a few ms per micro-batch, an inversion
about as long as a forward. Without DIR the instances go where they are kept. Files that are not
in the set are left alone.
"""

from __future__ import annotations

from typing import Any

from shipped import ROOT, run_writer

from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.solver.formats.pipefisher import convert_pipefisher

TIMELINES = ROOT / "tests" / "data" / "pipefisher"

MEASURED = {
    "bert-base-gpipe-4x4": "c01_gpipe_base_p4_m4",
    "bert-base-1f1b-4x4": "c02_1f1b_base_p4_m4",
    "bert-base-chimera-4x4": "c03_chimera_base_p4_m4",
    "bert-base-1f1b-4x8-dp2": "c05_1f1b_base_p4_m8_dp2",
    "bert-large-gpipe-8x4": "c09_gpipe_large_p8_m4",
    "packing": "hand_P1_packing",
    "barrier": "hand_P2_barrier",
}
"""Name of each measured instance, and the folder of its timelines."""

FUSED = {"forward": 30, "backward": 60}
SPLIT = {"forward": 30, "backward_input": 31, "backward_weight": 29}
EMBEDDING_FIRST = {"forward": [38, 30, 30, 32], "backward": [76, 60, 60, 62]}

ATTENTION = {
    "name": "attention",
    "curvature_a": 2,
    "curvature_b": 2,
    "inverse_a": 24,
    "inverse_b": 22,
    "precondition": 3,
}
MLP = {
    "name": "mlp",
    "curvature_a": 2,
    "curvature_b": 3,
    "inverse_a": 25,
    "inverse_b": 36,
    "precondition": 4,
}
BLOCK = {
    "name": "block",
    "curvature_a": 3,
    "curvature_b": 4,
    "inverse_a": 32,
    "inverse_b": 36,
    "precondition": 6,
}
"""All layers of a stage as one module."""


def every_instance() -> dict[str, KfacInstance]:
    """Return the set: file name below the directory -> instance, named after its file."""
    families = {"measured": measured(), "pinned": pinned(), "free": free()}
    return {
        f"kfac/{family}/{name}.json": instance.model_copy(update={"name": name})
        for family, instances in families.items()
        for name, instance in instances.items()
    }


def measured() -> dict[str, KfacInstance]:
    """Return timelines, some with replicas that meet in their syncs or with a memory limit."""
    made = {name: timelines(folder) for name, folder in MEASURED.items()}
    replicas = made["bert-base-chimera-4x4"].model_copy(
        update={"sync_groups": ((0, 3), (1, 2))}
    )
    # The first device saves the inputs of all 72 curvature parts before its first bubble, the
    # last one all inputs and errors; the others get less than PipeFisher's order needs.
    saved = {"saved": {"capacity": [72, 54, 60, 144]}}
    limited = KfacInstance.parse({**made["bert-base-1f1b-4x4"].model_dump(), **saved})
    return {
        **made,
        "bert-base-chimera-4x4-replicas": replicas,
        "bert-base-1f1b-4x4-memory": limited,
    }


def timelines(folder: str) -> KfacInstance:
    """Return the instance of a folder of timelines."""
    return convert_pipefisher([TIMELINES / folder], allow_pickle=True)[0]


def pinned() -> dict[str, KfacInstance]:
    """Return described pipelines whose schedule is pinned: fewest iterations of a refresh."""
    layers = [ATTENTION, MLP]
    common: dict[str, Any] = {"objective": "iterations", "margin_ratio": 0.05}
    return {
        "bert-4x8-gpipe": cycle(4, 8, FUSED, layers, pattern="gpipe", **common),
        "bert-4x8-1f1b": cycle(4, 8, FUSED, layers, pattern="1f1b", **common),
        "bert-4x8-zb-h1": cycle(4, 8, SPLIT, layers, pattern="zb-h1", **common),
        "bert-4x8-chimera": bidirectional(pattern="chimera", **common),
        "bert-8x16-1f1b": cycle(8, 16, FUSED, layers, pattern="1f1b", **common),
    }


def free() -> dict[str, KfacInstance]:
    """Return refresh cycles in which the pipeline is scheduled together with the K-FAC work."""
    layers = [ATTENTION, MLP]
    late = {"p2p": {"latency": 5}}
    return {
        "bert-4x8": cycle(4, 8, FUSED, layers),
        "bert-4x8-latency": cycle(4, 8, FUSED, layers, pipeline=late),
        "bert-4x8-embedding": cycle(4, 8, EMBEDDING_FIRST, [BLOCK]),
        "bert-4x8-bidirectional": bidirectional(),
        "bert-4x4-two-iterations": cycle(
            4, 4, SPLIT, layers, refresh_interval=2, max_age=1
        ),
        "bert-6x6-split": cycle(6, 6, SPLIT, [BLOCK], pipeline=late),
        "bert-6x12-memory": memory(),
        "bert-8x16": cycle(8, 16, FUSED, [BLOCK]),
    }


def cycle(
    devices: int,
    microbatches: int,
    times: dict[str, Any],
    blocks: list[dict[str, Any]],
    *,
    pipeline: dict[str, Any] | None = None,
    margin_ratio: float = 0,
    **fields: Any,
) -> KfacInstance:
    """Return an instance with the same modules on every stage."""
    modules = [
        {"stage": stage, **block} for stage in range(devices) for block in blocks
    ]
    return KfacInstance.parse(
        {
            "kind": "kfac",
            "time_unit": "ms",
            "margin_ratio": margin_ratio,
            "pipeline": {
                "kind": "pipeline",
                "time_unit": "ms",
                "num_devices": devices,
                "num_microbatches": microbatches,
                "times": times,
                **(pipeline or {}),
            },
            "modules": modules,
            **fields,
        }
    )


def memory() -> KfacInstance:
    """Activations and saved tensors in a memory that GPipe fills up to the last byte."""
    block = {**BLOCK, "input_bytes": 0.25, "error_bytes": 0.25}
    room = {"capacity": 15.25, "activation": 1}
    return cycle(6, 12, FUSED, [block], pipeline={"memory": room})


def bidirectional(**fields: Any) -> KfacInstance:
    """Two pipes in opposite directions, whose factors are averaged over both."""
    block = {**BLOCK, "sync_a": 6, "sync_b": 6}
    return cycle(
        4, 8, FUSED, [block], pipeline={"placement": "bidirectional"}, **fields
    )


if __name__ == "__main__":
    run_writer(__doc__, every_instance)
