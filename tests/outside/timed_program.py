"""Named ops with exact times and the rules between them, as a CP-SAT model without any insight.

No order of micro-batches, no bounds, no symmetry, default parameters: one worker, nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, lcm
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

Stream = tuple[str | int, ...]
"""What runs one op at a time: a device, its communication, a link."""


class Op(NamedTuple):
    """An op: how long it takes by itself, and what it occupies meanwhile."""

    duration: Fraction
    streams: tuple[Stream, ...]


class Wait(NamedTuple):
    """The second op starts no sooner than the first one ends, and a lag later."""

    before: str
    after: str
    lag: Fraction


class Change(NamedTuple):
    """An amount that a pool gains when an op starts, or loses when it ends."""

    op: str
    amount: Fraction


class Block(NamedTuple):
    """Ops that may start and end together, for a time of their own; memory that takes."""

    ops: tuple[str, ...]
    duration: Fraction
    stream: Stream
    memory: Fraction


@dataclass
class Program:
    """All ops by name, and the rules between them."""

    ops: dict[str, Op] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)
    releases: dict[str, Fraction] = field(default_factory=dict)
    rooms: dict[Stream, Fraction] = field(default_factory=dict)
    changes: dict[Stream, list[Change]] = field(
        default_factory=lambda: defaultdict(list)
    )
    blocks: list[Block] = field(default_factory=list)

    def add(self, name: str, duration: Fraction, *streams: Stream) -> str:
        """Add an op and return its name."""
        assert name not in self.ops, name
        self.ops[name] = Op(duration, streams)
        return name

    def wait(self, before: Iterable[str], after: str, lag: Fraction | int = 0) -> None:
        """Let an op wait for others."""
        self.waits += [Wait(name, after, Fraction(lag)) for name in before]

    def take(self, pool: Stream, op: str, amount: Fraction) -> None:
        """Take memory at the start of an op."""
        assert amount >= 0
        self._change(pool, Change(op, amount))

    def give(self, pool: Stream, op: str, amount: Fraction) -> None:
        """Give memory back at the end of an op."""
        assert amount >= 0
        self._change(pool, Change(op, -amount))

    def _change(self, pool: Stream, change: Change) -> None:
        if change.amount:
            self.changes[pool].append(change)


class ProgramModel:
    """A program as a CP-SAT model, in whole ticks."""

    def __init__(
        self, program: Program, objective: str, below: Fraction | None = None
    ) -> None:
        self.program, self.model = program, cp_model.CpModel()
        times = [op.duration for op in program.ops.values()]
        fused = [block.duration for block in program.blocks]
        lags = [wait.lag for wait in program.waits]
        releases = list(program.releases.values())
        numbers = (*times, *fused, *lags, *releases)
        self.scale = lcm(*(number.denominator for number in numbers))
        total = sum(times) + sum(fused) + sum(lags) + max(releases, default=Fraction(0))
        # A device's first op may wait for the whole of another one's: spans count from there.
        self.horizon = self.ticks(total) * (2 if objective == "device_span" else 1)
        self.start = {name: self.moment(name) for name in program.ops}
        self.end = dict[str, Any]()
        self.chosen = [self.model.new_bool_var("fused") for _ in program.blocks]
        self.intervals = defaultdict[Stream, list[Any]](list)
        for name, op in program.ops.items():
            self.runs(name, op)
        for block, chosen in zip(program.blocks, self.chosen, strict=True):
            self.fuses(block, chosen)
        for group in self.intervals.values():
            self.model.add_no_overlap(group)
        for wait in program.waits:
            self.waits(wait)
        for name, release in program.releases.items():
            self.model.add(self.start[name] >= self.ticks(release))
        for pool in program.rooms:
            self.memory(pool)
        self.value = self.moment("objective")
        if below is not None:
            self.model.add(self.value < ceil(below * self.scale))
        self.minimize(objective)

    def moment(self, name: str) -> Any:
        """Return a moment that is to be decided."""
        return self.model.new_int_var(0, self.horizon, name)

    def ticks(self, time: Fraction | int) -> int:
        """Return a time in ticks."""
        return int(time * self.scale)

    def blocks_with(self, *names: str) -> list[Any]:
        """Return the blocks that have all of some ops."""
        pairs = zip(self.program.blocks, self.chosen, strict=True)
        return [chosen for block, chosen in pairs if set(names) <= set(block.ops)]

    def runs(self, name: str, op: Op) -> None:
        """Let an op run by itself, or in a block; an op of no time occupies nothing."""
        size, blocks = self.ticks(op.duration), self.blocks_with(name)
        alone = self.model.new_bool_var("alone")
        self.model.add_exactly_one(alone, *blocks)
        if not blocks:
            self.end[name] = self.start[name] + size
        else:
            self.end[name] = self.moment(name)
            ends = self.model.add(self.end[name] == self.start[name] + size)
            ends.only_enforce_if(alone)
        for stream in op.streams if size else ():
            self.intervals[stream].append(
                self.model.new_optional_fixed_size_interval_var(
                    self.start[name], size, alone, name
                )
            )

    def fuses(self, block: Block, chosen: Any) -> None:
        """Let ops run as one."""
        size, begin = self.ticks(block.duration), self.start[block.ops[0]]
        for name in block.ops:
            self.model.add(self.start[name] == begin).only_enforce_if(chosen)
            self.model.add(self.end[name] == begin + size).only_enforce_if(chosen)
        if size:
            self.intervals[block.stream].append(
                self.model.new_optional_fixed_size_interval_var(
                    begin, size, chosen, "block"
                )
            )

    def waits(self, wait: Wait) -> None:
        """Let an op wait for another, but for one that runs in its own block."""
        later = self.end[wait.before] + self.ticks(wait.lag)
        rule = self.model.add(self.start[wait.after] >= later)
        joined = self.blocks_with(wait.before, wait.after)
        if joined:
            rule.only_enforce_if([chosen.negated() for chosen in joined])

    def memory(self, pool: Stream) -> None:
        """Keep what a pool holds within its room at every moment."""
        room, changes = self.program.rooms[pool], self.program.changes[pool]
        if room < 0:
            self.model.add_bool_or([])
            return
        events = [
            (self.moments(change)[change.op], change.amount, 1) for change in changes
        ]
        for block, chosen in zip(self.program.blocks, self.chosen, strict=True):
            if block.memory and block.stream == pool:
                op = block.ops[0]
                events.append((self.start[op], block.memory, chosen))
                events.append((self.end[op], -block.memory, chosen))
        if not events:
            return
        unit = lcm(room.denominator, *(amount.denominator for _, amount, _ in events))
        amounts = [int(amount * unit) for _, amount, _ in events]
        self.model.add_reservoir_constraint_with_active(
            [when for when, _, _ in events],
            amounts,
            [active for _, _, active in events],
            sum(amount for amount in amounts if amount < 0),
            int(room * unit),
        )

    def moments(self, change: Change) -> dict[str, Any]:
        """Return when a change may be: at starts where memory is taken, else at ends."""
        return self.start if change.amount > 0 else self.end

    def minimize(self, objective: str) -> None:
        """Minimize the last end, or the longest time between first start and last end."""
        if objective == "makespan":
            for end in self.end.values():
                self.model.add(self.value >= end)
        else:
            streams = {
                stream for op in self.program.ops.values() for stream in op.streams
            }
            for device in sorted(stream for stream in streams if stream[0] == "device"):
                self.span(device)
        self.model.minimize(self.value)

    def span(self, device: Stream) -> None:
        """Let the objective be no less than from a device's first start to its last end."""
        names = [name for name, op in self.program.ops.items() if device in op.streams]
        begin = self.moment("begin")
        self.model.add_min_equality(begin, [self.start[name] for name in names])
        for name in names:
            self.model.add(self.value >= self.end[name] - begin)


def optimum_of(
    program: Program,
    objective: str,
    *,
    below: Fraction | None = None,
    seconds: float = 60.0,
) -> Fraction | None:
    """Return the optimum of a program; None where there is no schedule (below a value).

    Raises
    ------
    TimeoutError
        Nothing was proved within these deterministic seconds.
    """
    plain = ProgramModel(program, objective, below)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = seconds
    status = solver.solve(plain.model)
    if status == cp_model.INFEASIBLE:
        return None
    if status != cp_model.OPTIMAL:
        raise TimeoutError("the plain model was not solved in time")
    return Fraction(round(solver.objective_value), plain.scale)
