"""Splits of layers as a CP-SAT model: the least time of the busiest device, within memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.entries import entry_at
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.exact.parameters import configured
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.structure.holds import whole_units

InFlight = Sequence[IntArray]
"""For each device rows of micro-batches in flight, one number for each of its stages."""


@dataclass(frozen=True)
class SplitAnswer:
    """The best split, if there is any, and a bound on the makespan of every split, in ticks."""

    counts: IntArray | None  # int64[types, S]
    bound: int
    is_infeasible: bool


class LayerModel:
    """Numbers of layers by type and stage.

    A device is busy for the work of all micro-batches, from the first forward of its first stage to
    what must follow its last backward: no schedule is shorter, in any order.

    Parameters
    ----------
    instance : PipelineInstance
        A pipeline with layers.
    scale : TimeScale
        Its tick.
    in_flight : sequence of int64[rows, stages of a device], optional
        Micro-batches in flight under an order; by default one, as in any order.
    """

    def __init__(
        self, instance: PipelineInstance, scale: TimeScale, in_flight: InFlight | None = None
    ) -> None:
        assert instance.layers is not None
        self.instance, self.layers, self.scale = instance, instance.layers, scale
        self.cp = cp_model.CpModel()
        stages, most = instance.num_stages, self.layers.body.count
        self.counts = [
            [self.cp.new_int_var(0, most, "") for _ in range(stages)] for _ in self.layers.names
        ]
        self.makespan = self.cp.new_int_var(0, 2**50, "")
        self.cp.add(sum(sum(row) for row in self.counts) == most)
        for stage in range(stages):
            self.cp.add(sum(row[stage] for row in self.counts) >= 1)
        self.stages_of = [
            [s for s, d in enumerate(instance.stage_to_device) if d == device]
            for device in range(instance.num_devices)
        ]
        self._add_times()
        if instance.memory is not None:
            for device in range(instance.num_devices):
                self._add_memory(device, None if in_flight is None else in_flight[device])
        self.cp.minimize(self.makespan)

    def _ticks(self, time: Any) -> int:
        return self.scale.ticks(Fraction(time))

    def _time(self, field: str, stage: int) -> Any:
        """Return the ticks of an op of a stage as an expression."""
        layers, last = self.layers, self.instance.num_stages - 1
        each = self._ticks(getattr(layers.body, field))
        total = each * sum(row[stage] for row in self.counts)
        if field in {"backward", "backward_input"}:
            total += sum(
                self._ticks(extra) * row[stage]
                for extra, row in zip(layers.extra, self.counts, strict=True)
                if extra
            )
        for other, place in ((layers.first, 0), (layers.last, last)):
            if other is not None and stage == place:
                total += self._ticks(getattr(other, field))
        return total

    def _add_times(self) -> None:
        instance, is_split = self.instance, self.layers.body.is_split
        back = "backward_input" if is_split else "backward"
        forward = [self._time("forward", s) for s in range(instance.num_stages)]
        backward = [self._time(back, s) for s in range(instance.num_stages)]
        weight = [0] * instance.num_stages
        if is_split:
            weight = [self._time("backward_weight", s) for s in range(instance.num_stages)]
        devices = instance.stage_to_device
        for stages in self.stages_of:
            first = stages[0]
            pairs = [(s, s + 1) for s in range(first)]
            forth, home = (
                sum(
                    self._ticks(entry_at(instance.p2p.latency, devices[a], devices[b]))
                    for a, b in ways
                    if devices[a] != devices[b]
                )
                for ways in (pairs, [(b, a) for a, b in pairs])
            )
            ready = sum(forward[s] for s in range(first))
            after = sum(backward[s] for s in range(first))
            count = instance.num_microbatches
            work = count * sum(forward[s] + backward[s] for s in stages)
            later = count * sum(weight[s] for s in stages)
            # Weight gradients may all run while earlier stages go on.
            self.cp.add(self.makespan >= ready + work + after + forth + home)
            self.cp.add(self.makespan >= ready + work + later + forth)

    def _add_memory(self, device: int, in_flight: IntArray | None) -> None:
        memory, layers = self.instance.memory, self.layers
        assert memory is not None
        stages = self.stages_of[device]
        last = self.instance.num_stages - 1
        ends = {0: layers.first, last: layers.last}
        own = [other for s in stages if (other := ends.get(s)) is not None]
        fixed = sum((Fraction(other.static) for other in own), Fraction(0))
        rows = np.eye(len(stages), dtype=np.int64) if in_flight is None else in_flight
        room = entry_at(memory.capacity, device) - fixed
        for row in rows.tolist():
            held: list[tuple[Fraction, Any]] = []
            taken = Fraction(0)
            for stage, flying in zip(stages, row, strict=True):
                other = ends.get(stage)
                taken += flying * Fraction(other.activation) if other is not None else 0
                for amount, counts in zip(layers.held, self.counts, strict=True):
                    each = flying * Fraction(amount) + Fraction(layers.body.static)
                    held.append((each, counts[stage]))
            amounts, _ = whole_units([room - taken, *(each for each, _ in held)], len(held) + 1)
            limit, *each = map(int, amounts)
            self.cp.add(sum(a * n for a, (_, n) in zip(each, held, strict=True)) <= limit)

    def solve(self, limits: SearchLimits) -> SplitAnswer:
        """Return the best split within limits."""
        solver = configured(limits)
        status = solver.solve(self.cp)
        if status == cp_model.INFEASIBLE:
            return SplitAnswer(None, 0, is_infeasible=True)
        bound = int(solver.best_objective_bound)
        if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
            return SplitAnswer(None, max(0, bound), is_infeasible=False)
        counts = [[solver.value(each) for each in row] for row in self.counts]
        return SplitAnswer(np.array(counts, dtype=np.int64), bound, is_infeasible=False)


def peaks_of_order(instance: PipelineInstance, orders: Sequence[Any]) -> list[IntArray]:
    """Return the micro-batches in flight at the forwards of each device under an order.

    Parameters
    ----------
    instance : PipelineInstance
        The pipeline.
    orders : sequence of Order
        Of each device.

    Returns
    -------
    list of int64[rows, stages of the device]
        Rows that no other row exceeds everywhere.
    """
    found = []
    for device, order in enumerate(orders):
        stages = [s for s, d in enumerate(instance.stage_to_device) if d == device]
        place = {stage: number for number, stage in enumerate(stages)}
        held = np.zeros(len(stages), dtype=np.int64)
        rows = set[tuple[int, ...]]()
        for step in order:
            if step.kind == "F":
                held[place[step.stage]] += 1
                rows.add(tuple(held.tolist()))
            elif step.kind in {"B", "W"}:
                held[place[step.stage]] -= 1
        table = np.array(sorted(rows), dtype=np.int64)
        kept = [
            row
            for number, row in enumerate(table)
            if not any(
                (other >= row).all() and (number != place) for place, other in enumerate(table)
            )
        ]
        found.append(np.array(kept, dtype=np.int64))
    return found
