"""Schedules as traces that Perfetto and ``chrome://tracing`` show.

The format is the JSON of Chrome's trace events: devices are processes, their streams threads, ops
complete slices, memory counters, arrows the way of a micro-batch through the stages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isfinite
from typing import Any

import numpy as np

from ppsolve.models.core.metrics import usage
from ppsolve.models.core.problem import FREE, IntArray, Objective, Pool, Problem
from ppsolve.models.core.result import SHOWN_TRANSFER, TRANSFER_KINDS
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.timescale import UNITS_PER_SECOND
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import DeadlockError, InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.formats.program import entry_in, winner_in
from ppsolve.solver.optimize.kinds import instance_in, kind_of, schedule_in
from ppsolve.solver.structure.owners import number_in, owners

NANOSECONDS_PER_SECOND = 10**9
GROUP_SIZE = 1000
"""Process numbers of a schedule begin at a multiple of this, so that those of the next one follow;
as many devices are kept apart."""

Event = dict[str, Any]


@dataclass(frozen=True)
class TracedSchedule:
    """A schedule in a trace.

    Parameters
    ----------
    title : str
        What its processes are called, e.g. ``optimal``.
    schedule : Schedule
        The schedule.
    bound : float or None
        Proven lower bound in the instance's unit; marked where it is given.
    """

    title: str
    schedule: Schedule
    bound: float | None = None


def perfetto_json(shown: Sequence[TracedSchedule]) -> str:
    """Return the trace of schedules as JSON text.

    Parameters
    ----------
    shown : sequence of TracedSchedule
        Schedules, each a group of processes of its own.

    Returns
    -------
    str
        An object with ``traceEvents``, one event a line. Times are microseconds, rounded to
        nanoseconds; a time unit that is no unit of seconds is shown as microseconds.
    """
    events = [event for group, each in enumerate(shown) for event in _Group(each, group).events()]
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    return '{"displayTimeUnit":"ns","traceEvents":[\n' + lines + "\n]}\n"


class _Group:
    """The events of one schedule."""

    def __init__(self, shown: TracedSchedule, group: int) -> None:
        self.shown, self.schedule = shown, shown.schedule
        self.problem: Problem = shown.schedule.problem
        self.first = group * GROUP_SIZE + 1
        self.group = group
        self.owner = owners(self.problem)
        scale = self.problem.scale
        per_second = UNITS_PER_SECOND.get(scale.unit, UNITS_PER_SECOND["us"])
        self.unit = Fraction(NANOSECONDS_PER_SECOND, per_second)
        self.tick = scale.tick * self.unit

    def events(self) -> Iterator[Event]:
        """Yield names, slices, counters and the mark of the bound."""
        yield from self._names()
        yield from self._slices()
        for pool in self.problem.pools:
            yield from self._counter(pool)
        if self.shown.bound is not None:
            yield {
                "ph": "i",
                "s": "g",
                "name": f"{self.shown.title}: lower bound",
                "pid": self.first,
                "tid": 0,
                "ts": _microseconds(round(self.shown.bound * float(self.unit))),
            }

    def _names(self) -> Iterator[Event]:
        for place, device in enumerate(sorted(set(self.owner))):
            process = {"ph": "M", "pid": self.first + device, "tid": 0}
            name = f"{self.shown.title}: device {device}"
            yield process | {"name": "process_name", "args": {"name": name}}
            order = self.group * GROUP_SIZE + place
            yield process | {"name": "process_sort_index", "args": {"sort_index": order}}
        for resource, (name, device) in enumerate(
            zip(self.problem.resource_names, self.owner, strict=True)
        ):
            thread = {"ph": "M", "pid": self.first + device, "tid": resource + 1}
            yield thread | {"name": "thread_name", "args": {"name": name}}
            yield thread | {"name": "thread_sort_index", "args": {"sort_index": resource}}

    def _slices(self) -> Iterator[Event]:
        """Yield a slice for every op that takes time, on each of its resources."""
        problem = self.problem
        busy = np.flatnonzero((problem.duration > 0) & (np.diff(problem.resource_ptr) > 0))
        ways = _ways(problem, busy)
        starts, ends = (
            [self._nanoseconds(moment) for moment in moments[busy].tolist()]
            for moments in (self.schedule.start, self.schedule.end)
        )
        names = problem.op_names(busy)
        for op, name, start, end in zip(busy.tolist(), names, starts, ends, strict=True):
            slice_ = {
                "ph": "X",
                "name": name,
                "cat": _kind(problem, op),
                "ts": _microseconds(start),
                "dur": _microseconds(end - start),
                "args": _labels(problem, op),
            }
            for place, resource in enumerate(problem.resources_of(op).tolist()):
                way = self._way(ways.get(op)) if place == 0 else {}
                place_of = {"pid": self.first + self.owner[resource], "tid": resource + 1}
                yield slice_ | place_of | way

    def _way(self, way: tuple[int, bool, bool] | None) -> Event:
        """Return the fields of arrows: the number of a micro-batch's way, shared by its slices."""
        if way is None:
            return {}
        number, comes, goes = way
        flow: Event = {"bind_id": hex(self.group * 2**32 + number + 1)}
        return flow | ({"flow_in": True} if comes else {}) | ({"flow_out": True} if goes else {})

    def _counter(self, pool: Pool) -> Iterator[Event]:
        """Yield the amount in use whenever it changes."""
        device = number_in(pool.name, max(self.owner, default=0))
        counter = {"ph": "C", "name": "memory", "pid": self.first + device, "tid": 0}
        for moment, held in usage(self.schedule, pool):
            moment_of = {"ts": _microseconds(self._nanoseconds(moment))}
            yield counter | moment_of | {"args": {"in use": float(held)}}

    def _nanoseconds(self, ticks: int) -> int:
        """Return a time rounded to whole nanoseconds."""
        whole, parts = self.tick.numerator, self.tick.denominator
        return (2 * ticks * whole + parts) // (2 * parts)


