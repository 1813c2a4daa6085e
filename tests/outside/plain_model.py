"""Optima of pipelines from `docs/instances.md` alone; shares no code with what it judges.

A file's fields become named ops with exact times, waits and changes of memory, and these become a
plain CP-SAT model: no order of micro-batches, no bounds, default parameters. It reads times, `p2p`,
`allreduce`, `optimizer`, `memory` without modes, and both objectives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, lcm
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

Instance = dict[str, Any]
"""What a pipeline's file holds."""

Stream = tuple[str | int, ...]
"""What runs one op at a time: a device, its communication, a link."""


class Op(NamedTuple):
    """An op of the model: how long it takes, and what it occupies meanwhile."""

    duration: Fraction
    streams: tuple[Stream, ...]


class Wait(NamedTuple):
    """The second op starts no sooner than the first one ends, and a lag later."""

    before: str
    after: str
    lag: Fraction


class Change(NamedTuple):
    """An amount that a device's memory gains when an op starts, or loses when it ends."""

    op: str
    amount: Fraction


@dataclass
class Program:
    """All ops of a pipeline, by name, and the rules between them."""

    ops: dict[str, Op] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)
    rooms: dict[int, Fraction] = field(default_factory=dict)
    changes: dict[int, list[Change]] = field(default_factory=lambda: defaultdict(list))

    def add(self, name: str, duration: Fraction, *streams: Stream) -> str:
        """Add an op and return its name."""
        assert name not in self.ops
        self.ops[name] = Op(duration, streams)
        return name

    def wait(self, before: Iterable[str], after: str, lag: Fraction | int = 0) -> None:
        """Let an op wait for others."""
        self.waits += [Wait(name, after, Fraction(lag)) for name in before]

    def change(self, device: int, op: str, amount: Fraction) -> None:
        """Take memory at the start of an op, or give it back at its end where it is negative."""
        if amount:
            self.changes[device].append(Change(op, amount))


def exact(value: float | str | Fraction) -> Fraction:
    """Return a number as it is written."""
    return Fraction(str(value))


