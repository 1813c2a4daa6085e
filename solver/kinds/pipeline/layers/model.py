"""Splits of layers as a CP-SAT model: the least time of the busiest device, within memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.entries import entry_at
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.parameters import configured
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.kinds.pipeline.layers.linear import (
    DeviceMemory,
    InFlight,
    SplitAnswer,
    SplitTimes,
    memory_of_devices,
    rounding_of,
)
from ppsolve.solver.kinds.pipeline.layers.rules import RecomputeRule


class CountModel:
    """Layers of each sort on each stage, and what is minimised over them.

    `cp`: the model.
    `counts`: a row of expressions for each sort, one for each stage.
    """

    def __init__(self, cp: cp_model.CpModel, counts: Sequence[Sequence[Any]]) -> None:
        self.cp, self.counts = cp, counts

    def total(self, weights: Sequence[int], *stages: int) -> Any:
        """Sum up what the layers of some stages take, `weights` those of each sort."""
        rows = zip(weights, self.counts, strict=True)
        return sum(
            weight * row[stage] for weight, row in rows for stage in stages if weight
        )

    def add_memory(self, memory: Iterable[DeviceMemory], most: Any = None) -> None:
        """Demand that devices hold no more than their limits, or than an expression."""
        for stages, amounts, limits in memory:
            own = [row[stage] for row in self.counts for stage in stages]
            for row, limit in zip(amounts, limits.tolist(), strict=True):
                taken = cp_model.LinearExpr.weighted_sum(own, row.ravel().tolist())
                self.cp.add(taken <= (limit if most is None else most))

    def minimise(self, value: Any, limits: SearchLimits) -> SplitAnswer:
        """Return the split of the least value that is found within limits."""
        self.cp.minimize(value)
        solver = configured(limits)
        status = solver.solve(self.cp)
        if status == cp_model.INFEASIBLE:
            return SplitAnswer(None, 0, is_infeasible=True)
        bound, units = int(solver.best_objective_bound), solver.deterministic_time
        if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
            return SplitAnswer(None, bound, units=units)
        counts = [[solver.value(count) for count in row] for row in self.counts]
        is_proved = status == cp_model.OPTIMAL
        return SplitAnswer(np.array(counts), bound, is_proved=is_proved, units=units)


class LayerModel(CountModel):
    """Numbers of layers by type and stage.

    A device is busy for the work of all micro-batches of all steps, from the first forward of its
    first stage to what must follow its last backward: no schedule is shorter, in any order.

    `instance`: a pipeline with layers.
    `in_flight`: sequence of int64[rows, stages of a device], optional, micro-batches in
        flight under an order; by default one, as in any order.
    `rule`: optional, the only layers that recompute.
    """

    def __init__(
        self,
        instance: PipelineInstance,
        scale: TimeScale,
        in_flight: InFlight | None = None,
        times: SplitTimes | None = None,
        rule: RecomputeRule | None = None,
    ) -> None:
        layers, cp = instance.layers, cp_model.CpModel()
        assert layers is not None
        stages, most = range(instance.num_stages), layers.body.count
        counts = [[cp.new_int_var(0, most, "") for _ in stages] for _ in layers.names]
        super().__init__(cp, counts)
        self.instance, self.scale = instance, scale
        self.makespan = cp.new_int_var(0, 2**50, "")
        cp.add(sum(sum(row) for row in counts) == most)
        for stage, least in enumerate(layers.least(len(stages)).tolist()):
            cp.add(sum(row[stage] for row in counts) >= least)
        if rule is not None:
            self._add_rule(rule)
        self.times = times or SplitTimes.of(instance, scale)
        self._add_times()
        self.add_memory(memory_of_devices(instance, in_flight))

    def _add_rule(self, rule: RecomputeRule) -> None:
        """Demand that layers are of the types that a rule says."""
        for number, row in enumerate(self.counts):
            for stage, count in enumerate(row):
                if number not in {0, rule.number} or (
                    number == 0 and rule.number and rule.limit is None
                ):
                    self.cp.add(count == 0)
                elif number and rule.limit is not None:
                    layers = count + self.counts[0][stage]
                    self.cp.add_min_equality(count, [layers, rule.limit])

    def _time(self, row: int, stage: int) -> Any:
        """Return the ticks of an op of a stage as an expression."""
        layers = self.total(self.times.each[row, :, stage].tolist(), stage)
        return layers + int(self.times.fixed[row, stage])

    def _add_times(self) -> None:
        instance = self.instance
        stages = range(instance.num_stages)
        forward, backward, *weights = (
            [self._time(row, s) for s in stages]
            for row in range(len(self.times.fields))
        )
        weight = weights[0] if weights else [0] * len(stages)
        devices, ticks = instance.stage_to_device, self.scale.ticks
        there, back = (
            [
                ticks(entry_at(instance.p2p.latency, a, b)) if a != b else 0
                for a, b in ways
            ]
            for ways in (pairwise(devices), zip(devices[1:], devices, strict=False))
        )
        for device in range(instance.num_devices):
            own = [stage for stage in stages if devices[stage] == device]
            first, count = own[0], instance.num_units * instance.steps
            ready = sum(forward[:first]) + sum(there[:first])
            after = sum(backward[:first]) + sum(back[:first])
            work = count * sum(forward[s] + backward[s] for s in own)
            later = count * sum(weight[s] for s in own)
            # Weight gradients may all run while earlier stages go on.
            self.cp.add(self.makespan >= ready + work + after)
            self.cp.add(self.makespan >= ready + work + later)

    def add_path(self, ops: IntArray, fixed: int) -> None:
        """Demand that the makespan is as long as a path under the order.

        `ops`: int64[fields, S], ops of the path.
        `fixed`: ticks that pass beside them.
        """
        path = sum(
            int(ops[k, s]) * self._time(k, s) for k, s in np.argwhere(ops).tolist()
        )
        self.cp.add(self.makespan >= path + fixed)

    def solve(self, limits: SearchLimits, clock: Clock) -> SplitAnswer:
        """Return the best split that is found in time."""
        seconds = clock.left if clock.is_limited else None
        answer = self.minimise(self.makespan, replace(limits, seconds=seconds))
        bound = answer.bound - rounding_of(self.instance, self.scale)
        return replace(answer, bound=max(0, bound))
