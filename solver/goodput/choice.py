"""What goodput of a pipeline is asked for and answered with, and what its search tries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ppsolve.models.core.arrays import Floats
from ppsolve.models.core.problem import BoolArray, IntArray
from ppsolve.solver.goodput.curve import ScheduleCurve
from ppsolve.solver.goodput.step import Interval

EVERY_UP_TO = 64
"""Up to here every number of micro-batches is tried; beyond, `PER_DOUBLING` per doubling."""

PER_DOUBLING = 8
"""Neighbours differ by 9 % then.

With 1F1B curves of four micro-batch sizes and 1 to 100 replicas, 8 to 128 single numbers and 2 to
16 per doubling all gave the goodput of trying each number up to 2,000: the limits are tried anyhow.
"""


@dataclass(frozen=True)
class PipelineEvaluation:
    """What configurations are worth; scalars, or arrays of one shape.

    Parameters
    ----------
    batch_size : int
        Samples per step: replicas x micro-batches x micro-batch size.
    step_time : Interval
        In the time unit of the curves; `high` is that of the schedules.
    throughput, goodput : Interval
        Samples per time unit of the model; `low` is that of the schedules.
    efficiency : float
        Statistical efficiency at the batch size.
    extrapolated : bool
        Whether there are more micro-batches than were measured. Then the certain ends are
        estimates: `high` of the step time, `low` of throughput and goodput.
    """

    batch_size: Any
    step_time: Interval
    throughput: Interval
    efficiency: Any
    goodput: Interval
    extrapolated: Any


@dataclass(frozen=True)
class PipelineChoice:
    """The best configurations; scalars, or arrays of one shape; all 0 where none is allowed.

    Parameters
    ----------
    goodput : Interval
        Samples per time unit of the model; the configuration with the largest `low` is chosen.
    atomic_bsz, microbatches, batch_size : int
        Micro-batch size, micro-batches per replica and step, and samples per step.
    extrapolated : bool
        Whether there are more micro-batches than were measured: then `low` is an estimate.
    """

    goodput: Interval
    atomic_bsz: Any
    microbatches: Any
    batch_size: Any
    extrapolated: Any


def candidates(
    curve: ScheduleCurve, least: Floats, most: Floats, given: IntArray | None
) -> tuple[IntArray, BoolArray]:
    """Return numbers of micro-batches to try, and which of them are within the limits.

    Parameters
    ----------
    curve : ScheduleCurve
        The schedules of one micro-batch size.
    least, most : float64[cases, 1]
        Limits on the number of micro-batches.
    given : int64[k] or None
        The numbers to choose from; by default those of `ScheduleCurve` and a grid.

    Returns
    -------
    counts : int64[cases, k]
        Multiples of `ScheduleCurve.multiple`; in place of one that is not allowed a measured one.
    fits : bool[cases, k]
        Whether each is within the limits.
    """
    unit = curve.multiple
    first = unit * np.ceil(least / unit).astype(np.int64)
    last = unit * np.floor(most / unit).astype(np.int64)
    if given is None:
        grid = _grid(int(last.max(initial=0)), curve)
        ends = [first, last]
    else:
        grid = given[given % unit == 0]
        ends = []
    counts = np.concatenate([np.broadcast_to(grid, (len(least), len(grid))), *ends], axis=1)
    fits = (counts >= np.maximum(first, unit)) & (counts <= last)
    return np.where(fits, counts, curve.microbatches[0]), fits


def _grid(most: int, curve: ScheduleCurve) -> IntArray:
    unit = curve.multiple
    doublings = max(0.0, np.log2(max(most, 1) / EVERY_UP_TO))
    powers = np.arange(1, int(doublings * PER_DOUBLING) + 1) / PER_DOUBLING
    beyond = np.round(EVERY_UP_TO * 2.0**powers).astype(np.int64) // unit * unit
    every = np.arange(unit, min(EVERY_UP_TO, most) + 1, unit)
    measured = np.array([count for count in curve.microbatches if count <= most], dtype=np.int64)
    return np.unique(np.concatenate([every, beyond, measured]))
