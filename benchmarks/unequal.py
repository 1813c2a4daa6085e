"""Unequal micro-batches: ``python benchmarks/unequal.py [cases] [lognormal] [--seconds S]``.

``cases``: 28 published cases (``tests/data/unequal``) against the best valid schedule recorded for
them. ``lognormal``: pipelines 4 x 16 and 8 x 32 with split backwards, room for one micro-batch per
device and lengths that are log-normal (sigma 0.6), against 20,000 random orders of the
micro-batches under every published schedule. One line per instance, then medians; better and gap in
percent.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import ppsolve
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds.flow.evaluator import Evaluator, follows_orders
from ppsolve.solver.bounds.flow.flow import flow_of
from ppsolve.solver.heuristics.heuristic import Request
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kinds.pipeline.microbatch_orders import patterns_of

# The cases and what was recorded of them are read where the tests read them.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.unequal_cases import NAMES, pipeline_of, read_case, recorded_of

SIZES = ((4, 16), (8, 32))
SIGMA, UNIT, DRAWN = 0.6, 1_000, 20_000

Reference = tuple[str, ppsolve.PipelineInstance, float]
"""Name of an instance, the instance, and the best that was known of it."""


def cases() -> Iterator[Reference]:
    """Yield the published cases, each with its best valid recorded makespan."""
    for name in NAMES:
        case = read_case(name)
        # A transfer of `cyclic` begins with the op that feeds it (trap 1 of the data's README).
        wrong = (
            {"cyclic", "interleaved-cyclic-1F1B"} if any(case["transfer"]) else set()
        )
        known = [r.makespan for r in recorded_of(case) if r.scheduler not in wrong]
        yield name, pipeline_of(case), min(known)


def lognormal(seeds: int) -> Iterator[Reference]:
    """Yield pipelines with log-normal micro-batches, each with the best of many random orders."""
    for devices, count in SIZES:
        for seed in range(seeds):
            instance = drawn(devices, count, seed)
            yield f"{devices}x{count} seed {seed}", instance, best_of_random(instance)


def drawn(devices: int, count: int, seed: int) -> ppsolve.PipelineInstance:
    """Return a pipeline whose micro-batches have log-normal lengths of mean 1.

    Parameters
    ----------
    devices, count : int
        Devices and micro-batches.
    seed : int
        Seed of the lengths.

    Returns
    -------
    PipelineInstance
        Split backwards; all ops of a micro-batch take equally long; 1F1B's memory on device 0.
    """
    lengths = np.random.default_rng(seed).lognormal(0, SIGMA, count)
    times = [np.rint(UNIT * lengths / lengths.mean()).astype(int).tolist()] * devices
    return ppsolve.PipelineInstance(
        num_devices=devices,
        num_microbatches=count,
        times=dict.fromkeys(("forward", "backward_input", "backward_weight"), times),
        memory={"capacity": devices, "activation": 1},
    )


def best_of_random(instance: ppsolve.PipelineInstance, number: int = DRAWN) -> float:
    """Return the best makespan of random orders of micro-batches under every pattern.

    Parameters
    ----------
    instance : PipelineInstance
        A pipeline of one pipe.
    number : int
        Orders that are drawn, the same under each pattern.

    Returns
    -------
    float
        In ticks; infinite where every order breaks the memory limit.
    """
    problem = lower(instance)
    flow = flow_of(problem)
    if flow is None or not follows_orders(flow):
        raise ValueError("expected micro-batches that pass the same ops")
    evaluator, random = Evaluator(flow), np.random.default_rng(0)
    orders = np.stack(
        [random.permutation(flow.num_microbatches) for _ in range(number)]
    )
    expect(number * flow.ops.size)
    patterns = patterns_of(Request(instance, problem), evaluator)
    return float(
        min(evaluator.values(timed.pattern, orders).min() for timed in patterns)
    )


def report(references: Iterator[Reference], seconds: float) -> None:
    """Print one line per instance, then medians, worst gap and the number of proofs."""
    better, gaps, proofs = [], [], 0
    for name, instance, known in references:
        result: Any = ppsolve.optimize(instance, time_limit=seconds)
        value = float(result.value)
        better.append(100 * (known - value) / known)
        gaps.append(100 * result.gap)
        proofs += result.status == "OPTIMAL"
        print(
            f"{name:40} known {known:11.1f}  found {value:11.1f}  better {better[-1]:6.2f}  "
            f"gap {gaps[-1]:5.2f}  {result.wall_seconds:5.1f} s  {result.best_by}",
            flush=True,
        )
    print(
        f"{len(gaps)} instances: better by {median(better):.2f} in the median, least "
        f"{min(better):.2f}; gap {median(gaps):.2f}, worst {max(gaps):.2f}; {proofs} proved"
    )


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="cases, lognormal")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    if "cases" in (given.tables or ["cases"]):
        report(cases(), given.seconds)
    if "lognormal" in (given.tables or ["lognormal"]):
        report(lognormal(given.seeds), given.seconds)


if __name__ == "__main__":
    main()
