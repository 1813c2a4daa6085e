"""A window of a schedule as a problem of its own: the order of everything else stays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np

from ppsolve.models.core.compose import columns_of
from ppsolve.models.core.dag import Edges, chain_edges
from ppsolve.models.core.problem import FREE, IntArray, Objective, Pool, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.bounds.relaxations import GraphPaths
from ppsolve.solver.heuristics.spans import compact_spans, orders_decide_memory
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.holds import whole_units
from ppsolve.solver.structure.implied import ImpliedOrder
from ppsolve.solver.structure.timing import time_orders

NEVER = -(2**60)
"""Longest path between ops that none connects."""


def obstacle(problem: Problem) -> str | None:
    """Return in words why no windows are taken of schedules of a problem, None where they are."""
    if problem.is_anchored or len(problem.points) or (problem.lag < 0).any():
        return "needs ops without given starts, no points, and lags of at least 0"
    if not orders_decide_memory(problem):
        return "needs pools whose ops all take time and run on one resource"
    if problem.objective is Objective.MAKESPAN:
        return None
    if problem.objective is not Objective.DEVICE_SPAN or not _ends_on_devices(problem):
        return "needs the makespan, or device spans and ops that all lead to a device"
    return None


def _ends_on_devices(problem: Problem) -> bool:
    none = np.where(problem.is_compute, 0, NEVER)
    return bool((Dag.of(problem).tails(none) > NEVER // 2).all())


class FixedOrderGraph:
    """A schedule with the order of its ops as a graph, of which windows are taken.

    A device span runs from the start of a device to its end. When devices may start stays here, so
    each op has one tail for all devices: the longest path to the end of a device, less that start.

    `schedule`: the same orders, every op as early as they and the starts of devices
        allow.
    `tail`: int64[n], least ticks from an op's start to the end of the problem of any
        window.
    `shift`: value of any window's problem less that of the schedule, in ticks.
    `levels`: the pools whose capacity precedences do not say exactly.
    `slope`: most ticks that a slanted border may move from one device to the next.
    """

    def __init__(self, implied: ImpliedOrder, schedule: Schedule) -> None:
        self.implied, problem, full = implied, implied.problem, implied.full
        begun, self.shift = np.zeros(problem.num_ops, dtype=np.int64), 0
        value = problem.duration
        if problem.objective is Objective.DEVICE_SPAN:
            schedule, begun = _in_windows(compact_spans(schedule), full)
            self.shift = int(begun.max(initial=0))
            value = np.where(problem.is_compute, value + self.shift - begun, NEVER)
        self.problem = replace(problem, release=begun)
        self.orders = schedule.resource_orders()
        numbers = np.repeat(np.arange(len(self.orders)), list(map(len, self.orders)))
        self._seats = np.concatenate([problem.before[:0], *self.orders]), numbers
        chains = chain_edges(self.orders)
        self.schedule = Schedule(problem, time_orders(self.problem, self.orders).start)
        self.before = np.concatenate([full.before, chains[0]])
        self.after = np.concatenate([full.after, chains[1]])
        self.delay = np.concatenate([full.delay, problem.duration[chains[0]]])
        graph = Dag(problem.num_ops, self.before, self.after, self.delay)
        self.tail = graph.tails(value)
        self._own_tail, self._level = value, graph.level
        self.levels = [
            PoolLevel.of(order.pool) for order in implied.pools if not order.is_exact
        ]
        self._sequences: dict[int, IntArray] = {}
        self.slope = _least_hop(problem, self.before, self.after, self.delay)

    def sequence(self, slant: int) -> IntArray:
        """Return all ops in the order in which a line passes their starts, int64[n].

        With a slant of 1 the line reaches each device `slope` ticks after the one before, with -1
        so much sooner, with 0 all at once. Each op stands behind those that it waits for.
        """
        if slant not in self._sequences:
            line = slant * self.slope * self.problem.device
            self._sequences[slant] = np.lexsort(
                (self._level, self.schedule.start - line)
            )
        return self._sequences[slant]

    def part(self, first: int, last: int, slant: int = 0) -> Subproblem:
        """Return the ops between two places of a sequence of starts as a problem.

        Ops before stay where they are and give release times; those behind keep their orders and
        give tails. The window runs from `first` to before `last` in the sequence of a slant, -1, 0
        or 1. Its problem has one op more: the end of the whole schedule.
        """
        zone, sequence = (
            np.zeros(self.problem.num_ops, dtype=np.int64),
            self.sequence(slant),
        )
        zone[sequence[first:]] = 1
        zone[sequence[last:]] = 2
        ops = np.sort(sequence[first:last])
        head, tail, earliest = self._surroundings(zone)
        number = np.full(self.problem.num_ops, FREE, dtype=np.int64)
        number[ops] = np.arange(len(ops))
        before, after, lag = _precedences(self, number, tail[ops])
        pools = (level.within(number, zone) for level in self.levels)
        problem = Problem(
            **kept_fields(self.problem, ops, 1),
            duration=np.append(self.problem.duration[ops], 0),
            before=before,
            after=after,
            lag=lag,
            release=np.append(head[ops], earliest),
            pools=tuple(pool for pool in pools if pool is not None),
            families=(),
        )
        return Subproblem(self, ops, zone, problem, tail[ops])

    def _surroundings(self, zone: IntArray) -> tuple[IntArray, IntArray, int]:
        problem, start = self.problem, self.schedule.start
        head, tail = problem.release.copy(), self._own_tail - problem.duration
        source, target = zone[self.before], zone[self.after]
        reach = start[self.before] + self.delay
        remaining = self.delay - problem.duration[self.before] + self.tail[self.after]
        into, out = (source == 0) & (target == 1), (source == 1) & (target == 2)
        np.maximum.at(head, self.after[into], reach[into])
        np.maximum.at(tail, self.before[out], remaining[out])
        seats, resource = self._seats
        seat_zone = zone[seats]
        begun, inside, behind = seat_zone == 0, seat_zone == 1, seat_zone == 2
        floor, ceiling = np.full((2, len(self.orders)), NEVER, dtype=np.int64)
        np.maximum.at(floor, resource[begun], self.schedule.end[seats[begun]])
        np.maximum.at(ceiling, resource[behind], self.tail[seats[behind]])
        np.maximum.at(head, seats[inside], floor[resource[inside]])
        np.maximum.at(tail, seats[inside], ceiling[resource[inside]])
        past = (source == 0) & (target == 2)
        crossing = (reach[past] + self.tail[self.after[past]]).max(initial=0)
        latest = (start + self._own_tail)[zone == 0].max(initial=0)
        return head, tail, int(max(crossing, latest))


@dataclass(frozen=True, eq=False)
class Subproblem:
    """Some ops of a schedule as a problem, see `FixedOrderGraph.part`."""

    whole: FixedOrderGraph  # the schedule
    ops: IntArray  # int64[k]: op i of `problem` is ``ops[i]``, op k is the end
    place: IntArray  # int64[n]: 0 for ops before the window, 1 within, 2 behind
    problem: Problem  # k + 1 ops
    # int64[k]: least ticks from the end of each op to the end of the problem; `NEVER` where it does
    # not wait for the op
    tail: IntArray

    @cached_property
    def implied(self) -> ImpliedOrder:
        """The problem with its implied order."""
        return ImpliedOrder(self.problem)

    @property
    def known(self) -> Schedule:
        """The known schedule of the window."""
        start = self.whole.schedule.start[self.ops]
        end = self.whole.schedule.value + self.whole.shift
        return Schedule(self.problem, np.append(start, end))

    def put_back(self, schedule: Schedule) -> Schedule:
        """Return the whole schedule, timed anew, with the window in the order of another one."""
        start = self.whole.schedule.start.copy()
        start[self.ops] = schedule.start[:-1]
        orders = [
            order[np.lexsort((start[order], self.place[order]))]
            for order in self.whole.orders
        ]
        timed = time_orders(self.whole.problem, orders)
        return Schedule(self.whole.schedule.problem, timed.start)


def _in_windows(schedule: Schedule, full: Dag) -> tuple[Schedule, IntArray]:
    # Devices that start sooner may let others end sooner: then their windows shrink too.
    problem, orders = schedule.problem, schedule.resource_orders()
    while True:
        begun = _starts_of_devices(schedule, full)
        timed = Schedule(
            problem, time_orders(replace(problem, release=begun), orders).start
        )
        if timed.value >= schedule.value:
            return schedule, begun
        schedule = timed


def _starts_of_devices(schedule: Schedule, full: Dag) -> IntArray:
    # A device whose span is smaller than the largest starts sooner by half of the difference, where
    # precedences let it: its first ops get room, and its last ones the other half.
    problem = schedule.problem
    begun = np.zeros(problem.num_ops, dtype=np.int64)
    head = full.heads(begun)
    for resource in problem.span_resources.tolist():
        ops = problem.ops_by_resource[resource]
        if len(ops):
            first = schedule.start[ops].min()
            spare = schedule.value - (schedule.end[ops].max() - first)
            begun[ops] = max(head[ops].min(), first - spare // 2)
    return begun


def _least_hop(
    problem: Problem, before: IntArray, after: IntArray, delay: IntArray
) -> int:
    distance = np.abs(problem.device[after] - problem.device[before])
    away = distance > 0
    if not away.any() or (problem.device == FREE).any():
        return 0
    return int((delay[away] // distance[away]).min())


def kept_fields(problem: Problem, ops: IntArray, extra: int) -> dict[str, Any]:
    """Return the fields of the problem of some ops that precedences and memory do not change.

    As many ops without resources as `extra` says follow them.
    """
    columns, none = columns_of(problem, ops), np.full(extra, FREE)
    pointer = columns["resource_ptr"]
    kept = ("name", "scale", "resources", "span_resources", "kinds", "slices")
    labels = ("kind", "stage", "device", "microbatch")
    return {
        **{name: getattr(problem, name) for name in kept},
        **{name: np.append(columns[name], none) for name in labels},
        "objective": Objective.MAKESPAN,
        "resource_ptr": np.append(pointer, np.full(extra, pointer[-1])),
        "resource_idx": columns["resource_idx"],
        "pinned": np.full(len(ops) + extra, FREE, dtype=np.int64),
        "explicit_names": {},
        "points": np.flatnonzero(np.isin(ops, problem.points)),
    }


def _precedences(graph: FixedOrderGraph, number: IntArray, tail: IntArray) -> Edges:
    full = graph.implied.full
    inside = (number[full.before] != FREE) & (number[full.after] != FREE)
    before, after = full.before[inside], full.after[inside]
    lag = full.delay[inside] - graph.problem.duration[before]
    finals = np.flatnonzero(tail > NEVER // 2)
    return (
        np.concatenate([number[before], finals]),
        np.concatenate([number[after], np.full(len(finals), len(tail))]),
        np.concatenate([lag, tail[finals]]),
    )


@dataclass(frozen=True, eq=False)
class PoolLevel:
    """A pool in whole numbers, all in units of 1 / `unit`."""

    pool: Pool  # the pool
    whole: IntArray  # int64[a] or object[a]: its amounts
    # initial, limit: initial use, and most that may be in use
    initial: int
    limit: int
    unit: int  # parts of 1

    @classmethod
    def of(cls, pool: Pool) -> Self:
        """Return a pool in whole numbers."""
        count = 2 + len(pool.acquire_op) + len(pool.release_op)
        amounts, unit = whole_units((*pool.amounts, pool.initial, pool.limit), count)
        return cls(pool, amounts[:-2], int(amounts[-2]), int(amounts[-1]), unit)

    def within(self, number: IntArray, zone: IntArray) -> Pool | None:
        """Return the pool with what the ops before a window leave in use; None if all fits anyhow.

        `number` has the number of each op in the window, `zone` its place as of `Subproblem`.
        """
        pool, amounts = self.pool, self.whole
        acquired, released = zone[pool.acquire_op], zone[pool.release_op]
        acquires = pool.acquire_amount[acquired == 1]
        level = self.initial + int(amounts[pool.acquire_amount[acquired == 0]].sum())
        level -= int(amounts[pool.release_amount[released == 0]].sum())
        if level + int(amounts[acquires].sum()) <= self.limit:
            return None
        return Pool(
            pool.key,
            pool.capacity,
            Fraction(level, self.unit),
            pool.amounts,
            number[pool.acquire_op[acquired == 1]],
            acquires,
            number[pool.release_op[released == 1]],
            pool.release_amount[released == 1],
        )


@dataclass(frozen=True, eq=False)
class Held:
    """A window in which full devices have deadlines in place of a share in the objective."""

    part: Subproblem  # its problem has a start window for each op of a full device
    # makespan of the known schedule there, in ticks: the longest path from the other devices, plus
    # a time that is the same for all paths
    value: int


def hold_full(window: Subproblem, goal: int) -> Held | None:
    """Return a window's problem that asks for shorter paths from all devices that are not full.

    A device is full if its work here leaves it no path as short as the goal: it may be left as late
    as now, others have to be left sooner. Once each path is shortened in some window, the schedule
    is. There is none where no device is full, or where no path from another one exceeds the goal,
    which is below the known value.
    """
    problem, count = window.problem, len(window.ops)
    paths = window.known.end[:count] + window.tail
    deadline = _deadlines(window, paths, goal)
    full = deadline < -NEVER
    value = int(paths[~full].max(initial=NEVER))
    if not full.any() or value <= goal:
        return None
    latest = deadline - window.tail - problem.duration[:count]
    has_deadline = full & (window.tail > NEVER // 2)
    # Ends of full devices count for the makespan too: it must exceed them whatever they are.
    beyond = max(
        0, int((deadline - window.tail)[has_deadline].max(initial=goal)) - goal
    )
    kept = ~np.append(full, False)[problem.before] | (problem.after < count)
    to_end = np.where(problem.after == count, beyond, 0)
    release = problem.release.copy()
    release[count] = goal + beyond
    held = replace(
        problem,
        before=problem.before[kept],
        after=problem.after[kept],
        lag=(problem.lag + to_end)[kept],
        release=release,
        windows={
            op: np.array([[0, latest[op]]], dtype=np.int64)
            for op in np.flatnonzero(has_deadline).tolist()
        },
    )
    return Held(replace(window, problem=held), value + beyond)


def _deadlines(window: Subproblem, paths: IntArray, goal: int) -> IntArray:
    deadline = np.full(len(paths), -NEVER, dtype=np.int64)
    for length, resource in GraphPaths(window.problem, window.implied.plain).works():
        if length > goal:
            ops = window.problem.ops_by_resource[resource]
            deadline[ops] = np.minimum(deadline[ops], paths[ops].max())
    return deadline
