"""Pipelines that services are asked about."""

from __future__ import annotations

import random
from typing import Any

import ppsolve


def small(seed: int) -> dict[str, Any]:
    """Return a pipeline that `optimize` proves at once."""
    rng = random.Random(seed)
    devices = rng.choice([2, 3])
    times = {
        name: [rng.randint(1, 9) for _ in range(devices)]
        for name in ("forward", "backward")
    }
    return {
        "kind": "pipeline",
        "name": f"small {seed}",
        "num_devices": devices,
        "num_microbatches": rng.choice([2, 3, 4]),
        "times": times,
        "p2p": {"latency": rng.choice([0, 1])},
        "memory": {"capacity": rng.choice([2, 3]), "activation": 1},
    }


def second(seed: int) -> dict[str, Any]:
    """Return a pipeline whose optimum is not proved in a second."""
    rng = random.Random(seed)
    times = {
        name: [rng.randint(50, 99) for _ in range(8)]
        for name in ("forward", "backward_input", "backward_weight")
    }
    return {
        "kind": "pipeline",
        "name": f"second {seed}",
        "num_devices": 4,
        "num_microbatches": 8,
        "placement": "vshape",
        "times": times,
        "p2p": {"latency": 7},
        "memory": {"capacity": 5, "activation": 1},
    }


OPEN = second(0) | {
    "name": "open",
    "num_microbatches": 16,
    "memory": {"capacity": 4, "activation": 1},
}
"""A pipeline whose optimum takes far longer to prove than a test may."""


def drawn(seed: int) -> dict[str, Any]:
    """Return a pipeline that `quick` takes."""
    rng = random.Random(seed)
    devices = rng.choice([2, 3, 4])
    placement = rng.choice(["linear", "interleaved", "vshape"])
    stages = devices * (1 if placement == "linear" else 2)
    halves = rng.choice([("backward",), ("backward_input", "backward_weight")])
    times = {
        name: [rng.randint(1, 20) for _ in range(stages)]
        for name in ("forward", *halves)
    }
    memory = {"capacity": rng.randint(2, 4) * stages // devices, "activation": 1}
    return {
        "kind": "pipeline",
        "name": f"drawn {seed}",
        "num_devices": devices,
        "num_microbatches": devices * rng.choice([1, 2, 3]),
        "placement": placement,
        "times": times,
        "p2p": {"latency": rng.choice([0, 1, 2.5])},
        **({"memory": memory} if rng.random() < 0.5 else {}),
    }


def pipeline(document: dict[str, Any]) -> ppsolve.Instance:
    return ppsolve.parse_instance(document)
