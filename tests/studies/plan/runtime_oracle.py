"""Every plan of a tiny request for a runtime: all splits, all groups, timed op by op.

Shares nothing with the program. Megatron-LM and DeepSpeed run 1F1B with one stage per rank;
Megatron-LM also runs interleaved 1F1B with groups of p to m micro-batches, the last one not below
p. A forward takes its activation at its start, a backward gives it back at its end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

Step = tuple[str, int, int]
"""F or B, stage, micro-batch."""


class Shape(NamedTuple):
    """What a configuration of these requests differs in."""

    chunks: int
    recompute: str
    backward: str


@dataclass(frozen=True)
class Found:
    """The best plan of a configuration, None where nothing fits, and the least peak of any."""

    time: int | None
    counts: tuple[int, ...]
    group: int | None
    peak: int


def best_of(data: dict[str, Any], runtime: str) -> dict[Shape, Found]:
    """Return the best split and group of each configuration."""
    search, found = data["search"], {}
    room = data["cluster"].get("memory", 10**9)
    for profile in (data["model"], *data.get("variants", ())):
        for chunks in _chunks(data, runtime, len(profile["layers"])):
            plans = [
                (peak > room, time, counts, group, peak)
                for counts in splits(len(profile["layers"]), search, chunks)
                for group, time, peak in orders(data, profile, counts, chunks)
            ]
            exceeds, time, counts, group, _ = min(plans, key=lambda plan: plan[:2])
            least = min(plan[-1] for plan in plans)
            best = Found(None if exceeds else time, counts, group, least)
            for backward in search["backward"]:
                found[Shape(chunks, profile["recompute"], backward)] = best
    return found


def _chunks(data: dict[str, Any], runtime: str, layers: int) -> Iterator[int]:
    search = data["search"]
    ranks, count = search["pipeline_depths"][0], search["batch_sizes"][0]
    if "linear" in search["placements"]:
        yield 1
    if (
        "interleaved" in search["placements"]
        and runtime == "megatron"
        and count >= ranks
    ):
        yield from (v for v in search["virtual_stages"] if ranks * v <= layers)


def splits(
    layers: int, search: dict[str, Any], chunks: int
) -> Iterator[tuple[int, ...]]:
    """Yield the layers of each stage, in every way in which each stage has one."""
    stages = search["pipeline_depths"][0] * chunks
    for cuts in combinations(range(1, layers), stages - 1):
        ends = (0, *cuts, layers)
        yield tuple(ends[s + 1] - ends[s] for s in range(stages))


def orders(
    data: dict[str, Any], profile: dict[str, Any], counts: tuple[int, ...], chunks: int
) -> Iterator[tuple[int | None, int, int]]:
    """Yield the size of groups, the time and the peak of memory of each order."""
    ranks, count = (
        data["search"]["pipeline_depths"][0],
        data["search"]["batch_sizes"][0],
    )
    sizes: list[int | None] = [None]
    if chunks > 1:
        sizes = [
            n for n in range(ranks, count + 1) if count % n == 0 or count % n >= ranks
        ]
    stages = [
        _stage(profile["layers"][sum(counts[:s]) :][:n]) for s, n in enumerate(counts)
    ]
    lag = data["cluster"]["within_node"]["latency"]
    for size in sizes:
        rows = [row_of(rank, ranks, chunks, count, size) for rank in range(ranks)]
        yield (
            size,
            makespan_of(rows, stages, lag),
            max(peak_of(row, stages, ranks) for row in rows),
        )


def _stage(layers: list[dict[str, Any]]) -> dict[str, int]:
    fields = ("forward", "backward_input", "backward_weight", "optimizer")
    fields += ("activation_bytes", "state_bytes")
    return {name: sum(layer[name] for layer in layers) for name in fields}


def row_of(
    rank: int, ranks: int, chunks: int, count: int, size: int | None
) -> list[Step]:
    group, total = size or count, count * chunks
    table = [
        (chunk, k)
        for first in range(0, count, group)
        for chunk in range(chunks)
        for k in range(first, min(first + group, count))
    ]
    warmup = ranks - rank - 1
    if chunks > 1:
        warmup = 2 * warmup + (chunks - 1) * group
    warmup = min(warmup, total)
    forwards = [("F", chunk * ranks + rank, k) for chunk, k in table]
    backwards = [("B", (chunks - 1 - chunk) * ranks + rank, k) for chunk, k in table]
    row = forwards[:warmup]
    for forward, backward in zip(forwards[warmup:], backwards, strict=False):
        row += [forward, backward]
    return row + backwards[total - warmup :]


def peak_of(row: list[Step], stages: list[dict[str, int]], ranks: int) -> int:
    rank = row[0][1] % ranks
    held = sum(stage["state_bytes"] for stage in stages[rank::ranks])
    peak = held
    for kind, stage, _ in row:
        amount = stages[stage]["activation_bytes"]
        held += amount if kind == "F" else -amount
        peak = max(peak, held)
    return peak


def makespan_of(rows: list[list[Step]], stages: list[dict[str, int]], lag: int) -> int:
    ends: dict[Step, int] = {}
    free, places = [0] * len(rows), [0] * len(rows)
    while any(place < len(row) for place, row in zip(places, rows, strict=True)):
        before = sum(places)
        for rank, row in enumerate(rows):
            while places[rank] < len(row):
                step = row[places[rank]]
                needed = _needed(step, len(stages))
                if any(other not in ends for other, _ in needed):
                    break
                ready = [ends[other] + lag * is_sent for other, is_sent in needed]
                free[rank] = ends[step] = max(free[rank], *ready, 0) + _time(
                    step, stages
                )
                places[rank] += 1
        assert sum(places) > before, "the rows wait for each other"
    optimizers = [
        sum(s["optimizer"] for s in stages[rank :: len(rows)])
        for rank in range(len(rows))
    ]
    return max(end + last for end, last in zip(free, optimizers, strict=True))


def _needed(step: Step, stages: int) -> list[tuple[Step, bool]]:
    kind, stage, k = step
    if kind == "F":
        return [(("F", stage - 1, k), True)] if stage else []
    own: list[tuple[Step, bool]] = [(("F", stage, k), False)]
    return own if stage == stages - 1 else [*own, (("B", stage + 1, k), True)]


def _time(step: Step, stages: list[dict[str, int]]) -> int:
    stage = stages[step[1]]
    if step[0] == "F":
        return stage["forward"]
    return stage["backward_input"] + stage["backward_weight"]


def random_request(seed: int) -> tuple[dict[str, Any], str]:
    """Return a request that enumeration answers in a moment, and a runtime."""
    rng = random.Random(seed)
    runtime = rng.choice(["megatron", "megatron", "megatron", "deepspeed"])
    ranks, chunks = rng.choice([(2, 2), (2, 2), (2, 3), (3, 2), (3, 3)])
    layers = [
        _random_layer(rng)
        for _ in range(ranks * chunks + rng.randint(0, 4 - ranks // 3))
    ]
    # Where forwards take no time and backwards do, or the other way round, orders still say what is
    # held.
    idle = rng.choice([(), (), ("forward",), ("backward_input", "backward_weight")])
    for layer in (layers[0], layers[-1]) if rng.random() < 0.5 else layers[:2]:
        layer |= dict.fromkeys(idle, 0)
    if rng.random() < 0.5:
        block = layers[1]
        layers = [layers[0], *(dict(block) for _ in layers[2:]), layers[-1]]
    profile = {"microbatch_sizes": [1], "layers": layers, "recompute": "none"}
    profile |= {"released_by_backward_weight": rng.choice([1, 1, 0.5])}
    variants = []
    if rng.random() < 0.5:
        again = [
            layer
            | {"activation_bytes": layer["activation_bytes"] // 2}
            | {"backward_input": layer["backward_input"] + layer["forward"]}
            for layer in layers
        ]
        variants = [profile | {"layers": again, "recompute": "full"}]
    state, held = (
        sum(layer[f"{n}_bytes"] for layer in layers) for n in ("state", "activation")
    )
    cluster = {
        "devices_per_node": ranks,
        "within_node": {"latency": rng.choice([0, 0, 1, 3]), "bandwidth": 1},
    }
    if rng.random() < 0.85:
        cluster["memory"] = max(
            1, round((state + held * rng.uniform(0.8, 3.2)) / ranks)
        )
    placements = rng.choice(
        [["interleaved"], ["interleaved"], ["linear", "interleaved"]]
    )
    search = {
        "pipeline_depths": [ranks],
        "replicas": [1],
        "placements": ["linear"] if runtime == "deepspeed" else placements,
        "virtual_stages": [chunks] if rng.random() < 0.5 else [2, 3],
        "batch_sizes": [rng.randint(ranks, 8)],
        "backward": rng.choice([["fused"], ["fused"], ["split"]]),
        "rank_orders": ["stages_first"],
    }
    return {
        "model": profile,
        "variants": variants,
        "cluster": cluster,
        "goodput": {"init_batch_size": 1},
        "search": search,
    }, runtime


def _random_layer(rng: random.Random) -> dict[str, Any]:
    return {
        "forward": rng.randint(1, 9),
        "backward_input": rng.randint(1, 9),
        "backward_weight": rng.randint(1, 9),
        "optimizer": rng.choice([0, 0, 0, 1]),
        "activation_bytes": rng.randint(0, 4),
        "state_bytes": rng.randint(0, 4),
        "output_bytes": 0,
        "parameter_bytes": 0,
    }
