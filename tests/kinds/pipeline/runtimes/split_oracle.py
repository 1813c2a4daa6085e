"""Every way in which a runtime of few orders runs a tiny pipeline with layers, timed op by op.

Shares nothing with the program. Megatron-LM keeps all layers, recomputes all of them by one type,
or the first ones of every stage as a whole; DeepSpeed all or none.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any

from tests.studies.plan.runtime_oracle import makespan_of, peak_of, row_of

Row = tuple[str, ...]
"""Types of the layers of a stage."""


def best_of(data: dict[str, Any], runtime: str) -> int | None:
    """Return the least makespan that a runtime reaches, None where nothing fits."""
    ranks, count = data["num_devices"], data["num_microbatches"]
    room = data.get("memory", {}).get("capacity", 10**9)
    best = None
    for chunks in chunks_of(data, runtime):
        sizes: list[int | None] = [None]
        if chunks > 1:
            legal = range(ranks, count + 1)
            sizes = [n for n in legal if count % n == 0 or count % n >= ranks]
        for types in types_of_stages(data, runtime, ranks * chunks):
            stages = stages_of(data, types)
            for size in sizes:
                rows = [
                    row_of(rank, ranks, chunks, count, size) for rank in range(ranks)
                ]
                if any(peak_of(row, stages, ranks) > room for row in rows):
                    continue
                time = makespan_of(rows, stages, data["p2p"]["latency"])
                best = time if best is None else min(best, time)
    return best


def value_of(
    data: dict[str, Any],
    split: list[int],
    name: str,
    limit: int,
    chunks: int,
    size: int | None,
) -> int | None:
    """Return the makespan of one split, None where it does not fit.

    The first layers of each stage, `limit` at the most, are of the type `name`.
    """
    ranks, count = data["num_devices"], data["num_microbatches"]
    types = [(name,) * min(n, limit) + ("keep",) * max(0, n - limit) for n in split]
    stages = stages_of(data, types)
    rows = [row_of(rank, ranks, chunks, count, size) for rank in range(ranks)]
    if any(peak_of(row, stages, ranks) > data["memory"]["capacity"] for row in rows):
        return None
    return makespan_of(rows, stages, data["p2p"]["latency"])


def chunks_of(data: dict[str, Any], runtime: str) -> Iterator[int]:
    """Yield how many stages each device may have."""
    ranks, count = data["num_devices"], data["num_microbatches"]
    layers, most = data["layers"], data["layers"]["body"]["count"]
    if layers.get("min_per_stage") == 0:
        most = max(ranks, most + ("first" in layers) + ("last" in layers))
    tried = range(1, most // ranks + 1)
    if "placement" in data:
        chunks = data.get("stages_per_device", 1)
        tried = range(chunks, chunks + 1)
    for chunks in tried:
        if chunks == 1 or (runtime == "megatron" and count >= ranks):
            yield chunks


def types_of_stages(
    data: dict[str, Any], runtime: str, stages: int
) -> Iterator[list[Row]]:
    """Yield the layers of each stage in every split, with all that a runtime may recompute."""
    layers = data["layers"]
    count = layers["body"]["count"]
    names = ["keep", *(kind["name"] for kind in layers.get("recompute", ()))]
    least = layers.get("min_per_stage", 1)
    least = least if isinstance(least, list) else [least] * stages
    end = count - sum(least) + stages
    for cuts in combinations(range(1, end), stages - 1):
        more = [b - a - 1 for a, b in pairwise((0, *cuts, end))]
        split = [few + extra for few, extra in zip(least, more, strict=True)]
        for name in names:
            yield [(name,) * n for n in split]
        if runtime == "megatron" and "full" in names:
            for limit in range(1, count + 1):
                firsts = [min(n, limit) for n in split]
                yield [
                    ("full",) * first + ("keep",) * (n - first)
                    for n, first in zip(split, firsts, strict=True)
                ]


def stages_of(data: dict[str, Any], types: list[Row]) -> list[dict[str, Any]]:
    """Return what the stages of a split take, as of `runtime_oracle`."""
    layers, speeds = data["layers"], data.get("speed", [1] * data["num_devices"])
    extra = {kind["name"]: kind["time"] for kind in layers.get("recompute", ())}
    held = {kind["name"]: kind["held"] for kind in layers.get("recompute", ())}
    stages = []
    for stage, row in enumerate(types):
        speed = speeds[stage % len(speeds)]
        costs = [(layers["body"], name) for name in row]
        if stage == 0 and "first" in layers:
            costs.append((layers["first"], "keep"))
        if stage == len(types) - 1 and "last" in layers:
            costs.append((layers["last"], "keep"))
        backward = sum(
            cost.get("backward", 0)
            + cost.get("backward_input", 0)
            + cost.get("backward_weight", 0)
            + extra.get(name, 0)
            for cost, name in costs
        )
        stages.append(
            {
                "forward": sum(cost["forward"] for cost, _ in costs) / speed,
                "backward_input": backward / speed,
                "backward_weight": 0,
                "optimizer": 0,
                "state_bytes": sum(cost.get("static", 0) for cost, _ in costs),
                "activation_bytes": sum(
                    held.get(name, cost.get("activation", 0)) for cost, name in costs
                ),
            }
        )
    return stages


def drawn(seed: int) -> tuple[dict[str, Any], str]:
    """Return a random pipeline that enumeration answers in a moment, and a runtime."""
    rng = random.Random(seed)
    runtime = rng.choice(["megatron", "megatron", "megatron", "deepspeed"])
    ranks, count = rng.choice([2, 2, 3]), rng.randint(3, 6)
    is_split = rng.random() < 0.3
    body = _cost(rng, is_split=is_split) | {"activation": rng.randint(1, 6)}
    layers: dict[str, Any] = {"body": {"count": count, **body}}
    for field in ("first", "last"):
        if rng.random() < 0.6:
            layers[field] = _cost(rng, is_split=is_split)
    names = rng.choice([[], ["full"], ["full"], ["full", "selective"], ["selective"]])
    layers["recompute"] = [
        {
            "name": name,
            "time": rng.randint(1, 6),
            "held": rng.randint(0, body["activation"]),
        }
        for name in names
    ]
    data: dict[str, Any] = {
        "name": f"drawn-{seed}",
        "num_devices": ranks,
        "num_microbatches": rng.randint(2, 4),
        "layers": layers,
        "p2p": {"latency": rng.choice([0, 0, 1, 4])},
    }
    if rng.random() < 0.85:
        of_body = count * (body["static"] + body["activation"] * rng.uniform(0.4, 3))
        of_ends = sum(layers[f]["static"] for f in ("first", "last") if f in layers)
        data["memory"] = {"capacity": max(1, round((of_body + of_ends) / ranks))}
    draw = rng.random()
    if draw < 0.2:
        data["placement"] = "linear"
    elif draw < 0.5 and runtime == "megatron" and count >= 2 * ranks:
        data |= {"placement": "interleaved", "stages_per_device": 2}
        data["num_microbatches"] = max(data["num_microbatches"], ranks)
    _empties_stages(rng, data)
    if rng.random() < 0.3:
        data["speed"] = [rng.choice([1, 0.5, 0.25]) for _ in range(ranks)]
    return data, runtime


def _empties_stages(rng: random.Random, data: dict[str, Any]) -> None:
    """Let some stages have none of the equal layers."""
    if rng.random() < 0.5:
        return
    least: int | list[int] = 0
    if "placement" in data and rng.random() < 0.6:
        stages = data["num_devices"] * data.get("stages_per_device", 1)
        least = [rng.choice([0, 0, 1]) for _ in range(stages)]
    data["layers"]["min_per_stage"] = least


def _cost(rng: random.Random, *, is_split: bool) -> dict[str, int]:
    names = ["backward_input", "backward_weight"] if is_split else ["backward"]
    times = {name: rng.randint(1, 9) for name in ("forward", *names)}
    return times | {"static": rng.randint(0, 3), "activation": rng.choice([0, 0, 1])}
