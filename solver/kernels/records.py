"""Records that kernels read: named tuples of int64 arrays.

Where rows differ in length, row j of a table with pointer p is ``values[p[j]:p[j + 1]]``.
Uncompiled kernels get the same records with lists in place of arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

NEVER = 2**62
"""A moment that does not come, above every time; sums of two would leave 64 bits."""


class PrecedenceGraph(NamedTuple):
    """Precedences of n ops, by the op that comes first."""

    duration: Any  # int64[n]
    earliest: Any  # int64[n]: release time or pin
    num_predecessors: Any  # int64[n]
    pointer: Any  # int64[n + 1]: rows of successor and lag
    successor: Any  # int64[k]: op that waits
    lag: Any  # int64[k]: ticks from the end of the first op to the start of the second


class Sources(NamedTuple):
    """Precedences of n ops, by the op that waits."""

    pointer: Any  # int64[n + 1]: rows of source and lag
    source: Any  # int64[k]: op that comes first
    lag: Any  # int64[k]: ticks from its end to the start of the op that waits


class ResourceUse(NamedTuple):
    """Resources that ops occupy; an op of length zero occupies none."""

    pointer: Any  # int64[n + 1]: rows of resource
    resource: Any  # int64[...]
    num_resources: int  # R


class MemoryUse(NamedTuple):
    """Amounts that ops acquire at their start and release at their end, in whole units per pool."""

    size: Any  # int64[P]: free amount of each pool before any op
    acquire_pointer: Any  # int64[n + 1]: rows of the next three, by op
    acquire_pool: Any
    acquire_amount: Any
    net_amount: Any  # amount that must be free: ops of length 0 release at once
    release_pointer: Any  # int64[n + 1]: rows of the next two, by op
    release_pool: Any
    release_amount: Any
    owner: Any  # int64[n]: micro-batch of each op, or -1
    num_owners: int  # number of micro-batches M
    claim: Any  # int64[P * M]: amount that a micro-batch acquires of a pool in all
    promises: Any  # int64[P]: 1 where a pool serves several stages, so that promises must be kept
