"""Where the idle time of each device goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from ppsolve.models.core.dag import chain_edges
from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.structure.tables import joined


class Why(IntEnum):
    """Why an op starts when it does; the page's script knows these numbers."""

    FIRST = 0  # it starts at time 0
    DATA = 1  # an op that it needs ends, or the transfer from there
    ORDER = 2  # the op before it on its resource ends
    MEMORY = 3  # an op gives back memory of a pool that it takes from
    GIVEN = 4  # its release time or its pinned start
    CHOSEN = 5  # nothing holds it: the schedule lets it wait


@dataclass(frozen=True)
class OpCauses:
    """What each op waited for last; n ops, times in ticks."""

    # The predecessor, by data or by the order on a resource, that lets it start last; `FREE`
    # without any. Of equals the one that it needs the data of.
    latest: IntArray
    arrival: IntArray  # when that predecessor lets it start; 0 without any
    why: IntArray  # `Why` it starts when it does
    cause: (
        IntArray  # the op whose end, and lag, is its start; `FREE` where there is none
    )


def causes_of(schedule: Schedule) -> OpCauses:
    """Return the last thing that each op of a schedule waited for."""
    latest, arrival, by_data = _latest(schedule)
    why = np.where(by_data, Why.DATA, Why.ORDER).astype(np.int64)
    cause = latest.copy()
    for op in np.flatnonzero(schedule.start > arrival).tolist():
        cause[op], why[op] = FREE, Why.CHOSEN
    _name_given(schedule, why, latest == FREE)
    _find_memory(schedule, cause, why)
    return OpCauses(latest, arrival, why, cause)


def _latest(schedule: Schedule) -> tuple[IntArray, IntArray, IntArray]:
    problem = schedule.problem
    before, after, lag = joined(problem, chain_edges(schedule.resource_orders()))
    is_data = np.arange(len(before)) < len(problem.before)
    moment = schedule.end[before] + lag
    order = np.lexsort((is_data, moment, after))
    last = (
        order[np.append(after[order][1:] != after[order][:-1], True)]
        if len(order)
        else order
    )
    latest = np.full(problem.num_ops, FREE, dtype=np.int64)
    arrival = np.zeros(problem.num_ops, dtype=np.int64)
    by_data = np.zeros(problem.num_ops, dtype=np.int64)
    latest[after[last]], arrival[after[last]] = before[last], moment[last]
    by_data[after[last]] = is_data[last]
    return latest, arrival, by_data


def _name_given(schedule: Schedule, why: IntArray, unpreceded: IntArray) -> None:
    """Tell ops that nothing precedes, or that start at a given moment, from those that wait."""
    problem, start = schedule.problem, schedule.start
    waits = (why == Why.CHOSEN) | unpreceded
    why[waits & (start == 0)] = Why.FIRST
    fixed = (start == problem.release) | (start == problem.pinned)
    why[waits & fixed & (start > 0)] = Why.GIVEN


def _find_memory(schedule: Schedule, cause: IntArray, why: IntArray) -> None:
    """Name the release of memory that ends where an op starts that nothing else explains."""
    for pool in schedule.problem.pools:
        order = np.argsort(schedule.end[pool.release_op], kind="stable")
        released = pool.release_op[order]
        moments = schedule.end[released]
        takers = np.unique(pool.acquire_op)
        for op in takers[why[takers] == Why.CHOSEN].tolist():
            index = int(np.searchsorted(moments, schedule.start[op]))
            if index < len(moments) and moments[index] == schedule.start[op]:
                cause[op], why[op] = released[index], Why.MEMORY


@dataclass
class Idle:
    """Idle time of one compute stream, in ticks; its parts add up to makespan - busy."""

    name: str  # the stream
    busy: int  # time for which it runs ops
    fill: int = 0  # idle before its first op and after its last
    drain: int = 0
    transfers: int = 0  # inner idle time while the data of the next op was on its way
    memory: int = 0  # while only memory was missing
    chosen: int = 0  # while nothing was missing, or a given moment was waited for
    # By stream: while the op ran, or itself waited, there that the next op needed last.
    waits: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    # Work that the busiest stream has more than this one: another view of the same idle time.
    short: int = 0

    @property
    def total(self) -> int:
        """All idle time."""
        return (
            self.fill
            + self.drain
            + self.transfers
            + self.memory
            + self.chosen
            + self.waited
        )

    @property
    def waited(self) -> int:
        """Idle time for other streams."""
        return sum(self.waits.values())


def idle_of(
    schedule: Schedule, causes: OpCauses, *, is_waited_for: bool = False
) -> list[Idle]:
    """Return the idle time of every compute stream.

    `is_waited_for`: whether transfers hold back an op whose data are there, as a stream waits for
        those of others.
    """
    orders, names = schedule.resource_orders(), schedule.problem.resource_names
    walk, streams = (
        _CauseWalk(schedule, causes, "transfers" if is_waited_for else "chosen"),
        schedule.problem.span_resources.tolist(),
    )
    idles = [
        _idle_of_stream(names[stream], orders[stream], schedule, walk)
        for stream in streams
    ]
    busiest = max((idle.busy for idle in idles), default=0)
    for idle in idles:
        idle.short = busiest - idle.busy
    return idles


def _idle_of_stream(
    name: str, ops: IntArray, schedule: Schedule, walk: _CauseWalk
) -> Idle:
    idle = Idle(name, int(schedule.problem.duration[ops].sum()))
    if not len(ops):
        idle.fill = schedule.makespan
        return idle
    start, end = schedule.start[ops], schedule.end[ops]
    idle.fill, idle.drain = int(start[0]), schedule.makespan - int(end[-1])
    for index in np.flatnonzero(start[1:] > end[:-1]).tolist():
        walk.split(int(ops[index + 1]), int(end[index]), idle)
    return idle


class _CauseWalk:
    """Goes back from an op through what it waited for, as far as a gap reaches."""

    def __init__(self, schedule: Schedule, causes: OpCauses, held_back: str) -> None:
        self.held_back = held_back
        self.start: list[int] = schedule.start.tolist()
        self.end: list[int] = schedule.end.tolist()
        self.latest: list[int] = causes.latest.tolist()
        self.arrival: list[int] = causes.arrival.tolist()
        self.why: list[int] = causes.why.tolist()
        names, owners = (
            schedule.problem.resource_names,
            schedule.problem.ops_by_resource,
        )
        streams = schedule.problem.span_resources.tolist()
        self.stream = {
            op: names[stream] for stream in streams for op in owners[stream].tolist()
        }

    def split(self, op: int, first: int, idle: Idle) -> None:
        """Add the gap from `first` to the start of `op` to the parts of `idle`."""
        for length, share, stream in self._parts(op, first):
            if share == "waits":
                idle.waits[stream] += length
            else:
                setattr(idle, share, getattr(idle, share) + length)

    def _parts(self, op: int, first: int) -> Iterator[tuple[int, str, str]]:
        moment = self.start[op]
        while moment > first:
            arrival = max(self.arrival[op], first)
            if moment > arrival:
                is_memory = self.why[op] == Why.MEMORY
                yield moment - arrival, "memory" if is_memory else self.held_back, ""
            before = self.latest[op]
            if before == FREE or arrival == first:
                return
            end = max(self.end[before], first)
            if arrival > end:
                yield arrival - end, "transfers", ""
            if end == first:
                return
            if before in self.stream:
                yield end - first, "waits", self.stream[before]
                return
            op, moment = before, max(self.start[before], first)
            if end > moment:
                yield end - moment, "transfers", ""
