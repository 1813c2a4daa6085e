"""Refresh cycles around a pinned pipeline: the pins, and bubbles filled greedily."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError, NotApplicableError
from ppsolve.models.kinds.kfac.cycle import (
    LoweredCycle,
    lower_iteration,
    modules_by_stage,
)
from ppsolve.models.kinds.kfac.instance import FREE_PIPELINE, KfacInstance, KfacModule
from ppsolve.models.kinds.kfac.labels import KIND_OF
from ppsolve.models.kinds.kfac.pattern import RefreshPattern, windows_in
from ppsolve.models.kinds.pipeline.labels import ALLREDUCE_KIND, OPTIMIZER_KIND
from ppsolve.models.kinds.pipeline.steps import Place
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.generic import GENERIC
from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request
from ppsolve.solver.heuristics.list_scheduling import (
    generate_serial,
    longest_tail,
    ranked,
)
from ppsolve.solver.kinds.pipeline.grammar import COMPUTE_KINDS
from ppsolve.solver.kinds.pipeline.heuristics import HEURISTICS
from ppsolve.solver.kinds.pipeline.kind import PIPELINE

PATTERNS: dict[str, Heuristic] = {
    heuristic.name: heuristic for heuristic in (*HEURISTICS, *GENERIC)
}
"""Heuristics whose schedule of the pipeline can be pinned."""


NO_END = 2**61
"""End of the last hole: beyond all ticks, and sums of two still fit in int64."""


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that names no pipeline heuristic; the error names the nearest one."""
    if pattern not in PATTERNS:
        names = [FREE_PIPELINE, *PATTERNS]
        raise InputError.unknown(
            "unknown pipeline heuristic",
            pattern,
            names,
            field="pattern",
        )


def pinned_iteration(instance: KfacInstance, heuristic_name: str) -> PinnedIteration:
    """Time one iteration of the pipeline as a heuristic does, and find its period, in ticks.

    Preconditions follow the last compute op of their device, stage by stage as gradients become
    ready, and each stage's optimizer follows its preconditions. Alike micro-batches are numbered in
    the order in which they run, which changes nothing but their names.

    Raises `InputError` where the heuristic is unknown, or its schedule is not feasible for the
    pipeline, and `NotApplicableError` where it does not apply to the pipeline.
    """
    assert instance.pipeline is not None
    check_pattern(heuristic_name)
    problem = lower_iteration(instance)
    outcome = PIPELINE.run_heuristic(
        PATTERNS[heuristic_name], instance.pipeline, problem
    )
    if outcome.status is HeuristicStatus.NOT_APPLICABLE:
        raise NotApplicableError(f"{heuristic_name}: {outcome.reason}")
    if outcome.status is not HeuristicStatus.FEASIBLE or outcome.schedule is None:
        raise InputError(
            f"{heuristic_name} gives no valid schedule of the pipeline: {outcome.reason}",
            field="pattern",
        )
    return PinnedIteration(instance, outcome.schedule.normalised())


class PinnedIteration:
    """One iteration of a pinned pipeline, in ticks from the start of its first op."""

    def __init__(self, instance: KfacInstance, schedule: Schedule) -> None:
        self.problem = schedule.problem
        self.start = schedule.start.copy()
        for family in self.problem.families:
            self.start[family] = np.sort(self.start[family], axis=0)
        self._end = self.start + self.problem.duration
        # Starts of the preconditions of each stage's modules on each device that holds it, and when
        # the stage has finished the iteration there.
        self.preconditions: dict[Place, IntArray] = {}
        self.complete: dict[Place, int] = {}
        compute = self.problem.by_place(*COMPUTE_KINDS)
        busy_until = self._finish(compute, modules_by_stage(instance))
        spans = [
            complete - int(self.start[compute[place]].min())
            for place, complete in self.complete.items()
        ]
        # The least distance at which iterations can follow each other.
        self.period = max(1, *self._resource_spans(busy_until), *spans)

    def _finish(
        self, compute: dict[Place, IntArray], modules: dict[int, list[KfacModule]]
    ) -> dict[int, int]:
        """Place preconditions and optimizers; return when each compute stream is free then."""
        optimizers = self.problem.by_place(OPTIMIZER_KIND)
        reductions = self.problem.by_place(ALLREDUCE_KIND)
        reduction_of = {stage: ops for (stage, _), ops in reductions.items()}
        release, busy_until = {}, dict.fromkeys(self.problem.span_resources.tolist(), 0)
        for (stage, device), ops in compute.items():
            release[stage, device] = int(self._end[reduction_of.get(stage, ops)].max())
            stream = int(self.problem.span_resources[device])
            busy_until[stream] = max(busy_until[stream], int(self._end[ops].max()))
        for place in sorted(compute, key=lambda place: (release[place], place)):
            stream = int(self.problem.span_resources[place[1]])
            began = max(busy_until[stream], release[place])
            times = [
                Fraction(module.precondition) for module in modules.get(place[0], ())
            ]
            ticks = [self.problem.scale.ticks(time) for time in times]
            ends = began + np.cumsum([0, *ticks], dtype=np.int64)
            self.preconditions[place] = ends[:-1]
            optimizer = optimizers.get(place, np.zeros(0, dtype=np.int64))
            self.start[optimizer] = ends[-1]
            self._end[optimizer] = ends[-1] + self.problem.duration[optimizer]
            last = int(max(ends[-1], self._end[optimizer].max(initial=0)))
            self.complete[place] = last if ticks or len(optimizer) else release[place]
            busy_until[stream] = last if last > began else busy_until[stream]
        return busy_until

    def _resource_spans(self, busy_until: dict[int, int]) -> Iterator[int]:
        for resource, ops in enumerate(self.problem.ops_by_resource):
            busy = ops[self.problem.duration[ops] > 0]
            if len(busy):
                end = max(int(self._end[busy].max()), busy_until.get(resource, 0))
                yield end - int(self.start[busy].min())


