"""Optima of pipelines with fused blocks from the rules alone: blocks of any two micro-batches.

It shares no code with what it judges, puts no micro-batches in order, and leaves ops of no time out
of what occupies a device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import lcm
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

from tests.outside.plain_model import Instance, Program, exact, program_of


class Block(NamedTuple):
    """Ops that may run as one, the forward first."""

    ops: tuple[str, ...]
    time: Fraction
    memory: Fraction


def _blocks(instance: Instance, program: Program) -> Iterator[Block]:
    overlap, batches = instance["overlap"], range(instance["num_microbatches"])
    is_split = "backward_input" in instance["times"]
    letters = ("I", "W") if is_split and overlap.get("with_weight", True) else ("I",)
    letters = letters if is_split else ("B",)
    stages = range(sum(name.startswith("F") for name in program.ops) // len(batches))
    for s, t, i, h in product(stages, stages, batches, batches):
        ops = (f"F{s}.{i}", *(f"{letter}{t}.{h}" for letter in letters))
        if i == h or program.ops[ops[0]].streams != program.ops[ops[1]].streams:
            continue
        time = overlap["time"]
        time = time[s][t] if isinstance(time, list) else time
        if time is not None:
            yield Block(ops, exact(time), exact(overlap.get("memory", 0)))


class BlocksModel:
    """Each op runs alone or by one of its blocks, with an interval of fixed size for each way."""

    def __init__(self, instance: Instance) -> None:
        program, model = program_of(instance), cp_model.CpModel()
        self.model, self.program = model, program
        blocks = list(_blocks(instance, program))
        numbers = [op.duration for op in program.ops.values()]
        numbers += [wait.lag for wait in program.waits]
        self.scale = lcm(
            *(each.denominator for each in (*numbers, *(b.time for b in blocks)))
        )
        self.horizon = self.ticks(sum(numbers))
        self.start = {
            name: model.new_int_var(0, self.horizon, name) for name in program.ops
        }
        self.end = {
            name: model.new_int_var(0, self.horizon, name) for name in program.ops
        }
        self.alone = {name: model.new_bool_var(name) for name in program.ops}
        self.ways: dict[str, list[Any]] = {
            name: [own] for name, own in self.alone.items()
        }
        self.busy: dict[Any, list[Any]] = defaultdict(list)
        self.events: dict[int, list[Any]] = defaultdict(list)
        for name, op in program.ops.items():
            self.occupy(name, self.ticks(op.duration), self.alone[name])
        for block in blocks:
            self.add(block)
        for ways in self.ways.values():
            model.add_exactly_one(ways)
        for intervals in self.busy.values():
            model.add_no_overlap(intervals)
        for wait in program.waits:
            rule = model.add(
                self.start[wait.after] >= self.end[wait.before] + self.ticks(wait.lag)
            )
            if wait.after.startswith("W"):
                rule.only_enforce_if(self.alone[wait.after])
        self.memory()
        value = model.new_int_var(0, self.horizon, "value")
        model.add_max_equality(value, list(self.end.values()))
        model.minimize(value)

    def ticks(self, time: Fraction | int) -> int:
        """Return a time in ticks."""
        return int(time * self.scale)

    def occupy(self, name: str, size: int, literal: Any) -> None:
        """Let an op take so long if a literal is true, and its device meanwhile."""
        self.model.add(self.end[name] == self.start[name] + size).only_enforce_if(
            literal
        )
        interval = self.model.new_optional_fixed_size_interval_var(
            self.start[name], size, literal, ""
        )
        for stream in self.program.ops[name].streams if size else ():
            self.busy[stream].append(interval)

    def add(self, block: Block) -> None:
        """Let the ops of a block run as one."""
        literal = self.model.new_bool_var("+".join(block.ops))
        first, *others = block.ops
        self.occupy(first, self.ticks(block.time), literal)
        for name in block.ops:
            self.ways[name].append(literal)
        for name in others:
            for moment in (self.start, self.end):
                self.model.add(moment[name] == moment[first]).only_enforce_if(literal)
        ((_, device),) = self.program.ops[first].streams
        self.events[int(device)] += [
            (self.start[first], block.memory, literal),
            (self.end[first], -block.memory, literal),
        ]

    def memory(self) -> None:
        """Keep what devices hold within their memory."""
        for device, room in self.program.rooms.items():
            events = self.events[device] + [
                (self.start[c.op] if c.amount > 0 else self.end[c.op], c.amount, 1)
                for c in self.program.changes[device]
            ]
            unit = lcm(
                room.denominator, *(amount.denominator for _, amount, _ in events)
            )
            moments, amounts, literals = zip(*events, strict=True)
            whole = [int(amount * unit) for amount in amounts]
            if room < 0:
                self.model.add_bool_or([])
                continue
            self.model.add_reservoir_constraint_with_active(
                moments, whole, literals, 0, int(room * unit)
            )


def blocks_optimum(instance: Instance) -> Fraction | None:
    """Return the least makespan of a pipeline with blocks, None where there is no schedule."""
    plain = BlocksModel(instance)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = 60
    status = solver.solve(plain.model)
    assert status in {cp_model.OPTIMAL, cp_model.INFEASIBLE}
    return Fraction(round(solver.objective_value), plain.scale) if status == 4 else None
