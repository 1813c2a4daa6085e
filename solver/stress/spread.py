"""The spread of makespans of several schedules over the same runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ppsolve.models.documents.errors import InputError
from ppsolve.models.stress.report import StressEntry, StressReport
from ppsolve.solver.stress.jitter import FloatArray, Jitter, drawn
from ppsolve.solver.stress.replay import FixedOrders

MOST_RUNS = 10_000_000

PERCENTILES = (5, 50, 95, 99)


def stressed(
    contenders: Mapping[str, FixedOrders], jitter: Jitter, runs: int, seed: int
) -> StressReport:
    """Measure the spread of makespans of several schedules of one problem.

    Parameters
    ----------
    contenders : mapping of str to FixedOrders
        Schedules by name, the one that others are held against first.
    jitter : Jitter
        How durations vary.
    runs : int
        Runs; every schedule gets the same durations.
    seed : int
        Seed of the durations.

    Returns
    -------
    StressReport
        An entry for each schedule, in their order; times in the instance's unit.

    Raises
    ------
    InputError
        `runs` is not between 1 and `MOST_RUNS`, or `jitter` does not fit the problem.
    """
    if not 1 <= runs <= MOST_RUNS:
        raise InputError(f"expected 1 to {MOST_RUNS} runs, got {runs}", field="--runs")
    problem = next(iter(contenders.values())).problem
    jitter.check(problem)
    makespans = sampled(contenders, jitter, runs, seed)
    unit = float(problem.scale.tick)
    best = next(iter(makespans.values()))
    entries = [
        _entry(name, contenders[name], found, best, unit) for name, found in makespans.items()
    ]
    return StressReport(
        instance=problem.name,
        time_unit=problem.scale.unit,
        runs=runs,
        seed=seed,
        jitter=dict(jitter.by_kind),
        slow=dict(jitter.slow),
        entries=tuple(entries),
    )


def sampled(
    contenders: Mapping[str, FixedOrders], jitter: Jitter, runs: int, seed: int
) -> dict[str, FloatArray]:
    """Replay schedules of one problem with the same random durations.

    Parameters
    ----------
    contenders : mapping of str to FixedOrders
        Schedules by name.
    jitter : Jitter
        How durations vary.
    runs, seed : int
        Number of runs, and seed of their durations.

    Returns
    -------
    dict of str to float64[runs]
        Makespan of every run in ticks, by name.
    """
    problem = next(iter(contenders.values())).problem
    found: dict[str, list[FloatArray]] = {name: [] for name in contenders}
    for durations in drawn(problem, jitter, runs, seed):
        for name, orders in contenders.items():
            found[name].append(orders.makespans(durations))
    return {name: np.concatenate(blocks) for name, blocks in found.items()}


def _entry(
    name: str, orders: FixedOrders, found: FloatArray, best: FloatArray, unit: float
) -> StressEntry:
    planned = orders.makespans(orders.problem.duration[:, None].astype(np.float64))
    low, middle, high, highest = (np.percentile(found, PERCENTILES) * unit).tolist()
    return StressEntry(
        name=name,
        planned=orders.problem.scale.time(round(planned[0])),
        mean=float(found.mean()) * unit,
        deviation=float(found.std()) * unit,
        p5=low,
        p50=middle,
        p95=high,
        p99=highest,
        worst=float(found.max()) * unit,
        stays_ahead=None if found is best else float(np.mean(best <= found)),
    )
