"""Search for a schedule of equal makespan that jitter delays less.

Local search over the orders of resources: an op on the longest path of a late run moves a few
places on its resource. The move stays if the planned makespan does not grow and the latest runs end
no later on average.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.dag import CycleError
from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.stress.replay import (
    FixedOrders,
    FloatArray,
    Jitter,
    drawn,
)
from ppsolve.solver.structure.timing import time_orders


@dataclass(frozen=True)
class RobustParams:
    """Effort of the search for a robust schedule."""

    # Runs by which a move is judged.
    samples: int = 400
    # Share of the latest runs whose mean end is to fall; the 95th percentile lies amid it.
    tail: float = 0.1
    # Places by which an op is moved at once, at most.
    farthest: int = 6
    # Moves that are tried, at most.
    steps: int = 2000


ROBUST = RobustParams()


def make_robust(
    schedule: Schedule,
    jitter: Jitter,
    clock: Clock,
    seed: int,
    params: RobustParams = ROBUST,
) -> Schedule:
    """Search for a valid schedule that jitter delays less and whose makespan is not longer.

    Each op starts as early as its order allows. The schedule is the old one if none is better by
    other random durations than those of the search. An `InputError` is one of `FixedOrders`.
    """
    search = _RobustOrderSearch(schedule, jitter, seed, params)
    for _ in range(params.steps):
        if clock.is_over:
            break
        search.step()
    fresh = next(drawn(schedule.problem, jitter, params.samples, seed + 1))
    before, after = (
        orders.makespans(fresh) for orders in (search.first, search.orders)
    )
    if _lateness(after, params.tail) >= _lateness(before, params.tail):
        return schedule
    return time_orders(
        schedule.problem, search.orders.orders, schedule.waits
    ).normalised()


def _lateness(makespans: FloatArray, tail: float) -> float:
    return float(np.sort(makespans)[-max(1, round(tail * len(makespans))) :].mean())


class _RobustOrderSearch:
    # The best orders so far, and their runs; run 0 has the planned durations.

    def __init__(
        self, schedule: Schedule, jitter: Jitter, seed: int, params: RobustParams
    ) -> None:
        self.problem, self.params = schedule.problem, params
        self.limit = schedule.makespan
        self.random = np.random.default_rng(seed)
        planned = self.problem.duration[:, None].astype(np.float64)
        samples = next(drawn(self.problem, jitter, params.samples, seed))
        self.durations = np.ascontiguousarray(
            np.concatenate([planned, samples], axis=1)
        )
        self.first = self.orders = FixedOrders.of(schedule)
        self.ends = self.orders.ends(self.durations)
        self.score = self._score(self.ends)

    def _score(self, finish: FloatArray) -> float:
        makespans = finish.max(axis=0)
        return (
            np.inf
            if makespans[0] > self.limit
            else _lateness(makespans[1:], self.params.tail)
        )

    def step(self) -> None:
        waiting = self._waiting(self._late_run())
        if not waiting:
            return
        resource, position = waiting[int(self.random.integers(len(waiting)))]
        orders = [*self.orders.orders]
        orders[resource] = self._moved(orders[resource], position)
        try:
            tried = FixedOrders(self.problem, orders, self.first.waits)
        except CycleError:
            return
        finish = tried.ends(self.durations)
        score = self._score(finish)
        if score <= self.score and not check_schedule(
            self.problem, time_orders(self.problem, orders, self.first.waits)
        ):
            self.orders, self.ends, self.score = tried, finish, score

    def _late_run(self) -> int:
        makespans = self.ends[:, 1:].max(axis=0)
        latest = np.argsort(makespans)[
            -max(1, round(self.params.tail * self.params.samples)) :
        ]
        return 1 + int(latest[int(self.random.integers(len(latest)))])

    def _waiting(self, run: int) -> list[tuple[int, int]]:
        # (resource, place) of the ops on a run's longest path that wait for a resource.
        end, start = self.ends[:, run], self.ends[:, run] - self.durations[:, run]
        seats = {
            op: (resource, position)
            for resource, chain in enumerate(self.orders.orders)
            for position, op in enumerate(chain.tolist())
        }
        op, waiting = int(np.argmax(end)), []
        for _ in range(len(end)):
            before = self.orders.last_before(op, end)
            seat = seats.get(op)
            if before is None:
                break
            if seat is not None and seat[1] > 0:
                neighbour = int(self.orders.orders[seat[0]][seat[1] - 1])
                if end[neighbour] >= start[op] * (1 - 1e-12):
                    waiting.append(seat)
            op = before
        return waiting

    def _moved(self, chain: IntArray, position: int) -> IntArray:
        # A chain with the op at a place earlier, or the one before it later.
        far = int(self.random.integers(1, self.params.farthest + 1))
        source, target = position, max(0, position - far)
        if self.random.random() < 0.5:
            source, target = position - 1, min(len(chain) - 1, position - 1 + far)
        ops = chain.tolist()
        ops.insert(target, ops.pop(source))
        return np.array(ops, dtype=np.int64)
