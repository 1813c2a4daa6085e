"""CP-SAT on the boundaries of stages, where devices hold several stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.kinds.pipeline.layers.linear import DeviceMemory, SplitAnswer
from ppsolve.solver.kinds.pipeline.layers.model import CountModel
from ppsolve.solver.studies.plan.split import (
    Boundaries,
    Split,
    SplitParams,
    SplitProblem,
    SplitUndecidedError,
    boundaries_of,
)


def search_split(
    problem: SplitProblem,
    start: Boundaries,
    *,
    least_device: int,
    least_stage: int,
    limit: float,
) -> Split | None:
    """Minimise the slowest device, then the slowest stage, over all splits that fit the memory.

    None where no split fits the memory; `SplitUndecidedError` says that the limit was reached with
    neither a split that fits nor a proof.

    `problem`: at least as many layers as stages.
    `start`: boundaries of a good split, whether or not it fits the memory.
    `least_device`, `least_stage`: proven lower bounds of the two objectives.
    `limit`: deterministic seconds for both together.
    """
    model = _SplitModel(problem)
    best, fits = start, problem.fits(start)
    proved = fits and int(problem.device_times(start).max()) == least_device
    if fits:
        model.bound_devices(start)
    if not proved:
        answer = model.improve(model.slowest_device, least_device, start, limit)
        if answer.is_infeasible:
            return None
        if answer.counts is None and not fits:
            raise SplitUndecidedError(
                f"no split of {problem.num_layers} layers into {problem.num_stages} stages was "
                f"found to fit the memory, nor proved impossible, within {limit:g} deterministic "
                "seconds"
            )
        if answer.counts is not None:
            best = boundaries_of(answer.counts)
        proved, limit = answer.is_proved, limit - answer.units
    if limit > 0 and max(problem.stage_times(best)) > least_stage:
        model.bound_devices(best)
        answer = model.improve(model.slowest_stage, least_stage, best, limit)
        if answer.counts is not None:
            best = boundaries_of(answer.counts)
    return problem.split(best, proved=proved)


def search_peak(problem: SplitProblem, limit: float) -> tuple[int, int]:
    """Return the fullest device under the best split found, and a bound on its bytes.

    The bound holds for every split: amounts of layers are rounded down to a share of all of them
    that CP-SAT counts reliably.

    `problem`: at least as many layers as stages, without a capacity.
    """
    model = _SplitModel(problem)
    total = sum(problem.static) + max(problem.most_in_flight) * sum(problem.activation)
    share = model.unit * SplitParams.most_searched_ticks
    unit = max(1, -(-total // share)) * model.unit
    fullest = model.cp.new_int_var(0, total // unit, "fullest device")
    model.add_memory(model.memory(unit), fullest)
    answer = model.minimise(fullest, _limits(limit))
    held = [0] * problem.num_devices
    if answer.counts is not None:
        held = problem.device_bytes(boundaries_of(answer.counts)).tolist()
    return held.index(max(held)), answer.bound * unit


def _limits(units: float) -> SearchLimits:
    return SearchLimits(seconds=None, deterministic=max(units, 0.0), is_plain=True)


@dataclass(frozen=True)
class _AlikeLayers:
    # Neighbouring layers that are alike: which they are, and what each of them takes.

    first: int
    length: int
    time: int
    static: int
    activation: int

    def before(self, boundary: int) -> int:
        return min(max(boundary - self.first, 0), self.length)


def _runs(problem: SplitProblem) -> list[_AlikeLayers]:
    layers = zip(problem.times, problem.static, problem.activation, strict=True)
    runs: list[_AlikeLayers] = []
    first = 0
    for alike, members in groupby(layers):
        length = sum(1 for _ in members)
        runs.append(_AlikeLayers(first, length, *alike))
        first += length
    return runs


class _SplitModel(CountModel):
    # Variables count the layers of each run of alike layers before each boundary. With one literal
    # per layer instead, splits that differ only in which of several alike layers a stage has would
    # be different ones to the search.

    def __init__(self, problem: SplitProblem) -> None:
        self.problem, self.runs = problem, _runs(problem)
        self.cp, stages = cp_model.CpModel(), problem.num_stages
        self.before = [self._counts(boundary) for boundary in range(stages + 1)]
        self._order_boundaries()
        by_run = zip(*self.before, strict=True)
        counts = [[b - a for a, b in pairwise(numbers)] for numbers in by_run]
        super().__init__(self.cp, counts)
        total = sum(problem.times)
        self.slowest_device = self.cp.new_int_var(0, total, "slowest device")
        self.slowest_stage = self.cp.new_int_var(0, total, "slowest stage")
        self._add_times()
        amounts = [device.amounts.ravel() for device in self.memory(1)]
        self.unit = max(1, int(np.gcd.reduce(np.concatenate(amounts))))
        if problem.capacity is not None:
            self.add_memory(self.memory(self.unit))

    def _counts(self, boundary: int) -> list[cp_model.LinearExprT]:
        layers, stages = self.problem.num_layers, self.problem.num_stages
        lowest, highest = boundary, layers - stages + boundary
        if boundary in {0, stages}:
            lowest = highest = 0 if boundary == 0 else layers
        counts: list[cp_model.LinearExprT] = []
        for index, run in enumerate(self.runs):
            low, high = run.before(lowest), run.before(highest)
            name = f"run {index} before {boundary}"
            counts.append(low if low == high else self.cp.new_int_var(low, high, name))
        self._fill_in_order(counts)
        return counts

    def _fill_in_order(self, counts: list[cp_model.LinearExprT]) -> None:
        # No layer of a run lies before a boundary unless all of the run before it do.
        for run, count, following in zip(self.runs, counts, counts[1:], strict=False):
            if isinstance(count, int) or isinstance(following, int):
                continue
            is_full = self.cp.new_bool_var("")
            self.cp.add(count == run.length).only_enforce_if(is_full)
            self.cp.add(following == 0).only_enforce_if(~is_full)

    def _order_boundaries(self) -> None:
        for earlier, later in pairwise(self.before):
            self.cp.add(sum(later) - sum(earlier) >= 1)
            for count, following in zip(earlier, later, strict=True):
                self.cp.add(count <= following)

    def _add_times(self) -> None:
        problem, times = self.problem, [run.time for run in self.runs]
        for stage in range(problem.num_stages):
            self.cp.add(self.total(times, stage) <= self.slowest_stage)
        for device in range(problem.num_devices):
            stages = _stages_of(problem, device)
            self.cp.add(self.total(times, *stages) <= self.slowest_device)
        self.cp.add(self.slowest_stage <= self.slowest_device)

    def memory(self, unit: int) -> Iterator[DeviceMemory]:
        """Yield whole units that each device holds at each moment, those of layers rounded down."""
        problem, moments = self.problem, np.array(self.problem.in_flight)
        static, activation = (
            np.array([[getattr(run, name)] for run in self.runs])
            for name in ("static", "activation")
        )
        for device in range(problem.num_devices):
            stages = _stages_of(problem, device)
            rows = np.unique(moments[:, stages], axis=0)
            amounts = (static + activation * rows[:, None, :]) // unit
            room = SplitParams.most_bytes
            if problem.capacity is not None:
                room = min(problem.capacity[device], room)
            yield DeviceMemory(stages, amounts, np.full(len(rows), room // unit))

    def bound_devices(self, boundaries: Boundaries) -> None:
        self.cp.add(
            self.slowest_device <= int(self.problem.device_times(boundaries).max())
        )

    def improve(
        self, value: cp_model.IntVar, bound: int, hint: Boundaries, units: float
    ) -> SplitAnswer:
        """Minimise a value that is never below a bound, beginning with a split."""
        self.cp.add(value >= bound)
        self._hint(hint)
        return self.minimise(value, _limits(units))

    def _hint(self, boundaries: Boundaries) -> None:
        self.cp.clear_hints()
        for boundary, counts in zip(boundaries, self.before, strict=True):
            for run, count in zip(self.runs, counts, strict=True):
                if not isinstance(count, int):
                    self.cp.add_hint(count, run.before(boundary))
        self.cp.add_hint(
            self.slowest_device, int(self.problem.device_times(boundaries).max())
        )
        self.cp.add_hint(
            self.slowest_stage, int(self.problem.stage_times(boundaries).max())
        )


def _stages_of(problem: SplitProblem, device: int) -> list[int]:
    return [s for s, owner in enumerate(problem.stage_to_device) if owner == device]
