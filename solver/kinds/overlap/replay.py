"""Times of a program order on its streams, and the bytes that it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from math import ceil
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.labels import NodeKind
from ppsolve.solver.kinds.overlap.contention import Ticks, contended_times
from ppsolve.solver.kinds.overlap.nodes import as_integers, users_of


@dataclass(frozen=True)
class Replay:
    """Times of a program order, in ticks; arrays are indexed by place in the program."""

    start: IntArray  # int64[n]; a wait runs while it holds the compute stream
    end: IntArray
    makespan: int
    exposed_wait: int  # sum of the lengths of all waits
    in_flight: dict[
        str, int
    ]  # most collectives of each group between their place and their wait's
    is_exact: bool = True  # no time was rounded up to a tick


class LiveBytes(NamedTuple):
    """Bytes held over time: `amounts[i]` from `times[i]` to the next time; `peak` is the most."""

    times: list[int]
    amounts: list[Fraction]
    peak: Fraction


def replay(
    instance: OverlapInstance, order: Sequence[int], durations: Sequence[Ticks]
) -> Replay:
    """Time a program order on a compute stream and one comm stream per group, in ticks.

    Compute nodes and waits run in order on the compute stream, after their dependencies. A
    collective is launched at its place: it starts after all compute launched before it, its
    dependencies, and the previous collective of its group in the order. A wait holds the compute
    stream until all that it depends on has ended.

    Durations and times are by place in the program; under contention fractions may be among them.
    Times between ticks are rounded up: what ends before something starts still does.
    """
    times = contended_times if instance.contention else _times
    exact = times(instance, order, durations)
    start, end = (
        np.array([ceil(time) for time in column], dtype=np.int64) for column in exact
    )
    waits = instance.of_kind(NodeKind.WAIT)
    return Replay(
        start=start,
        end=end,
        makespan=int(end.max(initial=0)),
        exposed_wait=int((end[waits] - start[waits]).sum()),
        in_flight=_in_flight(instance, order),
        is_exact=all(time.denominator == 1 for column in exact for time in column),
    )


def _times(
    instance: OverlapInstance, order: Sequence[int], durations: Sequence[Ticks]
) -> tuple[list[Ticks], list[Ticks]]:
    deps, nodes = instance.deps, instance.nodes
    start: list[Ticks] = [0] * len(nodes)
    end: list[Ticks] = [0] * len(nodes)
    clock: Ticks = 0
    free: dict[str, Ticks] = {}
    for node in order:
        release = max((end[dep] for dep in deps[node]), default=0)
        kind = nodes[node].kind
        if kind is NodeKind.COMM:
            group = instance.group_of(node)
            start[node] = max(clock, release, free.get(group, 0))
            end[node] = free[group] = start[node] + durations[node]
        elif kind is NodeKind.WAIT:
            start[node] = clock
            end[node] = clock = max(clock, release)
        else:
            start[node] = max(clock, release)
            end[node] = clock = start[node] + durations[node]
    return start, end


def _in_flight(instance: OverlapInstance, order: Sequence[int]) -> dict[str, int]:
    peaks = dict.fromkeys(instance.groups, 0)
    now: Counter[str] = Counter()
    for node in order:
        kind = instance.nodes[node].kind
        if kind is NodeKind.COMM:
            group = instance.group_of(node)
            now[group] += 1
            peaks[group] = max(peaks[group], now[group])
        elif kind is NodeKind.WAIT:
            now[instance.group_of(instance.collective_of[node])] -= 1
    return peaks


def is_valid_order(instance: OverlapInstance, order: Sequence[int]) -> bool:
    """Whether an order holds every node once, after its dependencies.

    Frozen collectives of a group must also keep their program order.
    """
    return (
        sorted(order) == list(range(len(instance.nodes)))
        and broken_dependency(instance, order) is None
        and (
            instance.collective_order == "free"
            or instance.previous_along(order) == instance.previous_in_group
        )
    )


def broken_dependency(
    instance: OverlapInstance, order: Sequence[int]
) -> tuple[int, int] | None:
    """Return the first node of an order that comes before a dependency, and that dependency."""
    position: list[int] = np.argsort(order).tolist()
    late = (
        (node, dep)
        for node in order
        for dep in instance.deps[node]
        if position[dep] > position[node]
    )
    turned = (
        (node, dep) for dep, node in instance.orders if position[dep] > position[node]
    )
    return next(chain(late, turned), None)


def last_uses(instance: OverlapInstance) -> list[list[int]]:
    """Return for every node the nodes whose ends its output must outlive: its users and itself.

    Users of a wait count as its collective's; a wait has no output.
    """
    users = users_of(instance.deps)
    return [
        []
        if node.kind is NodeKind.WAIT
        else [index, *users[index], *users[instance.wait_of[index]]]
        if node.kind is NodeKind.COMM
        else [index, *users[index]]
        for index, node in enumerate(instance.nodes)
    ]


def bytes_of_order(
    instance: OverlapInstance, order: Sequence[int], timed: Replay
) -> LiveBytes:
    """Return the bytes that a program order holds, over time.

    Where the instance has buffers they are counted along the order, as
    ``estimate_peak_memory_allocfree`` of torch/_inductor/memory.py does: inputs are there from the
    start, a node allocates what it makes, then frees what it was the last to use. Then an amount is
    the most that is held at a moment at which the order passes a node.
    """
    buffers = instance.buffers
    if buffers is None:
        return live_bytes(instance, timed.start, timed.end)
    position = {instance.nodes[node].name: turn for turn, node in enumerate(order)}
    amounts, factor = as_integers(buffer.bytes for buffer in buffers)
    allocated, freed = [0] * len(order), [0] * len(order)
    held = 0
    for buffer, amount in zip(buffers, amounts, strict=True):
        begin = -1 if buffer.producer is None else position[buffer.producer]
        if begin < 0:
            held += amount
        else:
            allocated[begin] += amount
        last = max((position[name] for name in buffer.users), default=begin)
        if last >= 0 and not buffer.kept:
            freed[last] += amount
    peaks = {0: held}
    clock = 0
    for turn, node in enumerate(order):
        moment = clock
        if instance.nodes[node].kind is not NodeKind.COMM:
            clock = int(timed.end[node])
            is_wait = instance.nodes[node].kind is NodeKind.WAIT
            moment = clock if is_wait else int(timed.start[node])
        held += allocated[turn]
        peaks[moment] = max(peaks.get(moment, 0), held)
        held -= freed[turn]
        peaks[clock] = max(peaks.get(clock, 0), held)
    times = sorted(peaks)
    amounts_at = [Fraction(peaks[time], factor) for time in times]
    return LiveBytes(times, amounts_at, max(amounts_at))


def live_bytes(
    instance: OverlapInstance,
    start: Sequence[int] | IntArray,
    end: Sequence[int] | IntArray,
) -> LiveBytes:
    """Return the bytes of all outputs that are held, over time.

    An output is held from the start of its producer to the end of its last use, or of its producer
    where nobody uses it. Bytes released at a moment are free for outputs that begin then. Amounts
    are exact, from each time at which they change.
    """
    amounts, factor = as_integers(node.bytes for node in instance.nodes)
    begin, finish = [int(time) for time in start], [int(time) for time in end]
    change: Counter[int] = Counter()
    for node, uses in enumerate(last_uses(instance)):
        if amounts[node]:
            change[begin[node]] += amounts[node]
            change[max(finish[use] for use in uses)] -= amounts[node]
    times = sorted(time for time, step in change.items() if step)
    held = np.cumsum(np.array([change[time] for time in times], dtype=object)).tolist()
    curve = [Fraction(amount, factor) for amount in held]
    return LiveBytes(times, curve, max(curve, default=Fraction(0)))
