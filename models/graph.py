"""Graph instances: ops, resources, precedences and memory pools written out one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from ppsolve.models.core.dag import find_cycle
from ppsolve.models.core.problem import (
    FREE,
    IntArray,
    Objective,
    Pool,
    Problem,
    ProblemBuilder,
    ScheduleObjective,
)
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.base import Number, StrictModel, did_you_mean
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance


class GraphOp(StrictModel):
    """One op: its duration, its resources, and the amounts that it acquires and releases."""

    id: str = Field(min_length=1)
    duration: Number
    resources: tuple[str, ...] = ()
    release: Number = Field(default=0, validate_default=True)
    start: Number | None = None
    acquire: dict[str, Number] = Field(default={})
    release_at_end: dict[str, Number] = Field(default={})


class GraphPrecedence(StrictModel):
    """start(after) >= end(before) + lag."""

    before: str
    after: str
    lag: Number = Field(default=0, validate_default=True)


class GraphPool(StrictModel):
    """A memory pool and the amount in use before any op."""

    name: str = Field(min_length=1)
    capacity: Number
    initial: Number = Field(default=0, validate_default=True)


class GraphInstance(Instance):
    """Any scheduling problem of ops, resources, precedences and pools, written out.

    An op's optional `start` pins it. Every resource counts as a device for the device span.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    kind: Literal["graph"] = "graph"
    name: str = "graph"
    description: str | None = None
    time_unit: str = "us"
    resources: tuple[str, ...]
    ops: tuple[GraphOp, ...] = Field(min_length=1)
    precedences: tuple[GraphPrecedence, ...] = ()
    pools: tuple[GraphPool, ...] = ()
    objective: ScheduleObjective = Objective.MAKESPAN

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _refuse_duplicates("resources", self.resources)
        _refuse_duplicates("ops", [op.id for op in self.ops])
        _refuse_duplicates("pools", [pool.name for pool in self.pools])
        self._check_references()
        self._check_acyclic()
        return self

    def _check_references(self) -> None:
        resources, pools = set(self.resources), {pool.name for pool in self.pools}
        ids = {op.id for op in self.ops}
        for index, op in enumerate(self.ops):
            field = f"ops[{index}]"
            _refuse_unknown(f"{field}.resources", op.resources, resources, "resource")
            _refuse_duplicates(f"{field}.resources", op.resources)
            _refuse_unknown(f"{field}.acquire", op.acquire, pools, "pool")
            _refuse_unknown(f"{field}.release_at_end", op.release_at_end, pools, "pool")
        for index, edge in enumerate(self.precedences):
            _refuse_unknown(f"precedences[{index}].before", [edge.before], ids, "op")
            _refuse_unknown(f"precedences[{index}].after", [edge.after], ids, "op")

    def _check_acyclic(self) -> None:
        before, after = self.edges()
        names = [self.ops[node].id for node in find_cycle(len(self.ops), before, after)]
        if names:
            raise InputError(
                f"expected no cycle, found {' -> '.join([*names, names[0]])}", field="precedences"
            )

    def edges(self) -> tuple[IntArray, IntArray]:
        """Return the precedences as op numbers (before, after), each int64[k]."""
        number = {op.id: index for index, op in enumerate(self.ops)}
        return (
            np.array([number[edge.before] for edge in self.precedences], dtype=np.int64),
            np.array([number[edge.after] for edge in self.precedences], dtype=np.int64),
        )


def _refuse_duplicates(field: str, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f'expected different names, "{twice[0]}" is there twice', field=field)


def _refuse_unknown(field: str, names: Iterable[str], known: set[str], what: str) -> None:
    for name in names:
        if name not in known:
            raise InputError(
                f'unknown {what} "{name}"' + did_you_mean(name, sorted(known)), field=field
            )


def lower_graph(instance: GraphInstance, *, exact: bool = False) -> Problem:
    """Lower a graph; ops keep their order and names.

    Parameters
    ----------
    instance : GraphInstance
        The graph, n ops.
    exact : bool
        Refuse times without a common tick within the limit instead of rounding them up.

    Returns
    -------
    Problem
        The n ops, with every resource as a span resource.

    Raises
    ------
    InputError
        The times have no common tick within the limit and `exact` is true.
    """
    times = [Fraction(op.duration) for op in instance.ops]
    times += [Fraction(op.release) for op in instance.ops]
    times += [Fraction(op.start) for op in instance.ops if op.start is not None]
    times += [Fraction(edge.lag) for edge in instance.precedences]
    scale = TimeScale.fit(times, instance.time_unit, exact=exact)

    def ticks(values: Iterable[Number]) -> IntArray:
        return np.array([scale.ticks(Fraction(value)) for value in values], dtype=np.int64)

    builder = ProblemBuilder()
    number = {name: builder.add_resource(name) for name in instance.resources}
    width = max(1, *(len(op.resources) for op in instance.ops))
    table = np.full((len(instance.ops), width), FREE, dtype=np.int64)
    for index, op in enumerate(instance.ops):
        table[index, : len(op.resources)] = [number[name] for name in op.resources]
    pinned = [FREE if op.start is None else scale.ticks(Fraction(op.start)) for op in instance.ops]
    builder.add_ops(
        "op",
        ticks(op.duration for op in instance.ops),
        table,
        device=table[:, 0],
        release=ticks(op.release for op in instance.ops),
        pinned=np.array(pinned, dtype=np.int64),
    )
    before, after = instance.edges()
    builder.add_precedences(before, after, ticks(edge.lag for edge in instance.precedences))
    return builder.build(
        name=instance.name,
        scale=scale,
        objective=instance.objective,
        span_resources=list(number.values()),
        pools=_pools(instance),
        explicit_names={index: op.id for index, op in enumerate(instance.ops)},
    )


def _pools(instance: GraphInstance) -> list[Pool]:
    tables = {pool.name: _PoolTable() for pool in instance.pools}
    for number, op in enumerate(instance.ops):
        for name, amount in op.acquire.items():
            tables[name].add(tables[name].acquires, number, Fraction(amount))
        for name, amount in op.release_at_end.items():
            tables[name].add(tables[name].releases, number, Fraction(amount))
    return [tables[pool.name].pool(pool) for pool in instance.pools]


class _PoolTable:
    """Acquires and releases of one pool: (op, index of the amount)."""

    def __init__(self) -> None:
        self.amounts: dict[Fraction, int] = {}
        self.acquires: list[tuple[int, int]] = []
        self.releases: list[tuple[int, int]] = []

    def add(self, events: list[tuple[int, int]], op: int, amount: Fraction) -> None:
        if amount:
            events.append((op, self.amounts.setdefault(amount, len(self.amounts))))

    def pool(self, declared: GraphPool) -> Pool:
        acquires, releases = (
            np.array(events, dtype=np.int64).reshape(-1, 2).T
            for events in (self.acquires, self.releases)
        )
        return Pool(
            name=declared.name,
            capacity=Fraction(declared.capacity),
            initial=Fraction(declared.initial),
            amounts=tuple(self.amounts),
            acquire_op=acquires[0],
            acquire_amount=acquires[1],
            release_op=releases[0],
            release_amount=releases[1],
        )
