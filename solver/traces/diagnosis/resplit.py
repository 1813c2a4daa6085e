"""Another split of the layers of a recorded run into its stages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.documents.errors import InputError
from ppsolve.models.trace.layers import FloatArray, Layers
from ppsolve.solver.plan.split import best_split
from ppsolve.solver.plan.split_problem import SplitProblem
from ppsolve.solver.traces.diagnosis.bubble import replayed
from ppsolve.solver.traces.diagnosis.steps import DiagnosedStep
from ppsolve.solver.traces.diagnosis.verdict import Help, StepVerdict, mean_of
from ppsolve.solver.traces.replay import Recorded

NAME = "other split"

MOST_TICKS = 2**30
"""Sum of the times of all layers; `best_split` takes twice as many where stages share devices."""


def refuse_other_stages(steps: Sequence[DiagnosedStep], layers: Layers) -> None:
    """Refuse layers of another number of stages.

    Parameters
    ----------
    steps : sequence of DiagnosedStep
        Recorded steps.
    layers : Layers
        Times of layers, and their recorded split.

    Raises
    ------
    InputError
        Names how many stages were recorded.
    """
    count = steps[0].parts[0].instance.num_stages
    if len(layers.stages) != count:
        text = f"expected one number for each of {count} recorded stages, got {len(layers.stages)}"
        raise InputError(text, field="--layers, stages")


def other_split(
    steps: Sequence[DiagnosedStep], verdicts: Sequence[StepVerdict], layers: Layers
) -> Help:
    """Return the gain, in the recorded order, of the split whose slowest device is the fastest.

    Parameters
    ----------
    steps : sequence of DiagnosedStep
        Recorded steps.
    verdicts : sequence of StepVerdict
        Their verdicts.
    layers : Layers
        Times of layers, and their recorded split.

    Returns
    -------
    Help
        With the layers of each stage.
    """
    parts = [one for step in steps for one in step.parts]
    stages = _best(layers, parts)
    numbers = tuple(one.step for one in verdicts)
    value = mean_of(
        max(replayed(one, _moved(one, layers, stages)) for one in step.parts) for step in steps
    )
    old, new = (" ".join(map(str, np.bincount(given))) for given in (layers.stage, stages))
    text = f"recorded order; {new} layers on the stages in place of {old}, whatever they hold"
    if old == new:
        text = f"{old} layers on the stages, as recorded, is the best split"
    return Help(NAME, text, value, None, mean_of(one.replay for one in verdicts), numbers)


def _best(layers: Layers, parts: Sequence[Recorded]) -> list[int]:
    """Return the stage of each layer in the best split, by mean times over all replica-steps."""
    work = np.zeros(len(layers.stage))
    for one in parts:
        for kind in one.problem.kinds:
            stage_time = one.problem.duration[one.problem.grid(kind)].mean(axis=1)
            work += _shares(layers, kind) * stage_time[layers.stage]
    scaled = work / len(parts) * min(1.0, MOST_TICKS * len(parts) / max(work.sum(), 1.0))
    (places,) = parts[0].instance.stage_devices_of_pipes()
    times = np.rint(scaled).astype(np.int64).tolist()
    split = best_split(SplitProblem.without_memory(times, places))
    assert split is not None, "there are as many layers as stages, and memory has no limit"
    counts = np.diff(split.boundaries)
    return np.repeat(np.arange(len(counts)), counts).tolist()


def _shares(layers: Layers, kind: str) -> FloatArray:
    return layers.shares("forward" if kind == "F" else "backward")


def _moved(one: Recorded, layers: Layers, stages: Sequence[int]) -> IntArray:
    """Return durations with each layer on its new stage."""
    duration = one.problem.duration.copy()
    for kind in one.problem.kinds:
        ops = one.problem.grid(kind)
        part = np.zeros((len(ops), len(ops)))
        np.add.at(part, (stages, layers.stage), _shares(layers, kind))
        duration[ops] = np.rint(part @ duration[ops]).astype(np.int64)
    return duration
