"""Collectives merged into buckets: fixed sizes, and a search over all neighbours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.overlap.instance import NodeKind, OverlapInstance
from ppsolve.models.studies.buckets import BucketAdvice, BucketRow
from ppsolve.solver.api.api import optimize
from ppsolve.solver.clock import Clock

SIZES = (1, 2, 4, 8, 16)
Partition = tuple[tuple[int, ...], ...]
"""Places of the collectives of each bucket, in program order."""


def advise_buckets(
    instance: OverlapInstance, latency: float, *, time_limit: float = 30.0, seed: int = 0
) -> BucketAdvice:
    """Find which collectives to merge, of neighbours of one group and type.

    k merged collectives take the sum of their times less (k - 1) latencies; the bucket starts when
    the last of them may, all wait for its end, and its buffer is held until the last use of any.

    Parameters
    ----------
    instance : OverlapInstance
        The program.
    latency : float
        Time that a collective takes whatever its size, in the unit of the instance.
    time_limit : float
        Seconds.
    seed : int
        Seed of the search.

    Returns
    -------
    BucketAdvice
        Never worse than the best fixed size.

    Raises
    ------
    InputError
        The latency is negative, or longer than a collective takes.
    """
    shortest = min((instance.nodes[c].duration for c in _comms(instance)), default=Decimal(0))
    if not 0 <= latency <= shortest:
        text = f"expected 0 to {shortest}, the time of the shortest collective, got {latency:g}"
        raise InputError(text, field="latency")
    return _BucketSearch(instance, Fraction(repr(float(latency))), Clock(time_limit), seed).run()


def _comms(instance: OverlapInstance) -> list[int]:
    return instance.of_kind(NodeKind.COMM)


def _type_of(instance: OverlapInstance, comm: int) -> tuple[str, str | None]:
    return instance.group_of(comm), instance.nodes[comm].collective


def fixed(instance: OverlapInstance, size: int) -> Partition:
    """Cut the collectives of each group and type into buckets of one size, the last one smaller.

    Parameters
    ----------
    instance, size
        The program, and collectives in a bucket.

    Returns
    -------
    Partition
    """
    runs: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for comm in _comms(instance):
        runs[_type_of(instance, comm)].append(comm)
    buckets = [
        tuple(run[at : at + size]) for run in runs.values() for at in range(0, len(run), size)
    ]
    return tuple(sorted(buckets))


def merged(
    instance: OverlapInstance, partition: Partition, latency: Fraction
) -> OverlapInstance | None:
    """Return the program with its collectives merged, None where one would wait for itself.

    Parameters
    ----------
    instance, partition, latency
        The program, its buckets, and the time that each merged collective saves.

    Returns
    -------
    OverlapInstance or None
        A bucket has the name of its first collective.
    """
    data = instance.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    nodes: list[dict[str, Any]] = data["nodes"]
    stands = list(range(len(nodes)))
    for first, *others in partition:
        for other in others:
            stands[other] = first
            stands[instance.wait_of[other]] = instance.wait_of[first]
            one, more = nodes[first], nodes[other]
            saved = Fraction(repr(one["duration"])) + Fraction(repr(more["duration"])) - latency
            one["duration"] = float(saved)
            one["bytes"] = one.get("bytes", 0) + more.get("bytes", 0)
    name = {node["name"]: nodes[stands[place]]["name"] for place, node in enumerate(nodes)}
    found: dict[int, dict[str, Any]] = {}
    for place, node in enumerate(nodes):
        kept = found.setdefault(stands[place], nodes[stands[place]] | {"deps": [], "after": []})
        for field in ("deps", "after"):
            new = [name[dep] for dep in node.get(field, ()) if name[dep] != kept["name"]]
            kept[field] = list(dict.fromkeys([*kept[field], *new]))
    order = _in_order([found[place] for place in sorted(found)])
    if order is None:
        return None
    for buffer in data.get("buffers", ()):
        buffer["users"] = list(dict.fromkeys(name[user] for user in buffer.get("users", ())))
        if "producer" in buffer:
            buffer["producer"] = name[buffer["producer"]]
    return OverlapInstance.parse({**data, "kind": "overlap", "nodes": order})


def _in_order(nodes: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    # Of what may come next the earliest goes first: frozen collectives keep their order.
    place = {node["name"]: index for index, node in enumerate(nodes)}
    before = [[place[dep] for dep in (*node["deps"], *node["after"])] for node in nodes]
    sorter = TopologicalSorter(dict(enumerate(before)))
    try:
        sorter.prepare()
    except CycleError:
        return None
    order: list[int] = []
    ready = list(sorter.get_ready())
    heapify(ready)
    while ready:
        order.append(heappop(ready))
        sorter.done(order[-1])
        for index in sorter.get_ready():
            heappush(ready, index)
    return [nodes[index] for index in order]


class _BucketSearch:
    def __init__(
        self, instance: OverlapInstance, latency: Fraction, clock: Clock, seed: int
    ) -> None:
        self.instance, self.latency, self.clock = instance, latency, clock
        self.rng = np.random.default_rng(seed)
        self.known: dict[Partition, tuple[BucketRow, float]] = {}

    def run(self) -> BucketAdvice:
        most = max(len(_comms(self.instance)), 1)
        sizes = [size for size in SIZES if size < most] + [most]
        partitions = {size: fixed(self.instance, size) for size in sizes}
        names = {1: "as it is", most: "all in one"}
        for size, partition in partitions.items():
            self._rate(partition, names.get(size, f"{size} each"))
        best = min(self.known, key=lambda each: self.known[each][1])
        best = self._improved(best)
        limit = max(0.0, self.clock.left / 2)
        bound = optimize(self._without_latency(), time_limit=limit).bound or 0
        row, _ = self._rate(best, "searched", limit=limit)
        rows = [row, *(each for each, _ in self.known.values() if each.name != "searched")]
        program = merged(self.instance, best, self.latency)
        assert program is not None
        return BucketAdvice(
            name=self.instance.name,
            time_unit=self.instance.time_unit,
            latency=float(self.latency),
            bound=bound,
            rows=tuple(rows),
            buckets=tuple(
                tuple(self.instance.nodes[comm].name for comm in bucket)
                for bucket in best
                if len(bucket) > 1
            ),
            program=program,
        )

    def _without_latency(self) -> OverlapInstance:
        """Return a program that is as short as any buckets of this one, members in turn.

        Where a group has several types, its collectives have any order: a bucket takes a later one
        past those of another type.
        """
        nodes = [
            node.model_copy(update={"duration": node.duration - Decimal(float(self.latency))})
            if node.kind is NodeKind.COMM
            else node
            for node in self.instance.nodes
        ]
        types = {_type_of(self.instance, comm) for comm in _comms(self.instance)}
        order = self.instance.collective_order
        order = order if len(types) == len(self.instance.groups) else "free"
        return self.instance.model_copy(update={"nodes": tuple(nodes), "collective_order": order})

    def _rate(self, partition: Partition, name: str, limit: float = 0.0) -> tuple[BucketRow, float]:
        program = merged(self.instance, partition, self.latency)
        row = BucketRow(name=name, collectives=len(partition))
        if program is not None:
            result: Any = optimize(program, time_limit=limit)
            if result.value is not None:
                peak = result.peak_live_bytes or None
                row = row.model_copy(update={"makespan": result.value, "peak_live_bytes": peak})
        found = row, float("inf") if row.makespan is None else float(row.makespan)
        if partition not in self.known or found[1] < self.known[partition][1]:
            self.known[partition] = found
        return found

    def _improved(self, best: Partition) -> Partition:
        share = self.clock.share(0.5)
        while (better := self._better(best, share)) is not None:
            best = better
        return best

    def _better(self, best: Partition, share: Clock) -> Partition | None:
        """Return the first partition near the best one that is better, in a random order."""
        tried = [each for each in self._near(best) if each not in self.known]
        places: list[int] = self.rng.permutation(len(tried)).tolist()
        for place in places:
            if share.is_over:
                return None
            if self._rate(tried[place], "searched")[1] < self.known[best][1]:
                return tried[place]
        return None

    def _near(self, partition: Partition) -> Iterator[Partition]:
        """Yield partitions with two neighbouring buckets merged, or one bucket cut in two."""
        runs: dict[tuple[str, str | None], list[tuple[int, ...]]] = defaultdict(list)
        for bucket in partition:
            runs[_type_of(self.instance, bucket[0])].append(bucket)
        for run in runs.values():
            for one, other in pairwise(run):
                yield _replaced(partition, (one, other), (one + other,))
            for bucket in run:
                for cut in range(1, len(bucket)):
                    yield _replaced(partition, (bucket,), (bucket[:cut], bucket[cut:]))


def _replaced(
    partition: Partition, old: Sequence[tuple[int, ...]], new: Sequence[tuple[int, ...]]
) -> Partition:
    return tuple(sorted([*(each for each in partition if each not in old), *new]))
