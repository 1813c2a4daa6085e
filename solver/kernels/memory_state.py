"""Memory while a schedule is built: free amounts, and amounts promised to older micro-batches.

A micro-batch that has begun is promised the memory that it still has to acquire. On a pool that
serves several stages a forward may start only if every older micro-batch could still finish after
it, the oldest first (Dijkstra's banker's algorithm). Otherwise forwards of one chunk could take
all memory that the next chunk requires, a deadlock.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import part
from ppsolve.solver.kernels.records import MemoryUse


class MemoryState(NamedTuple):
    """State of P pools; what M micro-batches have of them is in rows ``pool * M + micro-batch``."""

    free: Any  # int64[P]
    reserved: Any  # int64[P]: claims of the micro-batches in flight, minus what they gave back
    held: Any  # int64[P * M]
    missing: Any  # int64[P * M]: what a micro-batch has still to acquire
    in_flight: Any  # int64[P * M]: 1 in flight on a pool with promises
    flight: Any  # int64[P * M]: per pool, the micro-batches in flight, those that began first first
    num_flight: Any  # int64[P]
    begun: Any  # int64[M + 1]: 1 for micro-batches that have begun; -1 stands for none


@part
def shortage(state: MemoryState, memory: MemoryUse, op: int, reserve: int) -> int:
    """Return a pool that an op cannot acquire from now, -1 if the op can start.

    With `reserve` a micro-batch begins on a pool only if all its acquires there fit in addition to
    those of the micro-batches in flight. The promise alone may let only one of them advance.
    """
    for row in range(memory.acquire_pointer[op], memory.acquire_pointer[op + 1]):
        pool: int = memory.acquire_pool[row]
        amount = memory.net_amount[row]
        if amount > state.free[pool]:
            return pool
        if memory.promises[pool] and not _keeps_promises(
            state, memory, memory.owner[op], pool, amount, reserve
        ):
            return pool
    return -1


@part
def _keeps_promises(
    state: MemoryState,
    memory: MemoryUse,
    owner: int,
    pool: int,
    amount: int,
    reserve: int,
) -> bool:
    """Whether all older micro-batches could still finish after `amount` was taken."""
    size, base = memory.size[pool], pool * memory.num_owners
    if reserve and (owner < 0 or _is_new(state, memory, base + owner)):
        claim = memory.claim[base + owner] if owner >= 0 else 0
        if state.reserved[pool] and state.reserved[pool] + claim > size:
            return False
    older, held_from_here = not state.begun[owner + 1], amount
    for index in range(base + state.num_flight[pool] - 1, base - 1, -1):
        microbatch = state.flight[index]
        missing = state.missing[base + microbatch]
        held_from_here += state.held[base + microbatch]
        if older and missing and held_from_here + missing > size:
            return False
        older = older or microbatch == owner
    return True


@part
def _is_new(state: MemoryState, memory: MemoryUse, row: int) -> bool:
    """Whether a micro-batch holds nothing of a pool and has all of its claim to come."""
    return not state.in_flight[row] or (
        state.held[row] == 0 and state.missing[row] == memory.claim[row]
    )


@part
def take(state: MemoryState, memory: MemoryUse, op: int) -> None:
    """Subtract the amounts that an op acquires."""
    owner = memory.owner[op]
    for position in range(memory.acquire_pointer[op], memory.acquire_pointer[op + 1]):
        pool, amount = memory.acquire_pool[position], memory.acquire_amount[position]
        state.free[pool] -= amount
        if not memory.promises[pool]:
            continue
        if not state.begun[owner + 1]:
            _begin(state, memory, owner)
        row = pool * memory.num_owners + owner
        if owner >= 0 and state.in_flight[row]:
            if _is_new(state, memory, row):
                state.reserved[pool] += memory.claim[row]
            state.held[row] += amount
            state.missing[row] -= amount


@part
def _begin(state: MemoryState, memory: MemoryUse, owner: int) -> None:
    state.begun[owner + 1] = 1
    for pool in range(len(memory.size)):
        base = pool * memory.num_owners
        if owner >= 0 and memory.promises[pool] and memory.claim[base + owner]:
            state.flight[base + state.num_flight[pool]] = owner
            state.num_flight[pool] += 1
            state.in_flight[base + owner] = 1
            state.missing[base + owner] = memory.claim[base + owner]


@part
def give_back(state: MemoryState, memory: MemoryUse, op: int) -> None:
    """Add the amounts that an op releases."""
    owner = memory.owner[op]
    for position in range(memory.release_pointer[op], memory.release_pointer[op + 1]):
        pool, amount = memory.release_pool[position], memory.release_amount[position]
        state.free[pool] += amount
        row = pool * memory.num_owners + owner
        if owner >= 0 and state.in_flight[row]:
            state.held[row] -= amount
            state.reserved[pool] -= amount
            if state.held[row] == 0 and state.missing[row] == 0:
                _land(state, pool, owner, pool * memory.num_owners)


@part
def _land(state: MemoryState, pool: int, owner: int, base: int) -> None:
    """Take a micro-batch that has given all back out of the flight."""
    state.in_flight[base + owner] = 0
    state.num_flight[pool] -= 1
    end = base + state.num_flight[pool]
    index = base
    while state.flight[index] != owner:
        index += 1
    for slot in range(index, end):
        state.flight[slot] = state.flight[slot + 1]
