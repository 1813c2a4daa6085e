"""Lowering of the fillers and the steps of a pipeline: jobs beside its lowered ops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from ppsolve.models.core.dag import find_cycle
from ppsolve.models.core.problem import IntArray, OpLabels, Problem
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.fillers import Filler, OpOfStep
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.steps import JobBlock, PipelineSteps

FILLER_KIND = "X"


def filler_times(instance: PipelineInstance) -> Iterator[Fraction]:
    """Yield every time of the fillers of a pipeline, in its unit."""
    for filler in instance.fillers:
        yield from map(Fraction, (filler.release, *filler.pieces))


def with_fillers(instance: PipelineInstance, step: Problem) -> Problem:
    """Return the problem of all steps of a pipeline and of its fillers.

    Parameters
    ----------
    instance : PipelineInstance
    step : Problem
        Its first step without fillers.

    Returns
    -------
    Problem
        The step itself where it is the only one and there are no fillers. Otherwise its ops, step
        by step, and one of kind `FILLER_KIND` for each piece of a filler.

    Raises
    ------
    InputError
        A filler waits for itself.
    """
    if instance.is_one_plain_step:
        return step
    steps = PipelineSteps(step, instance.steps)
    if instance.steps > 1:
        for place in steps.places:
            steps.end_steps(place)
    alike: dict[str, list[IntArray]] = defaultdict(list)
    first_of: dict[int, int] = {}
    for index, filler in enumerate(instance.fillers):
        for k in range(instance.steps if filler.per_step else 1):
            ops = _add_filler(steps, filler, k, alike)
            first_of[int(ops[0])] = index
    steps.families += [np.stack(rows) for rows in alike.values() if len(rows) > 1]
    problem = steps.build()
    if any(filler.after and filler.before for filler in instance.fillers):
        _refuse_cycle(instance, problem, first_of)
    return problem


def _add_filler(
    steps: PipelineSteps, filler: Filler, k: int, alike: dict[str, list[IntArray]]
) -> IntArray:
    """Add a filler of step k; return the ops of its pieces."""
    ticks = [steps.step.scale.ticks(Fraction(time)) for time in filler.pieces]
    after, before = _named(steps, filler.after, k), _named(steps, filler.before, k)
    name = "device" if filler.stream == "compute" else filler.stream
    ops: IntArray = steps.add_jobs(
        JobBlock(
            FILLER_KIND,
            np.array([ticks], dtype=np.int64),
            np.array([steps.stream(f"{name} {filler.device}")]),
            [f"{filler.name}@{k}" if filler.per_step and k else filler.name],
            after,
            before,
            OpLabels(device=filler.device),
            steps.step.scale.ticks(Fraction(filler.release)),
        )
    )[0]
    for taken_by, amount in ((after, filler.memory.waiting), (ops, filler.memory.running)):
        if amount:
            hold = int(taken_by[0]), int(ops[-1]), Fraction(amount)
            steps.holds[filler.device].append(hold)
    _keep_alike(steps, filler, k, ops, alike)
    return ops


def _named(steps: PipelineSteps, names: tuple[str, ...], k: int) -> IntArray:
    step = steps.step
    found = [np.zeros(0, dtype=np.int64)]
    for name in names:
        op = OpOfStep.parse(name)
        if op.step + k < steps.count:
            chosen = step.kind_mask(op.kind) & (step.stage == op.stage)
            if op.microbatch is not None:
                chosen &= step.microbatch == op.microbatch
            found.append(steps.op_of[op.step + k, chosen])
    return np.concatenate(found)


def _keep_alike(
    steps: PipelineSteps, filler: Filler, k: int, ops: IntArray, alike: dict[str, list[IntArray]]
) -> None:
    # A filler that names one micro-batch belongs to it. Micro-batches between which a filler lies
    # are no longer like any other one.
    named = [OpOfStep.parse(name) for name in (*filler.after, *filler.before)]
    owners = {(op.step + k, op.microbatch) for op in named if op.microbatch is not None}
    parts = [
        [op if op.microbatch is None else (op.kind, op.stage) for op in map(OpOfStep.parse, names)]
        for names in (filler.after, filler.before)
    ]
    key = f"{filler.model_copy(update={'name': '', 'after': (), 'before': ()})!r} {parts}"
    if not owners:
        alike[f"{k} {key}"].append(ops)
    for owner in owners:
        is_its_own = len(owners) == 1 and all(op.step + k == owner[0] for op in named)
        job = (key, ops) if is_its_own else (f"{filler.name} {k} {owner}", ops[:0])
        steps.attached[owner].append(job)


def _refuse_cycle(instance: PipelineInstance, problem: Problem, first_of: dict[int, int]) -> None:
    for op in cycle if (cycle := find_cycle(problem.before, problem.after)) else ():
        if op in first_of:
            raise InputError(
                "expected ops that do not wait for each other: "
                + " -> ".join(problem.op_names([*cycle, cycle[0]][:12])),
                source=instance.name,
                field=f"fillers[{first_of[op]}].before",
            )
