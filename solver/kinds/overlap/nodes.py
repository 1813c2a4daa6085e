"""A program of kernels and collectives as a graph: nodes by place, with users and integer times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np

from ppsolve.models.kinds.overlap.instance import MATMUL, OverlapInstance
from ppsolve.models.kinds.overlap.labels import NodeKind


@dataclass(frozen=True)
class OverlapProgram:
    """The nodes 0..n-1 of an instance in program order."""

    kind: list[NodeKind]
    duration: Sequence[int]  # in one unit that makes all of them whole
    deps: list[list[int]]  # direct ones
    users: list[list[int]]
    comms: list[int]  # the collectives
    rank: list[int]  # place of each node in the order that breaks ties
    instance: OverlapInstance
    places: list[int]  # of each node in the instance

    @classmethod
    def of(
        cls,
        instance: OverlapInstance,
        *,
        by_name: bool = False,
        chained: bool = True,
    ) -> Self:
        """Build the program of an instance; nodes are numbered by their place in it.

        `by_name`: break ties by the string order of names, else by program order.
        `chained`: let each collective depend on the previous one of its group.
        """
        deps = [list(direct) for direct in instance.deps]
        for comm, previous in instance.previous_in_group.items() if chained else ():
            if previous not in deps[comm]:
                deps[comm].append(previous)
        for before, after in instance.orders:
            deps[after].append(before)
        names = [node.name for node in instance.nodes]
        numbers = range(len(names))
        by_rank = sorted(numbers, key=names.__getitem__) if by_name else list(numbers)
        return cls(
            kind=[node.kind for node in instance.nodes],
            duration=as_integers([node.duration for node in instance.nodes])[0],
            deps=deps,
            users=users_of(deps),
            comms=instance.of_kind(NodeKind.COMM),
            rank=np.argsort(by_rank).tolist(),
            instance=instance,
            places=list(numbers),
        )

    def permuted(self, order: list[int]) -> Self:
        """Return the same program with its nodes renumbered as they come in `order`."""
        position: list[int] = np.argsort(order).tolist()
        return type(self)(
            kind=[self.kind[node] for node in order],
            duration=[self.duration[node] for node in order],
            deps=[[position[dep] for dep in self.deps[node]] for node in order],
            users=[
                sorted(position[user] for user in self.users[node]) for node in order
            ],
            comms=sorted(position[comm] for comm in self.comms),
            rank=[self.rank[node] for node in order],
            instance=self.instance,
            places=[self.places[node] for node in order],
        )

    @cached_property
    def node_of(self) -> dict[str, int]:
        """Number of each node, by its name."""
        return {
            self.instance.nodes[index].name: node
            for node, index in enumerate(self.places)
        }

    @cached_property
    def data(self) -> list[list[int]]:
        """Direct dependencies of each node, without what only keeps an order."""
        numbers: list[int] = np.argsort(self.places).tolist()
        return [
            [numbers[dep] for dep in self.instance.deps[index]] for index in self.places
        ]

    @cached_property
    def matmul(self) -> list[bool]:
        """Whether each node runs a matrix product: all kernels that take time if none says so."""
        said = [self.instance.nodes[index].category == MATMUL for index in self.places]
        return (
            said
            if any(said)
            else [
                kind is NodeKind.COMPUTE and time > 0
                for kind, time in zip(self.kind, self.duration, strict=True)
            ]
        )

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.kind)

    def first_collective(self) -> list[int]:
        """Return the number of the first collective that each node is or leads to.

        Numbers count collectives in program order; a node that leads to none has the number of all
        collectives.
        """
        first = [len(self.comms)] * self.size
        for number, comm in enumerate(self.comms):
            first[comm] = number
        for node in range(self.size - 1, -1, -1):
            for dep in self.deps[node]:
                first[dep] = min(first[dep], first[node])
        return first


def users_of(deps: Iterable[Iterable[int]]) -> list[list[int]]:
    """Return for every node, in program order, the nodes that have it among their `deps`."""
    listed = list(deps)
    users: list[list[int]] = [[] for _ in listed]
    for node, direct in enumerate(listed):
        for dep in direct:
            users[dep].append(node)
    return users


def as_integers(amounts: Iterable[Decimal]) -> tuple[list[int], int]:
    """Scale exact amounts to integers; return them and their common factor."""
    exact = [Fraction(amount) for amount in amounts]
    factor = math.lcm(*(amount.denominator for amount in exact))
    return [int(amount * factor) for amount in exact], factor
