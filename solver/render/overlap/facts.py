"""A program of kernels and collectives, and an order of it, in names and values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

from ppsolve.models.overlap.instance import NodeKind, OverlapInstance
from ppsolve.models.overlap.result import ProgramFigures
from ppsolve.solver.render.figures import ABSENT, figure, figures, percent
from ppsolve.solver.render.looks import COLLECTIVE_KIND, KERNEL_KIND, WAIT_KIND
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


def program_facts(
    found: ProgramFigures,
    makespan: float | None,
    unit: str,
    instance: OverlapInstance | None = None,
    least: float | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield names and values of a program order.

    Caps are known where the instance is; `least` bounds the peak of live bytes from below.

    Parameters
    ----------
    found : ProgramFigures
        The figures of the order.
    makespan : float or None
        What waits are a share of.
    unit : str
        Unit of times.
    instance : OverlapInstance, optional
        Gives the caps.
    least : float, optional
        Proven lower bound on the peak of live bytes.

    Yields
    ------
    (str, str)
        Name and value of a fact, with its unit.
    """
    if found.exposed_wait is not None:
        yield "exposed", exposed_text(found, makespan, unit)
    if found.max_in_flight is not None:
        yield "max in flight", f"{found.max_in_flight}{_flight_cap(instance)}"
    is_capped = instance is not None and instance.max_live_bytes is not None
    if found.peak_live_bytes is not None and (found.peak_live_bytes or is_capped):
        yield "peak live bytes", _peak(found.peak_live_bytes, instance, least)
    if found.estimate is not None:
        yield "own estimate", f"{figure(found.estimate)} {unit} (Inductor's figure, not the time)"


def exposed_text(found: ProgramFigures, makespan: float | None, unit: str) -> str:
    """Return the exposed communication with its share of the makespan.

    Parameters
    ----------
    found : ProgramFigures
        The figures of an order.
    makespan : float or None
        Time of the whole order.
    unit : str
        Unit of times.

    Returns
    -------
    str
        Time with its unit, then the share in percent if there is one.
    """
    wait = found.exposed_wait
    share = share_of(wait, makespan)
    return f"{figure(wait)} {unit}" + (f", {percent(share)} of the makespan" if share else "")


def limited(cap: float | None) -> str:
    """Return a cap, or that there is none."""
    return "no limit" if cap is None else figure(cap)


def _flight_cap(instance: OverlapInstance | None) -> str:
    groups = () if instance is None else instance.groups
    caps = {group: instance.cap_of(group) for group in groups} if instance else {}
    per_group = " per group" if len(groups) > 1 else ""
    if len(set(caps.values())) > 1:
        named = (f"{group}: {limited(cap)}" for group, cap in caps.items())
        return f"{per_group} ({', '.join(named)})"
    cap = next(iter(caps.values()), None)
    return per_group if cap is None else f" of {cap}{per_group}"


def _peak(peak: float, instance: OverlapInstance | None, least: float | None) -> str:
    cap = None if instance is None else instance.max_live_bytes
    texts = figures(peak, None if cap is None else float(cap), least)
    text = texts[0] + ("" if cap is None else f" of {texts[1]}")
    if least is None:
        return text
    proof = "proven least" if peak == least else f"at least {texts[2]}"
    return f"{text} ({proof} at this makespan)"


def share_of(wait: float | None, makespan: float | None) -> float | None:
    """Return the exposed share of the makespan, where there is one.

    Parameters
    ----------
    wait, makespan : float or None
        Exposed and whole time, in the same unit.

    Returns
    -------
    float or None
        From 0 to 1; None if either is unknown or the makespan is 0.
    """
    return wait / makespan if wait is not None and makespan else None
