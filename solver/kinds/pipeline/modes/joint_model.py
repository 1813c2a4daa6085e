"""One CP-SAT model of modes and orders: optional ops, for pipelines of few micro-batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import Objective, Pool, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.entries import entry_at
from ppsolve.models.kinds.pipeline.labels import (
    OFFLOAD_KIND,
    RECOMPUTE_KIND,
    RELOAD_KIND,
)
from ppsolve.models.kinds.pipeline.modes import CHOSEN_MODES
from ppsolve.solver.exact.parameters import ModelTraits
from ppsolve.solver.kinds.pipeline.modes.problems import ModeProblems
from ppsolve.solver.structure.holds import whole_units
from ppsolve.solver.structure.implied import ImpliedOrder, index_order

LARGEST_LEVEL = 2**24
"""Largest memory level of a model: CP-SAT 9.15 is not to be trusted with far larger ones."""


class MemoryEvent(NamedTuple):
    """What an op takes from a pool or gives back, if a literal is true."""

    moment: Any  # its start or end
    amount: Fraction  # below 0: given back
    literal: Any


def add_reservoir(
    cp: cp_model.CpModel, events: list[MemoryEvent], limit: Fraction
) -> bool:
    """Keep what is taken from a pool within a limit.

    `cp`, `events`, `limit`: the model, what happens to the pool, and the most that may
        be taken.
    Returns: whether the levels are small enough to be trusted.
    """
    if limit < 0:
        cp.add_bool_or([])
    if limit < 0 or not events:
        return True
    amounts, unit = whole_units([event.amount for event in events], len(events))
    moments, _, literals = zip(*events, strict=True)
    level = int(limit * unit)
    whole = [int(amount) for amount in amounts]
    cp.add_reservoir_constraint_with_active(moments, whole, literals, 0, level)
    return level <= LARGEST_LEVEL


class ChoiceModel:
    """A model of what is chosen and of the order of ops, in ticks.

    It is searched as models of problems are, see `ppsolve.solver.exact.search.CpsatSearch`.

    `lower`, `upper`: smallest and largest makespan to look for.
    """

    start: list[Any]
    end: list[Any]

    def __init__(self, lower: int, upper: int) -> None:
        self.lower, self.upper = lower, upper
        self.cp = cp_model.CpModel()
        self.traits = ModelTraits(has_plain_intervals=False)
        self.memory_is_exact = True

    def _events_of(self, pool: Pool) -> Iterator[list[MemoryEvent]]:
        """Yield what ops that are always there take from a pool, then what they give back."""
        for ops, indices, sign, moments in (
            (pool.acquire_op, pool.acquire_amount, 1, self.start),
            (pool.release_op, pool.release_amount, -1, self.end),
        ):
            pairs = zip(ops.tolist(), indices.tolist(), strict=True)
            yield [
                MemoryEvent(moments[op], sign * pool.amounts[n], True)
                for op, n in pairs
            ]

    def _add_pool(self, events: list[MemoryEvent], limit: Fraction) -> None:
        self.memory_is_exact &= add_reservoir(self.cp, events, limit)

    def adopt(self, schedule: Schedule) -> Schedule:
        """Return a schedule as it is: alike micro-batches may have other choices."""
        return schedule


class JointModel(ChoiceModel):
    """All modes of all micro-batches and the order of ops in one model.

    The ops that every mode has come first, with the numbers that they have where all is kept; each
    mode adds optional ops.

    `problems`: problems of all choices.
    `lower`, `upper`: smallest and largest makespan to look for, in ticks.
    """

    def __init__(self, problems: ModeProblems, lower: int, upper: int) -> None:
        super().__init__(lower, upper)
        self.problems, self.modes = problems, problems.modes
        self.problem = problems.problem(np.zeros(self.modes.shape, dtype=np.int64))
        # Of the ops that every mode has; that all of them fit is not asked.
        self.implied = ImpliedOrder(self.problem)
        self._grid = {kind: self.problem.grid(kind) for kind in ("F", self._returning)}
        self._optional: dict[str, Any] = {}
        # Literals of modes that recompute in an op, and the ticks that each of them adds.
        self._lengthened: dict[int, list[tuple[Any, int]]] = {}
        self._busy: dict[DeviceName, list[Any]] = defaultdict(list)
        self._events: dict[DeviceName, list[MemoryEvent]] = defaultdict(list)
        self._build()

    @property
    def _returning(self) -> str:
        return "I" if self.problems.instance.times.is_split else "B"

    def _build(self) -> None:
        problem, cp = self.problem, self.cp
        plain = self.implied.plain
        heads = plain.heads(np.zeros(problem.num_ops, dtype=np.int64))
        tails = plain.tails(problem.duration)
        self.start = [
            cp.new_int_var(head, max(head, self.upper - tail), "")
            for head, tail in zip(heads.tolist(), tails.tolist(), strict=True)
        ]
        self.objective = cp.new_int_var(min(self.lower, self.upper), self.upper, "")
        self.literals = self._choose()
        self.size: list[Any] = problem.duration.tolist()
        self._lengthen()
        self.end = [
            start + size for start, size in zip(self.start, self.size, strict=True)
        ]
        for op in self._lengthened:
            self.end[op] = cp.new_int_var(0, self.upper, "")
            cp.add(self.end[op] == self.start[op] + self.size[op])
        for cell in np.ndindex(*self.modes.shape):
            self._add_cell(cell)
        self._add_plain_rules()
        self._add_pools()
        cp.minimize(self.objective)

    def _choose(self) -> list[list[list[Any]]]:
        """Return a literal for each mode of each stage and micro-batch."""
        stages, microbatches = self.modes.shape
        count = range(len(self.modes.names))
        found = []
        own = microbatches if self.modes.decide == "microbatch" else 1
        for _ in range(stages):
            row = [[self.cp.new_bool_var("") for _ in count] for _ in range(own)]
            for literals in row:
                self.cp.add_exactly_one(literals)
            found.append(row * (microbatches // own))
        return found

    def _lengthen(self) -> None:
        """Let backwards take longer in modes that recompute as a part of them."""
        if self.modes.is_anytime:
            return
        for (stage, microbatch), op in np.ndenumerate(self._grid[self._returning]):
            least = self.size[op]
            extra = {
                number: self.problems.scale.ticks(
                    entry_at(self.modes.mode(number).time, stage)
                )
                for number in self.modes.recomputing
            }
            if not any(extra.values()):
                continue
            self.size[op] = self.cp.new_int_var(least, least + max(extra.values()), "")
            literals = self.literals[stage][microbatch]
            self.cp.add(
                self.size[op] == least + sum(t * literals[n] for n, t in extra.items())
            )
            self._lengthened[int(op)] = [(literals[n], t) for n, t in extra.items()]

    def _add_cell(self, cell: tuple[int, ...]) -> None:
        """Add the optional ops of a stage and micro-batch, and what they do to memory."""
        stage, microbatch = cell
        modes, literals = self.modes, self.literals[stage][microbatch]
        forward = int(self._grid["F"][cell])
        returning = int(self._grid[self._returning][cell])
        device = int(self.problem.device[forward])
        own = DeviceName("device", (device,))
        forward_end = self.end[forward]
        for number in range(1, len(literals)):
            literal = literals[number]
            rest = Fraction(
                np.broadcast_to(modes.rest(stage, number), modes.shape[1])[microbatch]
            )
            drop, take = forward_end, self.start[returning]
            if number == modes.offloading:
                if not rest:
                    continue
                offload = modes.offload
                assert offload is not None
                out, back = modes.channels(device)
                first = self._optional_op(OFFLOAD_KIND, cell, offload.out, literal, out)
                last = self._optional_op(RELOAD_KIND, cell, offload.back, literal, back)
                self._chain(literal, forward_end, first, last, returning)
                drop, take = first[1], last[0]
                host = modes.host(device)
                amount = entry_at(offload.amount, stage)
                self._events[host] += [
                    MemoryEvent(first[0], amount, literal),
                    MemoryEvent(last[1], -amount, literal),
                ]
            elif modes.is_anytime:
                time = modes.mode(number).time
                op = self._optional_op(RECOMPUTE_KIND, cell, time, literal, own)
                self._chain(literal, forward_end, op, returning)
                take = op[0]
            if rest:
                self._events[own] += [
                    MemoryEvent(drop, -rest, literal),
                    MemoryEvent(take, rest, literal),
                ]

    def _optional_op(
        self,
        kind: str,
        cell: tuple[int, ...],
        time: Any,
        literal: Any,
        resource: DeviceName,
    ) -> tuple[Any, Any]:
        """Return start and end of an op that is there if a literal is true."""
        stage, microbatch = cell
        ticks = self.problems.scale.ticks(entry_at(time, stage))
        start = self.cp.new_int_var(0, max(0, self.upper - ticks), "")
        if ticks:
            interval = self.cp.new_optional_fixed_size_interval_var(
                start, ticks, literal, ""
            )
            self._busy[resource].append(interval)
        self._optional.setdefault(f"{kind}{stage}.{microbatch}", []).append(
            (literal, start)
        )
        return start, start + ticks

    def _chain(self, literal: Any, forward_end: Any, *ops: Any) -> None:
        *between, returning = ops
        ends = [forward_end, *(end for _, end in between)]
        starts = [*(start for start, _ in between), self.start[returning]]
        for end, start in zip(ends, starts, strict=True):
            self.cp.add(end <= start).only_enforce_if(literal)

    def _add_plain_rules(self) -> None:
        problem, cp = self.problem, self.cp
        edges = problem.before.tolist(), problem.after.tolist(), problem.lag.tolist()
        for one, other, lag in zip(*edges, strict=True):
            cp.add(self.end[one] + lag <= self.start[other])
        # Alike micro-batches are put in index order; where every one has a mode of its own, only
        # their first forwards are.
        before, after, _ = index_order(problem)
        if self.modes.decide == "microbatch":
            first = np.isin(before, self._grid["F"][0])
            before, after = before[first], after[first]
        for one, other in zip(before.tolist(), after.tolist(), strict=True):
            cp.add(self.start[one] <= self.start[other])
        for number, ops in enumerate(problem.ops_by_resource):
            busy = self._busy[problem.resources[number]]
            for op in ops.tolist():
                busy += self._intervals(op)
        for intervals in self._busy.values():
            cp.add_no_overlap(intervals)
        for op in range(problem.num_ops):
            cp.add(self.end[op] <= self.objective)

    def _intervals(self, op: int) -> list[Any]:
        """Return the intervals in which an op of the base occupies its resource.

        An op of no time has none, and one that only some modes lengthen has one for each of them.
        """
        start, end, size = self.start[op], self.end[op], self.size[op]
        if op not in self._lengthened:
            if not self.problem.holds_place[op]:
                return []
            return [self.cp.new_fixed_size_interval_var(start, size, "")]
        if self.problem.holds_place[op]:
            return [self.cp.new_interval_var(start, size, end, "")]
        return [
            self.cp.new_optional_fixed_size_interval_var(start, ticks, literal, "")
            for literal, ticks in self._lengthened[op]
            if ticks
        ]

    def _add_pools(self) -> None:
        problem = self.problem
        for pool in problem.pools:
            events = sum(self._events_of(pool), self._events[pool.key])
            self._add_pool(events, pool.limit - pool.initial)
        offload = self.modes.offload
        if offload is not None and offload.host_capacity is not None:
            for device in range(self.modes.instance.num_devices):
                limit = entry_at(offload.host_capacity, device)
                self._add_pool(self._events[self.modes.host(device)], limit)

    def hint(self, schedule: Schedule) -> None:
        """Hint a schedule of some choice of modes."""
        choice = schedule.problem.chosen(CHOSEN_MODES)
        starts = _by_name(schedule.problem, schedule.start.tolist())
        for name, variable in _by_name(self.problem, self.start).items():
            self.cp.add_hint(variable, starts[name])
        for stage, microbatch in np.ndindex(*self.modes.shape):
            row = self.literals[stage][microbatch]
            if microbatch and row is self.literals[stage][0]:
                continue
            for number, literal in enumerate(row):
                self.cp.add_hint(literal, int(number == choice[stage, microbatch]))
        self.cp.add_hint(self.objective, schedule.value)

    def schedule_of(self, solution: list[int]) -> Schedule:
        """Return the schedule of a solution of the model, of the problem of its modes."""
        choice = np.zeros(self.modes.shape, dtype=np.int64)
        for stage, microbatch in np.ndindex(*self.modes.shape):
            row = self.literals[stage][microbatch]
            chosen = [number for number, each in enumerate(row) if solution[each.index]]
            choice[stage, microbatch] = chosen[0]
        problem = self.problems.problem(choice)
        starts = _by_name(self.problem, [solution[each.index] for each in self.start])
        for name, alternatives in self._optional.items():
            for literal, start in alternatives:
                if solution[literal.index]:
                    starts[name] = solution[start.index]
        found = [starts[name] for name in problem.op_names(range(problem.num_ops))]
        return Schedule(problem, np.array(found, dtype=np.int64))


def obstacle(problems: ModeProblems) -> str | None:
    """Return why modes and orders have no joint model, None where they have one."""
    instance = problems.instance
    if problems.modes.decide not in {"stage", "microbatch"}:
        return "who decides has few choices"
    if instance.objective is not Objective.MAKESPAN:
        return "it minimises the makespan"
    if _largest_level(problems) > LARGEST_LEVEL:
        return "amounts of memory have too many digits"
    return None


def _largest_level(problems: ModeProblems) -> int:
    """Return the largest capacity in the common unit of all amounts of its pool."""
    shape, largest = problems.modes.shape, 0
    made = [
        problems.problem(np.full(shape, n)) for n in range(len(problems.modes.names))
    ]
    for pools in zip(*(problem.pools for problem in made), strict=False):
        amounts = [amount for pool in pools for amount in pool.amounts]
        _, unit = whole_units(amounts, 1)
        largest = max(largest, int((pools[0].limit - pools[0].initial) * unit))
    return largest


def _by_name(problem: Problem, values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(problem.op_names(range(problem.num_ops)), values, strict=True))