def pinned_cycle(
    instance: KfacInstance, heuristic_name: str, *, exact: bool = False
) -> Problem:
    """Pin the pipeline of a refresh cycle to a heuristic's schedule, repeated every period.

    With a margin, K-FAC ops on compute streams get windows: an op of length d may start at t in a
    hole only if t + (1 + margin) d is before the start of the next pinned op; there is no limit
    after the last one. Errors are those of `pinned_iteration`, ops and rules those of
    `lower_cycle`.
    """
    cycle = LoweredCycle(instance, exact=exact)
    iteration = pinned_iteration(instance, heuristic_name)
    pinned = replace(cycle.problem, pinned=_pins(cycle, iteration))
    if instance.margin_ratio == 0:
        return pinned
    return replace(
        pinned,
        windows=_windows(pinned, iteration.period, Fraction(instance.margin_ratio)),
    )


def _pins(cycle: LoweredCycle, iteration: PinnedIteration) -> IntArray:
    pins = np.full(cycle.problem.num_ops, FREE, dtype=np.int64)
    shift = np.arange(len(cycle.op_of))[:, None] * iteration.period
    pins[cycle.op_of] = iteration.start + shift
    for place, ops in cycle.preconditions.items():
        pins[ops] = iteration.preconditions[place] + shift
    for place, steps in cycle.steps.items():
        pins[steps] = iteration.complete[place] + shift[:-1, 0]
    return pins


def _windows(problem: Problem, period: int, margin: Fraction) -> dict[int, IntArray]:
    # Syncs have none: they run on comm streams.
    rule = RefreshPattern(problem.name, problem.scale, period, margin, ())
    kinds = [KIND_OF[kind, factor] for kind in ("cov", "inv") for factor in "AB"]
    free = problem.kind_mask(*kinds)
    windows: dict[int, IntArray] = {}
    for resource in problem.span_resources.tolist():
        ops = problem.ops_by_resource[resource]
        busy = ops[~free[ops] & (problem.duration[ops] > 0)]
        busy = busy[np.argsort(problem.pinned[busy])]
        begins = [0, *(problem.pinned[busy] + problem.duration[busy]).tolist()]
        holes = list(zip(begins, problem.pinned[busy].tolist(), strict=False))
        kfac_ops = ops[free[ops]]
        for length in np.unique(problem.duration[kfac_ops]).tolist():
            starts = [*windows_in(holes, rule.room_for(length)), (begins[-1], NO_END)]
            alike = kfac_ops[problem.duration[kfac_ops] == length].tolist()
            windows |= dict.fromkeys(alike, np.array(starts, dtype=np.int64))
    return windows


def pin_and_fill(request: Request, pattern: str) -> Proposal:
    """Pin the pipeline to a published schedule and fill its bubbles greedily with K-FAC work.

    The best schedule over the priority rules counts; where all break a rule such as memory, that of
    the first one. Raises `NotApplicableError` where the heuristic does not apply to the pipeline,
    or gives no valid schedule of it, or the instance pins another one.
    """
    instance = request.instance
    if instance.pattern not in {FREE_PIPELINE, pattern}:
        raise NotApplicableError(f"the pipeline is pinned to {instance.pattern}")
    try:
        pinned = pinned_cycle(instance, pattern)
    except InputError as error:
        raise NotApplicableError(error.message) from None
    if instance.pattern == FREE_PIPELINE:
        # The margin of holes says nothing about a pipeline that is free to move.
        pinned = replace(pinned, windows={})
    return Proposal(Schedule(request.problem, fill_bubbles(pinned).start))


def fill_bubbles(pinned: Problem) -> Schedule:
    """Place ops without a pin into the bubbles between pinned ops; the best of several rules.

    Of the ops whose predecessors are placed, the one of the lowest rank comes next, at the earliest
    moment that fits. Neither memory nor pinned successors are looked at: where the checker accepts
    no schedule, that of the first rule is returned.
    """
    plain, is_free = replace(pinned, pools=()), pinned.pinned == FREE
    ranks = (ranked(is_free, rule(pinned)) for rule in _RULES)
    starts = (generate_serial(plain, rank).start for rank in ranks)
    schedules = [
        Schedule(pinned, np.where(is_free, start, pinned.pinned)) for start in starts
    ]
    valid = [schedule for schedule in schedules if not check_schedule(pinned, schedule)]
    return min(valid or schedules[:1], key=lambda schedule: schedule.value)


def _by_kind(*kinds: str) -> Callable[[Problem], IntArray]:
    def rule(problem: Problem) -> IntArray:
        rank = {kind: position for position, kind in enumerate(kinds)}
        order = np.array([rank.get(kind, -1) for kind in problem.kinds], dtype=np.int64)
        return ranked(order[problem.kind])

    return rule


# Longest path first is list scheduling's usual rule; PipeFisher takes all curvature, then all syncs
# and inversions; factor by factor, the first inverses are ready soonest.
_RULES = (
    longest_tail,
    _by_kind("CA", "CB", "SA", "SB", "IA", "IB"),
    _by_kind("CA", "SA", "IA", "CB", "SB", "IB"),
    _by_kind("CB", "SB", "IB", "CA", "SA", "IA"),
)
