"""Whether plans find the best splits: ``python benchmarks/plan_splits.py [--requests A-B]``.

For 24 requests (the shipped ones, and decoders of 8 to 70 billion parameters with uneven ends): the
plan, and what other splits of its winner reach. Where there are at most 100,000, all of them are
tried, else those that moves by hand reach within a minute. Each split is scheduled by all rules,
and swept where that comes close. Says whether any is better than the plan, or above its bound.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import NamedTuple

from shipped import INSTANCES

import ppsolve
from ppsolve.models.studies.plan.request import PlanRequest
from ppsolve.models.studies.plan.result import Plan
from ppsolve.models.studies.plan.scaffold import plan_request
from ppsolve.models.studies.plan.sizes import Sizes
from ppsolve.solver.clock import Clock
from ppsolve.solver.studies.plan.arrays import PipelineArrays
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.list_scheduling import QuickScheduler
from ppsolve.solver.studies.plan.params import PlanParams

SHIPPED = ("small-12x4", "gpt-48x32", "gpt-80x128")
REQUESTS = 24
MOST_SPLITS = 100_000
CLOSE, SWEPT = 1.01, 64
"""Splits within this factor of the plan by rules are swept, by so many schedules."""

SHAPES = ((32, 4096, 32), (40, 5120, 40), (48, 8192, 64), (80, 8192, 64))
"""Layers, hidden size and heads of decoders of 8, 13, 34 and 70 billion parameters."""


class Found(NamedTuple):
    """The best step time of other splits, how many there are, how many were tried."""

    step: float
    splits: int
    tried: int
    is_exhaustive: bool


def requests() -> Iterator[PlanRequest]:
    """Yield the shipped requests, then random ones; of every second one few thick layers."""
    for name in SHIPPED:
        yield ppsolve.load_request(INSTANCES / "plans" / f"{name}.plan.json")
    for seed in range(REQUESTS - len(SHIPPED)):
        rng = random.Random(seed)
        layers, hidden, heads = SHAPES[seed % len(SHAPES)]
        devices = rng.choice((4, 8)) if seed % 2 else rng.choice((16, 32))
        tensor = rng.choice((1, 2)) if hidden < 8192 else rng.choice((4, 8))
        sizes = Sizes(
            name=f"random-{seed}",
            layers=rng.choice((9, 11, 14)) if seed % 2 else layers,
            hidden=hidden,
            heads=heads,
            sequence_length=rng.choice((2048, 4096)),
            vocabulary=rng.choice((32_000, 128_000, 256_000)),
            microbatch_sizes=(1,),
            batch_size=rng.choice((32, 64, 128)),
            devices=devices * tensor,
            devices_per_node=min(8, devices * tensor),
            memory=80 * 10**9,
            flops=200 * 10**12,
            bandwidth=200 * 10**9,
            node_bandwidth=25 * 10**9,
            latency=8,
            tensor_parallel=tensor,
            recompute=rng.choice(("none", "selective", "full")),
        )
        yield plan_request(sizes)


def other_splits(request: PlanRequest, plan: Plan, seconds: float) -> Found:
    """Return the best step time of other splits of the winner's configuration."""
    assert plan.winner is not None
    assert plan.winner.step_time is not None
    rated = RatedSplits(request, plan)
    layers, stages = rated.layers, rated.stages
    splits = math.comb(layers - 1, stages - 1)
    clock = Clock(seconds)
    if splits <= MOST_SPLITS:
        for cuts in combinations(range(1, layers), stages - 1):
            rated.rate((0, *cuts, layers))
        return Found(rated.best, splits, len(rated.known), is_exhaustive=True)
    rng, current = random.Random(0), rated.own
    while not clock.is_over:
        tried = moved(current, rng)
        if rated.rate(tried) <= rated.rate(current) * (1 + 0.002 * rng.random()):
            current = tried
        if rng.random() < 0.005:
            current = rated.own
    return Found(rated.best, splits, len(rated.known), is_exhaustive=False)


