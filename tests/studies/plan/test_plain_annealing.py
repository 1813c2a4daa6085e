"""Plans for Megatron-LM, held to an annealing of splits and groups that is written here.

It shares the rows of the oracle, and nothing with the program.
"""

from __future__ import annotations

import math
import random
import time
from itertools import pairwise
from typing import Any

import pytest

import ppsolve
from ppsolve.models.studies.plan.request import parse_request
from tests.studies.plan.runtime_oracle import row_of
from tests.studies.plan.test_runtime_cases import uneven_request

SECONDS = 60.0
"""Of a plan, and of the annealing."""


class PlainOrder:
    """The ops of interleaved 1F1B in groups, one after the other, each with what it waits for."""

    def __init__(self, ranks: int, chunks: int, count: int, size: int | None) -> None:
        self.ranks, self.stages = ranks, ranks * chunks
        rows = [row_of(rank, ranks, chunks, count, size) for rank in range(ranks)]
        number: dict[tuple[str, int, int], int] = {}
        self.ops: list[tuple[int, bool, int, int]] = []
        places = [0] * ranks
        while len(number) < sum(map(len, rows)):
            for rank, row in enumerate(rows):
                while places[rank] < len(row):
                    step = row[places[rank]]
                    kind, stage, _ = step
                    needed = self._needed(step)
                    if needed is not None and needed not in number:
                        break
                    waits = -1 if needed is None else number[needed]
                    number[step] = len(self.ops)
                    self.ops.append((rank, kind == "F", stage, waits))
                    places[rank] += 1

    def _needed(self, step: tuple[str, int, int]) -> tuple[str, int, int] | None:
        kind, stage, k = step
        if kind == "F":
            return ("F", stage - 1, k) if stage else None
        is_last = stage == self.stages - 1
        return ("F", stage, k) if is_last else ("B", stage + 1, k)

    def makespan(self, there: list[int], back: list[int], lag: int) -> int:
        free, ends = [0] * self.ranks, [0] * (len(self.ops) + 1)
        for place, (rank, is_forward, stage, waits) in enumerate(self.ops):
            is_sent = waits >= 0 and (is_forward or stage < self.stages - 1)
            start = max(free[rank], ends[waits] + (lag if is_sent else 0))
            free[rank] = start + (there if is_forward else back)[stage]
            ends[place] = free[rank]
        return max(free)


def annealed(data: dict[str, Any], seconds: float, seed: int) -> int:
    """Return the best step time that moves of layers and of groups find."""
    rng, layers = random.Random(seed), data["model"]["layers"]
    search, stages = data["search"], 8
    count, lag = search["batch_sizes"][0], data["cluster"]["within_node"]["latency"]
    sizes = [n for n in range(4, count + 1) if count % n == 0 or count % n >= 4]
    orders = [PlainOrder(4, 2, count, size) for size in sizes]
    cuts = [len(layers) * s // stages for s in range(stages + 1)]

    def rate(cuts: list[int], order: PlainOrder) -> int:
        parts = [layers[a:b] for a, b in pairwise(cuts)]
        times = (
            [sum(layer[name][0] for layer in part) for part in parts]
            for name in ("forward", "backward")
        )
        return order.makespan(*times, lag)

    order = orders[0]
    best = value = rate(cuts, order)
    began = time.process_time()
    while (spent := (time.process_time() - began) / seconds) < 1:
        trial, other = list(cuts), order
        if rng.random() < 0.05:
            other = rng.choice(orders)
        for _ in range(rng.choice([1, 1, 2])):
            a, b = rng.sample(range(stages), 2)
            for cut in range(min(a, b) + 1, max(a, b) + 1):
                trial[cut] += 1 if a > b else -1
        if any(a >= b for a, b in pairwise(trial)):
            continue
        found = rate(trial, other)
        # Three times from hot to cold.
        heat = max(1e-9, 0.02 * value * (1 - 3 * spent % 1) ** 2)
        if found <= value or rng.random() < math.exp((value - found) / heat):
            cuts, order, value = trial, other, found
            best = min(best, value)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 112))
def test_plain_annealing_finds_no_better_plan(seed: int) -> None:
    data = uneven_request(seed)
    plan = ppsolve.plan(parse_request(data), runtime="megatron", time_limit=SECONDS)
    assert plan.winner is not None
    assert plan.winner.step_time is not None
    found = annealed(data, SECONDS, seed)
    assert plan.winner.step_time.high <= found * 1.001
    if plan.winner.step_time.low == plan.winner.step_time.high:
        assert found >= plan.winner.step_time.high * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 112))
def test_any_order_is_no_worse_than_those_of_a_runtime(seed: int) -> None:
    request = parse_request(uneven_request(seed))
    steps = []
    for runtime in (None, "megatron"):
        plan = ppsolve.plan(request, runtime=runtime, time_limit=SECONDS)
        assert plan.winner is not None
        assert plan.winner.step_time is not None
        steps.append(plan.winner.step_time.high)
    assert steps[0] <= steps[1]
