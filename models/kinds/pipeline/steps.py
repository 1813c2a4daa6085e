"""Steps of a pipeline one after the other in one problem, and jobs beside its ops.

A step is one iteration: all micro-batches, the reduction of gradients and the optimizer. Ops of
step k > 0 are called ``F0.1@k``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from ppsolve.models.core.builder import OpLabels, ProblemBuilder
from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import FREE, IntArray, Pool, Problem
from ppsolve.models.kinds.pipeline.labels import (
    ALL_GATHER_KIND,
    ALLREDUCE_KIND,
    OPTIMIZER_KIND,
    REDUCE_SCATTER_KIND,
    STEP_KIND,
)

Place = tuple[int, int]
"""A stage and a device that holds it."""


def _none() -> IntArray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class JobBlock:
    """Jobs of one kind, in any shape; each is p pieces that run in order.

    Between two pieces of a job its resources may run other ops. A name is that of the op of the
    one piece; pieces of several are called ``name/0``, ``name/1``, ...
    """

    kind: str
    ticks: IntArray  # int64[..., p]: durations of the pieces
    resources: (
        IntArray  # int64[..., r]: taken by each piece; entries of `FREE` are skipped
    )
    names: Sequence[str]  # one for each job, in C order
    # int64[..., a]: ops that end before the first piece of a job starts
    after: Any = field(default_factory=_none)
    # int64[..., b]: ops that start after the last piece of a job has ended
    before: Any = field(default_factory=_none)
    # Of all pieces of a job: arrays broadcast to the jobs.
    labels: OpLabels = field(default_factory=OpLabels)
    release: Any = 0  # int64[...]: earliest start of each job in ticks


class PipelineSteps:
    """N steps of a lowered pipeline and jobs beside them: make it, add to it, build it.

    The name of the problem is that of the step by default.
    """

    def __init__(self, step: Problem, count: int, name: str | None = None) -> None:
        self.step = step
        self.count = count
        self.builder = ProblemBuilder(step.name if name is None else name, step.scale)
        self.builder.objective = step.objective
        self.builder.slices = step.slices
        self.builder.span_resources = step.span_resources
        self.builder.choices = dict(step.choices)
        self.names = self.builder.explicit_names
        self.resources = {key: self.builder.add_resource(key) for key in step.resources}
        # Op of the problem for each op of the step, int64[N, n].
        self.op_of = np.zeros((count, step.num_ops), dtype=np.int64)
        # Interchangeable vectors of jobs alone.
        self.families: list[IntArray] = []
        # Jobs that belong to a step and micro-batch: a key and the ops. Micro-batches that are
        # alike in a step stay so if their jobs have equal keys.
        self.attached: dict[tuple[int, int], list[tuple[str, IntArray]]] = defaultdict(
            list
        )
        # Of each pool: an op that takes an amount at its start, one that gives it back at its end.
        self.holds: dict[int, list[tuple[int, int, Fraction]]] = defaultdict(list)
        self._forwards = step.by_place("F")
        self._gradients = step.by_place("W" if "W" in step.kinds else "B")
        self._reductions = _by_stage(step, ALLREDUCE_KIND, REDUCE_SCATTER_KIND)
        self._gathers = _by_stage(step, ALL_GATHER_KIND)
        self._optimizers = step.by_place(OPTIMIZER_KIND)
        self._repeat()

    def _repeat(self) -> None:
        step, op_of = self.step, self.op_of
        table = _resource_table(step)
        for index, kind in enumerate(step.kinds):
            ops = np.flatnonzero(step.kind == index)
            op_of[:, ops] = self.builder.add_ops(
                kind,
                np.broadcast_to(step.duration[ops], (self.count, len(ops))),
                table[ops],
                OpLabels(
                    step.stage[ops],
                    step.device[ops],
                    step.microbatch[ops],
                    step.piece[ops] if len(step.piece) else FREE,
                    np.arange(self.count)[:, None],
                ),
            )
        self.builder.add_precedences(
            op_of[:, step.before], op_of[:, step.after], step.lag
        )
        for k, row in enumerate(op_of):
            for op, name in step.explicit_names.items():
                self.names[int(row[op])] = f"{name}@{k}" if k else name

    def stream(self, key: DeviceName) -> int:
        """Return the number of a resource, which is added if it is new."""
        if key not in self.resources:
            self.resources[key] = self.builder.add_resource(key)
        return self.resources[key]

    @property
    def places(self) -> list[Place]:
        """Every stage with each device that holds it, sorted."""
        return list(self._forwards)

    def gradients(self, site: Place) -> IntArray:
        """Return the ops that complete the gradient of a stage on a device, int64[N, ...]."""
        return self.op_of[:, self._reductions.get(site[0], self._gradients[site])]

    def optimizers(self, site: Place) -> IntArray:
        """Return the optimizer op of a stage on a device, int64[N, 1], or int64[N, 0]."""
        return self.op_of[:, self._optimizers.get(site, _none())]

    def end_steps(self, site: Place, last: IntArray | None = None) -> IntArray:
        """Let a stage begin each step on a device once it has ended the step before there.

        The ops that end a step, int64[N, ...], are its optimizer by default, or else what completes
        its gradient. Return the ops of length zero between two steps, int64[N - 1].
        """
        if last is None:
            last = self.optimizers(site)
            last = last if last.size else self.gradients(site)
        stage, device = site
        ops = self.builder.add_ops(
            STEP_KIND,
            np.zeros(self.count - 1, dtype=np.int64),
            np.array([FREE]),
            OpLabels(stage, device),
        )
        self.builder.add_precedences(last[:-1], ops[:, None])
        for first in (self._forwards[site], self._gathers.get(stage, _none())):
            self.builder.add_precedences(ops[:, None], self.op_of[1:, first])
        is_shared = sum(number == stage for number, _ in self._forwards) > 1
        for k, op in enumerate(ops.tolist()):
            self.names[op] = (
                f"{STEP_KIND}{stage}{f'@{device}' if is_shared else ''}@{k}"
            )
        return ops

    def add_jobs(self, block: JobBlock) -> IntArray:
        """Add a block of jobs and return the ops of their pieces, int64[..., p]."""
        labels = block.labels
        stage, device, microbatch, step = (
            np.asarray(label)[..., None]
            for label in (labels.stage, labels.device, labels.microbatch, labels.step)
        )
        pieces = block.ticks.shape[-1]
        ops = self.builder.add_ops(
            block.kind,
            block.ticks,
            np.asarray(block.resources)[..., None, :],
            OpLabels(
                stage,
                device,
                microbatch,
                np.arange(pieces) if pieces > 1 else FREE,
                step,
            ),
            release=np.asarray(block.release)[..., None],
        )
        self.builder.add_precedences(block.after, ops[..., :1])
        self.builder.add_precedences(ops[..., :-1], ops[..., 1:])
        self.builder.add_precedences(ops[..., -1:], block.before)
        for name, row in zip(
            block.names, ops.reshape(-1, pieces).tolist(), strict=True
        ):
            for piece, op in enumerate(row):
                self.names[op] = name if pieces == 1 else f"{name}/{piece}"
        return ops

    def build(self) -> Problem:
        """Return the problem of all steps and jobs."""
        self.builder.pools = [
            self._pool(number) for number in range(len(self.step.pools))
        ]
        self.builder.families = [*self._families(), *self.families]
        return self.builder.build()

    def _families(self) -> Iterator[IntArray]:
        for k, op_of in enumerate(self.op_of):
            for family in self.step.families:
                groups: dict[tuple[str, ...], list[IntArray]] = defaultdict(list)
                units = self.step.microbatch[family[:, 0]]
                microbatches = (units // self.step.slices).tolist()
                for row, microbatch in zip(family, microbatches, strict=True):
                    jobs = sorted(
                        self.attached.get((k, microbatch), ()), key=lambda job: job[0]
                    )
                    vector = np.concatenate([op_of[row], *(ops for _, ops in jobs)])
                    groups[tuple(key for key, _ in jobs)].append(vector)
                yield from (np.stack(rows) for rows in groups.values() if len(rows) > 1)

    def _pool(self, number: int) -> Pool:
        # An op acquires once: what it takes for jobs is added to what it takes for the step.
        pool, holds = self.step.pools[number], self.holds.get(number, [])

        def events(
            ops: IntArray, index: IntArray, end: int
        ) -> Iterator[tuple[int, Fraction]]:
            amounts = [pool.amounts[position] for position in index.tolist()]
            for k, op_of in enumerate(self.op_of):
                yield from zip(op_of[ops].tolist(), amounts, strict=True)
                yield from [] if k else [(span[end], amount) for *span, amount in holds]

        acquired: dict[int, Fraction] = {}
        for op, amount in events(pool.acquire_op, pool.acquire_amount, 0):
            acquired[op] = acquired.get(op, Fraction(0)) + amount
        releases = [*events(pool.release_op, pool.release_amount, 1)]
        return pool.used_by([*acquired.items()], releases)


def _by_stage(step: Problem, *kinds: str) -> dict[int, IntArray]:
    return {stage: ops for (stage, _), ops in step.by_place(*kinds).items()}


def _resource_table(problem: Problem) -> IntArray:
    count = np.diff(problem.resource_ptr)
    table = np.full((problem.num_ops, int(count.max(initial=1))), FREE, dtype=np.int64)
    inside = np.arange(table.shape[1]) < count[:, None]
    table[inside] = problem.resource_idx
    return table
