"""PipeFisher's heuristics as schedules of the refresh problem, and the rules that they break."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicStatus, ScheduleDocument
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.labels import KIND_OF
from ppsolve.models.kinds.kfac.pattern import RefreshPattern
from ppsolve.models.kinds.kfac.result import RefreshEntry, broken_rules
from ppsolve.models.kinds.kfac.unrolling import (
    LoweredRefresh,
    lower_refresh,
    refuse_long,
)
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.heuristic import OURS, Heuristic, HeuristicOutcome
from ppsolve.solver.kinds.kfac.causal import pipefisher_causal
from ppsolve.solver.kinds.kfac.pipefisher import pipefisher
from ppsolve.solver.kinds.kfac.placement import (
    DevicePlan,
    Order,
    Refresh,
    absolute_starts,
    freshest_order,
    greedy_order,
    plan_of_starts,
    shortest_order,
)

A_REFRESH = "K-FAC work around a pinned pipeline (objective iterations)"

PIPEFISHER = "PipeFisher: Osawa et al. 2023"


def _repaired(name: str, summary: str, order: Order) -> Heuristic:
    rule, source = (
        partial(pipefisher_causal, order=order),
        f"{OURS}, after {PIPEFISHER}",
    )
    return Heuristic(name, summary, rule, A_REFRESH, source=source)


CAUSAL = _repaired(
    "pipefisher-causal",
    "PipeFisher's greedy repaired: causal, per module, in its own pipe",
    greedy_order,
)
REFRESH_HEURISTICS = (
    Heuristic(
        "pipefisher",
        "PipeFisher's greedy, its quirks included",
        pipefisher,
        A_REFRESH,
        source=PIPEFISHER,
    ),
    CAUSAL,
    _repaired(
        "shortest-first",
        "repaired greedy, the shortest curvature first: saved tensors are given back soon",
        shortest_order,
    ),
    _repaired(
        "freshest-first",
        "repaired greedy, factor after factor: inverses are ready soon",
        freshest_order,
    ),
)
"""In the order of reports; each takes a `RefreshPattern` and gives a list of `DevicePlan`."""

_CLASS = {kind: word for (word, _), kind in KIND_OF.items()}


@dataclass(frozen=True)
class RefreshOutcome(HeuristicOutcome):
    """Outcome of one heuristic on a refresh pattern."""

    plans: Sequence[DevicePlan] | None = None
    # Number of ops that break each rule, in all and per device.
    breaks: dict[str, int] = field(default_factory=dict)
    breaks_of: list[dict[str, int]] = field(default_factory=list)
    # Syncs that do not start together on their devices, and their last end in ticks.
    unaligned: dict[str, int] = field(default_factory=dict)


def run_refresh_heuristic(
    heuristic: Heuristic, pattern: RefreshPattern
) -> RefreshOutcome:
    """Run a heuristic and check its schedule."""
    name = heuristic.name
    try:
        plans: list[DevicePlan] = heuristic.propose(pattern)
        counts = [plan.iterations for plan in plans]
        refuse_long(pattern, counts)
        lowered = lower_refresh(pattern, counts)
    except InputError as error:
        return RefreshOutcome(name, HeuristicStatus.FAILED, reason=str(error))
    schedule, unaligned = scheduled(pattern, plans, lowered)
    violations = check_schedule(lowered.problem, schedule)
    if not violations and not unaligned:
        if any(
            len(work.participants) > 1
            for device in pattern.devices
            for work in device.work
        ):
            # On a device that meets others a sync takes as long as the longest of them.
            plans = plans_of(pattern, lowered, schedule)
        return RefreshOutcome(name, HeuristicStatus.FEASIBLE, schedule, plans=plans)
    first = f"; first {violations[0]}" if violations else ""
    breaks_of = _breaks(schedule, violations)
    breaks = dict(sum((Counter(rules) for rules in breaks_of.values()), Counter()))
    if unaligned:
        breaks["sync_not_aligned"] = len(unaligned)
    return RefreshOutcome(
        name,
        HeuristicStatus.INFEASIBLE,
        schedule,
        f"breaks rules: {broken_rules(breaks)}{first}",
        plans=plans,
        breaks=breaks,
        breaks_of=[breaks_of.get(device.device, {}) for device in pattern.devices],
        unaligned=unaligned,
    )


def scheduled(
    pattern: RefreshPattern, plans: Sequence[DevicePlan], lowered: LoweredRefresh
) -> tuple[Schedule, dict[str, int]]:
    """Turn plans into a schedule, with the last end of every sync that does not start together.

    The parts of a curvature are alike, so the first of them to run is its part 0. Ends are in
    ticks.
    """
    problem = lowered.problem
    start = problem.pinned.copy()
    times: dict[int, list[int]] = defaultdict(list)
    for plan in plans:
        of_work: dict[int, list[int]] = defaultdict(list)
        for (index, _), time in absolute_starts(plan, pattern).items():
            of_work[index].append(time)
        for index, ordered in of_work.items():
            for part, time in enumerate(sorted(ordered)):
                times[lowered.op_of[plan.device, index, part]].append(time)
    unaligned = {}
    for op, starts in times.items():
        start[op] = min(starts)
        if max(starts) > min(starts):
            unaligned[problem.op_name(op)] = max(starts) + int(problem.duration[op])
    return Schedule(problem, start), unaligned


def plans_of(
    pattern: RefreshPattern, lowered: LoweredRefresh, schedule: Schedule
) -> list[DevicePlan]:
    """Split a schedule of all devices into their plans."""
    starts = {key: int(schedule.start[op]) for key, op in lowered.op_of.items()}
    counts = enumerate(lowered.iterations)
    return [plan_of_starts(pattern, device, starts, count) for device, count in counts]


def _breaks(
    schedule: Schedule, violations: list[Violation]
) -> dict[int, dict[str, int]]:
    problem = schedule.problem
    early = schedule.start[problem.after] < schedule.end[problem.before] + problem.lag
    broken = {
        (int(problem.after[edge]), _broken_precedence(problem, edge))
        for edge in np.flatnonzero(early).tolist()
    }
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for op, rule in sorted(broken):
        counts[int(problem.device[op])][rule] += 1
    names = {"window": "outside_holes", "overlap": "overlap", "memory": "memory"}
    device_of = dict(
        zip(problem.op_names(range(problem.num_ops)), problem.device, strict=True)
    )
    for violation in violations:
        if violation.rule != "precedence" and violation.ops:
            device = int(device_of[violation.ops[-1]])
            counts[device][names.get(violation.rule, violation.rule)] += 1
    return {device: dict(rules) for device, rules in counts.items()}


def _broken_precedence(problem: Problem, edge: int) -> str:
    ops = (problem.before[edge], problem.after[edge])
    first, second = (_CLASS.get(problem.kinds[problem.kind[op]], "data") for op in ops)
    return "cov_out_of_order" if first == second else f"{second}_before_{first}"


def refresh_entry(
    outcome: HeuristicOutcome, pattern: RefreshPattern, *, with_schedule: bool = False
) -> RefreshEntry:
    """Return the entry of a heuristic in a report, with or without the ops of its schedule."""
    if not isinstance(outcome, RefreshOutcome) or outcome.plans is None:
        return RefreshEntry(
            name=outcome.name, status=outcome.status, reason=outcome.reason
        )
    refresh = Refresh(pattern, outcome.plans)
    figures = refresh.figures()
    schedule, time = outcome.schedule, pattern.scale.time
    return RefreshEntry(
        name=outcome.name,
        status=outcome.status,
        reason=outcome.reason,
        value=figures["iterations"],
        makespan=time(schedule.makespan) if schedule else None,
        device_span=time(schedule.device_span) if schedule else None,
        bubble_ratio=1 - refresh.usage,
        breaks=outcome.breaks or None,
        breaks_of=outcome.breaks_of or None,
        schedule=_document(outcome) if with_schedule else None,
        **figures,
    )


def _document(outcome: RefreshOutcome) -> ScheduleDocument | None:
    # A sync that does not meet runs from its first start to its last end.
    if outcome.schedule is None:
        return None
    document, scale = (
        ScheduleDocument.of(outcome.schedule),
        outcome.schedule.problem.scale,
    )
    ops = tuple(
        op.model_copy(update={"end": scale.time(outcome.unaligned[op.id])})
        if op.id in outcome.unaligned
        else op
        for op in document.ops
    )
    return document.model_copy(update={"ops": ops})
