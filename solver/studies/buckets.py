"""Collectives merged into buckets: fixed sizes, and a search over all neighbours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from math import isfinite
from typing import Any

import numpy as np

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.labels import NodeKind
from ppsolve.models.studies.buckets import BucketAdvice, BucketRow
from ppsolve.solver.api.api import optimize
from ppsolve.solver.clock import Clock

SIZES = (1, 2, 4, 8, 16)
ALL_COLLECTIVES = "*"
"""Name of the latency of all collectives that no other name is about."""

Partition = tuple[tuple[int, ...], ...]
"""Places of the collectives of each bucket, in program order."""


def advise_buckets(
    instance: OverlapInstance,
    latency: float | Mapping[str, float],
    *,
    time_limit: float = 30.0,
    seed: int = 0,
) -> BucketAdvice:
    """Find which collectives to merge, of neighbours of one group and type.

    k merged collectives take the sum of their times less (k - 1) latencies; the bucket starts when
    the last of them may, all wait for its end, and its buffer is held until the last use of any.
    The advice is never worse than anything in its table.

    Raises `InputError` where a latency is negative, or longer than a collective takes that it is
    about, where a collective has none, or nothing has the name.

    `latency`: time that a collective takes whatever its size, in the unit of the instance: of all,
        or by name. A name is a group and a type (``tp/all_reduce``), a group, a type, or ``*`` for
        all others; of several about one collective the first of these counts.
    """
    by_name = latency if isinstance(latency, Mapping) else {ALL_COLLECTIVES: latency}
    search = _BucketSearch(
        instance, _latencies(instance, by_name), Clock(time_limit), seed
    )
    return search.run(dict(latency) if isinstance(latency, Mapping) else float(latency))


def _latencies(
    instance: OverlapInstance, by_name: Mapping[str, float]
) -> dict[int, Decimal]:
    """Return the latency of each collective, by its place."""
    names = {comm: _names_of(instance, comm) for comm in _comms(instance)}
    _refuse_unknown(by_name, {ALL_COLLECTIVES, *chain.from_iterable(names.values())})
    latencies: dict[int, Decimal] = {}
    shortest = dict.fromkeys(by_name, Decimal("inf" if names else 0))
    for comm, labels in names.items():
        name = next((name for name in labels if name in by_name), None)
        if name is None:
            text = f'expected a latency of "{labels[0]}", or one of all collectives'
            raise InputError(text, field="latency")
        shortest[name] = min(shortest[name], instance.nodes[comm].duration)
        latencies[comm] = Decimal(repr(float(by_name[name])))
    for name, latency in by_name.items():
        _refuse_long(name, latency, shortest[name])
    return latencies


def _refuse_unknown(names: Iterable[str], allowed: set[str]) -> None:
    for name in names:
        if name not in allowed:
            raise InputError.unknown(
                "no collective has the group or type",
                name,
                sorted(allowed),
                field="latency",
            )


def _names_of(instance: OverlapInstance, comm: int) -> tuple[str, ...]:
    # Of latencies with these names the first is that of the collective.
    group, collective = _type_of(instance, comm)
    if collective is None:
        return group, ALL_COLLECTIVES
    return f"{group}/{collective}", group, collective, ALL_COLLECTIVES


def _refuse_long(name: str, latency: float, shortest: Decimal) -> None:
    if not (isfinite(latency) and 0 <= Decimal(repr(float(latency))) <= shortest):
        scope = "" if name == ALL_COLLECTIVES else f' of "{name}"'
        text = f"expected 0 to {shortest}, the time of the shortest collective{scope}, "
        raise InputError(f"{text}got {latency:g}", field="latency")


def _comms(instance: OverlapInstance) -> list[int]:
    return instance.of_kind(NodeKind.COMM)


def _type_of(instance: OverlapInstance, comm: int) -> tuple[str, str | None]:
    return instance.group_of(comm), instance.nodes[comm].collective


def fixed(instance: OverlapInstance, size: int) -> Partition:
    """Cut the collectives of each group and type into buckets of one size, the last one smaller."""
    runs: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for comm in _comms(instance):
        runs[_type_of(instance, comm)].append(comm)
    buckets = [
        tuple(run[start : start + size])
        for run in runs.values()
        for start in range(0, len(run), size)
    ]
    return tuple(sorted(buckets))


def merged(
    instance: OverlapInstance, partition: Partition, latencies: Mapping[int, Decimal]
) -> OverlapInstance | None:
    """Return the program with its collectives merged, None where one would wait for itself.

    A bucket has the name of its first collective.

    `latencies`: the time that each collective saves where it is merged.
    """
    data = instance.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    nodes: list[dict[str, Any]] = data["nodes"]
    stands = list(range(len(nodes)))
    for first, *members in partition:
        for member in members:
            stands[member] = first
            stands[instance.wait_of[member]] = instance.wait_of[first]
            head, joined = nodes[first], nodes[member]
            duration = Decimal(repr(head["duration"])) + Decimal(
                repr(joined["duration"])
            )
            head["duration"] = float(duration - latencies[member])
            head["bytes"] = head.get("bytes", 0) + joined.get("bytes", 0)
    name = {
        node["name"]: nodes[stands[index]]["name"] for index, node in enumerate(nodes)
    }
    entries: dict[int, dict[str, Any]] = {}
    for index, node in enumerate(nodes):
        kept = entries.setdefault(
            stands[index], nodes[stands[index]] | {"deps": [], "after": []}
        )
        for field in ("deps", "after"):
            new = [
                name[dep] for dep in node.get(field, ()) if name[dep] != kept["name"]
            ]
            kept[field] = list(dict.fromkeys([*kept[field], *new]))
    order = _in_order([entries[index] for index in sorted(entries)])
    if order is None:
        return None
    for buffer in data.get("buffers", ()):
        buffer["users"] = list(
            dict.fromkeys(name[user] for user in buffer.get("users", ()))
        )
        if "producer" in buffer:
            buffer["producer"] = name[buffer["producer"]]
    return OverlapInstance.parse({**data, "kind": "overlap", "nodes": order})


def _in_order(nodes: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    # Of what may come next the earliest goes first: frozen collectives keep their order.
    position = {node["name"]: index for index, node in enumerate(nodes)}
    before = [
        [position[dep] for dep in (*node["deps"], *node["after"])] for node in nodes
    ]
    sorter = TopologicalSorter(dict(enumerate(before)))
    try:
        sorter.prepare()
    except CycleError:
        return None
    order: list[int] = []
    queue = list(sorter.get_ready())
    heapify(queue)
    while queue:
        order.append(heappop(queue))
        sorter.done(order[-1])
        for index in sorter.get_ready():
            heappush(queue, index)
    return [nodes[index] for index in order]


class _BucketSearch:
    def __init__(
        self,
        instance: OverlapInstance,
        latencies: Mapping[int, Decimal],
        clock: Clock,
        seed: int,
    ) -> None:
        self.instance, self.latencies, self.clock = instance, latencies, clock
        self.rng = np.random.default_rng(seed)
        # The best schedule of each partition: a later run of the same one may end with a worse one.
        self.known: dict[Partition, tuple[BucketRow, float]] = {}

    def run(self, latency: float | dict[str, float]) -> BucketAdvice:
        largest = max(len(_comms(self.instance)), 1)
        sizes = [size for size in SIZES if size < largest] + [largest]
        named = {largest: "all in one", 1: "as it is"}
        names: dict[Partition, str] = {}
        for size in sizes:
            names.setdefault(
                fixed(self.instance, size), named.get(size, f"{size} each")
            )
        for partition in names:
            self._rate(partition)
        best = min(self.known, key=lambda partition: self.known[partition][1])
        best = self._improved(best)
        limit = max(0.0, self.clock.left / 2)
        bound = optimize(self._without_latency(), time_limit=limit).bound or 0
        self._rate(best, limit=limit)
        rows = [self._row(best, "searched")]
        rows += [self._row(partition, name) for partition, name in names.items()]
        program = merged(self.instance, best, self.latencies)
        assert program is not None
        return BucketAdvice(
            name=self.instance.name,
            time_unit=self.instance.time_unit,
            latency=latency,
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
        nodes = list(self.instance.nodes)
        for comm, latency in self.latencies.items():
            duration = nodes[comm].duration - latency
            nodes[comm] = nodes[comm].model_copy(update={"duration": duration})
        types = {_type_of(self.instance, comm) for comm in _comms(self.instance)}
        order = self.instance.collective_order
        order = order if len(types) == len(self.instance.groups) else "free"
        return self.instance.model_copy(
            update={"nodes": tuple(nodes), "collective_order": order}
        )

    def _rate(self, partition: Partition, limit: float = 0.0) -> float:
        """Search for a schedule of a partition; return the best makespan that is known of it."""
        program = merged(self.instance, partition, self.latencies)
        row = BucketRow(name="", collectives=len(partition))
        if program is not None:
            result: Any = optimize(program, time_limit=limit)
            if result.value is not None:
                peak = result.peak_live_bytes or None
                row = row.model_copy(
                    update={"makespan": result.value, "peak_live_bytes": peak}
                )
        makespan = float("inf") if row.makespan is None else float(row.makespan)
        if partition not in self.known or makespan < self.known[partition][1]:
            self.known[partition] = row, makespan
        return self.known[partition][1]

    def _row(self, partition: Partition, name: str) -> BucketRow:
        return self.known[partition][0].model_copy(update={"name": name})

    def _improved(self, best: Partition) -> Partition:
        share = self.clock.share(0.5)
        while (better := self._better(best, share)) is not None:
            best = better
        return best

    def _better(self, best: Partition, share: Clock) -> Partition | None:
        """Return the first partition near the best one that is better, in a random order."""
        tried = [
            partition for partition in self._near(best) if partition not in self.known
        ]
        order: list[int] = self.rng.permutation(len(tried)).tolist()
        for index in order:
            if share.is_over:
                return None
            if self._rate(tried[index]) < self.known[best][1]:
                return tried[index]
        return None

    def _near(self, partition: Partition) -> Iterator[Partition]:
        """Yield partitions with two neighbouring buckets merged, or one bucket cut in two."""
        runs: dict[tuple[str, str | None], list[tuple[int, ...]]] = defaultdict(list)
        for bucket in partition:
            runs[_type_of(self.instance, bucket[0])].append(bucket)
        for run in runs.values():
            for first, second in pairwise(run):
                yield _replaced(partition, (first, second), (first + second,))
            for bucket in run:
                for cut in range(1, len(bucket)):
                    yield _replaced(partition, (bucket,), (bucket[:cut], bucket[cut:]))


def _replaced(
    partition: Partition, old: Sequence[tuple[int, ...]], new: Sequence[tuple[int, ...]]
) -> Partition:
    return tuple(sorted([*(bucket for bucket in partition if bucket not in old), *new]))
