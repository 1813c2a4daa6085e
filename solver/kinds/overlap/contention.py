"""Streams on which kernels and collectives slow each other down while both run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.labels import NodeKind

NONE = Fraction(1)

EXACT_BITS = 1024

Ticks = int | Fraction


@dataclass(frozen=True)
class Slowdown:
    """Factors by which the nodes of a program stretch each other, by pairs of nodes."""

    instance: OverlapInstance

    @cached_property
    def pairs(self) -> dict[tuple[int, int], tuple[Fraction, Fraction]]:
        """Factor of the kernel and of the collective, by (kernel, collective)."""
        factors: dict[tuple[int, int], tuple[Fraction, Fraction]] = {}
        nodes = self.instance.nodes
        kernels = self.instance.of_kind(NodeKind.COMPUTE)
        comms = self.instance.of_kind(NodeKind.COMM)
        for rule in self.instance.contention:
            for kernel in kernels:
                if rule.category not in {None, nodes[kernel].category}:
                    continue
                for comm in comms:
                    if rule.collective in {None, nodes[comm].collective}:
                        kernel_factor, collective_factor = factors.get(
                            (kernel, comm), (NONE, NONE)
                        )
                        factors[kernel, comm] = (
                            max(kernel_factor, Fraction(rule.kernel_factor)),
                            max(collective_factor, Fraction(rule.collective_factor)),
                        )
        return factors


@dataclass
class ContendedStreams:
    """A compute stream and one comm stream per group, run node by node in program order.

    Times are exact, in ticks. Whatever runs does 1 / factor ticks of its work in a tick, by the
    largest factor of what runs beside it.
    """

    slowdown: Slowdown
    length: Sequence[Ticks]  # of each node alone
    clock: Ticks = 0  # until which the compute stream is known
    start: dict[int, Ticks] = field(default_factory=dict)
    end: dict[int, Ticks] = field(default_factory=dict)
    queues: dict[str, list[int]] = field(
        default_factory=dict
    )  # launched, in order, by group
    left: dict[int, Ticks] = field(default_factory=dict)  # work of what runs

    def copy(self) -> ContendedStreams:
        """Return a copy that runs on by itself."""
        return replace(
            self,
            start=dict(self.start),
            end=dict(self.end),
            queues={group: list(queue) for group, queue in self.queues.items()},
            left=dict(self.left),
        )

    def run(self, node: int) -> None:
        """Let the compute stream pass a node."""
        instance = self.slowdown.instance
        kind = instance.nodes[node].kind
        if kind is NodeKind.COMM:
            self.queues.setdefault(instance.group_of(node), []).append(node)
            return
        if kind is NodeKind.WAIT:
            self.start[node] = self.clock
        while any(dep not in self.end for dep in instance.deps[node]):
            self._step(None)
        release = max((self.end[dep] for dep in instance.deps[node]), default=0)
        assert release <= self.clock
        if kind is NodeKind.COMPUTE:
            self.start[node] = self.clock
            self.left[node] = self.length[node]
            while node not in self.end:
                self._step(node)
        else:
            self.end[node] = self.clock

    @property
    def free(self) -> tuple[Ticks]:
        """End of the compute stream, all that is known of ends."""
        return (self.clock,)

    def least_end(self, node: int) -> Ticks:
        """Return when a node ends at least if it is the next one."""
        return self.clock + self.length[node]

    def makespan(self) -> Ticks:
        """Return when all is over; what has been launched runs to its end."""
        while any(self.queues.values()):
            self._step(None)
        return max(self.end.values(), default=0)

    def state(self) -> tuple[object, ...]:
        """Return all that the rest of a run depends on."""
        queues = tuple(
            (group, tuple(queue)) for group, queue in sorted(self.queues.items())
        )
        return self.clock, queues, tuple(sorted(self.left.items()))

    def _step(self, kernel: int | None) -> None:
        """Run to the next end of a collective or of the kernel."""
        factors = self._factors(kernel, self._active())
        assert factors, "a program that waits for what nobody launched"
        remaining = {node: self.left[node] * factor for node, factor in factors}
        step = min(remaining.values())
        self.clock += step
        for node, factor in factors:
            if remaining[node] == step:
                del self.left[node]
                self.end[node] = self.clock
            else:
                self.left[node] = shortened(self.left[node] - step / factor)
        for queue in self.queues.values():
            if queue and queue[0] in self.end:
                del queue[0]

    def _active(self) -> list[int]:
        """Return the collectives that run now, those that can begin now begun."""
        deps = self.slowdown.instance.deps
        heads = [queue[0] for queue in self.queues.values() if queue]
        active = [head for head in heads if all(dep in self.end for dep in deps[head])]
        for head in active:
            if head not in self.start:
                self.start[head] = self.clock
                self.left[head] = self.length[head]
        return active

    def _factors(
        self, kernel: int | None, active: list[int]
    ) -> list[tuple[int, Fraction]]:
        if kernel is None:
            return [(comm, NONE) for comm in active]
        pairs = self.slowdown.pairs
        slowdowns = [pairs.get((kernel, comm), (NONE, NONE)) for comm in active]
        slowest = max((factor for factor, _ in slowdowns), default=NONE)
        comm_factors = (factor for _, factor in slowdowns)
        return [*zip(active, comm_factors, strict=True), (kernel, slowest)]


def shortened(work: Fraction) -> Fraction:
    """Round work up where its denominator has become too long to count on.

    Denominators grow with each end inside another node, until all streams wait for each other. It
    takes hundreds of them, and what is added is 1e-300 ticks: no factor lets that grow to a tick
    where all orders are tried.
    """
    if work.denominator.bit_length() <= 2 * EXACT_BITS:
        return work
    return Fraction(math.ceil(work * 2**EXACT_BITS), 2**EXACT_BITS)


def lengths_alone(instance: OverlapInstance, scale: TimeScale) -> list[Ticks]:
    """Return the durations of the nodes alone in ticks, whole numbers where the scale is exact."""
    if scale.is_exact:
        return [scale.ticks(Fraction(node.duration)) for node in instance.nodes]
    return [Fraction(node.duration) / scale.tick for node in instance.nodes]


def contended_times(
    instance: OverlapInstance, order: Sequence[int], durations: Sequence[Ticks]
) -> tuple[list[Ticks], list[Ticks]]:
    """Return when the nodes of a program order start and end where they slow each other down.

    The starts and ends are exact; like the durations of the nodes alone, they are in ticks, by
    place in the program.
    """
    streams = ContendedStreams(Slowdown(instance), durations)
    for node in order:
        streams.run(node)
    streams.makespan()
    nodes = range(len(order))
    return [streams.start[node] for node in nodes], [
        streams.end[node] for node in nodes
    ]
