"""Overlap instances: compute kernels, collectives and waits of one rank, in program order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from ppsolve.models.documents.base import (
    Number,
    StrictModel,
    as_finite,
    describe,
)
from ppsolve.models.documents.errors import InputError, did_you_mean
from ppsolve.models.documents.measures import ByteCount, Time
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.overlap.labels import NodeKind

MAX_NODES = 200_000
"""Larger programs are refused: nodes are Python objects, checked one by one."""

DEFAULT_GROUP = "0"

MATMUL = "matmul"
"""Category of kernels that run a matrix product: passes that move groups of nodes leave them."""

RESERVED = ("launch:", "release:")
"""Prefixes of the names of ops that lowering adds for caps."""

CHOSEN_ORDER = "order"
"""Key of an order under contention in the choices of a problem, int64[n]: nodes."""


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
            suffix = f" for group {str(key)[:60]}" if key is not None else ""
            raise ValueError(
                f"expected a whole number >= 1{suffix}, or an object with one per group, "
                f"got {describe(cap)}"
            )
    limits = {str(key): int(cap) for key, cap in caps.items()}
    return limits if isinstance(value, dict) else int(value)


class OverlapNode(StrictModel):
    """One node of the program."""

    name: Annotated[str, Field(min_length=1, max_length=500)]
    kind: NodeKind
    duration: Time[Number] = Field(default=0, validate_default=True)  # 0 for a wait
    deps: tuple[
        str, ...
    ] = ()  # earlier nodes; those of a wait name exactly one collective
    group: Annotated[str, BeforeValidator(_group)] | None = (
        None  # runs one collective at a time
    )
    bytes: ByteCount[Number] = Field(
        default=0, validate_default=True
    )  # of its output; 0 for a wait
    collective: str | None = None  # e.g. ``all_gather``; for display
    category: str | None = (
        None  # of a kernel, as rules of contention name it; see `MATMUL`
    )
    after: tuple[str, ...] = ()  # earlier nodes that stay before it in the program

    @model_serializer(mode="wrap")
    def _with_duration(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A kernel of no length says so, although 0 is the default of waits.
        written: dict[str, Any] = write(self)
        if self.kind is NodeKind.WAIT or "duration" in written:
            return written
        first: dict[str, Any] = {
            name: written.pop(name) for name in ("name", "kind") if name in written
        }
        return {**first, "duration": 0, **written}


Factor = Annotated[Number, Field(ge=1, le=100)]


class Contention(StrictModel):
    """How much longer kernels and collectives take while both run."""

    collective: str | None = None  # as `collective` of nodes; None: all
    category: str | None = None  # of kernels; None: all
    kernel_factor: Factor = Field(default=1, validate_default=True)
    collective_factor: Factor = Field(default=1, validate_default=True)


class OverlapBuffer(StrictModel):
    """Memory that a program allocates and frees along its order, as PyTorch Inductor counts it."""

    bytes: ByteCount[Number]
    producer: str | None = (
        None  # the node that allocates it; None: an input, there from the start
    )
    users: tuple[str, ...] = ()  # behind the last of them it is freed
    kept: bool = False  # an output of the graph, never freed


def _fault(index: int, key: str, message: str) -> InputError:
    return InputError(message, field=f"nodes[{index}]{key}")


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
        Most bytes that are held at once.
    buffers : list of OverlapBuffer, optional
        What is held, counted along the program order: a node allocates what it makes before it
        frees what it was the last to use. Without them the outputs of nodes are held, over time.
    contention : list of Contention
        Durations are those of nodes alone; of several rules for a pair the largest factors hold.
    objective : {"makespan", "makespan_then_bytes"}
        The objective; the second then lowers the peak of live bytes.
    """

    kind: Literal["overlap"] = "overlap"
    name: str = "overlap"
    nodes: Annotated[tuple[OverlapNode, ...], Field(max_length=MAX_NODES)]
    collective_order: Literal["frozen", "free"] = "frozen"
    max_in_flight: Annotated[int | dict[str, int], BeforeValidator(_cap)] | None = None
    max_live_bytes: ByteCount[Number] | None = None
    buffers: (
        Annotated[tuple[OverlapBuffer, ...], Field(max_length=MAX_NODES)] | None
    ) = None
    contention: Annotated[tuple[Contention, ...], Field(max_length=1000)] = ()
    objective: Literal["makespan", "makespan_then_bytes"] = "makespan"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        index_of: dict[str, int] = {}
        for index, node in enumerate(self.nodes):
            if node.name in index_of:
                pair = f"nodes {index_of[node.name]} and {index}"
                text = f'the name "{node.name[:60]}" appears twice ({pair})'
                raise _fault(index, ".name", text)
            if node.name.startswith(RESERVED):
                text = f'names that begin with {" or ".join(RESERVED)} are taken, got "'
                raise _fault(index, ".name", f'{text}{node.name[:60]}"')
            index_of[node.name] = index
        for index, node in enumerate(self.nodes):
            self._check_deps(index, "deps", node, index_of)
            self._check_deps(index, "after", node, index_of)
        for index, node in enumerate(self.nodes):
            self._check_kind(index, node)
        self._check_waits()
        self._check_groups()
        self._check_buffers(index_of)
        return self

    def _check_deps(
        self, index: int, field: str, node: OverlapNode, index_of: dict[str, int]
    ) -> None:
        names: tuple[str, ...] = getattr(node, field)
        for number, name in enumerate(names):
            key = f".{field}[{number}]"
            if name not in index_of:
                hint = did_you_mean(name[:60], index_of)
                raise _fault(index, key, f'unknown node "{name[:60]}"{hint}')
            if index_of[name] >= index:
                dependency = (
                    "itself"
                    if index_of[name] == index
                    else f'"{name[:60]}", which comes later'
                )
                verb = "depends on" if field == "deps" else "stays after"
                text = f'"{node.name[:60]}" {verb} {dependency}; expected earlier nodes only '
                raise _fault(
                    index, key, f"{text}(a cycle, or nodes out of program order)"
                )

    def _check_kind(self, index: int, node: OverlapNode) -> None:
        if node.kind is not NodeKind.WAIT and "duration" not in node.model_fields_set:
            raise _fault(index, ".duration", "this field is required")
        if node.kind is not NodeKind.COMPUTE and node.category is not None:
            raise _fault(index, ".category", "expected on kernels only")
        if node.kind is not NodeKind.COMM:
            for key in ("group", "collective"):
                if getattr(node, key) is not None:
                    raise _fault(index, f".{key}", "expected on collectives only")
        if node.kind is not NodeKind.WAIT:
            return
        for key in ("duration", "bytes"):
            if value := getattr(node, key):
                raise _fault(
                    index, f".{key}", f"expected 0 for a wait, got {describe(value)}"
                )
        waited = self._collectives_of(index)
        if len(waited) != 1:
            text = f'expected exactly one collective that the wait "{node.name[:60]}" waits for, '
            raise _fault(index, ".deps", f"{text}got {len(waited)}")

    def _collectives_of(self, index: int) -> list[int]:
        return [
            dep for dep in self.deps[index] if self.nodes[dep].kind is NodeKind.COMM
        ]

    def _check_waits(self) -> None:
        waits = Counter(
            dep for i in self.of_kind(NodeKind.WAIT) for dep in self._collectives_of(i)
        )
        for index in self.of_kind(NodeKind.COMM):
            if waits[index] != 1:
                text = f'expected one wait for the collective "{self.nodes[index].name[:60]}", '
                raise _fault(index, "", f"{text}got {waits[index]}")

    def _check_groups(self) -> None:
        for group in self.max_in_flight if isinstance(self.max_in_flight, dict) else ():
            if group not in self.groups:
                raise InputError.unknown(
                    "unknown group",
                    group,
                    self.groups,
                    field=f"max_in_flight.{group[:60]}",
                )

    def _check_buffers(self, index_of: dict[str, int]) -> None:
        if self.buffers is None:
            return
        for index, node in enumerate(self.nodes):
            if node.bytes:
                raise _fault(index, ".bytes", "expected none where there are buffers")
        for number, buffer in enumerate(self.buffers):
            field = f"buffers[{number}]"
            for name in (*filter(None, [buffer.producer]), *buffer.users):
                if name not in index_of:
                    raise InputError.unknown(
                        "unknown node",
                        name,
                        index_of,
                        field=field,
                    )
            produced = -1 if buffer.producer is None else index_of[buffer.producer]
            for name in buffer.users:
                if index_of[name] < produced:
                    text = (
                        f'"{name[:60]}" comes before the producer "{buffer.producer}"'
                    )
                    raise InputError(f"{text}; expected users behind it", field=field)

    @cached_property
    def index_of(self) -> dict[str, int]:
        """Position of every node in the program, by name."""
        return {node.name: index for index, node in enumerate(self.nodes)}

    @cached_property
    def deps(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the nodes that each node directly depends on, without repetition."""
        return tuple(
            tuple(dict.fromkeys(self.index_of[name] for name in node.deps))
            for node in self.nodes
        )

    @cached_property
    def orders(self) -> frozenset[tuple[int, int]]:
        """Pairs of positions that every program order keeps and that are no dependencies."""
        index_of = self.index_of
        pairs = {
            (index_of[name], index)
            for index, node in enumerate(self.nodes)
            for name in node.after
        }
        for buffer in self.buffers or ():
            if buffer.producer is not None:
                producer = index_of[buffer.producer]
                pairs |= {
                    (producer, index_of[name])
                    for name in buffer.users
                    if index_of[name] != producer
                }
        return frozenset(pair for pair in pairs if pair[0] not in self.deps[pair[1]])

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Process groups, in the order in which they appear."""
        return tuple(
            dict.fromkeys(self.group_of(i) for i in self.of_kind(NodeKind.COMM))
        )

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
            wait: self._collectives_of(wait)[0] for wait in self.of_kind(NodeKind.WAIT)
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
        previous = {}
        for index in order:
            if self.nodes[index].kind is NodeKind.COMM:
                group = self.group_of(index)
                if group in latest:
                    previous[index] = latest[group]
                latest[group] = index
        return previous

    @property
    def sizes(self) -> list[Fraction]:
        """Bytes of everything that is held at some time."""
        held = self.nodes if self.buffers is None else self.buffers
        return [Fraction(entry.bytes) for entry in held if entry.bytes]

    def cap_of(self, group: str) -> int | None:
        """Return the most collectives of a group in flight, None where there is no cap."""
        if isinstance(self.max_in_flight, dict):
            return self.max_in_flight.get(group)
        return self.max_in_flight
