"""Figures of program orders, and the check of documents that give an order with its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from pydantic import BaseModel

from ppsolve.models.core.claims import figure, refuted, wrong
from ppsolve.models.core.documents import TOLERANCE
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.base import as_json_number
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.labels import NodeKind
from ppsolve.models.kinds.overlap.lowering import LoweredOverlap
from ppsolve.models.kinds.overlap.result import ExposedCollective
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.kinds.overlap.passes import estimate
from ppsolve.solver.kinds.overlap.realise import broken_cap, run_order
from ppsolve.solver.kinds.overlap.replay import Replay, bytes_of_order, is_valid_order


class ProgramReport:
    """Figures of a program order, run on its streams."""

    def __init__(
        self, instance: OverlapInstance, problem: Problem, order: list[int]
    ) -> None:
        self.instance, self.order = instance, order
        self.scale = problem.scale
        lowered = LoweredOverlap.of(instance, problem)
        self.schedule, self.replay = run_order(instance, lowered, order)
        self.live = bytes_of_order(instance, order, self.replay)

    def figures(self) -> dict[str, Any]:
        """Return the fields of `ppsolve.models.kinds.overlap.result.ProgramFigures`."""
        estimated, is_overlapping = estimate(self.instance, self.order)
        return {
            "order": [self.instance.nodes[node].name for node in self.order],
            "exposed_wait": self.scale.time(self.replay.exposed_wait),
            "max_in_flight": max(self.replay.in_flight.values(), default=0),
            "peak_live_bytes": float(self.live.peak),
            "estimate": as_json_number(estimated),
            "estimate_seed": None if is_overlapping else as_json_number(estimated),
        }

    def curves(self) -> dict[str, Any]:
        """Return the exposed collectives with their causes, and curves of flight and bytes."""
        time = self.scale.time
        return {
            "exposed": self._exposed(),
            "in_flight_curve": [
                (time(moment), count) for moment, count in self._in_flight()
            ],
            "live_bytes_curve": [
                (time(moment), float(amount))
                for moment, amount in zip(
                    self.live.times, self.live.amounts, strict=True
                )
            ],
        }

    def _in_flight(self) -> list[tuple[int, int]]:
        changes: dict[int, int] = {}
        clock = 0
        for node in self.order:
            kind = self.instance.nodes[node].kind
            if kind is not NodeKind.COMM:
                clock = max(clock, int(self.replay.end[node]))
            if kind is not NodeKind.COMPUTE:
                changes[clock] = changes.get(clock, 0) + (
                    1 if kind is NodeKind.COMM else -1
                )
        count, curve = 0, []
        for moment, change in sorted(changes.items()):
            count += change
            if change:
                curve.append((moment, count))
        return curve

    def _exposed(self) -> list[ExposedCollective]:
        lengths = self.replay.end - self.replay.start
        held = [
            (int(lengths[w]), w)
            for w in self.instance.of_kind(NodeKind.WAIT)
            if lengths[w]
        ]
        causes = NodeCauses(self.instance, self.order, self.replay)
        exposed = []
        held.sort(key=lambda item: (-item[0], item[1]))
        for length, wait in held[:50]:
            collective = self.instance.collective_of[wait]
            chain = causes.chain(collective)
            exposed.append(
                ExposedCollective(
                    name=self.instance.nodes[collective].name,
                    waited=self.scale.time(length),
                    because=tuple(self.instance.nodes[node].name for node in chain),
                )
            )
        return exposed


class NodeCauses:
    """The node that holds back each node of a program order: it ends where the other starts."""

    def __init__(
        self, instance: OverlapInstance, order: Sequence[int], replay: Replay
    ) -> None:
        self.instance, self.replay = instance, replay
        self.stream_before = instance.previous_along(order)
        self.launched_after: dict[int, int] = {}
        running: int | None = None
        for node in order:
            if running is not None:
                self.launched_after[node] = running
            if instance.nodes[node].kind is not NodeKind.COMM:
                running = node

    def chain(self, node: int) -> list[int]:
        """Return up to 12 nodes that follow each other without a gap and end with `node`."""
        chain = [node]
        while len(chain) < 12:
            cause = self._cause(chain[-1])
            if cause is None:
                break
            chain.append(cause)
        return chain[::-1]

    def _cause(self, node: int) -> int | None:
        if self.instance.nodes[node].kind is NodeKind.WAIT:
            return self.instance.collective_of[node]
        start = int(self.replay.start[node])
        if start == 0:
            return None
        before = (self.stream_before.get(node), self.launched_after.get(node))
        candidates = [c for c in (*before, *self.instance.deps[node]) if c is not None]
        return next((c for c in candidates if int(self.replay.end[c]) == start), None)


def check_order(
    instance: OverlapInstance,
    problem: Problem,
    document: Any,
    schedule: Schedule | None,
) -> list[Violation]:
    """Check the program order of a document, where it has one, and its figures.

    An `InputError` says that the order is no list of names of nodes.
    """
    data = (
        document.model_dump(mode="json")
        if isinstance(document, BaseModel)
        else document
    )
    names = data.get("order") if isinstance(data, dict) else None
    if names is None:
        return []
    order = positions(instance, names)
    violations = list(_wrong(instance, problem, order, schedule))
    return violations or list(
        _claims(data, ProgramReport(instance, problem, order).figures())
    )


def _claims(data: dict[str, Any], actual: dict[str, Any]) -> Iterator[Violation]:
    figures = {field: value for field, value in actual.items() if field != "order"}
    yield from refuted(data, figures, slack=TOLERANCE, owner="the order")
    claimed, peak = figure(data, "least_peak_bytes"), actual["peak_live_bytes"]
    if claimed is not None and claimed > Fraction(peak) * (1 + TOLERANCE):
        text = f"least_peak_bytes is given as {data['least_peak_bytes']}, the order holds {peak}"
        yield wrong(text)


def positions(instance: OverlapInstance, names: Any) -> list[int]:
    """Return the places in the program of named nodes; an `InputError` says which name is none."""
    if not isinstance(names, list | tuple):
        raise InputError(
            "expected a list with the name of every node",
            field="order",
            code=ErrorCode.MISSING,
        )
    nodes = []
    for position, name in enumerate(names):
        if not isinstance(name, str) or name not in instance.index_of:
            text = name[:60] if isinstance(name, str) else ""
            raise InputError.unknown(
                "unknown node",
                text,
                instance.index_of,
                field=f"order[{position}]",
            )
        nodes.append(instance.index_of[name])
    return nodes


def _moved(
    instance: OverlapInstance, again: Schedule, schedule: Schedule
) -> Iterator[Violation]:
    running = [*instance.of_kind(NodeKind.COMPUTE), *instance.of_kind(NodeKind.COMM)]
    ops = np.array(sorted(running), dtype=np.int64)
    moved = ops[again.start[ops] != schedule.start[ops]]
    if len(moved):
        first = moved[np.argmin(again.start[moved])]
        time, unit = again.problem.scale.time, again.problem.scale.unit
        name = instance.nodes[first].name
        run, claimed = time(int(again.start[first])), time(int(schedule.start[first]))
        text = f"{name} starts at {claimed} {unit}, as the order runs at {run} {unit}"
        yield Violation("order", text, (name,))


def _wrong(
    instance: OverlapInstance,
    problem: Problem,
    order: list[int],
    schedule: Schedule | None,
) -> Iterator[Violation]:
    if len(order) != len(instance.nodes) or not is_valid_order(instance, order):
        yield Violation(
            "order",
            "the order does not hold every node once, after what it depends on and, where it is "
            "frozen, after the collectives before it",
            (),
        )
        return
    again, timed = run_order(instance, LoweredOverlap.of(instance, problem), order)
    if broken := broken_cap(instance, order, timed):
        yield Violation("order", broken, ())
    if schedule is not None and again.makespan != schedule.makespan:
        time, unit = problem.scale.time, problem.scale.unit
        yield Violation(
            "order",
            f"the order runs in {time(again.makespan)} {unit}, the schedule takes "
            f"{time(schedule.makespan)} {unit}",
            (),
        )
    elif schedule is not None:
        yield from _moved(instance, again, schedule)
    if schedule is not None and not check_schedule(problem, schedule):
        for violation in check_schedule(problem, again):
            yield Violation(
                "order", f"as the order runs, {violation.message}", violation.ops
            )
