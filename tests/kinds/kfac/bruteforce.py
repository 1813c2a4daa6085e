"""The exact refresh task by exhaustive search, straight from timelines; shares no code with it.

Sequences are enumerated: each op in turn starts at its earliest, after the op before it on each of
its devices. That loses nothing. The earliest start that the holes allow at or after a time never
falls when that time grows, so starting the ops of any schedule in its own order as early as
possible ends none of them later; and ends that are not later break no rule (what saved inputs
hold is given back no later). An op of length 0 keeps no device busy, so it starts when what it
waits for is done.

A number of iterations that is infeasible beyond `Task.enough` is infeasible for ever: by then all
data is there, and more iterations only add copies of one and the same iteration, of which each op
needs no more than one.
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Timeline = Mapping[str, Sequence[Sequence[int | None]]]
Hole = tuple[int, int]

_CALL = re.compile(r"call_(forward|backward)(:up_pipe)?")
_WORK = re.compile(r"(cov|sync|inv)_kron_([AB]):(.+?)(:up_pipe)?")


@dataclass(frozen=True)
class Call:
    """A forward or backward of iteration 0."""

    label: str
    start: int
    end: int


@dataclass
class Op:
    """A K-FAC op: on which devices, how long, after what time and after which ops."""

    name: str
    kind: str
    label: str
    devices: tuple[int, ...]
    length: int
    part: int | None = None
    ready: int = 0
    before: set[str] = field(default_factory=set)
    saved_at: int | None = None
    amount: Fraction = Fraction(0)


class Task:
    """K-FAC ops of all devices of timelines in whole nanoseconds.

    Parameters
    ----------
    timelines : sequence of timelines
        One per device.
    margin : Fraction
        Margin ratio.
    groups : sequence of sequences of int
        Devices that meet in syncs.
    saved : mapping, optional
        ``capacity`` (a number), ``input``, ``error``.
    """

    def __init__(
        self,
        timelines: Sequence[Timeline],
        margin: Fraction = Fraction(1, 20),
        groups: Sequence[Sequence[int]] = (),
        saved: Mapping[str, Any] | None = None,
    ) -> None:
        lists = [_last_step(timeline) for timeline in timelines]
        self.margin = margin
        self.origin = min(
            p[0] for label, p in lists[0] if label.startswith("call_forward")
        )
        ends = [p[1] for label, p in lists[0] if label.startswith("call_backward")]
        self.period = max(ends) - self.origin
        self.calls = [
            sorted(
                (
                    Call(label, pair[0] - self.origin, pair[1] - self.origin)
                    for label, pair in pairs
                    if _CALL.fullmatch(label)
                ),
                key=lambda call: call.start,
            )
            for pairs in lists
        ]
        self.saved = {"input": 1, "error": 1, **(saved or {})}
        self.capacity = None if saved is None else Fraction(str(saved["capacity"]))
        self.group_of = {
            device: tuple(sorted(group)) for group in groups for device in group
        }
        self._holes: dict[tuple[int, int], list[Hole]] = {}
        self.ops: dict[str, Op] = {}
        for device, pairs in enumerate(lists):
            self._read(device, pairs, lists)
        for device in range(len(lists)):
            self._link(device)

    def _read(self, device: int, pairs: list[Any], lists: list[list[Any]]) -> None:
        parts = sum(call.label == "call_forward" for call in self.calls[device])
        for label, (start, end) in pairs:
            found = _WORK.fullmatch(label)
            if found is None:
                continue
            length = 0 if start is None else end - start
            if found[1] == "cov":
                self._cut(device, label, parts, length // parts)
                continue
            devices: tuple[int, ...] = (device,)
            if found[1] == "sync" and start is not None:
                devices = tuple(
                    other
                    for other in self.group_of.get(device, (device,))
                    if any(
                        key == label and pair[0] is not None
                        for key, pair in lists[other]
                    )
                )
            name = f"{'+'.join(map(str, devices))}/{label}"
            op = self.ops.setdefault(name, Op(name, found[1], label, devices, 0))
            op.length = max(op.length, length)

    def _cut(self, device: int, label: str, parts: int, length: int) -> None:
        data = self.data_of(device, label)
        factor = "input" if "_A:" in label else "error"
        for part in range(parts):
            name = f"{device}/{label}#{part}"
            op = Op(name, "cov", label, (device,), length, part, data[part].end)
            op.saved_at, op.amount = (
                max(data[part].start, 0),
                Fraction(str(self.saved[factor])),
            )
            if part:
                op.before.add(f"{device}/{label}#{part - 1}")
            self.ops[name] = op

    def data_of(self, device: int, label: str) -> list[Call]:
        """Calls that make the data of a curvature, by start."""
        wanted = "call_forward" if "_A:" in label else "call_backward"
        wanted += ":up_pipe" if label.endswith(":up_pipe") else ""
        return [call for call in self.calls[device] if call.label == wanted]

    def _link(self, device: int) -> None:
        own = [op for op in self.ops.values() if device in op.devices]
        for op in own:
            plain = op.label.removesuffix(":up_pipe")
            if op.kind == "cov":
                continue
            covs = [o for o in own if o.kind == "cov"]
            if op.kind == "sync":
                wanted = plain.replace("sync_", "cov_", 1)
                op.before |= {
                    o.name for o in covs if o.label.removesuffix(":up_pipe") == wanted
                }
                continue
            op.before |= {
                o.name for o in covs if o.label == op.label.replace("inv_", "cov_", 1)
            }
            wanted = plain.replace("inv_", "sync_", 1)
            op.before |= {o.name for o in own if o.label == wanted}

    def holes(self, device: int, iterations: int) -> list[Hole]:
        """Maximal gaps between the calls of so many copies, cut at every copy's start."""
        key = device, iterations
        if key not in self._holes:
            self._holes[key] = self._gaps(device, iterations)
        return self._holes[key]

    def _gaps(self, device: int, iterations: int) -> list[Hole]:
        edges = {k * self.period for k in range(iterations + 1)}
        busy = []
        for k in range(iterations):
            for call in self.calls[device]:
                span = (call.start + k * self.period, call.end + k * self.period)
                if span[0] < span[1]:
                    busy.append(span)
                    edges.update(t for t in span if 0 <= t <= iterations * self.period)
        marks = sorted(edges)
        idle = [
            (a, b)
            for a, b in itertools.pairwise(marks)
            if not any(start < b and a < end for start, end in busy)
        ]
        joined: list[Hole] = []
        for a, b in idle:
            if joined and joined[-1][1] == a and a % self.period:
                joined[-1] = (joined[-1][0], b)
            else:
                joined.append((a, b))
        return joined

    def fits(self, start: int, length: int, hole: Hole) -> bool:
        """Whether an op may start at `start` in `hole`."""
        if start < hole[0]:
            return False
        over, parts = self.margin.as_integer_ratio()
        if over == 0:
            return start + length <= hole[1]
        # (1 + margin) length < what is left of the hole, in whole numbers.
        return (parts + over) * length < parts * (hole[1] - start)

    def components(self) -> list[tuple[int, ...]]:
        """Devices that share syncs, directly or not."""
        found = [{device} for device in range(len(self.calls))]
        for op in self.ops.values():
            linked = set().union(*(group for group in found if group & set(op.devices)))
            found = [group for group in found if not group & linked] + [linked]
        return sorted(tuple(sorted(group)) for group in found)

    @property
    def enough(self) -> int:
        """Iterations beyond which nothing new becomes possible."""
        far = max(
            (max(c.end, -c.start) for calls in self.calls for c in calls), default=0
        )
        return 2 * math.ceil(Fraction(far, self.period)) + len(self.ops) + 2

    def fewest(self, devices: Sequence[int]) -> int | None:
        """Fewest iterations for some devices together, None if no number is enough."""
        return next(
            (n for n in range(1, self.enough + 1) if self.is_feasible(devices, n)), None
        )

    def is_feasible(self, devices: Sequence[int], iterations: int) -> bool:
        """Whether so many iterations are enough."""
        return _Search(self, devices, iterations).run()

    def least_total(
        self, devices: Sequence[int], iterations: int, kinds: Sequence[str]
    ) -> int | None:
        """Least sum of the ends of all ops of some kinds in so many iterations."""
        search = _Search(self, devices, iterations, kinds)
        search.run()
        return search.best

    def excess(self, ends: Mapping[str, int], device: int) -> bool:
        """Whether saved inputs and errors are ever above the capacity of a device."""
        if self.capacity is None:
            return False
        return self.peak(ends, device) > self.capacity * (1 + Fraction(1, 10**9))

    def peak(self, ends: Mapping[str, int], device: int) -> Fraction:
        """Most saved inputs and errors on a device, with the ends of its curvature."""
        held = [
            (op.saved_at, ends[op.name], op.amount)
            for op in self.ops.values()
            if op.saved_at is not None and op.devices == (device,)
        ]
        moments = {moment for moment, _, _ in held}
        return max(
            (
                sum((a for begin, end, a in held if begin <= moment < end), Fraction(0))
                for moment in moments
            ),
            default=Fraction(0),
        )


