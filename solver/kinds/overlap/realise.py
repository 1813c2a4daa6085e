"""Program orders of schedules, and schedules of program orders."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from dataclasses import replace
from enum import IntEnum
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ppsolve.models.core.problem import Problem, most_in_use
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.overlap.instance import CHOSEN_ORDER, OverlapInstance
from ppsolve.models.kinds.overlap.labels import NodeKind
from ppsolve.models.kinds.overlap.lowering import LoweredOverlap
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.kinds.overlap.contention import lengths_alone
from ppsolve.solver.kinds.overlap.replay import Replay, bytes_of_order, replay


class _Moment(IntEnum):
    # Order at one moment: a wait before a launch, so that one collective fewer is in flight.
    WAIT = 0
    KERNEL = 1
    LAUNCH = 2


_Key = tuple[int, int, _Moment, int]
"""Time, 1 for kernels that take time, turn at that moment, and place in the program."""


def realised(
    instance: OverlapInstance, lowered: LoweredOverlap, schedule: Schedule
) -> tuple[list[int], Schedule] | None:
    """Return a program order that keeps every rule of a schedule, and the schedule of that order.

    None where no order that was tried keeps the caps.
    """
    best: tuple[list[int], Schedule] | None = None
    for late in (False, True) if lowered.problem.pools else (False,):
        order = _ProgramEmitter(instance, lowered, schedule, late=late).run()
        again = valid_run(instance, lowered, order)
        if again is not None and (best is None or again.makespan < best[1].makespan):
            best = order, again
    return best


def valid_run(
    instance: OverlapInstance, lowered: LoweredOverlap, order: list[int]
) -> Schedule | None:
    """Return the schedule of a program order, None where it breaks a cap."""
    run, timed = run_order(instance, lowered, order)
    broken = broken_cap(instance, order, timed) or check_schedule(run.problem, run)
    return None if broken else run


def broken_cap(
    instance: OverlapInstance, order: list[int], timed: Replay
) -> str | None:
    """Describe a cap on collectives in flight, or on bytes of buffers, that an order breaks.

    It is told with group and count, or with bytes; None where all caps are kept. Bytes of outputs
    over time are the checker's.
    """
    for group, count in timed.in_flight.items():
        cap = instance.cap_of(group)
        if cap is not None and count > cap:
            suffix = f" of group {group}" if len(instance.groups) > 1 else ""
            return f"in flight: {count} of {cap} collectives{suffix}"
    limit = instance.max_live_bytes
    if limit is not None and instance.buffers is not None:
        peak = bytes_of_order(instance, order, timed).peak
        if peak > most_in_use(Fraction(limit)):
            return f"live bytes: the order holds {float(peak):.17g} of {limit}"
    return None


class _ProgramEmitter:
    """The program order of a schedule.

    Kernels keep their order, and collectives that of their stream. Each collective comes once its
    dependencies and the previous one of its group are there, each wait just before its first user;
    points of the compute stream keep their place. A `late` order launches collectives as late as
    their starts allow, and lets waits hold kernels back to their starts, so that outputs are made
    no earlier than in the schedule.
    """

    def __init__(
        self,
        instance: OverlapInstance,
        lowered: LoweredOverlap,
        schedule: Schedule,
        *,
        late: bool,
    ) -> None:
        self.instance = instance
        self.late = late
        self.start: list[int] = schedule.start.tolist()
        self.end: list[int] = schedule.end.tolist()
        self.length: list[int] = lowered.problem.duration.tolist()
        self.launch = lowered.launch
        self.points = set(lowered.problem.points.tolist())
        self.order: list[int] = []
        self.emitted = [False] * len(instance.nodes)
        self.kernels = sorted(
            (node for node in instance.of_kind(NodeKind.COMPUTE) if self.length[node]),
            key=lambda node: self.start[node],
        )
        self.before = self._before()
        self.after: list[list[int]] = [[] for _ in instance.nodes]
        for node, earlier in enumerate(self.before):
            for predecessor in earlier:
                self.after[predecessor].append(node)
        self.ending: dict[int, list[int]] = defaultdict(list)
        for node in instance.of_kind(NodeKind.COMM):
            self.ending[self.end[node]].append(node)

    def run(self) -> list[int]:
        missing = [len(earlier) for earlier in self.before]
        queue = [
            (self._key(node), node)
            for node, count in enumerate(missing)
            if not count and self._is_queued(node)
        ]
        heapq.heapify(queue)
        while queue:
            _, node = heapq.heappop(queue)
            if self.emitted[node]:
                continue
            for emitted in [*self._waits_before(node), node]:
                self.emitted[emitted] = True
                self.order.append(emitted)
                for successor in self.after[emitted]:
                    missing[successor] -= 1
                    if not missing[successor]:
                        heapq.heappush(queue, (self._key(successor), successor))
        self.order += [node for node, done in enumerate(self.emitted) if not done]
        return self.order

    def _is_queued(self, node: int) -> bool:
        return (
            self.instance.nodes[node].kind is not NodeKind.WAIT or node in self.points
        )

    def _before(self) -> list[list[int]]:
        """Return the nodes to emit before each queued node, plain waits looked through."""
        instance = self.instance
        before: list[set[int]] = []
        stays: dict[int, list[int]] = defaultdict(list)
        for first, second in instance.orders:
            stays[second].append(first)
        for node, deps in enumerate(instance.deps):
            earlier: set[int] = set()
            for dep in (*deps, *stays[node]):
                earlier |= {dep} if self._is_queued(dep) else before[dep]
            before.append(earlier)
        streams: dict[str, list[int]] = defaultdict(list)
        for node in instance.of_kind(NodeKind.COMM):
            streams[instance.group_of(node)].append(node)
        for stream in streams.values():
            stream.sort(
                key=lambda node: (self.start[node], self.length[node] > 0, node)
            )
            for first, second in pairwise(stream):
                before[second].add(first)
        return [
            sorted(earlier) if self._is_queued(node) else []
            for node, earlier in enumerate(before)
        ]

    def _key(self, node: int) -> _Key:
        kind = self.instance.nodes[node].kind
        if kind is NodeKind.WAIT:
            return self.start[node], 0, _Moment.WAIT, node
        if kind is NodeKind.COMPUTE:
            return self.start[node], int(self.length[node] > 0), _Moment.KERNEL, node
        if self.late:
            return self._latest_launch(node), 0, _Moment.LAUNCH, node
        if node in self.launch:
            return self.start[self.launch[node]], 0, _Moment.LAUNCH, node
        return -1, 0, _Moment.LAUNCH, node

    def _latest_launch(self, node: int) -> int:
        """Return the start of the kernel that runs when a collective starts, else that start."""
        time = self.start[node]
        index = (
            bisect_left(self.kernels, time, key=lambda kernel: self.start[kernel]) - 1
        )
        if index >= 0 and self.end[self.kernels[index]] > time:
            return self.start[self.kernels[index]]
        return time

    def _waits_before(self, node: int) -> list[int]:
        """Return the waits to emit before a node: those it depends on, and those that cause a gap.

        A kernel that starts at the end of a collective, later than it could, does so behind its
        wait.
        """
        waits: list[int] = []
        for dep in self.instance.deps[node]:
            self._add_wait(dep, waits)
        if (
            self.late
            and self.instance.nodes[node].kind is NodeKind.COMPUTE
            and self.length[node]
        ):
            for collective in self.ending.get(self.start[node], ()):
                wait = self.instance.wait_of[collective]
                if all(self.emitted[dep] for dep in self.instance.deps[wait]):
                    self._add_wait(wait, waits, early=True)
        return waits

    def _add_wait(self, wait: int, waits: list[int], *, early: bool = False) -> None:
        if self.emitted[wait] or wait in waits:
            return
        if self._is_queued(wait) and not early:
            return
        for dep in self.instance.deps[wait]:
            self._add_wait(dep, waits)
        waits.append(wait)


def stretched(
    instance: OverlapInstance, problem: Problem, order: list[int], timed: Replay
) -> Problem:
    """Return the problem in which kernels and collectives take as long as an order makes them.

    The order is one of its `choices`; where times were rounded up, its scale is not exact.
    """
    duration = problem.duration.copy()
    running = [*instance.of_kind(NodeKind.COMPUTE), *instance.of_kind(NodeKind.COMM)]
    duration[running] = (timed.end - timed.start)[running]
    scale = replace(problem.scale, is_exact=problem.scale.is_exact and timed.is_exact)
    choices = {CHOSEN_ORDER: np.array(order, dtype=np.int64)}
    return replace(problem, duration=duration, choices=choices, scale=scale)


def run_order(
    instance: OverlapInstance, lowered: LoweredOverlap, order: list[int]
) -> tuple[Schedule, Replay]:
    """Run a program order on its streams.

    A wait starts when it lets the compute stream go on, a launch when that stream reaches it. Under
    contention the problem of the schedule has the durations of this order.
    """
    problem, count = lowered.problem, len(instance.nodes)
    if instance.contention:
        timed = replay(instance, order, lengths_alone(instance, problem.scale))
        problem = stretched(instance, problem, order, timed)
    else:
        timed = replay(instance, order, problem.duration[:count].tolist())
    start = np.zeros(problem.num_ops, dtype=np.int64)
    start[:count] = timed.start
    waits = instance.of_kind(NodeKind.WAIT)
    start[waits] = timed.end[waits]
    clock = 0
    for node in order:
        if instance.nodes[node].kind is not NodeKind.COMM:
            clock = max(clock, int(timed.end[node]))
        elif node in lowered.launch:
            start[lowered.launch[node]] = clock
    for op in lowered.release.values():
        users = problem.before[problem.after == op]
        start[op] = (start[users] + problem.duration[users]).max(initial=0)
    return Schedule(problem, start), timed
