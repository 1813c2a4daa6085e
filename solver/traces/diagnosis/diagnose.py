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
from ppsolve.solver.traces.diagnosis.passes import verdicts_of
from ppsolve.solver.traces.diagnosis.steps import (
    Searches,
    Step,
    Variant,
    held_by,
    steps_of,
)
from ppsolve.solver.traces.diagnosis.verdict import Diagnosis, Help, StepVerdict
from ppsolve.solver.traces.fits import fit

TIME_LIMIT = 45.0
"""Wall seconds of a diagnosis by default. The 16 steps of 32 replicas of the straggler study's SE
trace take 20 s of processor time until all orders are proved and no exchange gets better, what
would help 17 s, and kernels that no cache holds 20 s on one of two processors."""

WORK_SHARE = 0.95
"""Part of the time limit in which all is computed; the rest is for loading and printing. With
all of it the 512 replica-steps of SE took 0.14 s longer than a limit of 54 s."""


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
    verdicts = verdicts_of(steps, recorded, searches, clock)
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