class _Search:
    """Stops at the first schedule, or goes on for the least sum of the ends of some kinds."""

    def __init__(
        self,
        task: Task,
        devices: Sequence[int],
        iterations: int,
        kinds: Sequence[str] = (),
    ) -> None:
        self.task = task
        self.kinds = kinds
        self.best: int | None = None
        self.ops = [op for op in task.ops.values() if set(op.devices) & set(devices)]
        self.holes = {device: task.holes(device, iterations) for device in devices}
        self.devices = devices
        self.seen: set[Any] = set()

    def run(self) -> bool:
        return self._extend({}, dict.fromkeys(self.devices, 0))

    def _extend(self, ends: dict[str, int], cursor: dict[int, int]) -> bool:
        for op in self._ready(ends, lambda length: length == 0):
            start = self._earliest(op, ends, dict.fromkeys(self.devices, 0))
            return start is not None and self._extend({**ends, op.name: start}, cursor)
        if len(ends) == len(self.ops):
            return self._accept(ends)
        state = frozenset(ends.items()), tuple(cursor.values())
        if state in self.seen:
            return False
        self.seen.add(state)
        for op in self._ready(ends, lambda length: length > 0):
            start = self._earliest(op, ends, cursor)
            if start is None:
                continue
            end = start + op.length
            after = {
                device: end if device in op.devices else t
                for device, t in cursor.items()
            }
            if self._extend({**ends, op.name: end}, after):
                return True
        return False

    def _accept(self, ends: Mapping[str, int]) -> bool:
        if any(self.task.excess(ends, device) for device in self.devices):
            return False
        total = sum(ends[op.name] for op in self.ops if op.kind in self.kinds)
        self.best = total if self.best is None else min(self.best, total)
        return not self.kinds

    def _ready(self, ends: Mapping[str, int], wanted: Any) -> Iterator[Op]:
        for op in self.ops:
            if op.name not in ends and wanted(op.length) and op.before <= ends.keys():
                yield op

    def _earliest(
        self, op: Op, ends: Mapping[str, int], cursor: Mapping[int, int]
    ) -> int | None:
        time = max(
            op.ready,
            0,
            *(ends[name] for name in op.before),
            *(cursor[device] for device in op.devices),
        )
        candidates = {time} | {
            hole[0]
            for device in op.devices
            for hole in self.holes[device]
            if hole[0] > time
        }
        for start in sorted(candidates):
            if all(
                self._fits(start, op.length, self.holes[device])
                for device in op.devices
            ):
                return start
        return None

    def _fits(self, start: int, length: int, holes: Sequence[Hole]) -> bool:
        """Whether an op fits the last hole that begins by `start`, or the one before it.

        All earlier ones have ended; that one may end at `start`, where an op of no length fits.
        """
        last = bisect_right(holes, start, key=lambda hole: hole[0])
        return any(
            self.task.fits(start, length, hole)
            for hole in holes[max(last - 2, 0) : last]
        )


