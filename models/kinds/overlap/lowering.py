"""Lowering of an overlap instance: a compute stream, comm streams, waits, launches and bytes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor, lcm

import numpy as np

from ppsolve.models.core.builder import OpLabels, ProblemBuilder
from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import FREE, IntArray, Pool, Problem
from ppsolve.models.core.timescale import MAX_TICKS, TimeScale
from ppsolve.models.kinds.overlap.instance import (
    CHOSEN_ORDER,
    OverlapBuffer,
    OverlapInstance,
)
from ppsolve.models.kinds.overlap.labels import NodeKind

LAUNCH_KIND, RELEASE_KIND = "launch", "release"
BYTES = "live bytes"


@dataclass(frozen=True, eq=False)
class LoweredOverlap:
    """A problem whose first n ops are the n nodes of the program, and the ops added to them."""

    problem: Problem
    launch: dict[
        int, int
    ]  # launch op of each collective whose place in the program matters
    release: dict[
        int, int
    ]  # op that releases the bytes of a node, or buffer, with several users

    @classmethod
    def of(cls, instance: OverlapInstance, problem: Problem) -> LoweredOverlap:
        """Find the launch and release ops that a lowered instance adds, by their node or buffer.

        The problem may also be that of an order under contention.
        """
        if CHOSEN_ORDER in problem.choices:
            problem = lower_overlap(instance)
        added: dict[str, dict[int, int]] = {LAUNCH_KIND: {}, RELEASE_KIND: {}}
        for op in range(len(instance.nodes), problem.num_ops):
            added[problem.kinds[problem.kind[op]]][int(problem.piece[op])] = op
        return cls(problem, added[LAUNCH_KIND], added[RELEASE_KIND])


def lower_overlap(instance: OverlapInstance, *, exact: bool = False) -> Problem:
    """Lower a program of n nodes to ops, streams, precedences and pools.

    Op i is node i; launches and releases follow where caps need them. Kernels occupy the compute
    stream, collectives the stream of their group; with frozen order each collective follows the
    previous one of its group. Waits take no time and delay only the nodes that depend on them: in
    the program each stands just before its first user. Where the place of a wait matters (a
    collective uses it, or a cap counts until it) it is a point of the compute stream, inside no
    kernel; so is the launch of a collective under a cap, which is in flight from its launch to its
    wait. Bytes are acquired at the start of their producer and released at the end of the last use.

    The streams follow PyTorch Inductor's overlap passes, which launch collectives in program order
    and hold the compute stream in a wait until its collective ends.

    Durations without a common tick are rounded up, or refused with an `InputError` if `exact` is
    true.
    """
    return _OverlapLowering(instance, exact=exact).run()


def stretched_scale(instance: OverlapInstance, scale: TimeScale) -> TimeScale:
    """Return a scale that holds most times of nodes that slow each other down.

    Work of which a factor p / q is the pace ends after p / q of it, and what runs beside it has
    done q / p of that. So each end that one node makes in another may divide ticks by p · q.

    Ticks of `scale`, that of the nodes alone, are divided by p · q of all factors as often as all
    nodes, stretched one after the other, stay within `MAX_TICKS`. A scale that is rounded already
    stays as it is.
    """
    if not scale.is_exact:
        return scale
    factors = [
        Fraction(factor)
        for rule in instance.contention
        for factor in (rule.kernel_factor, rule.collective_factor)
    ]
    step = lcm(*(factor.numerator * factor.denominator for factor in factors))
    longest = max(factors) * sum(
        scale.ticks(Fraction(node.duration)) for node in instance.nodes
    )
    # Where not even one such step fits, a power of ten keeps what is rounded up short.
    step = step if longest * step <= MAX_TICKS else 10
    divisor = 1
    while step > 1 and 0 < longest * divisor * step <= MAX_TICKS:
        divisor *= step
    return replace(scale, tick=scale.tick / divisor)


class _OverlapLowering:
    def __init__(self, instance: OverlapInstance, *, exact: bool) -> None:
        self.instance = instance
        durations = [Fraction(node.duration) for node in instance.nodes]
        scale = TimeScale.fit(durations, instance.time_unit, exact=exact)
        self.scale = stretched_scale(instance, scale) if instance.contention else scale
        self.builder = ProblemBuilder(instance.name, self.scale)
        self.compute = self.builder.add_resource(DeviceName("compute"))
        self.streams = {
            group: self.builder.add_resource(
                DeviceName(f"comm {group}" if len(instance.groups) > 1 else "comm")
            )
            for group in instance.groups
        }
        self.names = self.builder.explicit_names
        self.points: list[int] = []
        self.launch: dict[int, int] = {}
        self.users: dict[int, list[int]] = defaultdict(list)
        for index, deps in enumerate(instance.deps):
            for dep in deps:
                self.users[dep].append(index)

    def run(self) -> Problem:
        self._add_nodes()
        self._add_precedences()
        self._add_orders()
        self.builder.span_resources = [self.compute]
        self.builder.pools = [*self._flights(), *self._bytes()]
        is_plain = not self.builder.pools and not self.instance.orders
        self.builder.families = alike_parts(self.instance) if is_plain else []
        self.builder.points = sorted(self.points)
        return self.builder.build()

    def _add_nodes(self) -> None:
        nodes, placed = self.instance.nodes, self._placed_waits()
        resources = []
        for index, node in enumerate(nodes):
            if node.kind is NodeKind.COMM:
                resources.append(self.streams[self.instance.group_of(index)])
            else:
                is_held = node.kind is NodeKind.COMPUTE or index in placed
                resources.append(self.compute if is_held else FREE)
            if index in placed or (
                node.duration == 0 and node.kind is not NodeKind.WAIT
            ):
                self.points.append(index)
        kinds = [self.builder.kind_number(node.kind.value) for node in nodes]
        # Stretched times start from the given durations: below them whole ticks are a bound.
        rounded = floor if self.instance.contention else ceil
        ticks = [rounded(Fraction(node.duration) / self.scale.tick) for node in nodes]
        self.builder.add_ops(
            np.array(kinds, dtype=np.int64),
            np.array(ticks, dtype=np.int64),
            np.array(resources, dtype=np.int64)[:, None],
            OpLabels(device=0),
        )
        self.names.update(enumerate(node.name for node in nodes))

    def _add_point(self, kind: str, number: int, name: str, resource: int) -> int:
        """Add an op of no length for a node or a buffer, by its number and the name it gets."""
        duration, resources = np.zeros(1, dtype=np.int64), np.array([[resource]])
        labels = OpLabels(device=0, piece=number)
        op = int(self.builder.add_ops(kind, duration, resources, labels)[0])
        self.names[op] = f"{kind}:{name}"
        return op

    def _placed_waits(self) -> set[int]:
        """Return the waits that are points: their place matters to a collective or a cap."""
        instance = self.instance
        waits = set()
        for wait, collective in instance.collective_of.items():
            launches = any(
                instance.nodes[u].kind is NodeKind.COMM for u in self.users[wait]
            )
            capped = instance.cap_of(instance.group_of(collective)) is not None
            if (
                launches
                or capped
                or instance.max_live_bytes is not None
                or instance.orders
            ):
                waits.add(wait)
        return waits

    def _add_precedences(self) -> None:
        pairs = [
            (dep, index)
            for index, deps in enumerate(self.instance.deps)
            for dep in deps
        ]
        if self.instance.collective_order == "frozen":
            pairs += [
                (before, after)
                for after, before in self.instance.previous_in_group.items()
            ]
        # Collectives of a group run in the order in which the program launches them.
        pairs += [pair for pair in self.instance.orders if self._is_one_stream(*pair)]
        if pairs:
            table = np.array(sorted(set(pairs)), dtype=np.int64)
            self.builder.add_precedences(table[:, 0], table[:, 1])

    def _is_one_stream(self, first: int, second: int) -> bool:
        """Whether two nodes are collectives of one group."""
        nodes, group_of = self.instance.nodes, self.instance.group_of
        are_collectives = nodes[first].kind is nodes[second].kind is NodeKind.COMM
        return are_collectives and group_of(first) == group_of(second)

    def _add_orders(self) -> None:
        """Add what only the order of the program says: launches, and what stays before what."""
        instance = self.instance
        if instance.orders or (
            instance.buffers and instance.max_live_bytes is not None
        ):
            for collective in instance.of_kind(NodeKind.COMM):
                self._add_launch(collective)
        for before, after in sorted(instance.orders):
            self.builder.add_precedences(self._place(before), self._place(after))

    def _place(self, node: int) -> int:
        """Return the op at which the program passes a node."""
        return self.launch.get(node, node)

    def _flights(self) -> list[Pool]:
        """Return one pool per group with a cap: a collective takes 1 from launch to wait."""
        instance = self.instance
        pools = []
        for group in instance.groups:
            cap = instance.cap_of(group)
            if cap is None:
                continue
            members = [
                i
                for i in instance.of_kind(NodeKind.COMM)
                if instance.group_of(i) == group
            ]
            for collective in members:
                if collective not in self.launch:
                    self._add_launch(collective)
            name = "in flight" if len(instance.groups) == 1 else f"in flight {group}"
            launches = [(self.launch[member], Fraction(1)) for member in members]
            waits = [(instance.wait_of[member], Fraction(1)) for member in members]
            pools.append(Pool.of(DeviceName(name), Fraction(cap), launches, waits))
        return pools

    def _add_launch(self, collective: int) -> None:
        """Add the point of the compute stream at which a collective is launched.

        In frozen order launches follow one another; in free order they may always be taken to run
        in the order of their collectives. A collective may be launched while one that it needs
        runs: the stream waits for that.
        """
        name = self.instance.nodes[collective].name
        op = self._add_point(LAUNCH_KIND, collective, name, self.compute)
        self.points.append(op)
        self.launch[collective] = op
        self.builder.add_precedences(op, collective)
        for dep in self.instance.deps[collective]:
            if self.instance.nodes[dep].kind is not NodeKind.COMM:
                self.builder.add_precedences(dep, op)
            elif dep in self.launch:
                self.builder.add_precedences(self.launch[dep], op)
        previous = self.instance.previous_in_group.get(collective)
        if previous in self.launch and self.instance.collective_order == "frozen":
            self.builder.add_precedences(self.launch[previous], op)

    def _bytes(self) -> list[Pool]:
        cap = self.instance.max_live_bytes
        if cap is None:
            return []
        if self.instance.buffers is not None:
            return [self._buffers(Fraction(cap), self.instance.buffers)]
        nodes = self.instance.nodes
        held = [
            (index, Fraction(node.bytes))
            for index, node in enumerate(nodes)
            if node.bytes
        ]
        freed = [(self._last_use(index), amount) for index, amount in held]
        return [Pool.of(DeviceName(BYTES), Fraction(cap), held, freed)]

    def _last_use(self, index: int) -> int:
        """Return the op whose end releases a node's output: its last user, or one after several."""
        users = _last_users(self.instance, self.users, index)
        return self._release(users or [index], index, self.instance.nodes[index].name)

    def _release(self, users: list[int], number: int, name: str) -> int:
        if len(users) == 1:
            return users[0]
        op = self._add_point(RELEASE_KIND, number, name, FREE)
        self.builder.add_precedences(np.array(users), op)
        return op

    def _buffers(self, cap: Fraction, buffers: tuple[OverlapBuffer, ...]) -> Pool:
        instance, index_of = self.instance, self.instance.index_of
        acquired, released, initial = [], [], Fraction(0)
        for number, buffer in enumerate(buffers):
            amount = Fraction(buffer.bytes)
            if buffer.producer is None:
                initial += amount
            else:
                acquired.append((self._place(index_of[buffer.producer]), amount))
            users = {
                index_of[name]
                for name in buffer.users or filter(None, [buffer.producer])
            }
            if buffer.kept or not users or not amount:
                continue
            covered = {dep for user in users for dep in instance.deps[user]}
            last = [self._place(user) for user in sorted(users - covered)]
            released.append((self._release(last, number, str(number)), amount))
        return Pool.of(DeviceName(BYTES), cap, acquired, released, initial)