def _microseconds(nanoseconds: int) -> int | float:
    return nanoseconds // 1000 if nanoseconds % 1000 == 0 else nanoseconds / 1000


def _kind(problem: Problem, op: int) -> str:
    kind = problem.kinds[problem.kind[op]]
    return SHOWN_TRANSFER if kind in TRANSFER_KINDS else kind


def _labels(problem: Problem, op: int) -> Event:
    """Return the stage and the micro-batch of an op, where it has them."""
    columns = {"stage": problem.stage, "micro-batch": problem.microbatch}
    return {name: int(column[op]) for name, column in columns.items() if column[op] != FREE}


def _ways(problem: Problem, busy: IntArray) -> dict[int, tuple[int, bool, bool]]:
    """Return (number, comes, goes) of the ops on the way of each micro-batch.

    A way follows the precedences of a micro-batch from stage to stage: the ops that have a
    predecessor or a successor of the same micro-batch on another stream.
    """
    same = (problem.microbatch[problem.before] == problem.microbatch[problem.after]) & (
        problem.microbatch[problem.before] != FREE
    )
    stream = np.full(problem.num_ops, FREE, dtype=np.int64)
    stream[busy] = problem.resource_idx[problem.resource_ptr[busy]]
    apart = stream[problem.before] != stream[problem.after]
    kept = same & apart & (stream[problem.before] != FREE) & (stream[problem.after] != FREE)
    comes, goes = set(problem.after[kept].tolist()), set(problem.before[kept].tolist())
    replica = problem.replica if len(problem.replica) else np.zeros(problem.num_ops, np.int64)
    count = int(problem.microbatch.max(initial=0)) + 1
    return {
        op: (int(replica[op]) * count + int(problem.microbatch[op]), op in comes, op in goes)
        for op in comes | goes
    }


PICTURES: Mapping[str, Callable[[Sequence[TracedSchedule]], str]] = {"perfetto": perfetto_json}
"""What writes the file of a viewer, by the name that ``--to`` says."""


def shown_in(
    data: Any,
    source: str,
    *,
    heuristic: str | None = None,
    otherwise: Instance | None = None,
) -> tuple[Instance, TracedSchedule]:
    """Read the schedule of a document, for a picture.

    Parameters
    ----------
    data : object
        A result, a heuristic's entry, a bare schedule or a plan, as read from JSON.
    source : str
        How errors name it.
    heuristic : str, optional
        Take the order of this heuristic of a result.
    otherwise : Instance, optional
        The instance of a document that carries none.

    Returns
    -------
    Instance, TracedSchedule
        What was solved, and its schedule under the name of the method, else of the status. The
        bound is there where it is one of the makespan.

    Raises
    ------
    InputError
        There is no instance or no whole schedule, or the result has no such heuristic.
    """
    try:
        if not isinstance(data, dict):
            raise InputError(f"expected a result or a plan (an object), got {describe(data)}")
        if data.get("kind") == "plan-result":
            data, otherwise, _, _ = winner_in(data)
        if heuristic is not None:
            otherwise = instance_in(data, otherwise=otherwise)
            data = entry_in(data, heuristic)
        instance, schedule = _read(data, otherwise)
    except InputError as error:
        raise error.located(source) from None
    title = data.get("name") or data.get("best_by") or data.get("status") or "schedule"
    return instance, TracedSchedule(str(title), schedule, _makespan_bound(data))


def picture(name: str, shown: Sequence[TracedSchedule], sources: Sequence[str]) -> str:
    """Return schedules as the file of a viewer; those of one title are told apart by their sources.

    Parameters
    ----------
    name : str
        One of `PICTURES`.
    shown : sequence of TracedSchedule
        The schedules.
    sources : sequence of str
        Where each comes from.

    Returns
    -------
    str
        The text of the file.
    """
    count = Counter(each.title for each in shown)
    named = [
        replace(each, title=f"{each.title}, {source}") if count[each.title] > 1 else each
        for each, source in zip(shown, sources, strict=True)
    ]
    return PICTURES[name](named)


def _read(data: dict[str, Any], otherwise: Instance | None) -> tuple[Instance, Schedule]:
    """Return the instance and the schedule of a document, or that of its orders."""
    orders, reason = data.get("orders"), data.get("reason")
    if data.get("schedule", data.get("ops")) is None and orders is None and reason:
        raise InputError(f"there is no schedule in it: {reason}", field="schedule")
    if data.get("schedule") is not None or orders is None:
        return schedule_in(data, otherwise=otherwise)
    instance = instance_in(data, otherwise=otherwise)
    if not isinstance(orders, list) or not all(isinstance(row, list) for row in orders):
        raise InputError("expected a list of ops for each device", field="orders")
    kind = kind_of(instance)
    try:
        return instance, kind.follow(instance, kind.lower(instance), orders).schedule
    except DeadlockError as error:
        raise InputError(str(error), field="orders") from None


def _makespan_bound(data: dict[str, Any]) -> float | None:
    """Return the bound of a result, None where it is not one of the end of the schedule."""
    bound, unit = data.get("bound"), data.get("time_unit")
    if data.get("objective") != Objective.MAKESPAN or data.get("value_unit") not in (None, unit):
        return None
    try:
        found = float(bound)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return found if isfinite(found) else None
