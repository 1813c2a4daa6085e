"""The best configuration of each placement: the search over batch sizes, and tables of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ppsolve.models.base import describe
from ppsolve.models.errors import InputError
from ppsolve.models.goodput import Floats, GoodputModel, as_array, as_number

Whole = NDArray[np.int64]

NUM_BATCH_SIZES = 50
"""Batch sizes that are tried for each placement, in geometric steps."""

ROUNDING = 1e-8
"""Slack of the published rule before a batch size is rounded up."""


@dataclass(frozen=True)
class Limits:
    """What configurations are allowed.

    Parameters
    ----------
    low, high : float
        Least and greatest micro-batch size.
    least, most : float
        Least and greatest batch size over all replicas and accumulation steps.
    compat : bool
        Whether `most` gives way as in the published search: where each replica's least
        micro-batch exceeds it, and to rounding up.
    """

    low: float
    high: float
    least: float
    most: float
    compat: bool

    @classmethod
    def of(
        cls,
        init_batch_size: float,
        max_batch_size: float | None,
        atomic_bsz_range: tuple[float | None, float | None] | None,
        compat: bool = False,
    ) -> Limits:
        """Return the limits that the arguments of `GoodputModel.optimize` stand for.

        Raises
        ------
        InputError
            Names the argument that is no limit, or excludes everything whatever the placement.
        """
        most = init_batch_size
        if max_batch_size is not None:
            most = as_number("max_batch_size", max_batch_size, above=0)
        if most < init_batch_size:
            raise InputError(
                f"expected at least the initial batch size {init_batch_size:g}, got {most:g}",
                field="max_batch_size",
            )
        low, high = _range(atomic_bsz_range)
        if low > most and not compat:
            raise InputError(
                f"expected at most the largest batch size {most:g}, got {low:g}",
                field="atomic_bsz_range[0]",
            )
        return cls(low, most if high is None else high, init_batch_size, most, compat)

    def allow(self, atomic: Floats, batch: Floats) -> NDArray[np.bool_]:
        """Return which micro-batch sizes with which batch sizes are allowed."""
        allowed = (self.low <= atomic) & (atomic <= self.high) & (self.least <= batch)
        return allowed if self.compat else allowed & (batch <= self.most)


def _range(given: tuple[float | None, float | None] | None) -> tuple[float, float | None]:
    """Return the least and the greatest micro-batch size, if any, that a range allows."""
    if given is None:
        return 1.0, None
    if not isinstance(given, tuple | list | np.ndarray) or len(given) != 2:
        raise InputError(
            f"expected a pair (least, greatest), got {describe(given)}", field="atomic_bsz_range"
        )
    low, high = (
        None if end is None else as_number(f"atomic_bsz_range[{side}]", end, least=1)
        for side, end in enumerate(given)
    )
    if low is not None and high is not None and low > high:
        raise InputError(
            f"expected (least, greatest), got ({low:g}, {high:g})", field="atomic_bsz_range"
        )
    return 1.0 if low is None else low, high


def best_configurations(
    model: GoodputModel, nodes: Floats, replicas: Floats, limits: Limits, accumulation: bool
) -> tuple[Floats, Floats, Floats]:
    """Return goodput, micro-batch size and accumulation steps of each placement.

    The published search: of 50 batch sizes the first of the best. Limits that hold (not
    `Limits.compat`) change what is tried only where rounding up would pass them.

    Parameters
    ----------
    model : GoodputModel
        What to maximise.
    nodes, replicas : float64[n]
        Placements that are possible.
    limits : Limits
        What is allowed.
    accumulation : bool
        Whether accumulation steps may be used.
    """
    smallest = np.maximum(limits.least, limits.low * replicas)
    local = np.geomspace(smallest, limits.most, NUM_BATCH_SIZES) / replicas
    accum = accumulation_steps(local, replicas, limits) if accumulation else np.zeros_like(local)
    atomic = np.ceil(local / (accum + 1) - ROUNDING)
    if not limits.compat:
        atomic -= replicas * atomic * (accum + 1) > limits.most
    allowed = limits.allow(atomic, replicas * atomic * (accum + 1))
    harmless = np.where(allowed, atomic, limits.least)
    goodput = np.where(allowed, model.evaluate(nodes, replicas, harmless, accum), 0.0)
    chosen = np.argmax(goodput, axis=0), np.arange(len(replicas))
    kept = allowed[chosen] | limits.compat
    return goodput[chosen], atomic[chosen] * kept, accum[chosen] * kept


def accumulation_steps(local: Floats, replicas: Floats, limits: Limits) -> Floats:
    """Return the accumulation steps that batches per replica take; arrays of one shape.

    One replica beyond the initial batch size takes at least one: the gradient statistics
    need two micro-batches.
    """
    steps: Floats = np.ceil(local / limits.high - ROUNDING) - 1
    alone = (replicas == 1) & (local > limits.least + ROUNDING)
    needed: Floats = np.maximum(steps, alone)
    return needed


@dataclass(frozen=True, eq=False)
class GoodputTable:
    """Best configurations over a grid of placements; all arrays are [nodes, replicas].

    Attributes
    ----------
    num_nodes, num_replicas : int64
        The placements.
    goodput : float64
        0 where there are more nodes than replicas or the limits allow nothing.
    atomic_bsz, accum_steps, batch_size : int64
        How the goodput is reached; 0 where it is 0.
    speedup : float64
        Goodput relative to one replica; where the limits exclude that, to the smallest
        placement that they allow.
    """

    num_nodes: Whole
    num_replicas: Whole
    goodput: Floats
    atomic_bsz: Whole
    accum_steps: Whole
    batch_size: Whole
    speedup: Floats

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        for field in fields(self):
            getattr(self, field.name).setflags(write=False)


def goodput_table(
    model: GoodputModel,
    num_nodes: ArrayLike,
    num_replicas: ArrayLike,
    *,
    max_batch_size: float | None = None,
    atomic_bsz_range: tuple[float | None, float | None] | None = None,
    accumulation: bool = False,
) -> GoodputTable:
    """Return the answer of `GoodputModel.optimize` for every pair of nodes and replicas.

    Parameters
    ----------
    model : GoodputModel
        The job.
    num_nodes, num_replicas : array_like
        Lists (or one number) of whole numbers from 1 on.
    max_batch_size, atomic_bsz_range, accumulation
        As in `GoodputModel.optimize`.

    Raises
    ------
    InputError
        Names the argument that is not such a list, or limits that exclude everything.
    """
    limits = Limits.of(model.init_batch_size, max_batch_size, atomic_bsz_range)
    nodes, replicas = np.meshgrid(
        _axis("num_nodes", num_nodes), _axis("num_replicas", num_replicas), indexing="ij"
    )
    possible = nodes <= replicas
    found = best_configurations(model, nodes[possible], replicas[possible], limits, accumulation)
    goodput, atomic, accum = (_spread(values, possible) for values in found)
    alone = model.optimize(1, 1, max_batch_size, atomic_bsz_range, accumulation)[0]
    return GoodputTable(
        num_nodes=nodes.astype(np.int64),
        num_replicas=replicas.astype(np.int64),
        goodput=goodput,
        atomic_bsz=atomic.astype(np.int64),
        accum_steps=accum.astype(np.int64),
        batch_size=(replicas * atomic * (accum + 1)).astype(np.int64),
        speedup=goodput / (alone or _smallest(goodput, nodes, replicas)),
    )


def _axis(name: str, value: Any) -> Floats:
    numbers = np.atleast_1d(as_array(name, value, least=1, whole=True))
    if numbers.ndim != 1:
        raise InputError(f"expected a list of numbers, got {numbers.ndim} axes", field=name)
    return numbers


def _spread(values: Floats, places: NDArray[np.bool_]) -> Floats:
    """Return `values` at their places, 0 elsewhere."""
    spread = np.zeros(places.shape)
    spread[places] = values
    return spread


def _smallest(goodput: Floats, nodes: Floats, replicas: Floats) -> float:
    """Return the goodput with the fewest replicas, then nodes, that is not 0 (1 if all are)."""
    positive = np.flatnonzero(goodput)
    if not len(positive):
        return 1.0
    order = np.lexsort((nodes.ravel()[positive], replicas.ravel()[positive]))
    return float(goodput.ravel()[positive[order[0]]])
