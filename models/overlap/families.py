"""Alike parts of a program: unconnected parts of the graph that are interchangeable."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.overlap.instance import OverlapInstance

Signature = tuple[tuple[object, ...], ...]


def alike_parts(instance: OverlapInstance) -> list[IntArray]:
    """Return families of interchangeable node vectors, int64[members, length] each.

    A part is a set of nodes that no dependency links to the rest (a micro-batch, say). Two parts
    are alike if their nodes, in program order, have the same kinds, durations, groups and
    dependencies. With frozen order of collectives no parts are interchangeable.
    """
    if instance.collective_order == "frozen":
        return []
    alike: dict[Signature, list[list[int]]] = defaultdict(list)
    for part in _parts(instance):
        alike[_signature(instance, part)].append(part)
    return [np.array(parts, dtype=np.int64) for parts in alike.values() if len(parts) > 1]


def _parts(instance: OverlapInstance) -> list[list[int]]:
    leader = list(range(len(instance.nodes)))

    def find(node: int) -> int:
        while leader[node] != node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for index, deps in enumerate(instance.deps):
        for dep in deps:
            leader[find(index)] = find(dep)
    parts: dict[int, list[int]] = defaultdict(list)
    for index in range(len(leader)):
        parts[find(index)].append(index)
    return list(parts.values())


def _signature(instance: OverlapInstance, part: list[int]) -> Signature:
    place = {index: number for number, index in enumerate(part)}
    return tuple(
        (
            instance.nodes[index].kind,
            instance.nodes[index].duration,
            instance.nodes[index].group,
            tuple(sorted(place[dep] for dep in instance.deps[index])),
        )
        for index in part
    )
