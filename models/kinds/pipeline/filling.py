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
        A filler names an op that there is not, or waits for itself.
    """
    return step if instance.is_one_plain_step else _Filling(instance, step).problem


class _Filling:
    def __init__(self, instance: PipelineInstance, step: Problem) -> None:
        self.steps = steps = PipelineSteps(step, instance.steps)
        self.alike: dict[str, list[IntArray]] = defaultdict(list)
        first_of = {}
        for place in steps.places if instance.steps > 1 else ():
            steps.end_steps(place)
        for index, filler in enumerate(instance.fillers):
            for k in range(instance.steps if filler.per_step else 1):
                ops = self._add(filler, k, f"fillers[{index}]")
                self._keep_alike(filler, k, ops)
                first_of[int(ops[0])] = index
        steps.families += [np.stack(rows) for rows in self.alike.values() if len(rows) > 1]
        self.problem = steps.build()
        if not any(filler.after and filler.before for filler in instance.fillers):
            return
        for op in find_cycle(self.problem.before, self.problem.after):
            if op in first_of:
                raise InputError(
                    f'"{steps.names[op]}" waits for itself: an op "after" which it runs waits for '
                    'one "before" which it runs',
                    source=instance.name,
                    field=f"fillers[{first_of[op]}].before",
                )

    def _add(self, filler: Filler, k: int, field: str) -> IntArray:
        # Returns the ops of its pieces.
        steps, scale = self.steps, self.steps.step.scale
        ticks = [scale.ticks(Fraction(time)) for time in filler.pieces]
        name = "device" if filler.stream == "compute" else filler.stream
        after = self._named(filler.after, k, f"{field}.after")
        block = JobBlock(
            FILLER_KIND,
            np.array(ticks, dtype=np.int64),
            np.array([steps.stream(f"{name} {filler.device}")]),
            [f"{filler.name}@{k}" if k else filler.name],
            after,
            self._named(filler.before, k, f"{field}.before"),
            OpLabels(device=filler.device),
            scale.ticks(Fraction(filler.release)),
        )
        ops = steps.add_jobs(block)
        for taken_by, amount in ((after, filler.memory.waiting), (ops, filler.memory.running)):
            if amount:
                hold = int(taken_by[0]), int(ops[-1]), Fraction(amount)
                steps.holds[filler.device].append(hold)
        return ops

    def _named(self, names: tuple[str, ...], k: int, field: str) -> IntArray:
        step, found = self.steps.step, [np.zeros(0, dtype=np.int64)]
        for name in names:
            op = OpOfStep.parse(name)
            chosen = step.kind_mask(op.kind) & (step.stage == op.stage)
            if op.microbatch is not None:
                chosen &= step.microbatch == op.microbatch
            if not chosen.any() or op.step >= self.steps.count:
                raise InputError(f'this pipeline has no op "{name}"', source=step.name, field=field)
            if op.step + k < self.steps.count:
                found.append(self.steps.op_of[op.step + k, chosen])
        return np.concatenate(found)

    def _keep_alike(self, filler: Filler, k: int, ops: IntArray) -> None:
        # A filler that names one micro-batch belongs to it. Micro-batches between which a filler
        # lies are no longer like any other one.
        named = [
            [OpOfStep.parse(name) for name in names] for names in (filler.after, filler.before)
        ]
        every = [op for ops in named for op in ops]
        owners = {(op.step + k, op.microbatch) for op in every if op.microbatch is not None}
        roles = [
            [op._replace(microbatch=op.microbatch is None, step=op.step + k) for op in ops]
            for ops in named
        ]
        alone = filler.model_copy(update={"name": "", "after": (), "before": ()})
        key = f"{alone!r} {roles}"
        if not owners:
            self.alike[key].append(ops)
        for owner in owners:
            job = (key, ops) if len(owners) == 1 else (f"{filler.name} {owner}", ops[:0])
            self.steps.attached[owner].append(job)
