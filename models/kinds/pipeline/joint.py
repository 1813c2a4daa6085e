"""Pipelines with replicas: their assignments, each replica alone, all of them as one problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from ppsolve.models.core.compose import joined, moved
from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.core.violation import Violation
from ppsolve.models.kinds.pipeline.entries import entry_at
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline, refuse_huge, scale_of
from ppsolve.models.kinds.pipeline.modes import with_members
from ppsolve.models.kinds.pipeline.replicas import (
    Members,
    Replicas,
    fault,
    longest_first,
)
from ppsolve.models.kinds.pipeline.slices import units_of


def _replicas_of(instance: PipelineInstance) -> Replicas:
    assert instance.replicas is not None
    return instance.replicas


def first_members(instance: PipelineInstance) -> Members:
    """Return the members of fixed replicas, or those of the rule longest first, ascending."""
    replicas, count = _replicas_of(instance), instance.num_microbatches
    if not replicas.is_free:
        return replicas.blocks(count)
    plain = instance.in_numbers()
    work = [sum(_durations(plain, number)) for number in range(count)]
    limit = count // replicas.count if replicas.counts == "equal" else count
    members = longest_first(work, replicas.count, limit)
    return tuple(tuple(sorted(microbatches)) for microbatches in members)


def _durations(instance: PipelineInstance, microbatch: int) -> Iterator[Fraction]:
    for entry in instance.times.by_kind().values():
        for stage in range(instance.num_stages):
            for index in range(instance.num_slices):
                unit = microbatch * instance.num_slices + index
                yield entry_at(entry, stage, unit)


def read_assignment(data: Any, instance: PipelineInstance) -> Members:
    """Return the assignment that a document claims, or the first one where it claims none.

    It has the micro-batches of each replica; `assignment_violations` tells what is wrong with a
    claim.
    """
    claim = data.get("assignment") if isinstance(data, dict) else None
    is_free = _replicas_of(instance).is_free
    if claim is None or not is_free or _fault_of_claim(claim, instance) is not None:
        return first_members(instance)
    return tuple(map(tuple, claim))


def assignment_violations(data: Any, instance: PipelineInstance) -> list[Violation]:
    """Check the assignment that a document claims, if it does.

    There is at most one violation, of the rule ``assignment``.
    """
    claim = data.get("assignment") if isinstance(data, dict) else None
    if claim is None:
        return []
    wrong = _fault_of_claim(claim, instance)
    replicas = _replicas_of(instance)
    if wrong is None and not replicas.is_free:
        blocks = replicas.blocks(instance.num_microbatches)
        if [sorted(microbatches) for microbatches in claim] != [
            sorted(microbatches) for microbatches in blocks
        ]:
            wrong = "the members of the replicas are fixed, and these are others"
    return [] if wrong is None else [Violation("assignment", wrong, ())]


def _fault_of_claim(claim: Any, instance: PipelineInstance) -> str | None:
    is_table = isinstance(claim, list | tuple) and all(
        isinstance(microbatches, list | tuple)
        and all(type(number) is int for number in microbatches)
        for microbatches in claim
    )
    if not is_table:
        return "expected a list of micro-batches for each replica"
    return fault(_replicas_of(instance), claim, instance.num_microbatches)


def replica_of(instance: PipelineInstance, members: Sequence[int]) -> PipelineInstance:
    """Return the pipeline of one replica alone, which numbers its members from 0 in their order."""
    lengths = instance.lengths
    units = units_of(np.array(members, dtype=np.int64), instance.num_slices).tolist()

    def chosen(_: str, entry: Any) -> Any:
        if not isinstance(entry, tuple):
            return entry
        return tuple(
            tuple(item[unit] for unit in units) if isinstance(item, tuple) else item
            for item in entry
        )

    alone = instance.with_amounts(
        chosen,
        replicas=None,
        num_microbatches=len(members),
        lengths=None
        if lengths is None
        else tuple(lengths[number] for number in members),
    )
    if alone.memory is None:
        return alone
    return alone.model_copy(update={"memory": with_members(alone.memory, members)})


def lower_replicas(
    instance: PipelineInstance,
    members: Members,
    *,
    exact: bool = False,
    scale: TimeScale | None = None,
) -> list[Problem]:
    """Lower each replica of a pipeline to a problem of its own, all with the same tick.

    Its micro-batches are numbered from 0 in the order of its members. Times are rounded up to
    multiples of the tick of a scale; by default of one that divides all times. An `InputError` is
    as of `lower_pipeline`.
    """
    refuse_huge(instance)
    instance = instance.in_numbers()
    scale = scale or scale_of(instance, exact=exact)
    return [
        lower_pipeline(replica_of(instance, microbatches), scale=scale)
        for microbatches in members
    ]


def lower_joint(
    instance: PipelineInstance, members: Members, *, exact: bool = False
) -> Problem:
    """Lower a pipeline with replicas to one problem.

    Times without a common tick within the limit are refused if exact, else rounded up.
    """
    problems = lower_replicas(instance, members, exact=exact)
    return join(problems, members, instance.num_devices)


def join(
    problems: Sequence[Problem], members: Sequence[Sequence[int]], devices: int
) -> Problem:
    """Join the problems of replicas, each with so many devices, to one.

    They have the same kinds and the same tick. `members` has the number, in the joint problem, of
    each micro-batch of each replica.
    """
    slices = problems[0].slices
    tables = [
        np.append(units_of(np.array(numbers, dtype=np.int64), slices), FREE)
        for numbers in members
    ]
    return joined(
        [
            replace(
                moved(problem, number * devices),
                # The last entry of a table of numbers is that of FREE, -1.
                microbatch=numbers[problem.microbatch],
                replica=np.full(problem.num_ops, number),
                explicit_names={
                    op: f"{problem.op_name(op)}@{number}"
                    for op in np.flatnonzero(problem.microbatch == FREE).tolist()
                },
            )
            for number, (problem, numbers) in enumerate(
                zip(problems, tables, strict=True)
            )
        ]
    )
