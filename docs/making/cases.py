"""Instances that the pictures of the documentation show, each small enough to be proved at once."""

from __future__ import annotations

from functools import cache

import ppsolve

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


def best(instance: ppsolve.Instance) -> ppsolve.Result:
    """Return the best schedule, proved, the same one on every machine.

    Raises
    ------
    ValueError
        It is not proved: no picture may call it the best.
    """
    result = ppsolve.optimize(instance, time_limit=60, deterministic=True, workers=1)
    if result.status is not ppsolve.Status.OPTIMAL:
        raise ValueError(f"{instance.name} is not proved: {result.status}")
    return result
