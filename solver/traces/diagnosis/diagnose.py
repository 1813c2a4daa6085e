"""The verdict on a recorded run: how far from optimal it was, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ppsolve.models.documents.errors import InputError
from ppsolve.models.trace.layers import Layers
from ppsolve.models.trace.table import Trace
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.compilation import answering_within
from ppsolve.solver.traces.diagnosis.bubble import Transfers, bubble_of
from ppsolve.solver.traces.diagnosis.helps import recorded_helps, searched_help, variants
from ppsolve.solver.traces.diagnosis.passes import verdicts_of
from ppsolve.solver.traces.diagnosis.resplit import other_split, refuse_other_stages
from ppsolve.solver.traces.diagnosis.steps import (
    DiagnosedStep,
    Searches,
    Variant,
    held_by,
    steps_of,
)
from ppsolve.solver.traces.diagnosis.verdict import Diagnosis, Help, StepVerdict

TIME_LIMIT = 45.0
"""Wall seconds of a diagnosis by default. The 16 steps of 32 replicas of the straggler study's SE
trace take 20 s of processor time until all orders are proved and no exchange gets better, what
would help 17 s, and kernels that no cache holds 20 s on one of two processors."""

WORK_SHARE = 0.95
"""Part of the time limit in which all is computed; the rest is for loading and printing. With
all of it the 512 replica-steps of SE took 0.14 s longer than a limit of 54 s."""


def diagnose(
    trace: Trace,
    time_limit: float = TIME_LIMIT,
    began: float | None = None,
    *,
    capacity: Sequence[int] | None = None,
    layers: Layers | None = None,
) -> Diagnosis:
    """Return the verdict on a recorded run.

    Parameters
    ----------
    trace : Trace
        A checked trace.
    time_limit : float
        Wall seconds, shared by the steps; what there is no time for is said to be not computed.
    began : float, optional
        Moment of `time.monotonic` from which the time counts; now by default.
    capacity : sequence of int, optional
        Activations that each device has room for, or one number for all; as many as it held at
        once by default.
    layers : Layers, optional
        Times of layers, for another split of them.

    Returns
    -------
    Diagnosis
        Of all steps and replicas.

    Raises
    ------
    InputError
        A recorded order is impossible or held more than the capacity, or layers are of other
        stages.
    """
    clock = Clock(WORK_SHARE * time_limit, began=began)
    with answering_within(clock.left):
        steps = steps_of(trace)
        recorded = recorded_variant(steps, capacity)
        if layers is not None:
            refuse_other_stages(steps, layers)
        return _diagnosed(trace, steps, recorded, layers, clock)


def _diagnosed(
    trace: Trace, steps: list[DiagnosedStep], recorded: Variant, layers: Layers | None, clock: Clock
) -> Diagnosis:
    bubble = bubble_of(steps, recorded, Transfers.of(trace))
    searches = Searches()
    verdicts = verdicts_of(steps, recorded, searches, clock)
    helps = _helps(steps, verdicts, recorded, searches, clock)
    if layers is not None:
        helps.append(other_split(steps, verdicts, layers))
    return Diagnosis(
        tuple(verdicts),
        tuple(helps),
        bubble,
        *_slowness(trace),
    )


def recorded_variant(
    steps: Sequence[DiagnosedStep], capacity: Sequence[int] | None = None
) -> Variant:
    """Return a run as it is: stages where they ran, memory as it was held or is given.

    Parameters
    ----------
    steps : sequence of DiagnosedStep
        Recorded steps.
    capacity : sequence of int, optional
        As for `diagnose`.

    Returns
    -------
    Variant
        Without any change.

    Raises
    ------
    InputError
        A device held more than its capacity, or the number of capacities is another one.
    """
    instance = steps[0].parts[0].instance
    placement: dict[str, Any] = {}
    (places,) = instance.stage_devices_of_pipes()
    if list(places) != list(range(instance.num_devices)):
        placement = {"placement": {"stage_to_device": list(places)}}
    held = tuple(held_by(steps))
    room = held if capacity is None else _room(held, capacity)
    return Variant("recorded", "", dict, room, placement)


def _room(held: Sequence[int], capacity: Sequence[int]) -> tuple[int, ...]:
    room = tuple(capacity) * (len(held) if len(capacity) == 1 else 1)
    if len(room) != len(held):
        text = f"expected one number or {len(held)}, one for each device, got {len(room)}"
        raise InputError(text, field="--capacity")
    for device, (had, has) in enumerate(zip(held, room, strict=True)):
        if had > has:
            text = f"expected at least {had} for device {device}, which held so many activations"
            raise InputError(f"{text} at once, got {has}", field="--capacity")
    return room


def _helps(
    steps: Sequence[DiagnosedStep],
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
