"""Memory while a schedule is built: free amounts, and amounts promised to older micro-batches.

`pools` has a row of `POOL` numbers per pool, `claims` one of `CLAIM` numbers per pool and
micro-batch (row ``pool * M + micro-batch``), `begun` one number per micro-batch. Micro-batches in
flight on a pool are linked in the order in which they began.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.kernels.compilation import part
from ppsolve.solver.kernels.records import Memory

FREE, SIZE, PROMISES, RESERVED, YOUNGEST, POOL = 0, 1, 2, 3, 4, 5
HELD, MISSING, CLAIMED, FLIES, OLDER, YOUNGER, CLAIM = 0, 1, 2, 3, 4, 5, 6


def open_ledger(memory: Memory) -> tuple[IntArray, IntArray]:
    """Return the tables of pools and of claims before any op."""
    pools = np.zeros((len(memory.size), POOL), dtype=np.int64)
    pools[:, FREE] = pools[:, SIZE] = memory.size
    pools[:, PROMISES] = memory.promises
    pools[:, YOUNGEST] = -1
    claims = np.zeros((len(memory.claim), CLAIM), dtype=np.int64)
    claims[:, CLAIMED] = memory.claim
    return pools.ravel(), claims.ravel()


@part
def keeps_promises(
    pools: Any,
    claims: Any,
    begun: Any,
    num_owners: int,
    owner: int,
    pool: int,
    amount: int,
    reserve: int,
) -> bool:
    """Return true if all older micro-batches could still finish after `amount` was taken.

    With `reserve` a micro-batch begins on a pool only if all its acquires there fit beside those
    of the micro-batches in flight.
    """
    size, first = pools[pool * POOL + SIZE], pool * num_owners
    own = (first + owner) * CLAIM
    is_new = owner >= 0 and _is_new(claims, own)
    if reserve and is_new and pools[pool * POOL + RESERVED] + claims[own + CLAIMED] > size:
        return False
    older = owner < 0 or begun[owner] == 0
    held_from_here = amount
    microbatch = pools[pool * POOL + YOUNGEST]
    while microbatch >= 0:
        row = (first + microbatch) * CLAIM
        held_from_here += claims[row + HELD]
        missing = claims[row + MISSING]
        if older and missing > 0 and held_from_here + missing > size:
            return False
        older = older or microbatch == owner
        microbatch = claims[row + OLDER]
    return True


@part
def _is_new(claims: Any, row: int) -> bool:
    """Return true if a micro-batch holds nothing of a pool and has all of its claim to come."""
    return claims[row + FLIES] == 0 or (
        claims[row + HELD] == 0 and claims[row + MISSING] == claims[row + CLAIMED]
    )


@part
def take(
    pools: Any, claims: Any, begun: Any, num_owners: int, owner: int, pool: int, amount: int
) -> None:
    """Subtract an amount that an op of micro-batch `owner` acquires."""
    pools[pool * POOL + FREE] -= amount
    if pools[pool * POOL + PROMISES] == 0 or owner < 0:
        return
    if begun[owner] == 0:
        begun[owner] = 1
        for other in range(len(pools) // POOL):
            if pools[other * POOL + PROMISES] > 0:
                _begin(pools, claims, other, other * num_owners, owner)
    row = (pool * num_owners + owner) * CLAIM
    if claims[row + FLIES] > 0:
        if _is_new(claims, row):
            pools[pool * POOL + RESERVED] += claims[row + CLAIMED]
        claims[row + HELD] += amount
        claims[row + MISSING] -= amount


@part
def _begin(pools: Any, claims: Any, pool: int, first: int, owner: int) -> None:
    row = (first + owner) * CLAIM
    if claims[row + CLAIMED] == 0:
        return
    older = pools[pool * POOL + YOUNGEST]
    claims[row + FLIES] = 1
    claims[row + MISSING] = claims[row + CLAIMED]
    claims[row + OLDER] = older
    claims[row + YOUNGER] = -1
    if older >= 0:
        claims[(first + older) * CLAIM + YOUNGER] = owner
    pools[pool * POOL + YOUNGEST] = owner


@part
def give_back(pools: Any, claims: Any, num_owners: int, owner: int, pool: int, amount: int) -> None:
    """Add an amount that an op of micro-batch `owner` releases."""
    pools[pool * POOL + FREE] += amount
    if pools[pool * POOL + PROMISES] == 0 or owner < 0:
        return
    row = (pool * num_owners + owner) * CLAIM
    if claims[row + FLIES] == 0:
        return
    claims[row + HELD] -= amount
    pools[pool * POOL + RESERVED] -= amount
    if claims[row + HELD] == 0 and claims[row + MISSING] == 0:
        _land(pools, claims, pool, pool * num_owners, owner)


@part
def _land(pools: Any, claims: Any, pool: int, first: int, owner: int) -> None:
    row = (first + owner) * CLAIM
    claims[row + FLIES] = 0
    older, younger = claims[row + OLDER], claims[row + YOUNGER]
    if older >= 0:
        claims[(first + older) * CLAIM + YOUNGER] = younger
    if younger >= 0:
        claims[(first + younger) * CLAIM + OLDER] = older
    else:
        pools[pool * POOL + YOUNGEST] = older
