"""Figures of program orders: exposed communication, curves, and the passes' own estimates."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ppsolve.models.core.problem import Problem
from ppsolve.models.overlap.instance import NodeKind, OverlapInstance
from ppsolve.models.overlap.lowering import LoweredOverlap
from ppsolve.models.overlap.result import ExposedCollective
from ppsolve.solver.overlap.estimate import estimate, estimate_seed
from ppsolve.solver.overlap.realise import run_order
from ppsolve.solver.overlap.replay import Replay, live_bytes

LONGEST_CHAIN = 12
"""Nodes of the chain that explains an exposed collective, at most."""

MOST_EXPOSED = 50


class ProgramReport:
    """A program order, run on its streams.

    Parameters
    ----------
    instance : OverlapInstance
        The program.
    problem : Problem
        What it lowers to.
    order : list of int
        Positions of the nodes in the new order.
    """

    def __init__(self, instance: OverlapInstance, problem: Problem, order: list[int]) -> None:
        self.instance, self.order = instance, order
        self.scale = problem.scale
        lowered = LoweredOverlap.of(instance, problem)
        self.schedule, self.replay = run_order(instance, lowered, order)
        self.live = live_bytes(instance, self.replay.start, self.replay.end)

    def figures(self) -> dict[str, Any]:
        """Return the fields of `ppsolve.models.overlap.result.ProgramFigures`."""
        seed = estimate_seed(self.instance, self.order)[0]
        return {
            "order": [self.instance.nodes[node].name for node in self.order],
            "exposed_wait": self.scale.time(self.replay.exposed_wait),
            "max_in_flight": max(self.replay.in_flight.values(), default=0),
            "peak_live_bytes": float(self.live.peak),
            "estimate": _number(estimate(self.instance, self.order)),
            "estimate_seed": None if seed is None else _number(seed),
        }

    def curves(self) -> dict[str, Any]:
        """Return the exposed collectives with their causes, and curves of flight and bytes."""
        time = self.scale.time
        return {
            "exposed": self._exposed(),
            "in_flight_curve": [(time(at), count) for at, count in self._in_flight()],
            "live_bytes_curve": [
                (time(at), float(amount))
                for at, amount in zip(self.live.times, self.live.amounts, strict=True)
            ],
        }

    def _in_flight(self) -> list[tuple[int, int]]:
        """Return the collectives in flight from each time on, launches to waits."""
        changes: dict[int, int] = {}
        clock = 0
        for node in self.order:
            kind = self.instance.nodes[node].kind
            if kind is not NodeKind.COMM:
                clock = max(clock, int(self.replay.end[node]))
            if kind is not NodeKind.COMPUTE:
                changes[clock] = changes.get(clock, 0) + (1 if kind is NodeKind.COMM else -1)
        count, curve = 0, []
        for at, change in sorted(changes.items()):
            count += change
            if change:
                curve.append((at, count))
        return curve

    def _exposed(self) -> list[ExposedCollective]:
        lengths = self.replay.end - self.replay.start
        held = [(int(lengths[w]), w) for w in self.instance.of_kind(NodeKind.WAIT) if lengths[w]]
        causes = NodeCauses(self.instance, self.order, self.replay)
        found = []
        for length, wait in sorted(held, key=lambda item: (-item[0], item[1]))[:MOST_EXPOSED]:
            collective = self.instance.collective_of[wait]
            chain = causes.chain(collective)
            found.append(
                ExposedCollective(
                    name=self.instance.nodes[collective].name,
                    waited=self.scale.time(length),
                    because=tuple(self.instance.nodes[node].name for node in chain),
                )
            )
        return found


class NodeCauses:
    """What holds back each node of a program order: the node that ends where it starts."""

    def __init__(self, instance: OverlapInstance, order: Sequence[int], replay: Replay) -> None:
        self.instance, self.replay = instance, replay
        self.launched_after: dict[int, int] = {}
        self.stream_before: dict[int, int] = {}
        running: int | None = None
        latest: dict[str, int] = {}
        for node in order:
            if running is not None:
                self.launched_after[node] = running
            if instance.nodes[node].kind is NodeKind.COMM:
                group = instance.group_of(node)
                if group in latest:
                    self.stream_before[node] = latest[group]
                latest[group] = node
            else:
                running = node

    def chain(self, node: int) -> list[int]:
        """Return nodes that follow each other without a gap and end with `node`."""
        chain = [node]
        while len(chain) < LONGEST_CHAIN:
            cause = self._cause(chain[-1])
            if cause is None:
                break
            chain.append(cause)
        return chain[::-1]

    def _cause(self, node: int) -> int | None:
        """Return the node that ends when `node` starts: a collective, data, or the launch."""
        if self.instance.nodes[node].kind is NodeKind.WAIT:
            return self.instance.collective_of[node]
        start = int(self.replay.start[node])
        if start == 0:
            return None
        before = (self.stream_before.get(node), self.launched_after.get(node))
        candidates = [c for c in (*before, *self.instance.deps[node]) if c is not None]
        return next((c for c in candidates if int(self.replay.end[c]) == start), None)


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)
