"""The configurations of a request, and why some combinations form none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from ppsolve.models.documents.errors import InputError
from ppsolve.models.plan.request import PlanRequest, RankOrder, Statistics
from ppsolve.models.plan.result import Configuration

MAX_COMBINATIONS = 200_000
"""Larger spaces are refused rather than left to run for hours."""

MAX_BATCH = 10**12
"""Larger batches form no configuration: up to it all figures are exact as doubles."""


@dataclass(frozen=True)
class ConfigurationSpace:
    """Configurations in a fixed order, and how many combinations form none, by reason."""

    configurations: tuple[Configuration, ...]
    not_formed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _ParallelLayout:
    depth: int
    replicas: int
    placement: Literal["linear", "interleaved", "vshape", "wave"]
    virtual_stages: int
    rank_order: RankOrder


def enumerate_space(request: PlanRequest) -> ConfigurationSpace:
    """Return every configuration of a request.

    Raises
    ------
    InputError
        There are too many, or the lists of the search exclude everything; says by which rule.
    """
    not_formed = Counter[str]()
    found = []
    for number, (shape, size, count, kind, split) in enumerate(_combinations(request, not_formed)):
        if number >= MAX_COMBINATIONS:
            raise InputError(
                f"expected at most {MAX_COMBINATIONS} combinations; shorten the lists",
                field="search",
            )
        microbatches = _microbatches(request, shape.replicas * size, count, not_formed)
        if microbatches is None:
            continue
        found.append(
            Configuration(
                pipeline_depth=shape.depth,
                replicas=shape.replicas,
                placement=shape.placement,
                virtual_stages=shape.virtual_stages,
                microbatch_size=size,
                microbatches=microbatches,
                batch_size=shape.replicas * size * microbatches,
                rank_order=shape.rank_order,
                backward=kind,
                layer_split=split,
            )
        )
    if not found:
        reasons = "; ".join(f"{reason} ({count}x)" for reason, count in not_formed.most_common(4))
        raise InputError(f"expected at least one configuration: {reasons}", field="search")
    return ConfigurationSpace(tuple(found), dict(not_formed))


def _combinations(
    request: PlanRequest, not_formed: Counter[str]
) -> Iterator[
    tuple[_ParallelLayout, int, int, Literal["fused", "split"], Literal["balanced", "even"]]
]:
    """Yield shape, micro-batch size, number of micro-batches or batch size, backward, split."""
    search = request.search
    backward = search.backward or (("split",) if request.model.is_split else ("fused",))
    sizes = search.microbatch_sizes or request.model.microbatch_sizes
    counts = search.microbatches or search.batch_sizes or _batch_sizes(request.goodput)
    numbers = list(product(dict.fromkeys(sizes), dict.fromkeys(counts)))
    kinds = list(product(dict.fromkeys(backward), dict.fromkeys(search.layer_splits)))
    for shape in _shapes(request, not_formed):
        for (size, count), (kind, split) in product(numbers, kinds):
            yield shape, size, count, kind, split


def _shapes(request: PlanRequest, not_formed: Counter[str]) -> Iterator[_ParallelLayout]:
    search = request.search
    for depth, placement in product(_depths(request), dict.fromkeys(search.placements)):
        for virtual in _virtual_stages(request, depth, placement, not_formed):
            for replicas in _replicas(request, depth, not_formed):
                for order in _rank_orders(request, depth, replicas):
                    yield _ParallelLayout(depth, replicas, placement, virtual, order)


def _batch_sizes(statistics: Statistics) -> tuple[int, ...]:
    """Return the initial batch size, doubled up to the largest."""
    size, most = statistics.init_batch_size, statistics.max_batch_size or 0
    doublings = (most // size).bit_length() if most else 1
    return tuple(size * 2**power for power in range(doublings))


def _depths(request: PlanRequest) -> tuple[int, ...]:
    if request.search.pipeline_depths is not None:
        return tuple(dict.fromkeys(request.search.pipeline_depths))
    most = min(request.cluster.devices, request.model.num_layers)
    return tuple(depth for depth in range(1, most + 1) if request.cluster.devices % depth == 0)


def _virtual_stages(
    request: PlanRequest, depth: int, placement: str, not_formed: Counter[str]
) -> Iterator[int]:
    """Yield the stages per device; on one device all placements are one."""
    if placement == "linear":
        yield 1
        return
    if depth == 1:
        not_formed[f"{placement} needs at least 2 devices"] += 1
        return
    for virtual in (2,) if placement == "vshape" else dict.fromkeys(request.search.virtual_stages):
        if depth * virtual > request.model.num_layers:
            not_formed["more stages than layers"] += 1
        else:
            yield virtual


def _replicas(request: PlanRequest, depth: int, not_formed: Counter[str]) -> Iterator[int]:
    room = request.cluster.devices // depth
    for replicas in dict.fromkeys(request.search.replicas or (room,)):
        if replicas > room:
            not_formed["more devices than the cluster has"] += 1
        else:
            yield replicas


def _rank_orders(request: PlanRequest, depth: int, replicas: int) -> tuple[RankOrder, ...]:
    """Return the rank orders that differ: one, where all is on one node or in one line."""
    orders = tuple(dict.fromkeys(request.search.rank_orders))
    alike = depth == 1 or replicas == 1 or depth * replicas <= request.cluster.devices_per_node
    return orders[:1] if alike else orders


def _microbatches(
    request: PlanRequest, samples: int, count: int, not_formed: Counter[str]
) -> int | None:
    """Return micro-batches per replica, `samples` being one micro-batch of every replica."""
    goodput = request.goodput
    if request.search.microbatches is not None:
        batch = samples * count
        if batch > MAX_BATCH:
            not_formed[f"batch above {MAX_BATCH:.0E}"] += 1
            return None
        if batch < goodput.init_batch_size:
            not_formed["batch below the initial batch size"] += 1
            return None
        if goodput.max_batch_size is not None and batch > goodput.max_batch_size:
            not_formed["batch above the maximum"] += 1
            return None
        return count
    if count % samples:
        not_formed["batch is no multiple of replicas x micro-batch size"] += 1
        return None
    return count // samples
