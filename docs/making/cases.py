"""Instances that the pictures of the documentation show, each small enough to be proved at once."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import ppsolve

INSTANCES = Path(__file__).resolve().parents[2] / "instances"

UNEVEN = ppsolve.PipelineInstance(
    name="uneven",
    num_devices=4,
    num_microbatches=8,
    times={"forward": [100, 90, 90, 140], "backward_input": 95, "backward_weight": 60},
    p2p={"latency": 5},
    memory={"capacity": 4, "activation": 1, "released_by_backward_weight": 0.43},
)
"""The pipeline of `docs/how-to/uneven-stages.md`."""

WHOLE = ppsolve.PipelineInstance(
    name="whole",
    num_devices=4,
    num_microbatches=8,
    times={"forward": 10, "backward": 20},
    memory={"capacity": 4, "activation": 1},
)
HALVES = WHOLE.model_copy(
    update={
        "name": "halves",
        "times": ppsolve.PipelineInstance(
            num_devices=4,
            num_microbatches=8,
            times={"forward": 10, "backward_input": 10, "backward_weight": 10},
        ).times,
    }
)
"""Alike stages, the backward in one piece and in halves."""

WAITING = ppsolve.PipelineInstance(
    name="waiting",
    num_devices=2,
    num_microbatches=4,
    stages_per_device=2,
    placement="interleaved",
    times={"forward": [10, 20, 30, 10], "backward": [10, 40, 40, 10]},
    p2p={"mode": "rendezvous", "latency": 20},
)
"""Ranks that wait for their transfers."""


@cache
def capped(capacity: int) -> ppsolve.PipelineInstance:
    """Return a pipeline of alike stages with room for some activations on each device."""
    return ppsolve.PipelineInstance(
        name=f"capped-{capacity}",
        num_devices=4,
        num_microbatches=8,
        times={"forward": 10, "backward_input": 10, "backward_weight": 7},
        p2p={"latency": 1},
        memory={"capacity": capacity, "activation": 1},
    )


def best(instance: ppsolve.Instance, runtime: str | None = None) -> ppsolve.Result:
    """Return the best schedule, proved, the same one on every machine.

    Raises
    ------
    ValueError
        It is not proved: no picture may call it the best.
    """
    result = ppsolve.optimize(
        instance, time_limit=60, deterministic=True, workers=1, runtime=runtime
    )
    if result.status is not ppsolve.Status.OPTIMAL:
        raise ValueError(f"{instance.name} is not proved: {result.status}")
    return result


UNIT = {"forward": 10, "backward_input": 10, "backward_weight": 7}
LONG_ENDS = {"forward": [11, 10, 10, 14], "backward_input": 10, "backward_weight": 7}
FACTORS = {
    "curvature_a": 1,
    "curvature_b": 1,
    "inverse_a": 8,
    "inverse_b": 9,
    "precondition": 2,
}


def _pipeline(name: str, **fields: Any) -> dict[str, Any]:
    """Return a pipeline of 4 devices and 8 micro-batches; `fields` replace or add others."""
    usual = {
        "num_devices": 4,
        "num_microbatches": 8,
        "times": UNIT,
        "p2p": {"latency": 1},
    }
    return {"kind": "pipeline", "name": name, **usual, **fields}


def _halved(**fields: Any) -> dict[str, Any]:
    """Return fields of a pipeline with two stages of half the time on each device."""
    return {"times": {kind: time / 2 for kind, time in UNIT.items()}, **fields}


def _unequal(count: int, stages: int = 4) -> dict[str, Any]:
    """Return fields of a pipeline whose micro-batches are of several lengths."""
    lengths = [3, 1, 4, 1, 5, 9, 2, 6][:count]
    times = [[length * 16 / stages for length in lengths]] * stages
    return {
        "num_microbatches": count,
        "p2p": {"latency": 0},
        "times": {
            "forward": times,
            "backward": [[2 * time for time in row] for row in times],
        },
    }


def _sliced(slices: int, stages: int = 4) -> dict[str, Any]:
    """Return fields of a pipeline whose micro-batches run in slices, each longer than the last."""
    forward = [(2 + number) * 16 // (slices * stages) for number in range(slices)]
    times = {"forward": [forward] * stages, "backward_input": [forward] * stages}
    return {"slices": slices, "times": {**times, "backward_weight": 2}}


def _with_factors(
    pipeline: dict[str, Any], stages: int, **fields: Any
) -> dict[str, Any]:
    """Return K-FAC work of one module on each stage of a pipeline."""
    modules = [{"stage": stage, "name": "block", **FACTORS} for stage in range(stages)]
    name = f"kfac-{pipeline['name']}"
    return {
        "kind": "kfac",
        "name": name,
        "pipeline": pipeline,
        "modules": modules,
        **fields,
    }


def _modes(
    decide: str | list[str], capacity: int = 2, **offload: Any
) -> dict[str, Any]:
    """Return memory with room for a few activations, which may leave it."""
    modes = [
        {"name": "mlp", "time": 6, "held": 0.4},
        {"name": "full", "time": 10, "held": 0.1},
    ]
    recompute = {"modes": modes, "decide": decide, "place": "anytime"}
    parts = {
        "recompute": recompute,
        **({"offload": offload | {"decide": decide}} if offload else {}),
    }
    return {"memory": {"capacity": capacity, "activation": 1, **parts}}


def _of_layers() -> list[dict[str, Any]]:
    """Return pipelines that share out 17 layers, for every published order with splits."""
    times = {"forward": 3, "backward_input": 3, "backward_weight": 2}
    layers = {
        "body": {"count": 17, **times, "activation": 1},
        "last": {"forward": 4, "backward_input": 4, "backward_weight": 3},
        "recompute": [{"name": "full", "time": 3, "held": 0.1}],
    }
    made = []
    for placement, capacity in (("linear", 18), ("interleaved", 26), ("vshape", 22)):
        pipeline = _pipeline(f"layers-{placement}", placement=placement)
        pipeline |= {"layers": layers, "memory": {"capacity": capacity}}
        del pipeline["times"]
        made.append(pipeline)
    return made


LINEAR = _pipeline("linear", times=LONG_ENDS)
LOOPED = _pipeline("looped", placement="interleaved", **_halved(stages_per_device=2))
FOLDED = _pipeline("folded", placement="vshape", **_halved())
BOTH_WAYS = _pipeline("both-ways", placement="bidirectional")

DOCUMENTS: tuple[dict[str, Any], ...] = (
    LINEAR,
    LOOPED,
    FOLDED,
    BOTH_WAYS,
    _pipeline("long", num_microbatches=84, memory={"capacity": 5, "activation": 1}),
    _pipeline("modes", **_modes("stage", amount=0.9, out=9, back=9)),
    _pipeline("copies", **_modes("stage", 3, amount=0.9, out=3, back=3)),
    _pipeline("roomy", **_modes("stage", 4, amount=0.9, out=3, back=3)),
    _pipeline("window", **_modes("window")),
    _pipeline("leaving", **_modes(["offload"] * 4, 3, amount=0.9, out=3, back=3)),
    *_of_layers(),
    _pipeline("fused", overlap={"ratio": 0.7}),
    LOOPED | {"name": "fused-looped", "overlap": {"ratio": 0.7}},
    _pipeline("unequal", **_unequal(8)),
    _pipeline("unequal-4x4", **_unequal(4)),
    _pipeline("sliced", **_sliced(4)),
    _pipeline(
        "sliced-looped", placement="interleaved", stages_per_device=2, **_sliced(2, 8)
    ),
    _pipeline(
        "unequal-looped", placement="interleaved", stages_per_device=2, **_unequal(4, 8)
    ),
    _with_factors(LINEAR, 4, pattern="1f1b", objective="iterations"),
    *(
        _with_factors(pipeline, stages, objective="makespan", pattern="free")
        for pipeline, stages in ((LINEAR, 4), (LOOPED, 8), (FOLDED, 8), (BOTH_WAYS, 4))
    ),
)
"""Small instances for the catalogue; a heuristic is shown on the first one that it can run on."""

SHIPPED = (
    "overlap/fsdp-forward-8l",
    "overlap/ddp-buckets-12l",
)
"""Programs of kernels and collectives."""


@cache
def catalogue_cases() -> tuple[ppsolve.Instance, ...]:
    """Return the instances of the catalogue in the order in which they are tried."""
    shipped = [ppsolve.load_instance(INSTANCES / f"{name}.json") for name in SHIPPED]
    return (*map(ppsolve.parse_instance, DOCUMENTS), *shipped)
