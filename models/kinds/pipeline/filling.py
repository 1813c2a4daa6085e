"""Lowering of the fillers and the steps of a pipeline: jobs beside its lowered ops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from ppsolve.models.core.builder import OpLabels
from ppsolve.models.core.dag import find_cycle
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.fillers import Filler, OpOfStep
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.labels import FILLER_KIND
from ppsolve.models.kinds.pipeline.steps import JobBlock, PipelineSteps


def filler_times(instance: PipelineInstance) -> Iterator[Fraction]:
    """Yield every time of the fillers of a pipeline, in its unit."""
    for filler in instance.fillers:
        yield from map(Fraction, (filler.release, *filler.pieces))


def filler_ops(
    instance: PipelineInstance, problem: Problem
) -> Iterator[tuple[Filler, int, IntArray]]:
    """Yield each filler of a lowered pipeline, each step that has it, and the ops of its pieces."""
    ops, first = np.flatnonzero(problem.kind_mask(FILLER_KIND)), 0
    for filler in instance.fillers:
        for step in range(instance.steps if filler.per_step else 1):
            last = first + len(filler.pieces)
            yield filler, step, ops[first:last]
            first = last


def with_fillers(instance: PipelineInstance, step: Problem) -> Problem:
    """Return the problem of all steps of a pipeline and of its fillers, given a plain step.

    It is that step where there is no other and no filler. Otherwise it has the ops of all steps,
    step by step, and one of kind `FILLER_KIND` for each piece of a filler. An `InputError` says
    that a filler names an op that there is not, or waits for itself.
    """
    return step if instance.is_one_plain_step else _Filling(instance, step).problem


@dataclass(eq=False)
class _Vector:
    """Fillers that follow each other: alike vectors are interchangeable."""

    key: list[str] = field(default_factory=list)
    owners: set[tuple[int, int]] = field(default_factory=set)  # steps and micro-batches
    ops: list[IntArray] = field(default_factory=list)


class _Filling:
    def __init__(self, instance: PipelineInstance, step: Problem) -> None:
        self.instance = instance
        self.steps = steps = PipelineSteps(step, instance.steps)
        # Of each filler and step: its vector, and its place there.
        self.vectors: dict[tuple[str, int], tuple[_Vector, int]] = {}
        self.pieces: dict[tuple[str, int], IntArray] = {}
        for site in steps.places if instance.steps > 1 else ():
            steps.end_steps(site)
        for index, filler in enumerate(instance.fillers):
            for k in range(instance.steps if filler.per_step else 1):
                self._keep_alike(filler, k, self._add(filler, k, f"fillers[{index}]"))
        self._add_families()
        self.problem = steps.build()
        cycle = self.problem.op_names(
            find_cycle(self.problem.before, self.problem.after)
        )
        if cycle:
            raise InputError(
                f"expected no filler that waits for itself: {' -> '.join(cycle[:9])} -> ...",
                source=instance.name,
                field="fillers",
                code=ErrorCode.CONFLICT,
            )

    def _add(self, filler: Filler, k: int, field: str) -> IntArray:
        # Returns the ops of its pieces.
        steps, scale = self.steps, self.steps.step.scale
        ticks = [scale.ticks(Fraction(time)) for time in filler.pieces]
        streams = [
            steps.stream(filler.stream_on(device, self.instance))
            for device in (filler.device, *filler.devices)
        ]
        after = self._named(filler.after, k, f"{field}.after")
        block = JobBlock(
            FILLER_KIND,
            np.array(ticks, dtype=np.int64),
            np.array(streams[:1]),
            [f"{filler.name}@{k}" if k else filler.name],
            after,
            self._named(filler.before, k, f"{field}.before"),
            OpLabels(device=filler.device, step=k),
            scale.ticks(Fraction(filler.release)),
        )
        ops = self.pieces[filler.name, k] = steps.add_jobs(block)
        if filler.memory.waiting and len(after) != 1:
            raise InputError(
                'expected one op as "after", at whose start it is taken',
                source=steps.step.name,
                field=f"{field}.memory.waiting",
            )
        for taken_by, amount in (
            (after, filler.memory.waiting),
            (ops, filler.memory.running),
        ):
            if amount:
                hold = int(taken_by[0]), int(ops[-1]), Fraction(amount)
                steps.holds[filler.device].append(hold)
        return ops

    def _named(self, names: tuple[str, ...], k: int, field: str) -> IntArray:
        step, ops = self.steps.step, [np.zeros(0, dtype=np.int64)]
        for name in names:
            op = OpOfStep.parse(name)
            if op is None and (name, k) in self.pieces:
                ops.append(self.pieces[name, k][-1:])
                continue
            mask = np.zeros(step.num_ops, dtype=np.bool_)
            if op is not None and op.step < self.steps.count:
                mask = step.kind_mask(op.kind) & (step.stage == op.stage)
                mask &= (op.microbatch is None) | (
                    step.microbatch // step.slices == op.microbatch
                )
            if not mask.any():
                raise InputError(
                    'expected an op such as "F0.3" (stage 0, micro-batch 3), "F0.3@1" (step 1) or '
                    f'"W0" (all micro-batches), or a filler above, got "{name}"',
                    source=step.name,
                    field=field,
                )
            if op is not None and op.step + k < self.steps.count:
                ops.append(self.steps.op_of[op.step + k, mask])
        return np.concatenate(ops)

    def _keep_alike(self, filler: Filler, k: int, ops: IntArray) -> None:
        # A filler after others goes with the first one; where several meet, none is like another.
        linked = [
            self.vectors[name, k] for name in filler.after if (name, k) in self.vectors
        ]
        vector = linked[0][0] if linked else _Vector()
        for linked_vector, _ in linked if len(linked) > 1 else ():
            linked_vector.key.append(f"{filler.name} {k}")
        if filler.devices:
            vector.key.append(f"{filler.name} {k}")  # others may run on another device
        self.vectors[filler.name, k] = vector, len(vector.ops)
        vector.ops.append(ops)
        vector.key.append(
            repr(filler.model_copy(update={"name": "", "after": (), "before": ()}))
        )
        for end in (filler.after, filler.before):
            for name in end:
                op = OpOfStep.parse(name)
                role: Any = (
                    self.vectors[name, k][1] if op is None else (*op[:2], op.step + k)
                )
                if op is not None and op.microbatch is not None:
                    vector.owners.add((op.step + k, op.microbatch))
                    role += (FREE,)
                vector.key.append(f"{end is filler.after} {role}")

    def _add_families(self) -> None:
        alike: dict[str, list[IntArray]] = defaultdict(list)
        for vector in dict.fromkeys(vector for vector, _ in self.vectors.values()):
            key, ops = str(vector.key), np.concatenate(vector.ops)
            if not vector.owners:
                alike[key].append(ops)
            for owner in vector.owners:
                # Micro-batches between which it lies are no longer like any other ones.
                job = (
                    (key, ops)
                    if len(vector.owners) == 1
                    else (f"{ops[0]} {owner}", ops[:0])
                )
                self.steps.attached[owner].append(job)
        self.steps.families += [
            np.stack(rows) for rows in alike.values() if len(rows) > 1
        ]
