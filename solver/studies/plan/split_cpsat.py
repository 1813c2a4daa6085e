"""CP-SAT on the boundaries of stages, where devices hold several stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from math import gcd

from ortools.sat.python import cp_model

from ppsolve.solver.exact.parameters import configured
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.studies.plan.split import (
    Boundaries,
    Split,
    SplitParams,
    SplitProblem,
    SplitUndecidedError,
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
    proved = fits and max(problem.device_times(start)) == least_device
    if fits:
        model.bound_devices(start)
    if not proved:
        first = model.minimise(model.slowest_device, least_device, start, limit)
        if first.infeasible:
            return None
        if first.boundaries is None and not fits:
            raise SplitUndecidedError(
                f"no split of {problem.num_layers} layers into {problem.num_stages} stages was "
                f"found to fit the memory, nor proved impossible, within {limit:g} deterministic "
                "seconds"
            )
        best, proved = first.boundaries or start, first.proved
        limit -= first.deterministic_time
    if limit > 0 and max(problem.stage_times(best)) > least_stage:
        model.bound_devices(best)
        best = (
            model.minimise(model.slowest_stage, least_stage, best, limit).boundaries
            or best
        )
    return problem.split(best, proved=proved)


def search_peak(problem: SplitProblem, limit: float) -> tuple[int, int]:
    """Return the fullest device under the best split found, and a bound on its bytes.

    The bound holds for every split: amounts of layers are rounded down to a share of all of them
    that CP-SAT counts reliably.

    `problem`: at least as many layers as stages, without a capacity.
    """
    outcome = _SplitModel(problem).minimise_peak(limit)
    held = [0] * problem.num_devices
    if outcome.boundaries is not None:
        held = problem.device_bytes(outcome.boundaries)
    return held.index(max(held)), outcome.bound


@dataclass(frozen=True)
class _SplitOutcome:
    boundaries: Boundaries | None
    proved: bool
    infeasible: bool
    deterministic_time: float
    bound: int


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


class _SplitModel:
    # Variables count the layers of each run of alike layers before each boundary. With one literal
    # per layer instead, splits that differ only in which of several alike layers a stage has would
    # be different ones to the search.

    def __init__(self, problem: SplitProblem) -> None:
        self.problem, self.runs = problem, _runs(problem)
        self.model = cp_model.CpModel()
        self.before = [
            self._counts(boundary) for boundary in range(problem.num_stages + 1)
        ]
        self._order_boundaries()
        self.slowest_device = self.model.new_int_var(
            0, sum(problem.times), "slowest device"
        )
        self.slowest_stage = self.model.new_int_var(
            0, sum(problem.times), "slowest stage"
        )
        self._add_times()
        self._add_memory()

    def _counts(self, boundary: int) -> list[cp_model.LinearExprT]:
        layers, stages = self.problem.num_layers, self.problem.num_stages
        lowest, highest = boundary, layers - stages + boundary
        if boundary in {0, stages}:
            lowest = highest = 0 if boundary == 0 else layers
        counts: list[cp_model.LinearExprT] = []
        for index, run in enumerate(self.runs):
            low, high = run.before(lowest), run.before(highest)
            name = f"run {index} before {boundary}"
            counts.append(
                low if low == high else self.model.new_int_var(low, high, name)
            )
        self._fill_in_order(counts)
        return counts

    def _fill_in_order(self, counts: list[cp_model.LinearExprT]) -> None:
        # No layer of a run lies before a boundary unless all of the run before it do.
        for run, count, following in zip(self.runs, counts, counts[1:], strict=False):
            if isinstance(count, int) or isinstance(following, int):
                continue
            is_full = self.model.new_bool_var("")
            self.model.add(count == run.length).only_enforce_if(is_full)
            self.model.add(following == 0).only_enforce_if(~is_full)

    def _order_boundaries(self) -> None:
        for earlier, later in pairwise(self.before):
            self.model.add(sum(later) - sum(earlier) >= 1)
            for count, following in zip(earlier, later, strict=True):
                self.model.add(count <= following)

    def _of_stage(self, stage: int, weights: Sequence[int]) -> cp_model.LinearExprT:
        pairs = zip(weights, self.before[stage], self.before[stage + 1], strict=True)
        return sum(
            weight * (after - before) for weight, before, after in pairs if weight
        )

    def _of_device(
        self, device: int, by_stage: list[cp_model.LinearExprT]
    ) -> cp_model.LinearExprT:
        owners = zip(self.problem.stage_to_device, by_stage, strict=True)
        return sum(value for owner, value in owners if owner == device)

    def _add_times(self) -> None:
        weights = [run.time for run in self.runs]
        stages = [self._of_stage(s, weights) for s in range(self.problem.num_stages)]
        for time in stages:
            self.model.add(time <= self.slowest_stage)
        for device in range(self.problem.num_devices):
            self.model.add(self._of_device(device, stages) <= self.slowest_device)
        self.model.add(self.slowest_stage <= self.slowest_device)

    def _add_memory(self) -> None:
        if self.problem.capacity is None:
            return
        weights = [weight for amounts in self._bytes().values() for weight in amounts]
        unit = max(1, gcd(*weights))
        for device, held in self._held(unit):
            limit = min(self.problem.capacity[device], SplitParams.most_bytes) // unit
            self.model.add(held <= limit)

    def _bytes(self) -> dict[int, list[int]]:
        # Of each run, by the number of micro-batches in flight.
        counts = {count for moment in self.problem.in_flight for count in moment}
        return {
            n: [run.static + n * run.activation for run in self.runs]
            for n in sorted(counts)
        }

    def _held(self, unit: int) -> Iterator[tuple[int, cp_model.LinearExprT]]:
        # Whole units that each device holds at each moment, those of layers rounded down.
        units = {
            n: [amount // unit for amount in row] for n, row in self._bytes().items()
        }
        owners = self.problem.stage_to_device
        for device in range(self.problem.num_devices):
            stages = [stage for stage, owner in enumerate(owners) if owner == device]
            moments = {
                tuple(counts[stage] for stage in stages)
                for counts in self.problem.in_flight
            }
            for counts in sorted(moments):
                pairs = zip(stages, counts, strict=True)
                yield device, sum(self._of_stage(stage, units[n]) for stage, n in pairs)

    def bound_devices(self, boundaries: Boundaries) -> None:
        self.model.add(
            self.slowest_device <= max(self.problem.device_times(boundaries))
        )

    def minimise(
        self, value: cp_model.IntVar, bound: int, hint: Boundaries, limit: float
    ) -> _SplitOutcome:
        self.model.add(value >= bound)
        self._hint(hint)
        return self._minimise(value, limit)

    def minimise_peak(self, limit: float) -> _SplitOutcome:
        """Minimise the bytes of the fullest device; its bound is in bytes."""
        weights = [weight for amounts in self._bytes().values() for weight in amounts]
        total = sum(self.problem.static)
        total += max(self.problem.most_in_flight) * sum(self.problem.activation)
        share = max(1, gcd(*weights))
        unit = share * max(1, -(-total // (share * SplitParams.most_searched_ticks)))
        fullest = self.model.new_int_var(0, total // unit, "fullest device")
        for _, held in self._held(unit):
            self.model.add(held <= fullest)
        outcome = self._minimise(fullest, limit)
        return replace(outcome, bound=outcome.bound * unit)

    def _minimise(self, value: cp_model.IntVar, limit: float) -> _SplitOutcome:
        self.model.minimize(value)
        effort = max(limit, 0.0)
        solver = configured(
            SearchLimits(seconds=None, deterministic=effort, is_plain=True)
        )
        status = solver.solve(self.model)
        has_solution = status in {cp_model.OPTIMAL, cp_model.FEASIBLE}
        return _SplitOutcome(
            self._boundaries(solver) if has_solution else None,
            proved=status == cp_model.OPTIMAL,
            infeasible=status == cp_model.INFEASIBLE,
            deterministic_time=solver.deterministic_time,
            bound=0
            if status == cp_model.UNKNOWN
            else round(solver.best_objective_bound),
        )

    def _hint(self, boundaries: Boundaries) -> None:
        self.model.clear_hints()
        for boundary, counts in zip(boundaries, self.before, strict=True):
            for run, count in zip(self.runs, counts, strict=True):
                if not isinstance(count, int):
                    self.model.add_hint(count, run.before(boundary))
        self.model.add_hint(
            self.slowest_device, max(self.problem.device_times(boundaries))
        )
        self.model.add_hint(
            self.slowest_stage, max(self.problem.stage_times(boundaries))
        )

    def _boundaries(self, solver: cp_model.CpSolver) -> Boundaries:
        return tuple(
            sum(solver.value(count) for count in counts) for counts in self.before
        )
