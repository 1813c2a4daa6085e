"""Schedules of any kind of instance as traces that Perfetto and ``chrome://tracing`` show.

The format is the JSON of Chrome's trace events: devices are processes, their streams threads, ops
complete slices, memory counters, arrows the way of a micro-batch through the stages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ppsolve.models.core.metrics import usage
from ppsolve.models.core.problem import FREE, IntArray, Pool, Problem
from ppsolve.models.core.result import SHOWN_TRANSFER, TRANSFER_KINDS
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import (
    DeadlockError,
    ErrorCode,
    InputError,
    errors_in,
)
from ppsolve.models.instances import Instance
from ppsolve.models.studies.trace.table import NANOSECONDS
from ppsolve.solver.api.kinds import instance_in, kind_of, schedule_in
from ppsolve.solver.formats.program import entry_in, winner_in
from ppsolve.solver.structure.owners import owners, pool_owners

Event = dict[str, Any]


@dataclass(frozen=True)
class TracedSchedule:
    """A schedule in a trace."""

    title: str  # what its processes are called, e.g. ``optimal``
    schedule: Schedule  # the schedule


def perfetto_json(schedules: Sequence[TracedSchedule]) -> str:
    """Return schedules, each a group of processes of its own, as the JSON text of a trace.

    It is an object with ``traceEvents``, one event a line. Times are microseconds, rounded to
    nanoseconds; a time unit that is no unit of seconds is shown as microseconds.
    """
    events = [
        event
        for group, schedule in enumerate(schedules)
        for event in _Group(schedule, group).events()
    ]
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    return '{"displayTimeUnit":"ns","traceEvents":[\n' + lines + "\n]}\n"


class _Group:
    """The events of one schedule; numbers of processes begin at a multiple of 1000."""

    def __init__(self, traced: TracedSchedule, group: int) -> None:
        self.shown, self.schedule = traced, traced.schedule
        self.problem: Problem = traced.schedule.problem
        self.group, self.first = group, 1000 * group + 1
        self.owner = owners(self.problem)
        scale = self.problem.scale
        self.tick = scale.tick * NANOSECONDS.get(scale.unit, NANOSECONDS["us"])

    def events(self) -> Iterator[Event]:
        yield from self._names()
        yield from self._slices()
        for pool, device in zip(
            self.problem.pools, pool_owners(self.problem), strict=True
        ):
            yield from self._counter(pool, device)

    def _names(self) -> Iterator[Event]:
        for index, device in enumerate(sorted(set(self.owner))):
            process = {"ph": "M", "pid": self.first + device, "tid": 0}
            name = f"{self.shown.title}: device {device}"
            yield process | {"name": "process_name", "args": {"name": name}}
            order = self.first - 1 + index
            yield process | {
                "name": "process_sort_index",
                "args": {"sort_index": order},
            }
        rows = zip(self.problem.resource_names, self.owner, strict=True)
        for resource, (name, device) in enumerate(rows):
            thread = {"ph": "M", "pid": self.first + device, "tid": resource + 1}
            yield thread | {"name": "thread_name", "args": {"name": name}}
            yield thread | {
                "name": "thread_sort_index",
                "args": {"sort_index": resource},
            }

    def _slices(self) -> Iterator[Event]:
        problem = self.problem
        busy = np.flatnonzero(
            (problem.duration > 0) & (np.diff(problem.resource_ptr) > 0)
        )
        arrows = self._ways(busy)
        columns = {"stage": problem.stage, "micro-batch": problem.numbers["microbatch"]}
        if problem.slices > 1:
            columns["slice"] = problem.numbers["slice"]
        names = problem.op_names(busy)
        times = zip(
            map(self._nanoseconds, self.schedule.start[busy].tolist()),
            map(self._nanoseconds, self.schedule.end[busy].tolist()),
            strict=True,
        )
        for op, name, (start, end) in zip(busy.tolist(), names, times, strict=True):
            kind = problem.kinds[problem.kind[op]]
            labels = {
                key: int(column[op])
                for key, column in columns.items()
                if column[op] != FREE
            }
            slice_ = {
                "ph": "X",
                "name": name,
                "cat": SHOWN_TRANSFER if kind in TRANSFER_KINDS else kind,
                "ts": _microseconds(start),
                "dur": _microseconds(end - start),
                "args": labels,
            }
            for index, resource in enumerate(problem.resources_of(op).tolist()):
                arrow = arrows.get(op, {}) if index == 0 else {}
                place_of = {
                    "pid": self.first + self.owner[resource],
                    "tid": resource + 1,
                }
                yield slice_ | place_of | arrow

    def _ways(self, busy: IntArray) -> dict[int, Event]:
        """Return the fields of arrows of the ops on the way of each micro-batch.

        A way follows the precedences of a micro-batch from stage to stage: the ops that have a
        predecessor or a successor of the same micro-batch on another stream.
        """
        problem, before, after = self.problem, self.problem.before, self.problem.after
        stream = np.full(problem.num_ops, FREE, dtype=np.int64)
        stream[busy] = problem.resource_idx[problem.resource_ptr[busy]]
        microbatch, runs = problem.microbatch, stream != FREE
        kept = (microbatch[before] == microbatch[after]) & (microbatch[before] != FREE)
        kept &= (stream[before] != stream[after]) & runs[before] & runs[after]
        comes, goes = set(after[kept].tolist()), set(before[kept].tolist())
        replica = (
            problem.replica
            if len(problem.replica)
            else np.zeros(problem.num_ops, np.int64)
        )
        number = (
            replica * (int(problem.microbatch.max(initial=0)) + 1) + problem.microbatch
        )
        return {
            op: {"bind_id": hex(self.group * 2**32 + int(number[op]) + 1)}
            | ({"flow_in": True} if op in comes else {})
            | ({"flow_out": True} if op in goes else {})
            for op in comes | goes
        }

    def _counter(self, pool: Pool, device: int) -> Iterator[Event]:
        counter = {"ph": "C", "name": "memory", "pid": self.first + device, "tid": 0}
        for moment, held in usage(self.schedule, pool):
            moment_of = {"ts": _microseconds(self._nanoseconds(moment))}
            yield counter | moment_of | {"args": {"in use": float(held)}}

    def _nanoseconds(self, ticks: int) -> int:
        numerator, denominator = self.tick.numerator, self.tick.denominator
        return (2 * ticks * numerator + denominator) // (2 * denominator)


def _microseconds(nanoseconds: int) -> int | float:
    return nanoseconds // 1000 if nanoseconds % 1000 == 0 else nanoseconds / 1000


PICTURES: Mapping[str, Callable[[Sequence[TracedSchedule]], str]] = {
    "perfetto": perfetto_json
}
"""Writers of files of viewers, by the name that ``--to`` says."""


def shown_in(
    data: Any,
    source: str,
    *,
    heuristic: str | None = None,
    otherwise: Instance | None = None,
) -> tuple[Instance, TracedSchedule]:
    """Read the instance of a document, and its schedule under the name of its method or status.

    Raises `InputError` where there is no instance or no whole schedule, or the result has no such
    heuristic.

    `data`: a result, a heuristic's entry, a bare schedule or a plan, as read from JSON.
    `source`: name of the document in errors.
    `heuristic`: the heuristic of a result whose order is read.
    `otherwise`: the instance of a document that carries none.
    """
    with errors_in(source):
        if not isinstance(data, dict):
            raise InputError(
                f"expected a result or a plan (an object), got {describe(data)}",
                code=ErrorCode.TYPE,
            )
        if data.get("kind") == "plan-result":
            data, otherwise = winner_in(data)
        if heuristic is not None:
            otherwise = instance_in(data, otherwise=otherwise)
            data = entry_in(data, heuristic)
        instance, schedule = _read(data, otherwise)
    title = data.get("name") or data.get("best_by") or data.get("status") or "schedule"
    return instance, TracedSchedule(str(title), schedule)


def picture(
    name: str, schedules: Sequence[TracedSchedule], sources: Sequence[str]
) -> str:
    """Return schedules as the text of a viewer's file; sources tell those of one title apart."""
    count = Counter(schedule.title for schedule in schedules)
    named = [
        replace(schedule, title=f"{schedule.title}, {source}")
        if count[schedule.title] > 1
        else schedule
        for schedule, source in zip(schedules, sources, strict=True)
    ]
    return PICTURES[name](named)


def _read(
    data: dict[str, Any], otherwise: Instance | None
) -> tuple[Instance, Schedule]:
    """Return the instance and the schedule of a document, or that of its orders."""
    orders, reason = data.get("orders"), data.get("reason")
    if data.get("schedule", data.get("ops")) is None and orders is None and reason:
        raise InputError(
            f"there is no schedule in it: {reason}",
            field="schedule",
            code=ErrorCode.MISSING,
        )
    if data.get("schedule") is not None or orders is None:
        return schedule_in(data, otherwise=otherwise)
    instance = instance_in(data, otherwise=otherwise)
    if not isinstance(orders, list) or not all(isinstance(row, list) for row in orders):
        raise InputError(
            "expected a list of ops for each device",
            field="orders",
            code=ErrorCode.TYPE,
        )
    kind = kind_of(instance)
    try:
        return instance, kind.follow(instance, kind.lower(instance), orders).schedule
    except DeadlockError as error:
        raise InputError(
            str(error), field="orders", code=getattr(error, "code", ErrorCode.VALUE)
        ) from None
