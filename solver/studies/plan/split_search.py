"""Better splits of a configuration: moves rated by quick schedules, lists of all that may win."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.studies.plan.request import PlanRequest
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kinds.pipeline.layers.search import LayerSearch
from ppsolve.solver.studies.goodput.step import StepTime
from ppsolve.solver.studies.plan.arrays import PipelineArrays, lacks_room, makespan_bound
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.candidate import Candidate, Level
from ppsolve.solver.studies.plan.list_scheduling import QuickSchedule, QuickScheduler, start_by_rule
from ppsolve.solver.studies.plan.params import PlanParams, WarmUpRule
from ppsolve.solver.studies.plan.split_bounds import NEVER, SplitBounds
from ppsolve.solver.studies.plan.split_problem import Boundaries


class SplitSearch:
    """Searches the splits of candidates by their quick schedules.

    Parameters
    ----------
    request : PlanRequest
        With one profile.
    params : PlanParams
        Its budgets.
    clock : Clock
        Ends it.
    """

    def __init__(self, request: PlanRequest, params: PlanParams, clock: Clock) -> None:
        self.builder = PipelineBuilder(request)
        self.quick = QuickScheduler(self.builder)
        self._params, self._clock = params, clock
        self._names = request.search.schedules

    def bound(self, candidate: Candidate) -> Fraction:
        """Return a lower bound on the step of a candidate under every split."""
        bounds = SplitBounds(self.builder, candidate.configuration)
        return bounds.bound * self._tick(candidate)

    def schedule(self, arrays: PipelineArrays, rules: Sequence[WarmUpRule]) -> QuickSchedule | None:
        """Return the best schedule of a pipeline by rules, or by what the request allows.

        Parameters
        ----------
        arrays, rules
            As for `QuickScheduler.by_rules`.

        Returns
        -------
        QuickSchedule or None
            None where nothing fits the memory.
        """
        if self._names is not None:
            return self.quick.named(arrays, self._names)
        return self.quick.by_rules(arrays, tuple(rules))

    def rules(self, candidate: Candidate) -> tuple[WarmUpRule, ...]:
        """Return the rules by which splits of a candidate are compared: few where it is large."""
        if candidate.configuration.num_ops < self._params.least_swept:
            return self._params.rules
        rules = (WarmUpRule(), replace(candidate.rule or WarmUpRule(), passes=0))
        return tuple(dict.fromkeys(rules))

    def improved(self, candidate: Candidate, steps: int) -> PipelineArrays | None:
        """Return a split whose quick schedule is shorter than that of the candidate's split.

        Parameters
        ----------
        candidate : Candidate
            A candidate with a split.
        steps : int
            Splits that are rated: the same ones on every machine while there is time.

        Returns
        -------
        PipelineArrays or None
            None where none was found.
        """
        rules, known = self.rules(candidate), dict[Boundaries, int | None]()
        search: LayerSearch
        ops = candidate.configuration.num_ops * len(rules)
        steps = min(steps, max(10, steps * self._params.most_split_ops // ops))
        expect(ops * steps)

        def rate(counts: IntArray) -> int | None:
            split = _boundaries(counts)
            if split not in known:
                known[split] = self._rated(candidate, split, rules, search.value)
            return known[split]

        assert candidate.boundaries is not None
        search = LayerSearch(rate, steps, steps, by_clock=False)
        start = np.diff(np.array(candidate.boundaries))[None]
        search.run(start, self._clock, math.ceil(candidate.rest / self._tick(candidate)))
        if search.best is None or search.value == known[candidate.boundaries]:
            return None
        return self.quick.arrays(candidate.configuration, _boundaries(search.best))

    def _rated(
        self, candidate: Candidate, split: Boundaries, rules: Sequence[WarmUpRule], best: int | None
    ) -> int | None:
        # What is proved to be far worse takes no schedule.
        arrays = self.quick.arrays(candidate.configuration, split)
        least = makespan_bound(arrays)
        if best is not None and least > best * self._params.far_worse:
            return least
        if self._names is None:
            return self.quick.makespan(arrays, rules)
        found = self.quick.named(arrays, self._names)
        return found and round(Fraction(found.makespan) / self._tick(candidate))

    def swept(
        self, arrays: PipelineArrays, start: IntArray | None, steps: int
    ) -> QuickSchedule | None:
        """Return the schedule of a sweep of a split.

        Parameters
        ----------
        arrays, start, steps
            As for `QuickScheduler.swept`; by default from the best justified schedule by rules.

        Returns
        -------
        QuickSchedule or None
            None where nothing fits the memory.
        """
        if start is None:
            rules = tuple(self._params.justified(rule) for rule in self._params.rules)
            best = self.quick.by_rules(arrays, rules)
            if best is not None and best.rule is not None:
                start = start_by_rule(arrays, best.rule)
        return self.quick.swept(arrays, start, steps, self._clock)

    def list_others(self, candidate: Candidate, goodput: float) -> None:
        """List the splits of a candidate that may exceed a goodput, each with a quick schedule.

        Parameters
        ----------
        candidate : Candidate
            Gets them as its `others`, none if there are too many; a better one is exchanged for
            its own split.
        goodput : float
            That of the winner; 0 for all that fit.
        """
        tick, ticks = self._tick(candidate), NEVER
        if goodput:
            limit = Fraction(candidate.samples_per_time / goodput)
            ticks = math.ceil(limit / tick - Fraction(1, 10**6))
            if candidate.samples_per_time / float(ticks * tick) > goodput:
                ticks += 1
        candidate.is_listed = True
        splits = SplitBounds(self.builder, candidate.configuration).below(ticks)
        others = []
        for split in splits or ():
            # Without any plan the search goes on when its time is up.
            if goodput and self._clock.is_over:
                candidate.is_listed = False
                return
            other = None if split == candidate.boundaries else self._other(candidate, split, ticks)
            if other is not None:
                others.append(other)
        if splits is not None:
            candidate.rest = ticks * tick if goodput else math.inf
            candidate.others = others

    def _other(self, candidate: Candidate, split: Boundaries, limit: int) -> Candidate | None:
        arrays = self.quick.arrays(candidate.configuration, split)
        least = makespan_bound(arrays)
        if least >= limit or lacks_room(arrays):
            return None
        other = Candidate(
            index=candidate.index,
            configuration=candidate.configuration,
            samples_per_time=candidate.samples_per_time,
            efficiency=candidate.efficiency,
            step=StepTime(least * self._tick(candidate)),
            level=Level.SHAPED,
            boundaries=split,
            arrays=arrays,
            parent=candidate,
        )
        other.take(self.schedule(arrays, self.rules(candidate)))
        if (candidate.step.reached or math.inf) <= (other.step.reached or math.inf):
            other.start = None
        return other

    def _tick(self, candidate: Candidate) -> Fraction:
        return self.builder.layers(candidate.configuration.microbatch_size).tick


def _boundaries(counts: IntArray) -> Boundaries:
    return (0, *np.cumsum(counts).tolist())