def moved(split: tuple[int, ...], rng: random.Random) -> tuple[int, ...]:
    """Return a split with a layer at another stage, or with two stages exchanged."""
    counts = [last - first for first, last in pairwise(split)]
    a, b = rng.randrange(len(counts)), rng.randrange(len(counts))
    if rng.random() < 0.3:
        counts[a], counts[b] = counts[b], counts[a]
    elif counts[a] > 1:
        counts[a] -= 1
        counts[b] += 1
    bounds = [0]
    for count in counts:
        bounds.append(bounds[-1] + count)
    return tuple(bounds)


class RatedSplits:
    """Step times of splits of the winner's configuration; what is proved no better is not swept."""

    def __init__(self, request: PlanRequest, plan: Plan) -> None:
        winner = plan.winner
        assert winner is not None
        assert winner.step_time is not None
        assert winner.layers_per_stage is not None
        self.layers, self.stages = (
            request.model.num_layers,
            len(winner.layers_per_stage),
        )
        self.own = tuple(
            sum(winner.layers_per_stage[:s]) for s in range(self.stages + 1)
        )
        self.reached, self.best = winner.step_time.high, math.inf
        self._configuration = winner.configuration
        variant = winner.configuration.variant
        profile = next(each for each in request.profiles if each.variant == variant)
        builder = PipelineBuilder(request.alone(profile))
        self._quick = QuickScheduler(builder)
        self._tick = builder.layers(winner.configuration.microbatch_size).tick
        self._rules = PlanParams().rules
        # The walk goes on from what rules make of the split of the plan.
        self._by_rules = self._scheduled(
            self._quick.arrays(self._configuration, self.own)
        )
        self.known = {self.own: self._by_rules}

    def rate(self, split: tuple[int, ...]) -> float:
        """Return the step time of a split by rules; `best` counts what its sweep makes of it."""
        if split not in self.known:
            self.known[split] = self._rated(split)
        return self.known[split]

    def _rated(self, split: tuple[int, ...]) -> float:
        arrays = self._quick.arrays(self._configuration, split)
        step, found = self._scheduled(arrays), None
        is_open = float(arrays.bound * self._tick) < self.reached
        if is_open and step < self._by_rules * CLOSE:
            found = self._quick.swept(arrays, None, SWEPT, Clock(None))
        self.best = min(self.best, step, math.inf if found is None else found.makespan)
        return step

    def _scheduled(self, arrays: PipelineArrays) -> float:
        ticks = self._quick.makespan(arrays, self._rules)
        return math.inf if ticks is None else float(ticks * self._tick)


def main() -> None:
    """Print one line per request, and what they show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--requests", default=f"0-{REQUESTS - 1}", help="first and last of them"
    )
    parser.add_argument(
        "--time-limit", type=float, default=20.0, help="seconds of a plan"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of moves by hand")
    options = parser.parse_args()
    first, last = map(int, options.requests.split("-"))
    for number, request in enumerate(requests()):
        if first <= number <= last:
            print(line(request, options.time_limit, options.seconds), flush=True)


def line(request: PlanRequest, limit: float, seconds: float) -> str:
    """Plan a request, try other splits, and return what came of it in one line."""
    plan = ppsolve.plan(request, time_limit=limit)
    winner = plan.winner
    if winner is None or winner.step_time is None or plan.goodput is None:
        return f"{request.name:<12} {plan.status:<10} nothing fits"
    if winner.configuration.layer_split != "searched":
        return f"{request.name:<12} {plan.status:<10} no other split was asked for"
    began = time.monotonic()
    found = other_splits(request, plan, seconds)
    gain = winner.step_time.high / found.step - 1
    bound = winner.step_time.high / winner.step_time.low - 1
    c, seconds = winner.configuration, time.monotonic() - began
    tried = "all" if found.is_exhaustive else f"{found.tried:,} of"
    words = "" if gain <= bound else ", WRONG PROOF"
    words += "" if gain <= 0.001 else ", BETTER BY HAND"
    return (
        f"{request.name:<12}{plan.status:<9}{plan.goodput.low:9.4f} samples/s, "
        f"gap {plan.gap:.2%}; {request.model.num_layers} layers, "
        f"{c.pipeline_depth} x {c.virtual_stages} {c.placement}; "
        f"{tried} {found.splits:,} splits in {seconds:.0f} s: best other {gain:+.2%}, "
        f"bound {bound:+.2%}{words}"
    )


if __name__ == "__main__":
    main()
