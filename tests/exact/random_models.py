"""Random small models of CP-SAT, with every kind of interval and rule that lowerings make.

They are written here from plain data, without ppsolve, so that parameters of CP-SAT are compared
and nothing else: what one set of parameters refutes, no other may find.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from ortools.sat.python import cp_model

HORIZON = 40


@dataclass
class Rules:
    """A scheduling problem of n ops.

    Parameters
    ----------
    duration, machine : list of int
        Of each op; machine -1 is none.
    windows : list of list of int
        Possible starts of each op, as flat closed intervals.
    edges : list of (int, int, int)
        Before, after, lag from end to start.
    optional : set of int
        Ops that may be absent.
    groups : list of list of int
        Optional ops of which exactly one is present.
    lengths : dict of int to list of int
        Other durations that ops may have instead, such as those of blocks or modes.
    holds : list of (int, int, int)
        First op, last op, amount from the start of the one to the end of the other.
    capacity : int
        Of what is held.
    is_reservoir, has_orders : bool
        Levels as a reservoir, not a cumulative; a literal for each pair of ops of a machine.
    objective : {"makespan", "span", "completion"}
        What is minimised; a span is that of machine 0.
    """

    duration: list[int]
    machine: list[int]
    windows: list[list[int]]
    edges: list[tuple[int, int, int]]
    optional: set[int] = field(default_factory=set)
    groups: list[list[int]] = field(default_factory=list)
    lengths: dict[int, list[int]] = field(default_factory=dict)
    holds: list[tuple[int, int, int]] = field(default_factory=list)
    capacity: int = 0
    is_reservoir: bool = False
    has_orders: bool = False
    objective: str = "makespan"

    @property
    def machines(self) -> list[list[int]]:
        return [
            [op for op, own in enumerate(self.machine) if own == machine]
            for machine in range(max(self.machine) + 1)
        ]

    @property
    def has_plain_intervals(self) -> bool:
        every = [
            [
                length
                for op in ops
                for length in (self.duration[op], *self.lengths.get(op, ()))
            ]
            for ops in self.machines
        ]
        largest = sorted(amount for _, _, amount in self.holds)[-2:]
        fit = (self.is_reservoir or sum(largest) <= self.capacity) and not self.lengths
        return fit and all(len(lengths) < 2 or 0 not in lengths for lengths in every)


def random_rules(seed: int, *, points: bool, choices: bool = False) -> Rules:
    """Return random rules; with `points` some ops of machines take no time.

    With `choices` some have several lengths.
    """
    draw = random.Random(seed)
    count = draw.randint(3, 8)
    machines = draw.randint(1, 3)
    least = 0 if points else 1
    rules = Rules(
        duration=[
            0 if points and draw.random() < 0.3 else draw.randint(least, 8)
            for _ in range(count)
        ],
        machine=[draw.randrange(-1, machines) for _ in range(count)],
        windows=[_window(draw) for _ in range(count)],
        edges=[
            (a, b, draw.choice([0, 0, 1, 3]))
            for b in range(count)
            for a in range(b)
            if draw.random() < 0.25
        ],
        has_orders=draw.random() < 0.3,
        objective=draw.choice(["makespan", "makespan", "span", "completion"]),
    )
    if draw.random() < 0.3:
        chosen = draw.sample(range(count), draw.randint(1, 3))
        rules.optional = set(chosen)
        rules.groups = [chosen] if len(chosen) > 1 else []
    fixed = [op for op in range(count) if op not in rules.optional]
    if draw.random() < 0.5 and len(fixed) > 1:
        pairs = [sorted(draw.sample(fixed, 2)) for _ in range(draw.randint(1, 4))]
        rules.holds = [(a, b, draw.randint(1, 3)) for a, b in pairs]
        rules.edges += [(a, b, 0) for a, b in pairs]
        rules.capacity = draw.randint(2, 5)
        rules.is_reservoir = draw.random() < 0.5
    if choices:
        for op in draw.sample(fixed, min(len(fixed), draw.randint(1, 4))):
            rules.lengths[op] = [
                draw.randint(least, 9) for _ in range(draw.randint(1, 2))
            ]
    return rules


def _window(draw: random.Random) -> list[int]:
    kind = draw.random()
    if kind < 0.75:
        return [0, HORIZON]
    if kind < 0.8:
        at = draw.randint(0, 12)
        return [at, at]
    first = draw.randint(0, 6)
    return [first, first + draw.randint(1, 6), first + 10, HORIZON]


@dataclass
class Built:
    """A model with the variables of its solution."""

    model: cp_model.CpModel
    start: list[cp_model.IntVar]
    present: dict[int, cp_model.IntVar]
    ways: dict[int, list[tuple[int, cp_model.IntVar]]]
    objective: cp_model.IntVar


def build(rules: Rules, most: int | None = None) -> Built:
    """Return the model of rules, with an objective of at most so much."""
    model = cp_model.CpModel()
    count, largest = len(rules.duration), 2 * HORIZON * len(rules.duration)
    start = [
        model.new_int_var_from_domain(cp_model.Domain.from_flat_intervals(flat), "")
        for flat in rules.windows
    ]
    objective = model.new_int_var(0, largest if most is None else most, "")
    ways = {op: _ways(model, rules, op) for op in sorted(rules.lengths)}
    end = [
        model.new_int_var(0, largest, "")
        if op in ways
        else start[op] + rules.duration[op]
        for op in range(count)
    ]
    for op, alternatives in ways.items():
        for length, literal in alternatives:
            model.add(end[op] == start[op] + length).only_enforce_if(literal)
    present = {op: model.new_bool_var("") for op in sorted(rules.optional)}
    for group in rules.groups:
        model.add_exactly_one(present[op] for op in group)
    for a, b, lag in rules.edges:
        needed = [present[op] for op in (a, b) if op in present]
        model.add(end[a] + lag <= start[b]).only_enforce_if(needed)
    for ops in rules.machines:
        if len(ops) > 1:
            intervals = []
            for op in ops:
                alternatives = ways.get(
                    op, [(rules.duration[op], present.get(op, True))]
                )
                for length, literal in alternatives:
                    intervals.append(_interval(model, start[op], length, literal))
            model.add_no_overlap(intervals)
        if rules.has_orders:
            for k, a in enumerate(ops):
                for b in ops[k + 1 :]:
                    if a not in present and b not in present:
                        first = model.new_bool_var("")
                        model.add(end[a] <= start[b]).only_enforce_if(first)
                        model.add(end[b] <= start[a]).only_enforce_if(~first)
    _add_holds(model, rules, start, end)
    _add_objective(model, rules, objective, start, end, present)
    return Built(model, start, present, ways, objective)


def _ways(
    model: cp_model.CpModel, rules: Rules, op: int
) -> list[tuple[int, cp_model.IntVar]]:
    """Return every length that an op may have, each with its literal."""
    lengths = dict.fromkeys((rules.duration[op], *rules.lengths[op]))
    ways = [(length, model.new_bool_var("")) for length in lengths]
    model.add_exactly_one(literal for _, literal in ways)
    return ways


def _interval(
    model: cp_model.CpModel, start: cp_model.IntVar, size: int, literal: Any
) -> cp_model.IntervalVar:
    if literal is True:
        return model.new_fixed_size_interval_var(start, size, "")
    return model.new_optional_fixed_size_interval_var(start, size, literal, "")


def _add_holds(
    model: cp_model.CpModel,
    rules: Rules,
    start: list[cp_model.IntVar],
    end: list[cp_model.LinearExprT],
) -> None:
    if not rules.holds:
        return
    amounts = [amount for _, _, amount in rules.holds]
    if rules.is_reservoir:
        times = [start[a] for a, _, _ in rules.holds] + [
            end[b] for _, b, _ in rules.holds
        ]
        changes = amounts + [-amount for amount in amounts]
        model.add_reservoir_constraint(times, changes, -sum(amounts), rules.capacity)
        return
    intervals = [
        model.new_interval_var(
            start[a], model.new_int_var(0, 2 * HORIZON, ""), end[b], ""
        )
        for a, b, _ in rules.holds
    ]
    model.add_cumulative(intervals, amounts, rules.capacity)


def _add_objective(
    model: cp_model.CpModel,
    rules: Rules,
    objective: cp_model.IntVar,
    start: list[cp_model.IntVar],
    end: list[cp_model.LinearExprT],
    present: dict[int, cp_model.IntVar],
) -> None:
    ops = range(len(rules.duration))
    if rules.objective == "completion":
        terms = [end[op] for op in ops if op not in present]
        model.add(objective == sum(terms))
    else:
        begun: cp_model.LinearExprT = 0
        if rules.objective == "span":
            ops = [op for op in ops if rules.machine[op] == 0]
            begun = model.new_int_var(0, HORIZON, "")
        for op in ops:
            needed = [present[op]] if op in present else []
            model.add(objective >= end[op] - begun).only_enforce_if(needed)
            if rules.objective == "span":
                model.add(begun <= start[op]).only_enforce_if(needed)
    model.minimize(objective)


def broken_rule(rules: Rules, start: list[int], present: set[int]) -> str | None:
    """Return the first rule that a solution breaks, None for a valid one."""
    ops = [op for op in range(len(start)) if op not in rules.optional or op in present]
    end = [begin + length for begin, length in zip(start, rules.duration, strict=True)]
    for group in rules.groups:
        if len(present & set(group)) != 1:
            return f"one of {group}"
    for op in ops:
        flat = rules.windows[op]
        if not any(
            low <= start[op] <= high
            for low, high in zip(flat[::2], flat[1::2], strict=True)
        ):
            return f"window of {op}"
    for a, b, lag in rules.edges:
        if a in ops and b in ops and end[a] + lag > start[b]:
            return f"{a} before {b}"
    for members in rules.machines:
        for a in members:
            for b in members:
                if (
                    a < b
                    and a in ops
                    and b in ops
                    and start[a] < end[b]
                    and start[b] < end[a]
                ):
                    return f"{a} and {b} at once"
    for moment in [start[a] for a, _, _ in rules.holds]:
        level = sum(n for a, b, n in rules.holds if start[a] <= moment < end[b])
        if level > rules.capacity:
            return f"{level} held at {moment}"
    return None


def value_of(rules: Rules, start: list[int], present: set[int]) -> int:
    """Return the objective of a valid solution."""
    ops = [op for op in range(len(start)) if op not in rules.optional or op in present]
    end = [begin + length for begin, length in zip(start, rules.duration, strict=True)]
    if rules.objective == "completion":
        return sum(end[op] for op in ops if op not in rules.optional)
    if rules.objective == "span":
        ops = [op for op in ops if rules.machine[op] == 0]
        return max(end[op] for op in ops) - min(start[op] for op in ops) if ops else 0
    return max(0, max((end[op] for op in ops), default=0))