def _last_users(
    instance: OverlapInstance, users: dict[int, list[int]], index: int
) -> list[int]:
    """Return the users of a node's output that no other user directly depends on, ascending.

    A wait stands for the output of its collective: the users of the wait count, and the wait
    itself only where it has none.
    """
    nodes: set[int] = set()
    for user in users.get(index, []):
        is_alias = instance.collective_of.get(user) == index
        nodes.update(users.get(user, []) or [user] if is_alias else [user])
    covered = {dep for user in nodes for dep in instance.deps[user]}
    return sorted(nodes - covered)


_Signature = tuple[tuple[object, ...], ...]


def alike_parts(instance: OverlapInstance) -> list[IntArray]:
    """Return families of interchangeable node vectors, int64[members, length] each.

    A part is a set of nodes that no dependency links to the rest (a micro-batch, say). Two parts
    are alike if their nodes, in program order, have the same kinds, durations, groups and
    dependencies. With frozen order of collectives no parts are interchangeable.
    """
    if instance.collective_order == "frozen":
        return []
    alike: dict[_Signature, list[list[int]]] = defaultdict(list)
    for component in _parts(instance):
        alike[_signature(instance, component)].append(component)
    return [
        np.array(family, dtype=np.int64) for family in alike.values() if len(family) > 1
    ]


def _parts(instance: OverlapInstance) -> list[list[int]]:
    leader = list(range(len(instance.nodes)))

    def find(node: int) -> int:
        while leader[node] != node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for index, deps in enumerate(instance.deps):
        for dep in deps:
            leader[find(index)] = find(dep)
    components: dict[int, list[int]] = defaultdict(list)
    for index in range(len(leader)):
        components[find(index)].append(index)
    return list(components.values())


def _signature(instance: OverlapInstance, component: list[int]) -> _Signature:
    position = {index: number for number, index in enumerate(component)}
    return tuple(
        (
            instance.nodes[index].kind,
            instance.nodes[index].duration,
            instance.nodes[index].group,
            tuple(sorted(position[dep] for dep in instance.deps[index])),
        )
        for index in component
    )
