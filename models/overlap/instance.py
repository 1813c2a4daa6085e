"""Overlap instances: compute kernels, collectives and waits of one rank, in program order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ppsolve.models.documents.base import Number, StrictModel, as_finite, describe, did_you_mean
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance

MAX_NODES = 200_000
"""Larger programs are refused: nodes are Python objects, checked one by one."""

DEFAULT_GROUP = "0"

RESERVED = ("launch:", "release:")
"""Prefixes of the names of ops that lowering adds for caps."""


class NodeKind(StrEnum):
    """Kind of a node: a kernel, a collective, or the wait for a collective."""

    COMPUTE = "compute"
    COMM = "comm"
    WAIT = "wait"


def _group(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def _cap(value: Any) -> Any:
    caps = value if isinstance(value, dict) else {None: value}
    for key, cap in caps.items():
        try:
            number = as_finite(cap)
        except ValueError:
            number = Decimal(0)
        if number < 1 or number != number.to_integral_value():
            where = f" for group {str(key)[:60]}" if key is not None else ""
            raise ValueError(
                f"expected a whole number >= 1{where}, or an object with one per group, "
                f"got {describe(cap)}"
            )
    whole = {str(key): int(cap) for key, cap in caps.items()}
    return whole if isinstance(value, dict) else int(value)


class OverlapNode(StrictModel):
    """One node of the program.

    Parameters
    ----------
    name : str
        Unique name.
    kind : {"compute", "comm", "wait"}
        Kernel on the compute stream, collective on the stream of its group, or wait.
    duration : number
        Duration; 0 for a wait.
    deps : list of str
        Names of earlier nodes that it directly depends on. A wait names exactly one collective.
    group : str, optional
        Process group of a collective; collectives of one group run one at a time.
    bytes : number
        Size of its output, held from its start to the end of the last use; 0 for a wait, which
        stands for the output of its collective.
    collective : str, optional
        Type of a collective, e.g. ``all_gather``; for display.
    """

    name: Annotated[str, Field(min_length=1, max_length=500)]
    kind: NodeKind
    duration: Number = Field(default=0, validate_default=True)
    deps: tuple[str, ...] = ()
    group: Annotated[str, BeforeValidator(_group)] | None = None
    bytes: Number = Field(default=0, validate_default=True)
    collective: str | None = None


class OverlapInstance(Instance):
    """A training graph on a compute stream and one comm stream per process group.

    Parameters
    ----------
    nodes : list of OverlapNode
        The program, in its order; nodes depend on earlier ones only.
    collective_order : {"frozen", "free"}
        ``frozen``: the collectives of a group keep their program order. ``free``: each group gets
        one order, the same on every rank, so that no deadlock can arise.
    max_in_flight : int or dict of str to int, optional
        Most collectives of a group between their launch and their wait, in program order.
    max_live_bytes : number, optional
        Most bytes of outputs that are held at once.
    objective : {"makespan", "makespan_then_bytes"}
        The objective; the second then lowers the peak of live bytes.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    kind: Literal["overlap"] = "overlap"
    name: str = "overlap"
    description: str | None = None
    time_unit: str = "us"
    nodes: Annotated[tuple[OverlapNode, ...], Field(max_length=MAX_NODES)]
    collective_order: Literal["frozen", "free"] = "frozen"
    max_in_flight: Annotated[int | dict[str, int], BeforeValidator(_cap)] | None = None
    max_live_bytes: Number | None = None
    objective: Literal["makespan", "makespan_then_bytes"] = "makespan"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        place: dict[str, int] = {}
        for index, node in enumerate(self.nodes):
            if node.name in place:
                raise InputError(
                    f'the name "{node.name[:60]}" is there twice (nodes {place[node.name]} '
                    f"and {index})",
                    field=f"nodes[{index}].name",
                )
            if node.name.startswith(RESERVED):
                raise InputError(
                    f"names that begin with {' or '.join(RESERVED)} are taken, got "
                    f'"{node.name[:60]}"',
                    field=f"nodes[{index}].name",
                )
            place[node.name] = index
        for index, node in enumerate(self.nodes):
            self._check_deps(index, node, place)
            self._check_kind(index, node, place)
        self._check_waits(place)
        self._check_groups()
        return self

    def _check_deps(self, index: int, node: OverlapNode, place: dict[str, int]) -> None:
        for number, name in enumerate(node.deps):
            field = f"nodes[{index}].deps[{number}]"
            if name not in place:
                raise InputError(
                    f'unknown node "{name[:60]}"' + did_you_mean(name[:60], place), field=field
                )
            if place[name] >= index:
                what = "itself" if place[name] == index else f'"{name[:60]}", which comes later'
                raise InputError(
                    f'"{node.name[:60]}" depends on {what}; expected earlier nodes only '
                    "(a cycle, or nodes out of program order)",
                    field=field,
                )

    def _check_kind(self, index: int, node: OverlapNode, place: dict[str, int]) -> None:
        field = f"nodes[{index}]"
        if node.kind is not NodeKind.WAIT and "duration" not in node.model_fields_set:
            raise InputError("this field is required", field=f"{field}.duration")
        if node.kind is not NodeKind.COMM:
            for key in ("group", "collective"):
                if getattr(node, key) is not None:
                    raise InputError("expected on collectives only", field=f"{field}.{key}")
        if node.kind is not NodeKind.WAIT:
            return
        if node.duration or node.bytes:
            key = "duration" if node.duration else "bytes"
            raise InputError(
                f"expected 0 for a wait, got {describe(getattr(node, key))}", field=f"{field}.{key}"
            )
        waited = [
            name
            for name in dict.fromkeys(node.deps)
            if self.nodes[place[name]].kind is NodeKind.COMM
        ]
        if len(waited) != 1:
            raise InputError(
                f'expected exactly one collective that the wait "{node.name[:60]}" waits for, '
                f"got {len(waited)}",
                field=f"{field}.deps",
            )

    def _check_waits(self, place: dict[str, int]) -> None:
        waits = Counter(
            name
            for node in self.nodes
            if node.kind is NodeKind.WAIT
            for name in set(node.deps)
            if self.nodes[place[name]].kind is NodeKind.COMM
        )
        for index, node in enumerate(self.nodes):
            if node.kind is NodeKind.COMM and waits[node.name] != 1:
                raise InputError(
                    f'expected one wait for the collective "{node.name[:60]}", '
                    f"got {waits[node.name]}",
                    field=f"nodes[{index}]",
                )

    def _check_groups(self) -> None:
        if isinstance(self.max_in_flight, dict):
            for group in self.max_in_flight:
                if group not in self.groups:
                    raise InputError(
                        f'unknown group "{group[:60]}"' + did_you_mean(group[:60], self.groups),
                        field=f"max_in_flight.{group[:60]}",
                    )

    @cached_property
    def index_of(self) -> dict[str, int]:
        """Position of every node in the program, by name."""
        return {node.name: index for index, node in enumerate(self.nodes)}

    @cached_property
    def deps(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the nodes that each node directly depends on, without repetition."""
        return tuple(
            tuple(dict.fromkeys(self.index_of[name] for name in node.deps)) for node in self.nodes
        )

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Process groups, in the order in which they appear."""
        return tuple(dict.fromkeys(self.group_of(i) for i in self.of_kind(NodeKind.COMM)))

    def of_kind(self, kind: NodeKind) -> list[int]:
        """Return the positions of all nodes of a kind."""
        return [index for index, node in enumerate(self.nodes) if node.kind is kind]

    def group_of(self, index: int) -> str:
        """Return the process group of the collective at a position."""
        return self.nodes[index].group or DEFAULT_GROUP

    @cached_property
    def collective_of(self) -> dict[int, int]:
        """Position of the collective that each wait waits for."""
        return {
            wait: next(d for d in self.deps[wait] if self.nodes[d].kind is NodeKind.COMM)
            for wait in self.of_kind(NodeKind.WAIT)
        }

    @cached_property
    def wait_of(self) -> dict[int, int]:
        """Position of the wait of each collective."""
        return {collective: wait for wait, collective in self.collective_of.items()}

    @cached_property
    def previous_in_group(self) -> dict[int, int]:
        """Position of the collective of the same group before each one, in program order."""
        return self.previous_along(range(len(self.nodes)))

    def previous_along(self, order: Iterable[int]) -> dict[int, int]:
        """Return the collective of the same group before each one, in an order of positions."""
        latest: dict[str, int] = {}
        found = {}
        for index in order:
            if self.nodes[index].kind is NodeKind.COMM:
                group = self.group_of(index)
                if group in latest:
                    found[index] = latest[group]
                latest[group] = index
        return found

    def cap_of(self, group: str) -> int | None:
        """Return the most collectives of a group in flight, None where there is no cap."""
        if isinstance(self.max_in_flight, dict):
            return self.max_in_flight.get(group)
        return self.max_in_flight
