"""The verdict on a recorded run: how far from optimal it was, and what would help.

Orders and exchanges of all steps are searched: a search ends where it gains no more, or with its
time. Replays of what might have been say where the idle time of devices comes from.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.studies.trace.table import KINDS, Trace
from ppsolve.solver.bounds.exchange import exchange_bound
from ppsolve.solver.bounds.flow.flow import Paths
from ppsolve.solver.bounds.memory_time import memory_time
from ppsolve.solver.bounds.registry import flow_bounds
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.compilation import answering_within
from ppsolve.solver.studies.traces.diagnosis.changes import (
    changes_of,
    known_help,
    searched_help,
)
from ppsolve.solver.studies.traces.diagnosis.steps import (
    DIAGNOSIS,
    DiagnosedStep,
    Searches,
    Variant,
    held_by,
    replayed,
    steps_of,
)
from ppsolve.solver.studies.traces.diagnosis.verdict import (
    Diagnosis,
    Help,
    ReplicaVerdict,
    StepVerdict,
    mean_of,
)
from ppsolve.solver.studies.traces.fits import fit, one_way_of, op_table
from ppsolve.solver.studies.traces.replay import Recorded, least_span, median_instance


@dataclass(frozen=True)
class Transfers:
    """Times of transfers between devices."""

    latency: int  # nanoseconds of a transfer that was not recorded
    # dict of (int, int) to int64[kinds, stages, micro-batches]: nanoseconds of those that were, by
    # step and replica; `FREE` where there is none
    recorded: dict[tuple[int, int], IntArray]

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """Take the transfers of a trace, and half of its fastest round trips for all others."""
        tables = {}
        for step, replica, replica_step in trace.parts():
            if not np.all(replica_step.is_compute):
                rows = op_table(replica_step)
                tables[step, replica] = np.where(
                    rows == FREE, FREE, replica_step.duration[rows]
                )
        computes = [
            replica_step.where(replica_step.is_compute)
            for _, _, replica_step in trace.parts()
        ]
        return cls(max(0, round(one_way_of(computes) or 0)), tables)

    def lags(self, recorded: Recorded) -> IntArray:
        """Return the nanoseconds between ops that follow one another, int64[edges]."""
        problem, device = recorded.problem, recorded.part.device[recorded.row]
        sender = problem.before
        away = device[sender] != device[problem.after]
        lags = np.full(len(sender), self.latency, dtype=np.int64)
        table = self.recorded.get(
            (int(recorded.part.step[0]), int(recorded.part.replica[0]))
        )
        if table is not None:
            is_forward = problem.kind[sender] == problem.kinds.index("F")
            kind = np.where(is_forward, KINDS.index("TF"), KINDS.index("TB"))
            times = table[kind, problem.stage[sender], problem.microbatch[sender]]
            lags = np.where(times == FREE, lags, times)
        return np.where(away, lags, 0)


def bubble_of(
    steps: Sequence[DiagnosedStep], variant: Variant, transfers: Transfers
) -> dict[str, float]:
    """Return the mean idle time of a device of the slowest replica of each step, in parts.

    Each part is the difference between two runs of the recorded order, the second of which lacks
    one reason to wait: as recorded; replayed with transfers; with none (transfers); every
    micro-batch as long as the mean of its stage and kind (unequal); every stage as long as the mean
    of all (imbalance); the least that any order of those takes in the memory that there is (order),
    and in any (memory); the mean work of a device (fill and drain). A run counts as no longer than
    those before it: where nothing is gained by taking a reason away, its part is 0 and the next one
    counts for both. Parts are nanoseconds, none negative; their sum is recorded span - mean work.

    `variant`: the run as it is.
    """
    slowest = [max(step.parts, key=lambda recorded: recorded.span) for step in steps]
    runs = [_runs(recorded, variant, transfers.lags(recorded)) for recorded in slowest]
    shortest = np.minimum.accumulate(runs, axis=1)
    amounts = (shortest[:, :-1] - shortest[:, 1:]).mean(axis=0)
    return dict(reversed(list(zip(PARTS, amounts.tolist(), strict=True))))


PARTS = (
    "unexplained",
    "transfers",
    "unequal",
    "imbalance",
    "order",
    "memory",
    "fill and drain",
)
"""Parts of the idle time, in the order in which they are taken away."""


def _runs(recorded: Recorded, variant: Variant, lags: IntArray) -> list[float]:
    duration = recorded.problem.duration
    stages = _means(duration, recorded.problem.kind, recorded.problem.stage)
    evened = _means(stages, recorded.problem.kind)
    lengths = np.zeros_like(evened)
    lengths[recorded.row] = evened
    trace = replace(recorded.part, start=np.zeros_like(lengths), end=lengths)
    bound = least_span(trace)
    (flow,) = variant.flows(
        DiagnosedStep(0, (0,), (Recorded.of(trace, "ns"),)), is_free=False
    )
    replays = (
        replayed(recorded, duration, lags),
        *(replayed(recorded, d) for d in (duration, stages, evened)),
    )
    bounds = max(bound, memory_time(Paths(flow))), bound
    return [
        recorded.span,
        *replays,
        *bounds,
        float(duration.sum()) / recorded.instance.num_devices,
    ]


def _means(duration: IntArray, *keys: IntArray) -> IntArray:
    """Return durations with the mean of all ops with the same keys in place of each."""
    _, group = np.unique(np.stack(keys), axis=1, return_inverse=True)
    group = group.ravel()
    means = np.bincount(group, weights=duration) / np.bincount(group)
    return np.rint(means[group]).astype(np.int64)


TIME_LIMIT = 45.0
"""Wall seconds of a diagnosis by default: enough for the straggler study's SE trace, 16 steps of 32
replicas, on one of two processors."""


def diagnose(
    trace: Trace,
    time_limit: float = TIME_LIMIT,
    began: float | None = None,
    *,
    capacity: Sequence[int] | None = None,
) -> Diagnosis:
    """Return the verdict on a recorded run, over all steps and replicas.

    Raises `InputError` where a recorded order is impossible or held more than the capacity.

    `time_limit`: wall seconds, shared by the steps; what there is no time for is said to be not
        computed.
    `began`: moment of `time.monotonic` from which the time counts; now by default.
    `capacity`: activations that each device has room for, or one number for all; as many as it held
        at once by default.
    """
    clock = Clock(DIAGNOSIS.work_share * time_limit, began=began)
    with answering_within(clock.left):
        steps = steps_of(trace)
        recorded = recorded_variant(steps, capacity)
        bubble = bubble_of(steps, recorded, Transfers.of(trace))
        searches = Searches()
        verdicts = _verdicts_of(steps, recorded, searches, clock)
        helps = _helps(steps, verdicts, recorded, searches, clock)
        return Diagnosis(tuple(verdicts), tuple(helps), bubble, *_slowness(trace))


def recorded_variant(
    steps: Sequence[DiagnosedStep], capacity: Sequence[int] | None = None
) -> Variant:
    """Return a run as it is: stages where they ran, memory as it was held or is given.

    Raises `InputError` where a device held more than its capacity, or the number of capacities is
    another one.
    """
    instance = steps[0].parts[0].instance
    placement: dict[str, Any] = {}
    (devices,) = instance.stage_devices_of_pipes()
    if list(devices) != list(range(instance.num_devices)):
        placement = {"placement": {"stage_to_device": list(devices)}}
    held = tuple(held_by(steps))
    room = held if capacity is None else _room(held, capacity)
    return Variant("recorded", "", dict, room, placement)


def _room(held: Sequence[int], capacity: Sequence[int]) -> tuple[int, ...]:
    room = tuple(capacity) * (len(held) if len(capacity) == 1 else 1)
    if len(room) != len(held):
        text = (
            f"expected one number or {len(held)}, one for each device, got {len(room)}"
        )
        raise InputError(text, field="--capacity", code=ErrorCode.LENGTH)
    for device, (had, has) in enumerate(zip(held, room, strict=True)):
        if had > has:
            text = f"expected at least {had} for device {device}, which held so many activations"
            raise InputError(
                f"{text} at once, got {has}", field="--capacity", code=ErrorCode.RANGE
            )
    return room


def _helps(
    steps: Sequence[DiagnosedStep],
    verdicts: Sequence[StepVerdict],
    recorded: Variant,
    searches: Searches,
    clock: Clock,
) -> list[Help]:
    changes = list(changes_of(steps, recorded))
    searched = [
        change
        for change in changes
        if isinstance(change, Variant) and change.is_searched
    ]
    gain = {change.name: _potential(change, steps, verdicts) for change in searched}
    # The most promising change comes first; what is more than each needs is shared by promise.
    searched.sort(key=lambda change: -gain[change.name])
    answers: dict[str, Help] = {}
    for number, change in enumerate(searched):
        pending, minimum = searched[number:], searches.seconds_of_change
        spare = max(0.0, clock.left - len(pending) * minimum)
        promised = sum(gain[candidate.name] for candidate in pending)
        weight = gain[change.name] / promised if promised else 1 / len(pending)
        share = clock.share(clock.part_for(minimum + spare * weight))
        answers[change.name] = searched_help(change, steps, verdicts, searches, share)
    return [
        change
        if isinstance(change, Help)
        else known_help(change, steps, verdicts) or answers[change.name]
        for change in changes
    ]


def _potential(
    change: Variant, steps: Sequence[DiagnosedStep], verdicts: Sequence[StepVerdict]
) -> float:
    """Return the largest share of the best orders that a change could save."""
    bound = mean_of(change.least(step) for step in steps)
    return max(
        0.0, 1 - bound / max(1.0, mean_of(verdict.ordered for verdict in verdicts))
    )


def _slowness(trace: Trace) -> tuple[tuple[tuple[float, ...], ...], tuple[int, ...]]:
    """Return mean times of a micro-batch by stage and replica over their mean, and the replicas."""
    compute = trace.where(trace.is_compute)
    replicas, column = np.unique(compute.replica, return_inverse=True)
    shape = (int(compute.stage.max()) + 1, len(replicas))
    cell = compute.stage * shape[1] + column.ravel()
    total = np.bincount(cell, weights=compute.duration, minlength=shape[0] * shape[1])
    forwards = np.bincount(cell[compute.kind == 0], minlength=shape[0] * shape[1])
    mean = (total / np.maximum(forwards, 1)).reshape(shape)
    scaled = mean / max(float(mean.mean()), 1.0)
    return tuple(tuple(row) for row in scaled.tolist()), tuple(replicas.tolist())


class StepInProgress:
    """What is known of one step: the best found, bounds, and searches that time cut off.

    `variant`: the run as it is.
    """

    def __init__(self, step: DiagnosedStep, variant: Variant) -> None:
        self.step, self._variant = step, variant
        self._bounds = [least_span(recorded.part) for recorded in step.parts]
        self._ordered = list(step.replays)
        self._bound = self._least = max(self._bounds)
        self._exchanged = max(step.replays)
        self.unfinished = {False}
        if len(step.parts) > 1:
            self.unfinished = {False, True}
            (flow,) = variant.flows(step, is_free=True)
            self._least = exchange_bound(
                flow, len(step.counts), equal=len(set(step.counts)) == 1
            )

    @property
    def gap(self) -> float:
        """Share by which the best that was found for an unfinished search is above its bound."""
        if False in self.unfinished:
            return max(self._ordered) / max(self._bound, 1) - 1
        return self._exchanged / max(self._least, 1) - 1

    def search(
        self, searches: Searches, clock: Clock, *, is_free: bool, seed: int
    ) -> None:
        """Search until nothing better is found for long, or the clock is over.

        `searches`: searches that are kept between steps.
        `clock`: that of the search; a search that it cuts off stays in `unfinished`.
        `is_free`: micro-batches may be exchanged between replicas.
        `seed`: seed of the random numbers, from 1.
        """
        seconds, patience = clock.left, DIAGNOSIS.patience
        if seconds <= 0:
            return
        answer = searches.answer(
            self._variant, self.step, is_free=is_free, seconds=seconds, seed=seed
        )
        if answer is None:
            self.unfinished.discard(is_free)
            return
        is_patient = patience <= answer.seconds < seconds - patience
        if is_patient or answer.status is Status.OPTIMAL:
            self.unfinished.discard(is_free)
        if is_free:
            self._exchanged = min(self._exchanged, int(answer.makespan))
            self._least = max(self._least, int(answer.bound))
        else:
            self._ordered = list(
                map(min, self._ordered, _spans(self.step, answer.schedule))
            )
            self._bound = max(self._bound, int(answer.bound))

    def bound_replicas(self, clock: Clock) -> None:
        """Bound the span of every replica; what the clock leaves no time for is weaker only."""
        flows = self._variant.flows(self.step, is_free=False)
        searched = [flow_bounds(flow, clock)[0].value for flow in flows]
        self._bounds = list(map(max, self._bounds, searched))
        self._bound = max(self._bound, *self._bounds)

    @property
    def verdict(self) -> StepVerdict:
        """The verdict as far as it is known, nanoseconds."""
        ordered, bounds, longest = self._ordered, list(self._bounds), max(self._ordered)
        has_one = len(ordered) == 1
        # The recorded assignment is one of all, so that no order of it beats their bound.
        bound = self._bound if has_one else max(self._bound, self._least)
        if bound == longest and ordered.count(longest) == 1:
            # The bound of the step is met by one replica alone, so it is a bound of that replica.
            bounds[ordered.index(longest)] = bound
        rows = zip(self.step.replicas, self.step.parts, ordered, bounds, strict=True)
        return StepVerdict(
            self.step.number,
            tuple(
                ReplicaVerdict(replica, recorded.span, recorded.replayed, value, floor)
                for replica, recorded, value, floor in rows
            ),
            self.step.counts,
            bound,
            longest if has_one else min(self._exchanged, longest),
            bound if has_one else self._least,
        )


def _verdicts_of(
    steps: Sequence[DiagnosedStep], variant: Variant, searches: Searches, clock: Clock
) -> list[StepVerdict]:
    """Return the verdict of every step; of those that are alike one is searched.

    Every step has its share of the time; what some do not need goes to those that were cut off,
    largest gap first, then to bounds of all replicas.
    """
    # Else the first step pays for it with all its share, and its exchange has no time.
    for is_free in (False, True):
        if not clock.is_over and (len(steps[0].parts) > 1 or not is_free):
            searches.prepare(variant, steps[0], is_free=is_free)
    changes = DIAGNOSIS.changes * searches.seconds_of_change
    remainder = max(DIAGNOSIS.least_steps_share, 1 - changes / max(changes, clock.left))
    clock = clock.share(min(DIAGNOSIS.steps_share, remainder))
    alike: dict[Hashable, DiagnosedStep] = {}
    for step in steps:
        alike.setdefault(step.key, step)
    runs: list[StepInProgress] = []
    for number, step in enumerate(alike.values()):
        share = clock.share(1 / (len(alike) - number))
        run = StepInProgress(step, variant)
        runs.append(run)
        for is_free in sorted(run.unfinished):
            budget = share if is_free or len(run.unfinished) == 1 else share.share(0.5)
            run.search(searches, budget, is_free=is_free, seed=1)
    cut = sorted((run for run in runs if run.unfinished), key=lambda run: -run.gap)
    jobs = [(run, is_free) for run in cut for is_free in sorted(run.unfinished)]
    for number, (run, is_free) in enumerate(jobs):
        run.search(
            searches, clock.share(1 / (len(jobs) - number)), is_free=is_free, seed=2
        )
    for number, run in enumerate(runs):
        if not clock.is_over:
            run.bound_replicas(clock.share(1 / (len(runs) - number)))
    verdicts = {run.step.key: run.verdict for run in runs}
    return [replace(verdicts[step.key], step=step.number) for step in steps]


def _spans(step: DiagnosedStep, schedule: Any) -> list[int]:
    problem = schedule.problem
    finishes = schedule.start + problem.duration
    replicas = (problem.replica == replica for replica in range(len(step.parts)))
    return [int(finishes[mine].max() - schedule.start[mine].min()) for mine in replicas]


def changed_instance(
    trace: Trace,
    change: str,
    name: str = "trace",
    capacity: Sequence[int] | None = None,
) -> PipelineInstance:
    """Return the median step of a run with a change, in the memory that `diagnose` assumes.

    To exchange micro-batches is about single ones: for it the instance is the recorded step of the
    median replay, with all replicas. The `description` of the instance says what is assumed. Raises
    `InputError` for an unknown change, or one that means nothing in this run.

    `name`: name of the instance.
    """
    steps = steps_of(trace)
    recorded = recorded_variant(steps, capacity)
    changes = changes_of(steps, recorded)
    by_name = {
        entry.change if isinstance(entry, Help) else entry.name: entry
        for entry in changes
    }
    key = change.replace("-", " ")
    if key not in by_name:
        raise InputError.unknown("unknown change", change, by_name, field="--change")
    variant = by_name[key]
    if isinstance(variant, Help):
        raise InputError(
            f"{key} means nothing here: {variant.assumes}",
            field="--change",
            code=ErrorCode.CONFLICT,
        )
    if variant.name == "exchange":
        by_replay = sorted(steps, key=lambda step: max(step.replays))
        return variant.pipeline(by_replay[(len(steps) - 1) // 2], is_free=True)
    memory = {"capacity": list(variant.capacity), "activation": 1}
    about = f"{variant.name}: {variant.assumes}; medians of the recorded steps"
    fits = fit(trace)
    return median_instance(
        trace,
        fits,
        name,
        variant.times,
        memory=memory,
        description=about,
        **variant.placement,
    )
