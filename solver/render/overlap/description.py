"""A program of kernels and collectives in short: its nodes, its limits, its work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

from ppsolve.models.overlap.instance import NodeKind, OverlapInstance
from ppsolve.solver.render.figures import ABSENT, figure, percent
from ppsolve.solver.render.looks import COLLECTIVE_KIND, KERNEL_KIND, WAIT_KIND
from ppsolve.solver.render.overlap.report import limited
from ppsolve.solver.render.overlap.rows import collective_kind


def program_shape(instance: OverlapInstance) -> Iterator[tuple[str, str]]:
    """Yield what a program consists of, what limits it, and how much work it is."""
    yield from _counts(instance)
    yield from _limits(instance)
    yield from _totals(instance)


def _counts(instance: OverlapInstance) -> Iterator[tuple[str, str]]:
    count = Counter(node.kind for node in instance.nodes)
    words = {
        NodeKind.COMPUTE: KERNEL_KIND,
        NodeKind.COMM: COLLECTIVE_KIND,
        NodeKind.WAIT: WAIT_KIND,
    }
    counted = ", ".join(_counted(count[kind], word) for kind, word in words.items())
    yield "nodes", f"{figure(len(instance.nodes))}: {counted}"
    comms = [instance.nodes[index] for index in instance.of_kind(NodeKind.COMM)]
    types = Counter(collective_kind(node.collective or node.name) for node in comms)
    yield "collectives", ", ".join(f"{n} {kind}" for kind, n in types.most_common()) or "none"
    groups = Counter(instance.group_of(index) for index in instance.of_kind(NodeKind.COMM))
    if len(groups) > 1:
        named = (f"{group} ({_counted(n, 'collective')})" for group, n in groups.items())
        yield "process groups", ", ".join(named)


def _counted(count: int, word: str) -> str:
    return f"{figure(count)} {word}" + ("" if count == 1 else "s")


def _limits(instance: OverlapInstance) -> Iterator[tuple[str, str]]:
    frozen = instance.collective_order == "frozen"
    yield (
        "collective order",
        "frozen: as in the program, per group" if frozen else "free: one order per group",
    )
    caps = [(group, instance.cap_of(group)) for group in instance.groups]
    if isinstance(instance.max_in_flight, dict):
        named = ", ".join(f"{group}: {cap}" for group, cap in caps if cap is not None)
        yield "max in flight", named
    else:
        yield "max in flight", limited(instance.max_in_flight)
    cap = instance.max_live_bytes
    yield "max live bytes", limited(None if cap is None else float(cap))
    then = ", then peak of live bytes" if instance.objective != "makespan" else ""
    yield "objective", f"makespan{then}"


def _totals(instance: OverlapInstance) -> Iterator[tuple[str, str]]:
    unit = instance.time_unit
    compute = _total(instance, instance.of_kind(NodeKind.COMPUTE))
    comm = _total(instance, instance.of_kind(NodeKind.COMM))
    yield "compute", f"{figure(float(compute))} {unit}"
    yield "communication", f"{figure(float(comm))} {unit}"
    if len(instance.groups) > 1:
        for group in instance.groups:
            own = [i for i in instance.of_kind(NodeKind.COMM) if instance.group_of(i) == group]
            yield f"  group {group}", f"{figure(float(_total(instance, own)))} {unit}"
    yield "comm / compute", f"{comm / compute:.2f}" if compute else ABSENT
    path = _critical_path(instance)
    longest = f"{figure(float(path))} {unit}"
    share = f"  ({percent(float(path / (compute + comm)))} of all work)" if compute + comm else ""
    yield "critical path", longest + share


def _total(instance: OverlapInstance, nodes: list[int]) -> Decimal:
    return sum((Decimal(instance.nodes[index].duration) for index in nodes), Decimal(0))


def _critical_path(instance: OverlapInstance) -> Decimal:
    """Return the longest chain of dependencies, frozen collectives following each other."""
    frozen = instance.collective_order == "frozen"
    end: list[Decimal] = []
    for index, node in enumerate(instance.nodes):
        before = [end[dep] for dep in instance.deps[index]]
        if frozen and index in instance.previous_in_group:
            before.append(end[instance.previous_in_group[index]])
        end.append(max(before, default=Decimal(0)) + Decimal(node.duration))
    return max(end, default=Decimal(0))