def _last_step(timeline: Timeline) -> list[tuple[str, Any]]:
    steps = len(timeline.get("start_end", ()))
    found = []
    for label, pairs in timeline.items():
        if label != "start_end":
            kept = list(pairs)[-(len(pairs) // steps) :] if steps > 1 else list(pairs)
            found += [(label, _plain(pair)) for pair in kept]
    return found


def _plain(pair: Sequence[Any]) -> tuple[int | None, int | None]:
    return tuple(None if time is None else int(time) for time in pair)  # type: ignore[return-value]


def broken_rules(
    task: Task, starts: Mapping[str, int], iterations: Sequence[int]
) -> list[str]:
    """What is wrong with starts (by op id, all devices), each device with its iterations."""
    found = []
    expected = set(task.ops) | {name for name, _ in _pinned(task, iterations)}
    found += [f"unknown {name}" for name in starts if name not in expected]
    found += [f"missing {name}" for name in expected if name not in starts]
    found += [
        f"moved {name}"
        for name, start in _pinned(task, iterations)
        if name in starts and starts[name] != start
    ]
    placed = [op for op in task.ops.values() if op.name in starts]
    for op in placed:
        start = starts[op.name]
        for device in op.devices:
            holes = task.holes(device, iterations[device])
            if not any(task.fits(start, op.length, hole) for hole in holes):
                found.append(f"outside {op.name}")
        if start < op.ready:
            found.append(f"before its data {op.name}")
        for name in op.before:
            if name in starts and starts[name] + task.ops[name].length > start:
                found.append(f"{op.name} before {name}")
    for device in range(len(task.calls)):
        found += _overlaps([op for op in placed if device in op.devices], starts)
        if len(starts) == len(expected):
            ends = {op.name: starts[op.name] + op.length for op in placed}
            found += [f"memory of {device}"] * task.excess(ends, device)
    return found


def _overlaps(ops: Sequence[Op], starts: Mapping[str, int]) -> Iterator[str]:
    busy = sorted(
        (starts[op.name], starts[op.name] + op.length, op.name)
        for op in ops
        if op.length
    )
    for first, second in itertools.pairwise(busy):
        if second[0] < first[1]:
            yield f"{second[2]} overlaps {first[2]}"


def _pinned(task: Task, iterations: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Ids and starts of the calls; what lies before 0 is cut off there."""
    for device, calls in enumerate(task.calls):
        numbers: dict[str, int] = defaultdict(int)
        for call in calls:
            for k in range(iterations[device]):
                name = f"{device}/{call.label}#{numbers[call.label]}@{k}"
                yield name, max(call.start + k * task.period, 0)
            numbers[call.label] += 1


def figures(
    task: Task, starts: Mapping[str, int], iterations: Sequence[int]
) -> dict[str, list[Any]]:
    """Figures of a refresh, per device."""
    found: dict[str, list[Any]] = defaultdict(list)
    ends = {op.name: starts[op.name] + op.length for op in task.ops.values()}
    for device, count in enumerate(iterations):
        ops = [op for op in task.ops.values() if device in op.devices]
        calls = sum(call.end - call.start for call in task.calls[device])
        busy = count * calls + sum(op.length for op in ops)
        whole = count * task.period
        found["usage_of"].append(round(100 * busy / whole, 4))
        found["bubbles_of"].append(whole - busy)
        found["peak_saved_of"].append(float(task.peak(ends, device)))
        ages = {
            op.label: max(math.ceil(Fraction(ends[op.name], task.period)) - 1, 0)
            for op in ops
            if op.kind == "inv"
        }
        found["ages_of"].append(ages)
        found["oldest_of"].append(max(ages.values()) + count - 1 if ages else None)
        found["completion"].append(sum(ends[op.name] for op in ops if op.kind == "inv"))
    return found


def labels(
    task: Task, starts: Mapping[str, int], device: int, count: int
) -> list[list[str]]:
    """Labels of a device whose clock is in step, iteration by iteration, with the markers.

    For devices whose calls lie in [0, period] and work that takes time.
    """
    rows: list[list[tuple[float, str]]] = [[] for _ in range(count)]
    for call in task.calls[device]:
        for k in range(count):
            rows[k].append((call.start + k * task.period, call.label))
    for op in task.ops.values():
        if device in op.devices:
            start = starts[op.name]
            rows[start // task.period].append((start, op.label))
    found = [
        [
            "-- start --",
            *(label for _, label in sorted(row, key=lambda e: e[0])),
            "-- end --",
        ]
        for row in rows
    ]
    found[0].append("turn_off_save_inputs_outgrads")
    found[-1].append("turn_on_save_inputs_outgrads")
    return found
