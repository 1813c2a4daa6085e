"""Random small flows, each with the same problem as a graph."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import kind_of, lower, parse_instance
from ppsolve.solver.bounds.flow.flow import Flow
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome


@dataclass
class Drawn:
    """A pipeline of positions (kind, stage, resource) and edges (before, after, lag)."""

    rng: random.Random
    devices: int
    count: int
    device: list[int]
    positions: list[tuple[str, int, int]] = field(default_factory=list)
    edges: dict[tuple[int, int], int] = field(default_factory=dict)

    def place(self, kind: str, stage: int) -> int:
        return self.positions.index((kind, stage, self.device[stage]))


def drawn(seed: int) -> Flow:
    """Return a flow of up to 14 ops: 1 to 3 devices, V placements, splits, transfers, lags, pools,
    micro-batches that are alike or not."""
    rng = random.Random(seed)
    devices = rng.choice([1, 2, 2, 3])
    is_split, sends = rng.random() < 0.4, devices > 1 and rng.random() < 0.35
    device = list(range(devices))
    if devices <= 2 and not sends and rng.random() < 0.25:
        device += reversed(device)
    per_batch = len(device) * (2 + is_split) + 2 * (devices - 1) * sends
    draw = Drawn(rng, devices, 3 if per_batch <= 4 else 2, device)
    _pass_stages(draw, sends)
    if is_split:
        _split(draw)
    size = len(draw.positions)
    duration = np.array(
        [[rng.randint(1, 4) for _ in range(size)] for _ in range(draw.count)]
    )
    if rng.random() < 0.3:
        duration[1:] = duration[0]
    table = np.array([(a, b, lag) for (a, b), lag in draw.edges.items()]).reshape(-1, 3)
    return Flow(
        np.arange(draw.count * size).reshape(draw.count, size),
        duration,
        np.zeros(size, dtype=np.int64),
        np.array([stage for _, stage, _ in draw.positions]),
        np.array([resource for _, _, resource in draw.positions]),
        2 * devices,
        *table.T,
        *_pools(draw, is_split),
        *np.zeros((2, size), dtype=np.int64),
    )


def _pass_stages(draw: Drawn, sends: bool) -> None:
    stages = range(len(draw.device))
    for kind, queue, order in (("F", "S", stages), ("B", "R", stages[::-1])):
        for stage in order:
            here = draw.device[stage]
            draw.positions.append((kind, stage, here))
            if sends and stage != order[-1]:
                draw.positions.append((queue, stage, draw.devices + here))
    for a in range(len(draw.positions) - 1):
        is_far = draw.positions[a][2] != draw.positions[a + 1][2]
        draw.edges[a, a + 1] = (
            draw.rng.choice([0, 0, 1, 2]) if is_far and not sends else 0
        )
    for stage in stages:
        draw.edges.setdefault((draw.place("F", stage), draw.place("B", stage)), 0)


def _split(draw: Drawn) -> None:
    for stage, device in enumerate(draw.device):
        draw.edges[draw.place("B", stage), len(draw.positions)] = 0
        draw.positions.append(("W", stage, device))


def _pools(draw: Drawn, is_split: bool) -> tuple[np.ndarray, ...]:
    """Return room, pools, amounts; a device has room for the largest stage and some more."""
    rng, size = draw.rng, len(draw.positions)
    pool = np.full(size, FREE)
    acquire, release = np.zeros((2, draw.count, size), dtype=np.int64)
    if rng.random() < 0.3:
        return np.zeros(0, dtype=np.int64), pool, acquire, release
    held = np.zeros((draw.devices, draw.count), dtype=np.int64)
    for stage, device in enumerate(draw.device):
        first, back = draw.place("F", stage), draw.place("B", stage)
        last = draw.place("W", stage) if is_split else back
        pool[[first, back, last]] = device
        for j in range(draw.count):
            amount, peak, early = (
                rng.randint(1, 3),
                rng.choice([0, 0, 1]),
                rng.choice([0, 1]),
            )
            acquire[j, first], release[j, first] = amount + peak, peak
            release[j, back] += early
            release[j, last] += amount - early
            held[device, j] += amount
    room = [
        int(row.max()) + 1 + rng.randint(0, int(row.sum() - row.max())) for row in held
    ]
    return np.array(room), pool, acquire, release


def problem_of(flow: Flow) -> Problem:
    """Return the problem of a flow, op ``j * V + v`` of micro-batch j and position v."""
    ops: list[dict[str, Any]] = []
    for j in range(flow.num_microbatches):
        for v in range(flow.num_positions):
            pool = f"m{flow.pool[v]}"
            amounts = {
                key: {pool: int(table[j, v])}
                for key, table in (
                    ("acquire", flow.acquire),
                    ("release_at_end", flow.release),
                )
                if table[j, v]
            }
            op = {"id": f"{j}.{v}", "duration": int(flow.duration[j, v])}
            ops.append(op | {"resources": [f"r{flow.resource[v]}"]} | amounts)
    edges = zip(flow.before, flow.after, flow.lag, strict=True)
    data = {
        "kind": "graph",
        "resources": [f"r{r}" for r in range(flow.num_resources)],
        "pools": [
            {"name": f"m{p}", "capacity": int(room)} for p, room in enumerate(flow.room)
        ],
        "ops": ops,
        "precedences": [
            {"before": f"{j}.{a}", "after": f"{j}.{b}", "lag": int(lag)}
            for a, b, lag in edges
            for j in range(flow.num_microbatches)
        ],
    }
    return lower(parse_instance(data))


def every_outcome(
    instance: PipelineInstance, problem: Problem
) -> Iterator[HeuristicOutcome]:
    """Run every heuristic on a pipeline."""
    kind = kind_of(instance)
    for heuristic in kind.heuristics_of(instance):
        yield kind.run_heuristic(heuristic, instance, problem)