def pipes_of(instance: Instance) -> list[list[int]]:
    """Return the device of each stage, for each pipe."""
    count, placement = instance["num_devices"], instance.get("placement", "linear")
    if isinstance(placement, dict):
        return [list(placement["stage_to_device"])]
    if placement == "bidirectional":
        return [list(range(count)), list(range(count))[::-1]]
    chunks = instance.get("stages_per_device") or (1 if placement == "linear" else 2)
    stages = range(count * chunks)
    if placement == "linear":
        return [[stage // chunks for stage in stages]]
    if placement == "interleaved":
        return [[stage % count for stage in stages]]
    assert placement in {"vshape", "wave"}
    return [
        [s % count if s // count % 2 == 0 else count - 1 - s % count for s in stages]
    ]


class _Reader:
    """Writes the program of one pipeline."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.program = instance, Program()
        self.pipes, self.count = pipes_of(instance), instance["num_microbatches"]
        self.stages = len(self.pipes[0])
        self.is_split = "backward_input" in instance["times"]
        self.back = "I" if self.is_split else "B"

    def pipe(self, batch: int) -> list[int]:
        """Return the devices of a micro-batch's stages: each pipe takes half of them."""
        return self.pipes[batch * len(self.pipes) // self.count]

    def speed(self, device: int) -> Fraction:
        """Return the speed of a device."""
        return self.entry(self.instance.get("speed", 1), device)

    def entry(self, value: Any, stage: int, batch: int = 0) -> Fraction:
        """Return a number for all, by stage, or by stage and micro-batch."""
        for index in (stage, batch):
            value = value[index] if isinstance(value, list) else value
        return exact(value)

    def read(self) -> Program:
        """Return the program."""
        for batch in range(self.count):
            for stage in range(self.stages):
                self.computes(stage, batch)
                self.holds(stage, batch)
        for batch in range(self.count):
            for stage in range(1, self.stages):
                self.passes(
                    f"F{stage - 1}.{batch}",
                    f"F{stage}.{batch}",
                    stage - 1,
                    stage,
                    batch,
                )
                back = f"{self.back}{stage}.{batch}", f"{self.back}{stage - 1}.{batch}"
                self.passes(*back, stage, stage - 1, batch)
        for stage in range(self.stages):
            self.updates(stage)
        self.rooms()
        return self.program

    def computes(self, stage: int, batch: int) -> None:
        """Add forward and backward of a stage, one after the other."""
        kinds = {"F": "forward", "I": "backward_input", "W": "backward_weight"}
        if not self.is_split:
            kinds = {"F": "forward", "B": "backward"}
        device, previous = self.pipe(batch)[stage], list[str]()
        for letter, times in kinds.items():
            duration = self.entry(self.instance["times"][times], stage, batch)
            duration /= self.speed(device)
            name = self.program.add(
                f"{letter}{stage}.{batch}", duration, ("device", device)
            )
            self.program.wait(previous, name)
            previous = [name]

    def passes(
        self, source: str, target: str, begin: int, end: int, batch: int
    ) -> None:
        """Let the op of a stage wait for that of its neighbour, and for the transfer."""
        p2p, pipe = self.instance.get("p2p") or {}, self.pipe(batch)
        here, there = pipe[begin], pipe[end]
        mode, latency = (
            p2p.get("mode", "delay"),
            _between(p2p.get("latency", 0), here, there),
        )
        if here == there or mode == "delay":
            self.program.wait([source], target, 0 if here == there else latency)
            return
        size = self.entry(p2p["bytes"], min(begin, end), batch)
        streams = {
            "link": (("link", here, there),),
            "nic": (("nic", here), ("nic", there)),
            "send_queue": (("queue", here),),
        }[mode]
        duration = size / _between(p2p["bandwidth"], here, there)
        transfer = self.program.add(f"T{source}", duration, *streams)
        self.program.wait([source], transfer)
        self.program.wait([transfer], target, latency)

    def updates(self, stage: int) -> None:
        """Add what follows a stage's last backward: its all-reduce, then its optimizer."""
        last = "W" if self.is_split else "B"
        devices = sorted({pipe[stage] for pipe in self.pipes})
        reduced = None
        if "allreduce" in self.instance:
            duration = self.entry(self.instance["allreduce"], stage)
            reduced = self.program.add(
                f"AR{stage}", duration, *(("comm", d) for d in devices)
            )
            self.program.wait(
                (f"{last}{stage}.{i}" for i in range(self.count)), reduced
            )
        if "optimizer" not in self.instance:
            return
        for device in devices:
            duration = self.entry(self.instance["optimizer"], stage) / self.speed(
                device
            )
            name = self.program.add(
                f"OPT{stage}/{device}", duration, ("device", device)
            )
            own = [i for i in range(self.count) if self.pipe(i)[stage] == device]
            self.program.wait(
                [reduced] if reduced else [f"{last}{stage}.{i}" for i in own], name
            )

    def holds(self, stage: int, batch: int) -> None:
        """Take an activation at the start of the forward, give it back behind the backward."""
        memory = self.instance.get("memory")
        if not memory:
            return
        device, change = self.pipe(batch)[stage], self.program.change
        amount, left = (
            self.entry(memory.get("activation", 1), stage, batch),
            Fraction(0),
        )
        if self.is_split and "left_to_weight" in memory:
            left = self.entry(memory["left_to_weight"], stage, batch)
        elif self.is_split:
            left = amount * self.entry(
                memory.get("released_by_backward_weight", 1), stage
            )
        change(device, f"F{stage}.{batch}", amount)
        change(device, f"{self.back}{stage}.{batch}", left - amount)
        if left:
            change(device, f"W{stage}.{batch}", -left)

    def rooms(self) -> None:
        """Say how much memory each device has."""
        memory = self.instance.get("memory")
        if not memory:
            return
        for device in range(self.instance["num_devices"]):
            stages = {
                s
                for pipe in self.pipes
                for s in range(self.stages)
                if pipe[s] == device
            }
            static = sum(self.entry(memory.get("static", 0), stage) for stage in stages)
            self.program.rooms[device] = self.entry(memory["capacity"], device) - static


def _between(value: Any, here: int, there: int) -> Fraction:
    return exact(value[here][there] if isinstance(value, list) else value)


def program_of(instance: Instance) -> Program:
    """Return the ops of a pipeline and the rules between them."""
    return _Reader(instance).read()


class PlainModel:
    """A program as a CP-SAT model, in whole ticks."""

    def __init__(
        self, program: Program, objective: str, below: Fraction | None = None
    ) -> None:
        self.program, self.model = program, cp_model.CpModel()
        numbers = [op.duration for op in program.ops.values()]
        lags = [wait.lag for wait in program.waits]
        self.scale = lcm(*(number.denominator for number in (*numbers, *lags)))
        # A device's first op may wait for the whole of another one's: spans count from there.
        rounds = 2 if objective == "device_span" else 1
        self.horizon = self.ticks(sum(numbers) + sum(lags)) * rounds
        self.start = {
            name: self.model.new_int_var(0, self.horizon, name) for name in program.ops
        }
        self.end = {
            name: self.start[name] + self.ticks(op.duration)
            for name, op in program.ops.items()
        }
        self.streams()
        for wait in program.waits:
            self.model.add(
                self.start[wait.after] >= self.end[wait.before] + self.ticks(wait.lag)
            )
        for device, changes in program.changes.items():
            self.memory(program.rooms[device], changes)
        self.value = self.model.new_int_var(0, self.horizon, "objective")
        if below is not None:
            self.model.add(self.value < ceil(below * self.scale))
        self.minimize(objective)

    def ticks(self, time: Fraction | int) -> int:
        """Return a time in ticks."""
        return int(time * self.scale)

    def streams(self) -> None:
        """Let each stream run one op at a time; ops of no time occupy none."""
        intervals = defaultdict(list)
        for name, op in self.program.ops.items():
            size = self.ticks(op.duration)
            for stream in op.streams if size else ():
                interval = self.model.new_fixed_size_interval_var(
                    self.start[name], size, name
                )
                intervals[stream].append(interval)
        for group in intervals.values():
            self.model.add_no_overlap(group)

    def memory(self, room: Fraction, changes: list[Change]) -> None:
        """Keep what a device holds within its memory at every moment."""
        unit = lcm(room.denominator, *(change.amount.denominator for change in changes))
        amounts = [int(change.amount * unit) for change in changes]
        times = [
            self.start[change.op] if change.amount > 0 else self.end[change.op]
            for change in changes
        ]
        if room < 0:
            self.model.add_bool_or([])
        else:
            least = sum(amount for amount in amounts if amount < 0)
            self.model.add_reservoir_constraint(times, amounts, least, int(room * unit))

    def minimize(self, objective: str) -> None:
        """Minimize the last end, or the longest time between first start and last end."""
        if objective == "makespan":
            for end in self.end.values():
                self.model.add(self.value >= end)
        else:
            streams = [
                stream for op in self.program.ops.values() for stream in op.streams
            ]
            for device in sorted(
                {stream for stream in streams if stream[0] == "device"}
            ):
                self.span(device)
        self.model.minimize(self.value)

    def span(self, device: Stream) -> None:
        """Let the objective be no less than from a device's first start to its last end."""
        own = [name for name, op in self.program.ops.items() if device in op.streams]
        begin = self.model.new_int_var(0, self.horizon, "begin")
        self.model.add_min_equality(begin, [self.start[name] for name in own])
        for name in own:
            self.model.add(self.value >= self.end[name] - begin)


def plain_optimum(
    instance: Instance, *, below: Fraction | None = None, seconds: float = 60.0
) -> Fraction | None:
    """Return the optimum of a pipeline, in its unit of time; None where there is no schedule.

    Below a value there is none as well, and to see that takes far less than to find the optimum.

    Raises
    ------
    TimeoutError
        Nothing was proved within these deterministic seconds.
    """
    plain = PlainModel(
        program_of(instance), instance.get("objective", "makespan"), below
    )
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = seconds
    status = solver.solve(plain.model)
    if status == cp_model.INFEASIBLE:
        return None
    if status != cp_model.OPTIMAL:
        raise TimeoutError("the plain model was not solved in time")
    return Fraction(round(solver.objective_value), plain.scale)
