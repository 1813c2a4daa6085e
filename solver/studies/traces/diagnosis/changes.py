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

FOUND = {"reorder": "ordered", "exchange": "exchanged"}
"""Figures of a step that say what a change takes."""


def known_help(
    change: Variant, steps: Sequence[DiagnosedStep], verdicts: Sequence[StepVerdict]
) -> Help | None:
    """Return the help of a change, with the mean of all steps; None if it needs a search."""
    if change.is_searched:
        return None
    about = _means(verdicts, "replay"), tuple(verdict.step for verdict in verdicts)
    if change.name in FOUND:
        figure = FOUND[change.name]
        value, bound = _means(verdicts, figure), _means(verdicts, f"{figure}_bound")
        return Help(change.name, change.assumes, value, bound, *about)
    value = mean_of(
        max(_replayed(recorded, change.times) for recorded in step.parts)
        for step in steps
    )
    return Help(change.name, f"recorded order; {change.assumes}", value, None, *about)


def changes_of(
    steps: Sequence[DiagnosedStep], recorded: Variant
) -> Iterator[Variant | Help]:
    """Yield all changes of a run, or why one means nothing here.

    They are another order, exchange, an even split, less work for the slow device, a split
    backward, more memory and more chunks.

    `recorded`: the run as it is.
    """
    base = replace(recorded, is_searched=False)
    text = "the best order of the micro-batches of each replica, in the memory that devices have"
    yield replace(base, name="reorder", assumes=text)
    if max(len(step.parts) for step in steps) == 1:
        yield Help("exchange", "there is one replica")
    else:
        text = "a micro-batch takes as long on any replica, and may be moved"
        yield replace(base, name="exchange", assumes=text)
    if len(recorded.capacity) == 1:
        yield Help("even split", "there is one device")
        yield Help("relieve slow device", "there is one device")
    else:
        yield from _resplits(steps, base)
    if steps[0].parts[0].instance.times.is_split:
        yield Help("split backward", "it is split already")
    else:
        text = "half of a backward is the input gradient, half the weight gradient; memory as it is"
        yield replace(recorded, name="split backward", assumes=text, times=_split)
    capacity = tuple(count + 1 for count in recorded.capacity)
    text = "room for one more activation on every device"
    yield replace(recorded, name="more memory", assumes=text, capacity=capacity)
    yield _more_chunks(steps[0].parts[0].instance.num_stages, recorded)


def _resplits(steps: Sequence[DiagnosedStep], base: Variant) -> Iterator[Variant]:
    traces = [recorded.part for step in steps for recorded in step.parts]
    devices, durations = (
        [getattr(trace, name) for trace in traces] for name in ("device", "duration")
    )
    slow = int(
        np.argmax(np.bincount(np.concatenate(devices), np.concatenate(durations)))
    )
    owners = base.devices(int(traces[0].stage.max()) + 1)
    text = "each micro-batch takes as long on every stage, the same in total"
    yield replace(base, name="even split", assumes=text, times=_even)
    text = f"device {slow} works as long as the mean, the others take over the rest"
    relief = partial(_relieved, owners=owners, slow=slow)
    yield replace(base, name="relieve slow device", assumes=text, times=relief)


def _more_chunks(stages: int, recorded: Variant) -> Variant | Help:
    devices = len(recorded.capacity)
    if stages > devices or devices == 1:
        return Help("more chunks", "it is for several devices with one stage each")
    text = (
        "two stages of half the time on each device, interleaved; each has the most memory "
        "of any"
    )
    double = (2 * max(recorded.capacity),) * devices
    placement = {"placement": "interleaved", "stages_per_device": 2}
    return Variant("more chunks", text, _halved, double, placement, has_recorded=False)


def _means(verdicts: Sequence[StepVerdict], figure: str) -> float:
    return mean_of(getattr(verdict, figure) for verdict in verdicts)


def _replayed(recorded: Recorded, change: Callable[[Times], Times]) -> int:
    duration = recorded.problem.duration.copy()
    ops = {
        FIELDS[KINDS.index(kind)]: recorded.problem.grid(kind)
        for kind in recorded.problem.kinds
    }
    for name, lengths in change(
        {name: duration[grid] for name, grid in ops.items()}
    ).items():
        duration[ops[name]] = lengths
    return replayed(recorded, duration)


def _even(times: Times) -> Times:
    """Return times, each the mean over the stages for its kind and micro-batch."""
    means = {
        name: np.rint(table.mean(axis=0)).astype(np.int64)
        for name, table in times.items()
    }
    return {
        name: np.broadcast_to(means[name], table.shape) for name, table in times.items()
    }


def _relieved(times: Times, owners: IntArray, slow: int) -> Times:
    """Return times with the work of a device that is above the mean spread over the others."""
    work = sum(table.sum(axis=1) for table in times.values())
    load = np.bincount(owners, weights=work)
    excess = load[slow] - load.mean()
    if excess <= 0:
        return times
    factor = np.full(len(load), 1 + excess / (load.sum() - load[slow]))
    factor[slow] = load.mean() / load[slow]
    by_stage = factor[owners][:, None]
    return {
        name: np.rint(table * by_stage).astype(np.int64)
        for name, table in times.items()
    }


def _split(times: Times) -> Times:
    if "backward" not in times:
        return times
    half = times["backward"] // 2
    backward = times["backward"] - half
    return {
        "forward": times["forward"],
        "backward_input": half,
        "backward_weight": backward,
    }


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

    Steps nearest to the mean come first; `steps` of the help names those that were searched.

    `searches`: searches that are kept between steps.
    `clock`: that of the change.
    """
    mean = _means(verdicts, "replay")
    pairs = sorted(
        zip(steps, verdicts, strict=True), key=lambda pair: abs(pair[1].replay - mean)
    )
    values: list[int] = []
    bounds: list[int] = []
    answers: dict[Hashable, StepAnswer | None] = {}
    for step, verdict in pairs:
        if step.key not in answers:
            seconds = DIAGNOSIS.per_step
            if clock.left < (
                seconds if values else searches.seconds_of_change - seconds
            ):
                break
            answers[step.key] = searches.answer(
                variant, step, is_free=False, seconds=seconds
            )
        answer = answers[step.key]
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
