"""Local search over the orders of ops on resources, by simulated annealing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import FREE, IntArray, Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import MemoryDeadlockError
from ppsolve.solver.clock import Clock
from ppsolve.solver.flow.flow import flow_of
from ppsolve.solver.heuristics.parallel import generate_parallel
from ppsolve.solver.heuristics.rules import RuleBook
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.order_search import (
    BEST,
    CHANCE_UNIT,
    CHANCES,
    RANDOM,
    Pace,
    search_orders,
)
from ppsolve.solver.kernels.shop import Bench, Shop
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.implied import index_order
from ppsolve.solver.structure.tables import joined, memory_of, rows_by
from ppsolve.solver.structure.timing import time_orders

_HOT, _COLD = 0.3, 0.02
"""Temperatures at which a round of annealing begins and ends, in mean durations."""

_LEVELS = 50
"""Temperatures of one round."""

_REACH = 16
"""Most ops that are passed in one move."""

_TRADES = 2
"""Of 16 steps, those in which micro-batches trade places."""

_STEPS, _STEPS_TIMES_OPS = 200, 500_000
"""Steps between two looks at the clock: so many, on large problems so many divided by the ops."""

_OPS_PER_STEP = 10
"""Ops that are timed in one step, so that compiled code is announced."""


_RIVALS = 15
"""Schedules of list rules in a race beside the best one."""

_MOST_STUCK = 100
"""List rules that may get stuck for want of memory before no more are tried."""


def obstacle(problem: Problem) -> str | None:
    """Return in words why the orders on resources do not decide everything, None where they do."""
    if problem.objective is not Objective.MAKESPAN:
        return "needs the makespan as its objective"
    if problem.is_anchored or len(problem.points):
        return "needs ops without given starts, and no points"
    if (problem.lag < 0).any():
        return "needs lags of at least 0"
    if (np.diff(problem.resource_ptr)[problem.duration > 0] > 1).any():
        return "needs ops that occupy one resource each"
    if _homes(problem) is None:
        return "needs pools whose ops all run on one resource, one pool for each resource"
    return None


def order_search(
    known: Schedule,
    clock: Clock | None = None,
    *,
    bound: int = 0,
    goes_on: bool = True,
    steps: int | None = None,
    seed: int = 1,
    tell: Callable[[Schedule], None] | None = None,
) -> Schedule:
    """Return the best schedule found by changing the orders of ops on their resources.

    Moves are those of job-shop searches on a longest path; besides, micro-batches that pass the
    same positions trade places as a whole. What neither changes is the pattern in which ops of
    different kinds follow each other, so the search goes in races: the best schedule and those of
    a few list rules are annealed, the worse half is left, the others get twice the steps, until
    one is left. Each race has new list rules and twice the steps of the one before.

    Parameters
    ----------
    known : Schedule
        A feasible schedule to improve, of a problem without an `obstacle`.
    clock : Clock, optional
        Once it is over, the best schedule so far is returned.
    bound : int
        A lower bound on the makespan in ticks; the search ends where it is met.
    goes_on : bool
        Whether it uses all the time of a limited clock, or ends with the first round that does not
        help.
    steps : int, optional
        Number of steps, however many rounds they are and whether these help or not. Without a
        limited clock either way gives the same schedule on every machine.
    seed : int
        First random number, from 1 to 2**31 - 2.
    tell : callable, optional
        Told of better schedules while the search goes on.

    Returns
    -------
    Schedule
        A schedule no longer than `known`.
    """
    search = _Search(known, clock or Clock(), bound, seed, tell)
    search.left = math.inf if steps is None else steps
    ends_early = steps is None and not (goes_on and search.clock.is_limited)
    looks = 1
    while not search.is_over:
        before = search.best
        search.race(looks)
        looks *= 2
        if ends_early and search.best is before:
            break
    return search.best


class _Line(NamedTuple):
    """Orders on their way: arrays that `search_orders` changes."""

    order: IntArray
    best: IntArray
    numbers: IntArray

    @property
    def value(self) -> int:
        """Makespan of the best orders in ticks."""
        return int(self.numbers[BEST])


class _Search:
    """Races of lines, and the best schedule of all.

    Parameters
    ----------
    known, clock, bound, seed, tell
        As in `order_search`.
    """

    def __init__(
        self,
        known: Schedule,
        clock: Clock,
        bound: int,
        seed: int,
        tell: Callable[[Schedule], None] | None,
    ) -> None:
        self.best, self.clock, self.left = known, clock, math.inf
        self._problem = problem = known.problem
        self._bound, self._random, self._tell = bound, Random(seed), tell
        traders, edges = _traders(problem), index_order(problem)
        self._edges = edges if not len(traders[2]) and _is_kept(edges, known) else None
        kept = [] if self._edges is None else [edges]
        self._shop, self._level = _shop(problem, kept, traders), Dag.of(problem, *kept).level
        rooms = np.zeros((2, problem.num_resources), dtype=np.int64)
        todo = np.zeros((1, 4), dtype=np.int64)
        self._bench = Bench(*rooms, *todo, *np.zeros((15, problem.num_ops), dtype=np.int64))
        self._heat = float(problem.duration.mean())
        self._starts = self._by_rules(edges)

    @property
    def is_over(self) -> bool:
        """Whether time or steps are used up, or the bound is met."""
        return self.clock.is_over or self.left <= 0 or self.best.makespan <= self._bound

    def race(self, looks: int) -> None:
        """Anneal several schedules, the better half again, until one is left.

        Parameters
        ----------
        looks : int
            Looks at the clock for each temperature of the first round.
        """
        starts = islice(self._starts, _RIVALS)
        lines = [self._line(schedule) for schedule in (self.best, *starts)]
        while not self.is_over:
            for line in lines:
                self._anneal(line, looks)
            lines.sort(key=lambda line: line.value)
            looks *= 2
            if len(lines) == 1:
                break
            lines = lines[: (len(lines) + 1) // 2]

    def _by_rules(self, edges: Edges) -> Iterator[Schedule]:
        """Yield schedules of list rules without end, or none where all of a hundred get stuck."""
        book, stuck = RuleBook(self._problem), 0
        for recipe in book.recipes():
            rule, extra = book.rule(recipe)
            try:
                schedule = generate_parallel(self._problem, rule, edges, extra).normalised()
            except MemoryDeadlockError:
                stuck += 1
                if stuck == _MOST_STUCK:
                    return
                continue
            if self._edges is None or _is_kept(edges, schedule):
                yield schedule

    def _line(self, schedule: Schedule) -> _Line:
        order = np.lexsort((self._level, schedule.start)).astype(np.int64)
        numbers = np.zeros(4, dtype=np.int64)
        numbers[RANDOM], numbers[BEST] = self._random.randrange(1, 2**31 - 1), schedule.makespan
        return _Line(order, order.copy(), numbers)

    def _anneal(self, line: _Line, looks: int) -> None:
        """Go through one round of annealing from the best orders of a line.

        Parameters
        ----------
        line : _Line
            The line.
        looks : int
            Looks at the clock for each temperature.
        """
        count = self._problem.num_ops
        size = max(1, min(_STEPS, _STEPS_TIMES_OPS // count))
        expect(_LEVELS * looks * size * _OPS_PER_STEP * _RIVALS, self.clock.left)
        line.order[:] = line.best
        for look in range(_LEVELS * looks):
            if self.is_over:
                break
            heat = self._heat * _HOT * (_COLD / _HOT) ** (look // looks / (_LEVELS - 1))
            steps = int(min(size, self.left))
            pace = Pace(round(heat), _REACH, _TRADES, self._bound)
            search_orders(self._shop, self._bench, pace, steps, *line)
            self.left -= steps
            if line.value < self.best.makespan:
                self.best = self._schedule(line)
                if self._tell is not None:
                    self._tell(self.best)

    def _schedule(self, line: _Line) -> Schedule:
        """Return the schedule of the best orders of a line."""
        place, resources = self._shop.resource[line.best], range(self._problem.num_resources)
        return time_orders(self._problem, [line.best[place == number] for number in resources])


def _is_kept(edges: Edges, schedule: Schedule) -> bool:
    """Return true if a schedule keeps precedences, none of which has a negative lag."""
    before, after, lag = edges
    is_kept = (lag >= 0).all() and (schedule.start[after] >= schedule.end[before] + lag).all()
    return bool(is_kept)


def _traders(problem: Problem) -> tuple[IntArray, IntArray, IntArray, int]:
    """Return `row`, `column`, `twin` and `width` of `Shop`; alike micro-batches need no trades."""
    flow = flow_of(problem)
    row, column = np.full((2, problem.num_ops), FREE, dtype=np.int64)
    if flow is None or all(
        (table == table[0]).all() for table in (flow.duration, flow.acquire, flow.release)
    ):
        return row, column, np.zeros(0, dtype=np.int64), 1
    row[flow.ops] = np.arange(flow.num_microbatches)[:, None]
    column[flow.ops] = np.arange(flow.num_positions)
    return row, column, flow.ops.ravel(), flow.num_positions


def _shop(
    problem: Problem, edges: list[Edges], traders: tuple[IntArray, IntArray, IntArray, int]
) -> Shop:
    """Return what is ordered, with precedences `edges` and vectors `traders` (see `_traders`)."""
    memory, ops = memory_of(problem), np.arange(problem.num_ops)
    before, after, lag = joined(problem, *edges)
    into, by_after = rows_by(after, problem.num_ops)
    out, by_before = rows_by(before, problem.num_ops)
    room = np.zeros(problem.num_resources + 1, dtype=np.int64)
    room[_homes(problem)] = memory.size
    need, freed = np.zeros((2, problem.num_ops), dtype=np.int64)
    np.add.at(need, np.repeat(ops, np.diff(memory.acquire_pointer)), memory.acquire_amount)
    np.add.at(freed, np.repeat(ops, np.diff(memory.release_pointer)), memory.release_amount)
    return Shop(
        problem.duration,
        _resources(problem),
        need,
        freed,
        room[:-1],
        into,
        before[by_after],
        lag[by_after],
        out,
        after[by_before],
        lag[by_before],
        *traders,
        _chances(),
    )


def _chances() -> IntArray:
    """Return the quantiles of the exponential distribution in `CHANCE_UNIT`."""
    shares = [(number + 0.5) / CHANCES for number in range(CHANCES)]
    return np.array([round(-CHANCE_UNIT * math.log(share)) for share in shares], dtype=np.int64)


def _resources(problem: Problem) -> IntArray:
    """Return the resource that each op keeps others off, `FREE` where there is none."""
    first = np.append(problem.resource_idx, FREE)[problem.resource_ptr[:-1]]
    seated = (np.diff(problem.resource_ptr) > 0) & (problem.duration > 0)
    resource: IntArray = np.where(seated, first, FREE)
    return resource


def _homes(problem: Problem) -> list[int] | None:
    """Return the resource of each pool's ops, None where a pool has several or shares one."""
    resource = _resources(problem)
    homes: list[int] = []
    for pool in problem.pools:
        found = np.unique(resource[np.concatenate([pool.acquire_op, pool.release_op])]).tolist()
        if len(found) > 1 or found == [FREE]:
            return None
        homes += found or [FREE]
    used = [home for home in homes if home != FREE]
    return homes if len(set(used)) == len(used) else None
