"""What the stages of a pipeline hold under the orders that a runtime runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.kinds.pipeline.layers.linear import in_flight_of, peaks_of_order
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape
from ppsolve.solver.kinds.pipeline.runtimes.family import FixedOrder, RuntimeFamily
from ppsolve.solver.studies.plan.split import Moments


@lru_cache(maxsize=64)
def moments_of_orders(family: RuntimeFamily, shape: PipelineShape) -> tuple[Moments, ...]:
    """Return the fullest moments under each order of a runtime: those of some order have to fit.

    An order is left out where another one never holds more: what fits the first fits the other. An
    op starts when all ops before it on its device have ended. So where forwards take time, what an
    order holds at a forward is what its place says, however long ops take.

    Parameters
    ----------
    family, shape : RuntimeFamily, PipelineShape
        A runtime of few orders, and the pipeline.

    Returns
    -------
    tuple of Moments
        At least one.
    """
    assert family.orders is not None
    least: list[tuple[list[IntArray], FixedOrder]] = []
    for order in family.orders(shape):
        tables = in_flight_of(shape.stage_to_rank, order.orders)
        if any(_never_exceeds(other, tables) for other, _ in least):
            continue
        least = [entry for entry in least if not _never_exceeds(tables, entry[0])]
        least.append((tables, order))
    return tuple(_in_rows(shape, order) for _, order in least)


def _never_exceeds(tables: list[IntArray], others: list[IntArray]) -> bool:
    """Whether each moment of each device is at most a moment of the other order."""
    for table, other in zip(tables, others, strict=True):
        for row in table:
            if not (row <= other).all(axis=1).any():
                return False
    return True


def _in_rows(shape: PipelineShape, order: FixedOrder) -> Moments:
    peaks = peaks_of_order(shape.stage_to_rank, order.orders)
    return tuple(_moments(shape.stage_to_rank, peaks))


def _moments(stage_to_rank: Sequence[int], peaks: list[IntArray]) -> Iterator[tuple[int, ...]]:
    # A row has a moment of each device; devices with fewer moments repeat their last one.
    owner = np.array(stage_to_rank)
    for number in range(max(map(len, peaks))):
        row = np.zeros(len(owner), dtype=np.int64)
        for rank, table in enumerate(peaks):
            row[owner == rank] = table[min(number, len(table) - 1)]
        yield tuple(row.tolist())
