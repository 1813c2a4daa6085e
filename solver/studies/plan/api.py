"""The planner of the library: `plan`, and its report of ranks, verdicts, reasons and shortages."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import cast

from ppsolve.models.core.result import HeuristicEntry, Status
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_about
from ppsolve.models.kinds.pipeline.replicas import PipelineResult
from ppsolve.models.studies.plan.request import PlanRequest
from ppsolve.models.studies.plan.result import (
    Configuration,
    MemoryShortage,
    Plan,
    PlanCounts,
    PlanRow,
    Range,
    Rule,
    Verdict,
)
from ppsolve.solver.api.registry import known_heuristic
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.runtimes.families import family_of
from ppsolve.solver.run.entries import versions
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.progress import HeededListener
from ppsolve.solver.studies.goodput.step import Interval
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.candidate import Candidate, Level
from ppsolve.solver.studies.plan.params import PlanLimits
from ppsolve.solver.studies.plan.progress import PlanListener
from ppsolve.solver.studies.plan.search import PlanSearch
from ppsolve.solver.studies.plan.space import (
    ConfigurationSpace,
    enumerate_space,
    runnable,
)
from ppsolve.solver.studies.plan.split import Boundaries
from ppsolve.solver.studies.plan.strategy import run_plan

RULE_OF_LEVEL = {
    Level.ENUMERATED: Rule.BOUND,
    Level.SHAPED: Rule.BOUND,
    Level.MEASURED: Rule.MEASURED,
    Level.SOLVED: Rule.SOLVED,
}


def plan(
    request: PlanRequest,
    *,
    time_limit: float | None = 45.0,
    finalists: int = 12,
    gap: float = 0.0,
    workers: int | None = None,
    seed: int = 0,
    deterministic: bool = False,
    exhaustive: bool = False,
    on_progress: PlanListener | None = None,
    runtime: str | None = None,
    stop: threading.Event | None = None,
) -> Plan:
    """Find the configuration with the highest goodput, and say why every other one lost.

    Parameters
    ----------
    request : PlanRequest
        The model, the cluster and the configurations to choose from.
    time_limit : float or None
        Wall seconds for the plan; None: no limit. If no configuration fits, planning may exceed its
        limit: the first 64 are tried. In deterministic and exhaustive plans the limit of each exact
        search, in deterministic ones in CP-SAT's units.
    finalists : int
        Maximum number of configurations for the exact solver.
    gap : float
        Accepted share by which another configuration may be better.
    workers, seed, deterministic
        As for `ppsolve.optimize`.
    exhaustive : bool
        Give every configuration to the exact solver, and prune none.
    on_progress : callable, optional
        Called with the state of the search. Its return value and its errors have the same effect as
        for `ppsolve.optimize`.
    runtime : str, optional
        Only configurations that this runtime runs, each with its best order where it runs few, as
        for `ppsolve.optimize`.
    stop : threading.Event, optional
        Once set, from any thread, the call returns its best plan so far.

    Returns
    -------
    Plan
        The winner with its goodput range, instance and checked schedule, the ranked table, and how
        many were decided by which rule. An interrupt (Ctrl-C) returns the best plan so far.

    Raises
    ------
    InputError
        An option is out of range, a schedule is unknown, or the search excludes everything.
    """
    _check_options(request, finalists)
    family = None if runtime is None else family_of(runtime)
    if family is not None and request.search.schedules is not None:
        raise InputError(
            "expected none with a runtime",
            field="search.schedules",
            code=ErrorCode.CONFLICT,
        )
    few = family if family is not None and family.is_finite else None
    if few is not None:
        # Only its orders are allowed, none of which is a heuristic.
        allowed = request.search.model_copy(update={"schedules": ()})
        request = request.model_copy(update={"search": allowed})
    options = Options(
        time_limit=time_limit,
        gap=gap,
        workers=workers,
        seed=seed,
        deterministic=deterministic,
    )
    limits = PlanLimits(options, finalists, exhaustive, runtime=few)
    limit, params = None if deterministic else options.time_limit, limits.params
    reserved = min(params.reserved_seconds, params.reserved_share * (limit or 0.0))
    events = (stop or threading.Event(), threading.Event())
    clock = Clock(limit, events).before(reserved)
    listener = None if on_progress is None else HeededListener(on_progress, clock)
    space = enumerate_space(request)
    if family is not None:
        space = runnable(space, family, PipelineBuilder(request).stage_to_device)
    search = PlanSearch(request, space, limits, listener, clock)
    run_plan(search)
    plan = _report(search, space)
    if listener is not None:
        listener.raise_error(plan)
    return plan


def _check_options(request: PlanRequest, finalists: int) -> None:
    if finalists < 0:
        raise InputError(
            f"expected a number >= 0, got {finalists}",
            field="finalists",
            code=ErrorCode.RANGE,
        )
    for index, name in enumerate(request.search.schedules or ()):
        with errors_about(f"search.schedules[{index}]"):
            known_heuristic(name)


def _report(search: PlanSearch, space: ConfigurationSpace) -> Plan:
    winner = search.winner
    ranked = sorted(
        search.candidates, key=lambda c: (_group(search, c), -c.low, c.promise)
    )
    rows = [_row(search, candidate, rank) for rank, candidate in enumerate(ranked, 1)]
    reached = None if winner is None else Range(low=winner.low, high=search.high)
    return Plan(
        request=search.request.name,
        status=_status(search, reached),
        time_unit=search.request.time_unit,
        goodput=reached,
        gap=None if reached is None else (reached.high - reached.low) / reached.high,
        winner=rows[0] if winner is not None else None,
        counts=_counts(rows, space, search),
        exhaustive=search.limits.exhaustive,
        interrupted=search.interrupted or search.clock.is_stopped,
        wall_seconds=search.clock.elapsed,
        deterministic=search.limits.options.deterministic,
        versions=versions(),
        table=tuple(rows),
        instance=None if winner is None else winner.instance,
        result=cast("PipelineResult | None", search.result),
    )


def _group(search: PlanSearch, candidate: Candidate) -> int:
    # The winner, those with a schedule, those without, those excluded.
    if candidate is search.winner:
        return 0
    if candidate.ruled_out is not None:
        return 3
    return 1 if candidate.step.reached is not None else 2


def _status(search: PlanSearch, reached: Range | None) -> Status:
    if reached is not None:
        return Status.OPTIMAL if reached.high <= reached.low else Status.FEASIBLE
    if all(candidate.ruled_out is Rule.MEMORY for candidate in search.candidates):
        return Status.INFEASIBLE
    return Status.UNKNOWN


def _verdict(search: PlanSearch, candidate: Candidate) -> tuple[Verdict, Rule | None]:
    if candidate is search.winner:
        return Verdict.WINNER, None
    if candidate.ruled_out is not None:
        return Verdict.LOST, candidate.ruled_out
    if candidate.is_final and not _is_rest_open(search, candidate):
        if candidate.step.reached is not None:
            return Verdict.LOST, Rule.ALLOWED
        is_full = any(map(exceeds_memory, candidate.step.failures))
        return Verdict.LOST, Rule.SCHEDULES_MEMORY if is_full else Rule.NOT_APPLICABLE
    if not _may_win(search, candidate):
        is_named = search.request.search.schedules is not None
        if is_named and candidate.step.reached is not None:
            return Verdict.LOST, Rule.ALLOWED
        return Verdict.LOST, RULE_OF_LEVEL[candidate.level]
    if candidate.step.reached is None and (
        candidate.is_stuck or candidate.step.failures
    ):
        return Verdict.OPEN, Rule.NO_SCHEDULE
    return Verdict.OPEN, Rule.LIMIT


def _is_rest_open(search: PlanSearch, candidate: Candidate) -> bool:
    return candidate.rest_high > (0.0 if search.winner is None else search.winner.low)


def _may_win(search: PlanSearch, candidate: Candidate) -> bool:
    if search.winner is None:
        return True
    return candidate.high > search.winner.low and not search.is_beaten(candidate)


def _row(search: PlanSearch, candidate: Candidate, rank: int) -> PlanRow:
    verdict, rule = _verdict(search, candidate)
    goodput = candidate.goodput if candidate.ruled_out is None else None
    has_time = goodput is not None and candidate.step.reached is not None
    spans = pairwise(candidate.boundaries or ())
    shortage = shortage_of(search.builder(candidate.configuration), candidate)
    return PlanRow(
        rank=rank,
        configuration=candidate.configuration,
        verdict=verdict,
        lost_by=rule,
        reason=_reason(search, candidate, rule, shortage),
        goodput=_range(goodput),
        throughput=_range(goodput, candidate.efficiency),
        step_time=_range(candidate.step_range if has_time else None),
        efficiency=candidate.efficiency,
        schedule_by=candidate.step.method,
        split_proved=_split_proved(candidate),
        layers_per_stage=tuple(last - first for first, last in spans) or None,
        memory=shortage,
    )


def _split_proved(candidate: Candidate) -> bool | None:
    if not candidate.is_searched or candidate.boundaries is None:
        return candidate.split_proved
    return candidate.rest_high <= candidate.low


def _range(interval: Interval | None, divisor: float = 1.0) -> Range | None:
    if interval is None:
        return None
    return Range(low=interval.low / divisor, high=interval.high / divisor)


def _reason(
    search: PlanSearch,
    candidate: Candidate,
    rule: Rule | None,
    shortage: MemoryShortage | None,
) -> str:
    if candidate.ruled_out is not None:
        return candidate.reason + (f": {shortage}" if shortage is not None else "")
    if rule is None:
        return _winning_reason(search, candidate)
    if rule is Rule.SCHEDULES_MEMORY and shortage is not None:
        return (
            f"no allowed schedule fits the memory: under {shortage.schedule} {shortage}"
        )
    if rule in {Rule.NO_SCHEDULE, Rule.NOT_APPLICABLE, Rule.SCHEDULES_MEMORY}:
        failures = (
            f"{failed.name}: {failed.reason}" for failed in candidate.step.failures[:3]
        )
        return f"no schedule: {candidate.reason or '; '.join(failures) or 'none found that fits'}"
    return f"{_reaches(candidate)}; {_may_reach(search, candidate, rule)}"


def _reaches(candidate: Candidate) -> str:
    if candidate.step.reached is None:
        return "not scheduled"
    return f"reaches {candidate.low:.6g} samples/s by {candidate.step.method}"


def _may_reach(search: PlanSearch, candidate: Candidate, rule: Rule) -> str:
    if rule is Rule.LIMIT:
        is_proved = (
            search.winner is not None and candidate.split_high <= search.winner.low
        )
        proof = "proved for this split; another one " if is_proved else ""
        return f"{proof}may reach {candidate.high:.6g}"
    if candidate.is_final:
        return "no other schedule is allowed"
    how = f"proved: at most {candidate.high:.6g} samples/s"
    if candidate.level is Level.ENUMERATED or candidate.is_searched:
        how += ", whatever the split"
    if search.winner is not None and candidate.high > search.winner.low:
        how += ", within the gap asked for"
    return how


def _winning_reason(search: PlanSearch, winner: Candidate) -> str:
    rivals = [c for c in search.candidates if c is not winner and c.ruled_out is None]
    undecided = [c for c in rivals if _may_win(search, c)]
    if any(c.split_high > winner.low for c in undecided):
        highest = max(c.high for c in undecided)
        return f"best found; {len(undecided)} others may reach up to {highest:.6g} samples/s"
    by_split = [c for c in (winner, *undecided) if _is_rest_open(search, c)]
    if by_split:
        excess = max(c.rest_high for c in by_split) / winner.low - 1
        return (
            f"proved for the splits found; other splits, of {len(by_split)} configurations, may be "
            f"better by at most {math.ceil(excess * 1e4) / 100:.2f} %"
        )
    if any(c.high > winner.low for c in rivals):
        return "proved: no other configuration is better by more than the gap asked for"
    return "proved: no other configuration has a higher goodput"


def _counts(
    rows: list[PlanRow], space: ConfigurationSpace, search: PlanSearch
) -> PlanCounts:
    levels = [candidate.level for candidate in search.candidates]
    decided = Counter(row.lost_by for row in rows if row.verdict is Verdict.LOST)
    if search.winner is not None:
        decided[RULE_OF_LEVEL[max(search.winner.level, Level.MEASURED)]] += 1
    return PlanCounts(
        enumerated=len(rows),
        not_formed=space.not_formed,
        pruned_by_memory=decided[Rule.MEMORY],
        schedules_memory=decided[Rule.SCHEDULES_MEMORY],
        pruned_by_bound=decided[Rule.BOUND],
        measured=decided[Rule.MEASURED] + decided[Rule.ALLOWED],
        solved=decided[Rule.SOLVED],
        not_applicable=decided[Rule.NOT_APPLICABLE],
        undecided=sum(row.verdict is Verdict.OPEN for row in rows),
        heuristic_runs=sum(
            c.level >= Level.MEASURED or c.step.reached is not None
            for c in search.candidates
        ),
        exact_runs=levels.count(Level.SOLVED),
    )


def exceeds_memory(entry: HeuristicEntry) -> bool:
    """Whether a heuristic made no schedule because of the memory."""
    return entry.broken is not None and entry.broken.rule == "memory"


def shortage_of(
    builder: PipelineBuilder, candidate: Candidate
) -> MemoryShortage | None:
    """Return the memory that a candidate lacks which was ruled out or has no schedule.

    It is the memory of what ruled it out: the states with one micro-batch, or with those in flight
    under the orders of a runtime; else of the allowed schedule that comes closest. None where the
    candidate is not known to lack memory.

    `builder`: that of the candidate's profile.
    """
    capacity = builder.capacity
    if capacity is None or candidate.step.reached is not None:
        return None
    c, schedule = candidate.configuration, None
    device: int | None
    needed: Fraction | float | None
    is_by_orders = builder.runtime is not None
    if candidate.ruled_out is Rule.MEMORY and (
        candidate.boundaries is None or is_by_orders
    ):
        device, needed = candidate.fullest, candidate.needed
        if device is None:
            device = builder.fullest_device(
                c.microbatch_size, builder.stage_to_device(c)
            )
        # A bound that is no proof by itself is no reason.
        if needed is not None and needed <= capacity:
            needed = None
    elif candidate.ruled_out is Rule.MEMORY:
        held = _held(builder, c, candidate.boundaries or ())
        device, needed = max(enumerate(held), key=lambda pair: pair[1])
    else:
        peaks = [
            (e.peak_memory, e.name)
            for e in candidate.step.failures
            if exceeds_memory(e)
        ]
        overruns = [
            (max(peak.values()), list(peak.values()), name)
            for peak, name in peaks
            if peak
        ]
        if not overruns:
            return None
        needed, values, schedule = min(overruns)
        device = values.index(needed)
    return MemoryShortage(
        device=device,
        needed=None if needed is None else float(needed),
        available=float(builder.request.cluster.memory or 0),
        schedule=schedule,
        may_help=tuple(
            _remedies(builder, c, float((needed or capacity) / capacity), schedule)
        ),
    )


def _held(
    builder: PipelineBuilder, c: Configuration, boundaries: Boundaries
) -> list[Fraction]:
    # Bytes that each device needs for its states and one micro-batch.
    held = [Fraction(0)] * c.pipeline_depth
    layers = builder.layers(c.microbatch_size).held
    for device, (first, last) in zip(
        builder.stage_to_device(c), pairwise(boundaries), strict=True
    ):
        held[device] += sum(layers[first:last])
    return held


def _remedies(
    builder: PipelineBuilder, c: Configuration, excess: float, schedule: str | None
) -> Iterator[str]:
    # Each leaves room for the states and one micro-batch, as far as sums over devices can tell.
    model, cluster = builder.request.model, builder.request.cluster
    size, depth, lack = c.microbatch_size, c.pipeline_depth, builder.lack_of_memory
    if schedule is not None:
        yield "a schedule with fewer micro-batches in flight"
    sizes = [s for s in model.microbatch_sizes if s < size and lack(s, depth) is None]
    if sizes:
        yield f"micro-batch size {max(sizes)}"
    deepest = min(cluster.devices, model.num_layers) if schedule is None else 0
    deeper = (depth << power for power in range(1, deepest.bit_length()))
    fitting = [d for d in deeper if d <= deepest and lack(size, d) is None]
    if fitting:
        yield f"a pipeline of {fitting[0]} devices"
    if model.recompute != "full" and lack(size, depth, states_only=True) is None:
        yield "recomputation"
    share = 2 ** max(1, math.ceil(math.log2(excess)))
    if cluster.devices_per_node % share == 0 and depth * share <= cluster.devices:
        yield f"tensor parallelism {c.tensor_parallel * share}"
