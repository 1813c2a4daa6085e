"""Memory while a schedule is built: free amounts, and amounts reserved for older work."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ppsolve.models.core.problem import FREE, Pool, Problem


class Ledger:
    """Exact use of every pool, as whole multiples of each pool's own unit.

    A micro-batch that has begun is promised the memory that it still has to acquire. On a pool
    that serves several stages a forward may start only if every older micro-batch could still
    finish after it, the oldest first (Dijkstra's banker's algorithm). Otherwise forwards of one
    chunk could take all memory that the next chunk requires, a deadlock.

    Parameters
    ----------
    problem : Problem
        The problem, n ops.
    reserve : bool
        A micro-batch begins on a pool only if all its acquires there fit beside those of the
        micro-batches in flight. Stricter than the promise, which may let only one of them advance.
    promise : bool
        Keep promises; without them only precedences between micro-batches prevent deadlocks.
    """

    def __init__(self, problem: Problem, *, reserve: bool = True, promise: bool = True) -> None:
        self.problem = problem
        self.acquires: dict[int, list[tuple[int, int]]] = {}
        self.releases: dict[int, list[tuple[int, int]]] = {}
        self.unit = [_denominator(pool) for pool in problem.pools]
        self.size = [
            math.floor((pool.limit - pool.initial) * unit)
            for pool, unit in zip(problem.pools, self.unit, strict=True)
        ]
        self.free = list(self.size)
        for index, pool in enumerate(problem.pools):
            self._read(index, pool)
        self.microbatch: list[int] = problem.microbatch.tolist()
        self.promises = _Promises(self, reserve=reserve, promise=promise)

    def _read(self, index: int, pool: Pool) -> None:
        whole = [int(amount * self.unit[index]) for amount in pool.amounts]
        for table, ops, amounts in (
            (self.acquires, pool.acquire_op, pool.acquire_amount),
            (self.releases, pool.release_op, pool.release_amount),
        ):
            for op, amount in zip(ops.tolist(), amounts.tolist(), strict=True):
                table.setdefault(op, []).append((index, whole[amount]))

    def net(self, op: int) -> Iterable[tuple[int, int]]:
        """Return (pool, amount) that must be free for `op`; ops of duration 0 release at once."""
        taken = self.acquires.get(op, [])
        if not taken or self.problem.duration[op]:
            return taken
        back = dict(self.releases.get(op, []))
        return [(pool, max(0, amount - back.get(pool, 0))) for pool, amount in taken]

    def shortage(self, op: int) -> int:
        """Return a pool that `op` cannot acquire from now, or `FREE`."""
        if op not in self.acquires:
            return FREE
        for pool, amount in self.net(op):
            if amount > self.free[pool] or not self.promises.keep(op, pool, amount):
                return pool
        return FREE

    def start(self, op: int) -> None:
        """Subtract the amounts that `op` acquires."""
        for pool, amount in self.acquires.get(op, ()):
            self.free[pool] -= amount
            self.promises.taken(op, pool, amount)

    def finish(self, op: int) -> list[int]:
        """Add the amounts that `op` releases; return the pools with more free memory now."""
        for pool, amount in self.releases.get(op, ()):
            self.free[pool] += amount
            self.promises.given_back(op, pool, amount)
        return [pool for pool, _ in self.releases.get(op, ())]


def _denominator(pool: Pool) -> int:
    return math.lcm(*(amount.denominator for amount in pool.amounts))


class _Promises:
    """Micro-batches in flight, with held and missing amounts, per pool of several stages."""

    def __init__(self, ledger: Ledger, *, reserve: bool, promise: bool) -> None:
        problem = ledger.problem
        self.ledger = ledger
        self.begun: set[int] = set()
        self.claims: dict[int, dict[int, int]] = {}
        self.flight: dict[int, dict[int, list[int]]] = {}
        self.reserve = reserve
        self.reserved = [0] * len(problem.pools)
        for index, pool in enumerate(problem.pools):
            if promise and len(np.unique(problem.stage[pool.acquire_op])) > 1:
                self.claims[index] = {}
                self.flight[index] = {}
        for op, taken in ledger.acquires.items() if self.claims else ():
            for index, amount in taken:
                if index in self.claims and ledger.microbatch[op] != FREE:
                    claims = self.claims[index]
                    owner = ledger.microbatch[op]
                    claims[owner] = claims.get(owner, 0) + amount

    def keep(self, op: int, pool: int, amount: int) -> bool:
        """Return true if all older micro-batches could still finish after `op` took `amount`."""
        if pool not in self.flight:
            return True
        owner, size = self.ledger.microbatch[op], self.ledger.size[pool]
        if self.reserve and self._is_new(owner, pool):
            claim = self.claims[pool].get(owner, 0)
            if self.reserved[pool] + claim > size:
                return False
        older = owner not in self.begun
        held_from_here = amount
        for microbatch, (held, missing) in reversed(self.flight[pool].items()):
            held_from_here += held
            if older and missing and held_from_here + missing > size:
                return False
            older = older or microbatch == owner
        return True

    def _is_new(self, owner: int, pool: int) -> bool:
        entry = self.flight[pool].get(owner)
        return entry is None or entry == [0, self.claims[pool][owner]]

    def taken(self, op: int, pool: int, amount: int) -> None:
        if pool not in self.flight:
            return
        owner = self.ledger.microbatch[op]
        if owner not in self.begun:
            self.begun.add(owner)
            for index, claims in self.claims.items():
                if owner in claims:
                    self.flight[index][owner] = [0, claims[owner]]
        if owner in self.flight[pool]:
            if self._is_new(owner, pool):
                self.reserved[pool] += self.claims[pool][owner]
            entry = self.flight[pool][owner]
            entry[0] += amount
            entry[1] -= amount

    def given_back(self, op: int, pool: int, amount: int) -> None:
        owner = self.ledger.microbatch[op]
        if pool in self.flight and owner in self.flight[pool]:
            entry = self.flight[pool][owner]
            entry[0] -= amount
            self.reserved[pool] -= amount
            if entry == [0, 0]:
                del self.flight[pool][owner]
