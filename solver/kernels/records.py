"""Records that kernels read: named tuples of int64 arrays.

Where rows differ in length, row j of a table with pointer p is ``values[p[j]:p[j + 1]]``.
Uncompiled kernels get the same records with lists in place of arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class PrecedenceGraph(NamedTuple):
    """Precedences of n ops, by the op that comes first.

    Attributes
    ----------
    duration, earliest, num_predecessors : int64[n]
        Duration, earliest start alone (release time or pin), number of precedences into each op.
    pointer : int64[n + 1]
        Rows of `successor` and `lag`.
    successor, lag : int64[k]
        Op that waits, and ticks from the end of the first op to its start.
    """

    duration: Any
    earliest: Any
    num_predecessors: Any
    pointer: Any
    successor: Any
    lag: Any


class Sources(NamedTuple):
    """Precedences of n ops, by the op that waits.

    Attributes
    ----------
    pointer : int64[n + 1]
        Rows of `source` and `lag`.
    source, lag : int64[k]
        Op that comes first, and ticks from its end to the start of the op that waits.
    """

    pointer: Any
    source: Any
    lag: Any


class ResourceUse(NamedTuple):
    """Resources that ops occupy; an op of length zero occupies none.

    Attributes
    ----------
    pointer : int64[n + 1]
        Rows of `resource`.
    resource : int64[...]
        Resource numbers.
    num_resources : int
        Number of resources R.
    """

    pointer: Any
    resource: Any
    num_resources: int


class MemoryUse(NamedTuple):
    """Amounts that ops acquire at their start and release at their end, in whole units per pool.

    Attributes
    ----------
    size : int64[P]
        Free amount of each pool before any op.
    acquire_pointer, release_pointer : int64[n + 1]
        Rows of the four tables below, by op.
    acquire_pool, acquire_amount, release_pool, release_amount : int64[...]
        Pool and amount.
    net_amount : int64[...]
        Beside `acquire_amount`: amount that must be free; ops of length 0 release at once.
    owner : int64[n]
        Micro-batch of each op, or -1.
    num_owners : int
        Number of micro-batches M.
    claim : int64[P * M]
        Amount that a micro-batch acquires of a pool in all.
    promises : int64[P]
        1 where a pool serves several stages, so that promises have to be kept.
    """

    size: Any
    acquire_pointer: Any
    acquire_pool: Any
    acquire_amount: Any
    net_amount: Any
    release_pointer: Any
    release_pool: Any
    release_amount: Any
    owner: Any
    num_owners: int
    claim: Any
    promises: Any
