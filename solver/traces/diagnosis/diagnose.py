"""The verdict on a recorded run: how far from optimal it was, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ppsolve.models.trace.table import Trace
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.compilation import answering_within
from ppsolve.solver.traces.diagnosis.bubble import bubble_of
from ppsolve.solver.traces.diagnosis.helps import recorded_helps, searched_help, variants
from ppsolve.solver.traces.diagnosis.steps import (
    Searches,
    Step,
    Variant,
    exchanged_bound,
    held_by,
    replica_bounds,
    steps_of,
)
from ppsolve.solver.traces.diagnosis.verdict import Diagnosis, Help, ReplicaVerdict, StepVerdict
from ppsolve.solver.traces.fits import fit

TIME_LIMIT = 60.0
"""Wall seconds of a diagnosis by default: what the 16 steps of 32 replicas of the straggler study's
SE trace may take."""

WORK_SHARE = 0.95
"""Part of the time limit in which all is computed; the rest is for loading and printing. With
all of it the 512 replica-steps of SE took 0.14 s longer than a limit of 54 s."""

STEPS_SHARE = 0.75
"""Part of the time for the steps themselves; the rest is for what would help."""

MOST_SECONDS = 1.5
"""Most seconds for the search of one step, in which the 16 steps of SE are each proved in under
0.8 s when 1 s is given; with 0.3 s the mean of their orders is 8.093 s in place of 8.006 s."""


def diagnose(trace: Trace, time_limit: float = TIME_LIMIT, began: float | None = None) -> Diagnosis:
    """Return the verdict on a recorded run.

    Parameters
    ----------
    trace : Trace
        A checked trace.
    time_limit : float
        Wall seconds, shared by the steps; what there is no time for is said to be not computed.
    began : float, optional
        Moment of `time.monotonic` from which the time counts; now by default.

    Returns
    -------
    Diagnosis
        Of all steps and replicas.

    Raises
    ------
    InputError
        A recorded order is impossible.
    """
    clock = Clock(WORK_SHARE * time_limit, began=began)
    with answering_within(clock.left):
        return _diagnosed(trace, clock)


def _diagnosed(trace: Trace, clock: Clock) -> Diagnosis:
    steps = steps_of(trace)
    bubble = bubble_of(steps, _latency(trace))
    recorded = recorded_variant(steps)
    searches = Searches()
    verdicts = _verdicts(steps, recorded, searches, clock.share(STEPS_SHARE))
    return Diagnosis(
        tuple(verdicts),
        tuple(_helps(steps, verdicts, recorded, searches, clock)),
        bubble,
        *_slowness(trace),
    )


def recorded_variant(steps: Sequence[Step]) -> Variant:
    """Return a run as it is: stages where they ran, memory as it was held."""
    instance = steps[0].parts[0].instance
    placement: dict[str, Any] = {}
    (places,) = instance.stage_devices_of_pipes()
    if list(places) != list(range(instance.num_devices)):
        placement = {"placement": {"stage_to_device": list(places)}}
    return Variant("recorded", "", dict, tuple(held_by(steps)), placement)


def _verdicts(
    steps: Sequence[Step], variant: Variant, searches: Searches, clock: Clock
) -> list[StepVerdict]:
    """Return the verdict of every step, each with its share of the time that is left."""
    found = []
    # Else the first step pays for it with all its share, and its exchange has no time.
    for is_free in (False, True):
        if not clock.is_over and (len(steps[0].parts) > 1 or not is_free):
            searches.prepare(variant, steps[0], is_free=is_free)
    for number, step in enumerate(steps):
        share = clock.share(1 / (len(steps) - number))
        found.append(_verdict(step, variant, searches, share))
    return found


def _verdict(step: Step, variant: Variant, searches: Searches, clock: Clock) -> StepVerdict:
    bounds = replica_bounds(variant, step, clock.share(0.2))
    ordered, bound = list(step.replays), max(bounds)
    if not clock.is_over:
        seconds = min(MOST_SECONDS, clock.left / 2)
        answer = searches.answer(variant, step, is_free=False, seconds=seconds)
        if answer is not None:
            ends = _ends(step, answer.schedule)
            ordered = list(map(min, ordered, ends))
            bound = max(bound, int(answer.bound))
    longest = max(ordered)
    exchanged, least = _exchanged(step, variant, searches, clock, longest, bound)
    # The recorded assignment is one of all, so that no order of it beats their bound.
    bound = max(bound, least)
    if bound == longest and ordered.count(longest) == 1:
        # The bound of the step is met by one replica alone, so it is a bound of that replica.
        bounds[ordered.index(longest)] = bound
    return StepVerdict(
        step.number,
        tuple(
            ReplicaVerdict(replica, one.span, one.replayed, value, least)
            for replica, one, value, least in zip(
                step.replicas, step.parts, ordered, bounds, strict=True
            )
        ),
        bound,
        exchanged,
        least,
    )


def _ends(step: Step, schedule: Any) -> list[int]:
    """Return the span of each replica of a joint schedule, ticks of a nanosecond."""
    problem = schedule.problem
    ends = schedule.start + problem.duration
    replicas = range(len(step.parts))
    return [
        int(ends[mine].max() - schedule.start[mine].min())
        for mine in (problem.replica == replica for replica in replicas)
    ]


def _exchanged(
    step: Step, variant: Variant, searches: Searches, clock: Clock, ordered: int, bound: int
) -> tuple[int, int]:
    """Return value and bound of a step whose micro-batches are exchanged, nanoseconds."""
    if len(step.parts) == 1:
        return ordered, bound
    least = exchanged_bound(variant, step)
    if clock.is_over:
        return ordered, least
    seconds = min(MOST_SECONDS, clock.left)
    answer = searches.answer(variant, step, is_free=True, seconds=seconds)
    if answer is None:
        return ordered, least
    return min(ordered, int(answer.makespan)), max(least, int(answer.bound))


def _helps(
    steps: Sequence[Step],
    verdicts: Sequence[StepVerdict],
    recorded: Variant,
    searches: Searches,
    clock: Clock,
) -> list[Help]:
    found = list(recorded_helps(steps, verdicts))
    instance = steps[0].parts[0].instance
    changes = list(variants(recorded, chunks=instance.num_stages // instance.num_devices))
    for number, change in enumerate(changes):
        if isinstance(change, Help):
            found.append(change)
        elif change.name == "split backward" and instance.times.is_split:
            found.append(Help(change.name, "it is split already"))
        else:
            share = clock.share(1 / (len(changes) - number))
            found.append(searched_help(change, steps, verdicts, searches, share))
    return found


def _latency(trace: Trace) -> int:
    """Return nanoseconds of a transfer as fitted, 0 where a trace tells nothing of them."""
    transfer = fit(trace).transfer
    return 0 if transfer is None else round(transfer.latency)


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
