"""What the stages of a pipeline hold under the orders that a runtime runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, pairwise

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.kinds.pipeline.actions import Order
from ppsolve.solver.kinds.pipeline.layers.linear import (
    common_rows,
    fullest_rows,
    in_flight_at_forwards,
)
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape
from ppsolve.solver.kinds.pipeline.runtimes.family import RuntimeFamily
from ppsolve.solver.studies.plan.layer_figures import LayerFigures
from ppsolve.solver.studies.plan.split import Boundaries, Moments


def timed_stages(
    layers: LayerFigures, shape: PipelineShape, boundaries: Boundaries | None
) -> tuple[int, ...]:
    """Return the stages whose forwards take time; all where all backwards of layers do.

    `boundaries`: the split; None for any.
    """
    stages, forward = range(shape.num_stages), np.array(layers.whole("forward"))
    if all(layers.whole("backward_input" if shape.is_split else "backward")):
        return tuple(stages)
    if boundaries is not None:
        spans = list(pairwise(boundaries))
        return tuple(s for s in stages if forward[slice(*spans[s])].any())
    # A layer has a place among so many, one for each stage before and after.
    spare = len(forward) - shape.num_stages + 1
    return tuple(s for s in stages if forward[s : s + spare].all())


MOST_RANKS = 8
"""Ranks of which all orders of a runtime are compared."""

NOTHING = Order.of(())
"""The order of a rank that is not looked at."""


@dataclass(frozen=True)
class OpenMoments:
    """The moments of whatever may be run, each entry those of one schedule, or of all."""

    necessary: tuple[Moments, ...]  # what fits has room for all moments of one of them
    likely: tuple[
        Moments, ...
    ] = ()  # where that is not enough: those of schedules to be tried


def open_moments(
    family: RuntimeFamily | None, shape: PipelineShape, timed: tuple[int, ...]
) -> OpenMoments:
    """Return the moments of all orders that may be run.

    In any order, all stages hold a micro-batch when the last one has it. In the order of a runtime
    an op starts when all ops before it on its device have ended, and those behind it end later if
    it takes time, or they do. So when such a forward starts, the stages hold what its place in the
    order says, however long ops take.

    `family`: a runtime of few orders; None for any order.
    """
    ranks, count = shape.num_ranks, shape.num_microbatches
    if family is None:
        usual = tuple(min(count, ranks - rank) for rank in shape.stage_to_rank)
        return OpenMoments((((1,) * shape.num_stages,),), ((usual,),))
    every = tuple(range(shape.num_stages))
    necessary = moments_of_orders(family, shape, timed)
    if ranks > MOST_RANKS:
        return OpenMoments(necessary, (moments_of_first_order(family, shape),))
    return OpenMoments(
        necessary, moments_of_orders(family, shape, every) if timed != every else ()
    )


@lru_cache(maxsize=64)
def moments_of_first_order(family: RuntimeFamily, shape: PipelineShape) -> Moments:
    """Return the fullest moments under the first order of a runtime."""
    assert family.orders is not None
    orders = next(iter(family.orders(shape))).orders
    return tuple(_rows(shape, _fullest(_with_one_microbatch(shape, orders, None))))


def _with_one_microbatch(
    shape: PipelineShape, orders: Sequence[Order], timed: tuple[int, ...] | None
) -> list[IntArray]:
    """Return the micro-batches in flight of each rank, first one of each stage."""
    held = in_flight_at_forwards(shape.stage_to_rank, orders, timed)
    return [np.pad(t, ((1, 0), (0, 0)), constant_values=1) for t in held]


@lru_cache(maxsize=64)
def moments_of_orders(
    family: RuntimeFamily, shape: PipelineShape, timed: tuple[int, ...]
) -> tuple[Moments, ...]:
    """Return the fullest moments under each order of a runtime, at forwards of some stages.

    An order is left out where another one never holds more: what fits the first fits the other. Of
    many ranks that run several orders a few are looked at, the others hold one micro-batch, as they
    do under every order.
    """
    assert family.orders is not None
    kept: list[list[IntArray]] = []
    orders = iter(family.orders(shape))
    first = list(islice(orders, 2))
    count = shape.num_ranks
    if len(first) > 1:
        count = min(count, MOST_RANKS)
    looked_at = np.linspace(0, shape.num_ranks - 1, count)
    watched = {int(rank) for rank in looked_at.round()}
    for order in chain(first, orders):
        rows = [
            row if rank in watched else NOTHING for rank, row in enumerate(order.orders)
        ]
        tables = _with_one_microbatch(shape, rows, timed)
        # Most orders hold all that an earlier one does, which a few of its rows show.
        if not any(_never_exceeds(rival, tables) for rival in kept):
            peaks = _fullest(tables)
            kept = [rival for rival in kept if not _never_exceeds(peaks, rival)]
            kept.append(peaks)
    return tuple(tuple(_rows(shape, peaks)) for peaks in kept)


def _never_exceeds(tables: list[IntArray], rivals: list[IntArray]) -> bool:
    """Whether each moment of each device is at most a moment of the other order."""
    pairs = zip(tables, rivals, strict=True)
    return all(len(common_rows(table, rival)) == len(table) for table, rival in pairs)


def _fullest(tables: list[IntArray]) -> list[IntArray]:
    return [fullest_rows(np.unique(table, axis=0)) for table in tables]


def _rows(shape: PipelineShape, peaks: list[IntArray]) -> Iterator[tuple[int, ...]]:
    # A row has a moment of each device; devices with fewer moments repeat their last one.
    owner = np.array(shape.stage_to_rank)
    for number in range(max(map(len, peaks))):
        row = np.zeros(len(owner), dtype=np.int64)
        for rank, table in enumerate(peaks):
            row[owner == rank] = table[min(number, len(table) - 1)]
        yield tuple(row.tolist())
