"""What configurations of a data-parallel job reach, as rows of a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ppsolve.models.core.arrays import Floats
from ppsolve.models.core.problem import IntArray
from ppsolve.models.goodput.params import PerfParams
from ppsolve.models.goodput.result import GoodputRow
from ppsolve.solver.goodput.model import GoodputModel
from ppsolve.solver.goodput.search import BatchLimits

Configuration = tuple[int, int, int, int]
"""Nodes, replicas, samples of a micro-batch and replica, accumulation steps."""


def predicted_rows(
    perf: PerfParams, model: GoodputModel | None, configurations: Sequence[Configuration]
) -> tuple[GoodputRow, ...]:
    """Return the step time, throughput, efficiency and goodput of each configuration.

    Parameters
    ----------
    perf : PerfParams
        Step times.
    model : GoodputModel or None
        With gradient statistics; without it efficiency and goodput are absent.
    configurations : sequence of Configuration
        At least one.

    Returns
    -------
    tuple of GoodputRow
        One for each; efficiency and goodput are absent below the initial batch size, where they
        are not defined.

    Raises
    ------
    InputError
        As in `GoodputModel.throughput`.
    """
    chosen = np.array(configurations, dtype=np.int64).T
    figures = _times(perf, chosen) if model is None else _figures(model, chosen)
    least = np.inf if model is None else model.init_batch_size
    return tuple(
        _row(configuration, found if _batch(configuration) >= least else found[:2])
        for configuration, found in zip(configurations, figures.T.tolist(), strict=True)
    )


def best_rows(
    model: GoodputModel, allocations: Sequence[tuple[int, int]], limits: BatchLimits
) -> tuple[GoodputRow, ...]:
    """Return the best configuration of each allocation.

    Parameters
    ----------
    model : GoodputModel
        The job.
    allocations : sequence of (int, int)
        Nodes and replicas; at least one pair.
    limits : BatchLimits
        What the configurations are chosen from.

    Returns
    -------
    tuple of GoodputRow
        One row for each allocation, of goodput 0 where the limits allow nothing.

    Raises
    ------
    InputError
        An allocation that cannot be, as in `GoodputModel.optimize`.
    """
    nodes, replicas = np.array(allocations, dtype=np.int64).T
    goodput, atomic, accum = model.best(nodes, replicas, limits)
    chosen = np.array([nodes, replicas, atomic, accum])
    allowed = np.asarray(goodput) > 0
    figures = np.zeros((4, len(nodes)))
    figures[:, allowed] = _figures(model, chosen[:, allowed])
    nothing = (None, None, None, 0.0)
    return tuple(
        _row(configuration, reached if fits else nothing)
        for configuration, reached, fits in zip(
            chosen.T.tolist(), figures.T.tolist(), allowed.tolist(), strict=True
        )
    )


def _batch(configuration: Any) -> Any:
    """Return the batch size of one configuration, or of each of [4, n]."""
    _, replicas, atomic, accum = configuration
    return replicas * atomic * (accum + 1)


def _times(perf: PerfParams, chosen: IntArray) -> Floats:
    """Return step time and throughput [2, n] of configurations [4, n]."""
    step_time = perf.step_time(*chosen)
    return np.array([step_time, _batch(chosen) / step_time])


def _figures(model: GoodputModel, chosen: IntArray) -> Floats:
    """Return step time, throughput, efficiency and goodput [4, n] of configurations [4, n]."""
    step_time, throughput = _times(model.perf, chosen)
    efficiency = model.efficiency(_batch(chosen))
    return np.array([step_time, throughput, efficiency, throughput * efficiency])


def _row(configuration: Sequence[int], figures: Sequence[float | None]) -> GoodputRow:
    nodes, replicas, atomic, accum = configuration
    names = ("step_time", "throughput", "efficiency", "goodput")
    return GoodputRow(
        num_nodes=nodes,
        num_replicas=replicas,
        atomic_bsz=atomic,
        accum_steps=accum,
        batch_size=_batch(configuration),
        **dict(zip(names, figures, strict=False)),
    )
