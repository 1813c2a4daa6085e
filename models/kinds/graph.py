"""Graph instances: ops, resources, precedences and memory pools written out one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from ppsolve.models.core.builder import OpLabels, ProblemBuilder
from ppsolve.models.core.dag import find_cycle
from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import (
    FREE,
    IntArray,
    Objective,
    Pool,
    Problem,
    ScheduleObjective,
)
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.base import Number, StrictModel
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.measures import MemoryAmount, Time
from ppsolve.models.instances import Instance


class GraphOp(StrictModel):
    """One op: its duration, its resources, and the amounts that it acquires and releases."""

    id: str = Field(min_length=1)
    duration: Time[Number]
    resources: tuple[str, ...] = ()
    release: Time[Number] = Field(default=0, validate_default=True)
    start: Time[Number] | None = None
    acquire: MemoryAmount[dict[str, Number]] = Field(default={})
    release_at_end: MemoryAmount[dict[str, Number]] = Field(default={})


class GraphPrecedence(StrictModel):
    """start(after) >= end(before) + lag."""

    before: str
    after: str
    lag: Time[Number] = Field(default=0, validate_default=True)


class GraphPool(StrictModel):
    """A memory pool and the amount in use before any op."""

    name: str = Field(min_length=1)
    capacity: MemoryAmount[Number]
    initial: MemoryAmount[Number] = Field(default=0, validate_default=True)


class GraphInstance(Instance):
    """Any scheduling problem of ops, resources, precedences and pools, written out.

    An op's optional `start` pins it. Every resource counts as a device for the device span.
    """

    kind: Literal["graph"] = "graph"
    name: str = "graph"
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
        names = [self.ops[node].id for node in find_cycle(before, after)]
        if names:
            raise InputError(
                f"expected no cycle, found {' -> '.join([*names, names[0]])}",
                field="precedences",
                code=ErrorCode.CONFLICT,
            )

    def edges(self) -> tuple[IntArray, IntArray]:
        """Return the precedences as op numbers (before, after), each int64[k]."""
        number = {op.id: index for index, op in enumerate(self.ops)}
        return (
            np.array(
                [number[edge.before] for edge in self.precedences], dtype=np.int64
            ),
            np.array([number[edge.after] for edge in self.precedences], dtype=np.int64),
        )


def _refuse_duplicates(field: str, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f'expected different names, "{twice[0]}" appears twice',
            field=field,
            code=ErrorCode.CONFLICT,
        )


def _refuse_unknown(
    field: str, names: Iterable[str], known: set[str], what: str
) -> None:
    for name in names:
        if name not in known:
            raise InputError.unknown(
                f"unknown {what}", name, sorted(known), field=field
            )


def lower_graph(instance: GraphInstance, *, exact: bool = False) -> Problem:
    """Lower a graph; ops keep their order and names.

    `instance`: the graph, n ops.
    `exact`: raise an `InputError` for times without a common tick instead of rounding
        them up.
    Returns: the n ops, with every resource as a span resource.
    """
    times = [Fraction(op.duration) for op in instance.ops]
    times += [Fraction(op.release) for op in instance.ops]
    times += [Fraction(op.start) for op in instance.ops if op.start is not None]
    times += [Fraction(edge.lag) for edge in instance.precedences]
    scale = TimeScale.fit(times, instance.time_unit, exact=exact)

    def ticks(values: Iterable[Number]) -> IntArray:
        return np.array(
            [scale.ticks(Fraction(value)) for value in values], dtype=np.int64
        )

    builder = ProblemBuilder(instance.name, scale, instance.objective)
    number = {
        name: builder.add_resource(_key_of(name, instance))
        for name in instance.resources
    }
    width = max(1, *(len(op.resources) for op in instance.ops))
    table = np.full((len(instance.ops), width), FREE, dtype=np.int64)
    for index, op in enumerate(instance.ops):
        table[index, : len(op.resources)] = [number[name] for name in op.resources]
    pinned = [
        FREE if op.start is None else scale.ticks(Fraction(op.start))
        for op in instance.ops
    ]
    builder.add_ops(
        "op",
        ticks(op.duration for op in instance.ops),
        table,
        OpLabels(device=table[:, 0]),
        release=ticks(op.release for op in instance.ops),
        pinned=np.array(pinned, dtype=np.int64),
    )
    before, after = instance.edges()
    builder.add_precedences(
        before, after, ticks(edge.lag for edge in instance.precedences)
    )
    builder.span_resources = list(number.values())
    builder.pools = [_pool(instance, pool) for pool in instance.pools]
    builder.explicit_names = {index: op.id for index, op in enumerate(instance.ops)}
    return builder.build()


def _key_of(name: str, instance: GraphInstance) -> DeviceName:
    """Return the key of a resource or a pool: one that users call ``link 3`` belongs to device 3.

    Only numbers below that of resources are devices.
    """
    role, _, digits = name.rpartition(" ")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 10
    key = DeviceName(role, (int(digits),)) if role and is_number else DeviceName(name)
    is_device = str(key) == name and max(key.devices, default=0) < len(
        instance.resources
    )
    return key if is_device else DeviceName(name)


def _pool(instance: GraphInstance, pool: GraphPool) -> Pool:
    def events(amounts: Iterable[dict[str, Number]]) -> list[tuple[int, Fraction]]:
        found = ((op, amount.get(pool.name)) for op, amount in enumerate(amounts))
        return [(op, Fraction(amount)) for op, amount in found if amount]

    return Pool.of(
        _key_of(pool.name, instance),
        Fraction(pool.capacity),
        events(op.acquire for op in instance.ops),
        events(op.release_at_end for op in instance.ops),
        Fraction(pool.initial),
    )
