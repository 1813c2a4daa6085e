"""Tables of the best configurations over grids of allocations."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from ppsolve.models.core.arrays import Floats, whole_numbers
from ppsolve.models.core.problem import BoolArray, IntArray
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.goodput.model import GoodputModel
from ppsolve.solver.goodput.search import BatchLimits, best_configurations


@dataclass(frozen=True, eq=False)
class GoodputTable:
    """Best configurations over a grid of allocations; all arrays are [nodes, replicas].

    Attributes
    ----------
    num_nodes, num_replicas : int64
        Nodes and replicas of each entry.
    goodput : float64
        0 where there are more nodes than replicas or the limits allow nothing.
    atomic_bsz, accum_steps, batch_size : int64
        How the goodput is reached; 0 where it is 0.
    speedup : float64
        Goodput relative to one replica; where the limits exclude that, to the smallest
        allocation that they allow.
    """

    num_nodes: IntArray
    num_replicas: IntArray
    goodput: Floats
    atomic_bsz: IntArray
    accum_steps: IntArray
    batch_size: IntArray
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

    Returns
    -------
    GoodputTable
        Read-only arrays [nodes, replicas].

    Raises
    ------
    InputError
        Names the argument that is not such a list, or limits that exclude everything.
    """
    limits = BatchLimits.of(model.init_batch_size, max_batch_size, atomic_bsz_range, accumulation)
    nodes, replicas = np.meshgrid(
        _axis("num_nodes", num_nodes), _axis("num_replicas", num_replicas), indexing="ij"
    )
    possible = nodes <= replicas
    found = best_configurations(model.perf, model.grad, nodes[possible], replicas[possible], limits)
    goodput, atomic, accum = (_spread(values, possible) for values in found)
    alone = model.optimize(1, 1, max_batch_size, atomic_bsz_range, accumulation)[0]
    return GoodputTable(
        num_nodes=nodes,
        num_replicas=replicas,
        goodput=goodput,
        atomic_bsz=atomic.astype(np.int64),
        accum_steps=accum.astype(np.int64),
        batch_size=(replicas * atomic * (accum + 1)).astype(np.int64),
        speedup=goodput / (alone or _smallest(goodput, nodes, replicas)),
    )


def _axis(name: str, value: ArrayLike) -> IntArray:
    numbers = np.atleast_1d(whole_numbers(name, value))
    if numbers.ndim != 1:
        raise InputError(f"expected a list of numbers, got {numbers.ndim} axes", field=name)
    return numbers


def _spread(values: Floats, places: BoolArray) -> Floats:
    """Return `values` at their places, 0 elsewhere."""
    spread = np.zeros(places.shape)
    spread[places] = values
    return spread


def _smallest(goodput: Floats, nodes: IntArray, replicas: IntArray) -> float:
    """Return the goodput with the fewest replicas, then nodes, that is not 0 (1 if all are)."""
    positive = np.flatnonzero(goodput)
    if not len(positive):
        return 1.0
    order = np.lexsort((nodes.ravel()[positive], replicas.ravel()[positive]))
    return float(goodput.ravel()[positive[order[0]]])
