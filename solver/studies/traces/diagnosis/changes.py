"""What would help a recorded run: changes, each with what the steps would take."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.studies.trace.table import KINDS
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.replicas.step import StepAnswer
from ppsolve.solver.studies.traces.diagnosis.steps import (
    DIAGNOSIS,
    DiagnosedStep,
    Searches,
    Times,
    Variant,
    replayed,
)
from ppsolve.solver.studies.traces.diagnosis.verdict import Help, StepVerdict, mean_of
from ppsolve.solver.studies.traces.replay import FIELDS, Recorded


def recorded_helps(
    steps: Sequence[DiagnosedStep], verdicts: Sequence[StepVerdict], recorded: Variant
) -> Iterator[Help]:
    """Yield the changes that need no further search.

    Parameters
    ----------
    steps : sequence of DiagnosedStep
        Recorded steps.
    verdicts : sequence of StepVerdict
        Their verdicts.
    recorded : Variant
        The run as it is.

    Yields
    ------
    Help
        Another order, exchange, an even split, less work for the slow device.
    """
    replay = _means(verdicts, "replay")
    numbers = tuple(one.step for one in verdicts)
    value, bound = _means(verdicts, "ordered"), _means(verdicts, "ordered_bound")
    text = "the best order of the micro-batches of each replica, in the memory that devices have"
    yield Help("reorder", text, value, bound, replay, numbers)
    if max(len(step.parts) for step in steps) == 1:
        yield Help("exchange", "there is one replica")
    else:
        value, bound = _means(verdicts, "exchanged"), _means(verdicts, "exchanged_bound")
        text = "a micro-batch takes as long on any replica, and may be moved"
        yield Help("exchange", text, value, bound, replay, numbers)
    if max(one.instance.num_devices for step in steps for one in step.parts) == 1:
        yield Help("even split", "there is one device")
        yield Help("relieve slow device", "there is one device")
        return
    for change in resplits(steps, recorded):
        value = _mean(steps, change.times)
        yield Help(change.name, f"recorded order; {change.assumes}", value, None, replay, numbers)


def resplits(steps: Sequence[DiagnosedStep], recorded: Variant) -> Iterator[Variant]:
    """Yield the other splits of the layers: even, and with less work for the slowest device.

    Parameters
    ----------
    steps : sequence of DiagnosedStep
        Recorded steps.
    recorded : Variant
        The run as it is.

    Yields
    ------
    Variant
        The run with another split.
    """
    parts = [one.part for step in steps for one in step.parts]
    devices, durations = ([getattr(one, name) for one in parts] for name in ("device", "duration"))
    slow = int(np.argmax(np.bincount(np.concatenate(devices), np.concatenate(durations))))
    places = recorded.devices(int(parts[0].stage.max()) + 1)
    text = "each micro-batch takes as long on every stage, the same in total"
    yield replace(recorded, name="even split", assumes=text, times=_even)
    text = f"device {slow} works as long as the mean, the others take over the rest"
    relief = partial(_relieved, places=places, slow=slow)
    yield replace(recorded, name="relieve slow device", assumes=text, times=relief)


def _means(verdicts: Sequence[StepVerdict], figure: str) -> float:
    return mean_of(getattr(one, figure) for one in verdicts)


def _mean(steps: Sequence[DiagnosedStep], change: Callable[[Times], Times]) -> float:
    return mean_of(max(_replayed(one, change) for one in step.parts) for step in steps)


def _replayed(one: Recorded, change: Callable[[Times], Times]) -> int:
    duration = one.problem.duration.copy()
    ops = {FIELDS[KINDS.index(kind)]: one.problem.grid(kind) for kind in one.problem.kinds}
    for name, lengths in change({name: duration[grid] for name, grid in ops.items()}).items():
        duration[ops[name]] = lengths
    return replayed(one, duration)


def _even(times: Times) -> Times:
    """Return times, each the mean over the stages for its kind and micro-batch."""
    means = {name: np.rint(table.mean(axis=0)).astype(np.int64) for name, table in times.items()}
    return {name: np.broadcast_to(means[name], table.shape) for name, table in times.items()}


def _relieved(times: Times, places: IntArray, slow: int) -> Times:
    """Return times with the work of a device that is above the mean spread over the others."""
    work = sum(table.sum(axis=1) for table in times.values())
    load = np.bincount(places, weights=work)
    excess = load[slow] - load.mean()
    if excess <= 0:
        return times
    factor = np.full(len(load), 1 + excess / (load.sum() - load[slow]))
    factor[slow] = load.mean() / load[slow]
    by_stage = factor[places][:, None]
    return {name: np.rint(table * by_stage).astype(np.int64) for name, table in times.items()}


def variants(recorded: Variant, *, chunks: int) -> Iterator[Variant | Help]:
    """Yield the changes that are searched, or why one means nothing here.

    Parameters
    ----------
    recorded : Variant
        The run as it is.
    chunks : int
        Stages of each device.

    Yields
    ------
    Variant or Help
        A split backward, more memory, more chunks.
    """
    capacity, placement = recorded.capacity, recorded.placement
    text = "half of a backward is the input gradient, half the weight gradient; memory as it is"
    yield Variant("split backward", text, _split, capacity, placement)
    more = tuple(count + 1 for count in capacity)
    text = "room for one more activation on every device"
    yield Variant("more memory", text, recorded.times, more, placement)
    if chunks > 1 or len(capacity) == 1:
        yield Help("more chunks", "it is for several devices with one stage each")
        return
    text = (
        "two stages of half the time on each device, interleaved; each has the most memory of any"
    )
    double = (2 * max(capacity),) * len(capacity)
    places = {"placement": "interleaved", "stages_per_device": 2}
    yield Variant("more chunks", text, _halved, double, places, has_recorded=False)


def _split(times: Times) -> Times:
    if "backward" not in times:
        return times
    half = times["backward"] // 2
    backward = times["backward"] - half
    return {"forward": times["forward"], "backward_input": half, "backward_weight": backward}


def _halved(times: Times) -> Times:
    """Return the times of twice as many stages, interleaved: stage s and s + p were stage s."""
    return {
        name: np.concatenate([table // 2, table - table // 2], axis=0)
        for name, table in times.items()
    }


def searched_help(
    variant: Variant,
    steps: Sequence[DiagnosedStep],
    verdicts: Sequence[StepVerdict],
    searches: Searches,
    clock: Clock,
) -> Help:
    """Return the times of steps with a change, of as many of them as there is time for.

    Parameters
    ----------
    variant : Variant
        The change.
    steps, verdicts : sequence of DiagnosedStep, of StepVerdict
        Recorded steps, those nearest to the mean come first, and their verdicts.
    searches : Searches
        Searches that are kept between steps.
    clock : Clock
        Clock of the change.

    Returns
    -------
    Help
        Over the steps that were searched; its `steps` name them.
    """
    mean = _means(verdicts, "replay")
    pairs = sorted(zip(steps, verdicts, strict=True), key=lambda pair: abs(pair[1].replay - mean))
    values: list[int] = []
    bounds: list[int] = []
    known: dict[Hashable, StepAnswer | None] = {}
    for step, verdict in pairs:
        if step.key not in known:
            # On a busy machine preparing takes longer.
            first = max(DIAGNOSIS.preparing, 2 * searches.preparing_seconds)
            if clock.left < (DIAGNOSIS.per_step if values else first):
                break
            seconds = DIAGNOSIS.per_step
            known[step.key] = searches.answer(variant, step, is_free=False, seconds=seconds)
        answer = known[step.key]
        if answer is None:
            return Help(variant.name, "no order was found that fits the memory")
        value = int(answer.makespan)
        values.append(min(value, verdict.ordered) if variant.has_recorded else value)
        bounds.append(int(answer.bound))
    if not values:
        return Help(variant.name, "the time limit left no time for it")
    done = [verdict for _, verdict in pairs[: len(values)]]
    return Help(
        variant.name,
        variant.assumes,
        mean_of(values),
        mean_of(bounds),
        _means(done, "replay"),
        tuple(sorted(verdict.step for verdict in done)),
    )
