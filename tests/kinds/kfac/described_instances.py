"""Small described pipelines with the same K-FAC module on every stage."""

from __future__ import annotations

from typing import Any

from ppsolve.models.kinds.kfac.instance import KfacInstance

FUSED = {"forward": 1, "backward": 2}
SPLIT = {"forward": 1, "backward_input": 1, "backward_weight": 1}


def described_instance(
    module: dict[str, Any],
    devices: int,
    microbatches: int,
    modules: list[dict[str, Any]] | None = None,
    pipeline: dict[str, Any] | None = None,
    **fields: Any,
) -> KfacInstance:
    """Return an instance with `module` on every stage, unless other modules are given."""
    of_pipeline = {
        "num_devices": devices,
        "num_microbatches": microbatches,
        "times": FUSED,
        **(pipeline or {}),
    }
    everywhere = [{"stage": stage, **module} for stage in range(devices)]
    return KfacInstance.parse(
        {
            "kind": "kfac",
            "pipeline": of_pipeline,
            "modules": everywhere if modules is None else modules,
            **fields,
        }
    )
