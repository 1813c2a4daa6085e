"""Replicas of a pipeline: which micro-batches each of them runs, said and checked."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.base import StrictModel, Whole
from ppsolve.models.documents.errors import InputError
from ppsolve.models.pipeline.entries import entry_at

if TYPE_CHECKING:
    from ppsolve.models.pipeline.instance import PipelineInstance

Members = tuple[tuple[int, ...], ...]
"""Micro-batches of each replica."""

RULE = "assignment"
"""Rule that an assignment breaks which is none."""


class Replicas(StrictModel):
    """Copies of the pipeline on devices of their own, which share the micro-batches of a step.

    The step ends with the slowest replica. Device d of replica r has the number
    ``r * num_devices + d``.

    Parameters
    ----------
    count : int
        Number of replicas R.
    assignment : str
        ``fixed``: each replica runs its `members`. ``free``: any replica may run any micro-batch.
    counts : str
        ``equal``: every replica runs as many micro-batches; ``any``: at least one.
    members : list of lists of int, optional
        Micro-batches of each replica, where the assignment is fixed; equal blocks of consecutive
        micro-batches by default.
    """

    count: Annotated[Whole, Field(ge=1, le=4096)]
    assignment: Literal["fixed", "free"] = "fixed"
    counts: Literal["equal", "any"] = "equal"
    members: tuple[tuple[Whole, ...], ...] | None = None

    @property
    def is_free(self) -> bool:
        """Whether micro-batches may be exchanged: never where one replica runs them all."""
        return self.assignment == "free" and self.count > 1

    def blocks(self, num_microbatches: int) -> Members:
        """Return the members that are given, or blocks of consecutive micro-batches."""
        if self.members is not None:
            return self.members
        cuts = [num_microbatches * replica // self.count for replica in range(self.count + 1)]
        return tuple(tuple(range(a, b)) for a, b in pairwise(cuts))

    def check(self, num_microbatches: int) -> None:
        """Refuse members that are no assignment, and counts that cannot be equal.

        Raises
        ------
        InputError
            Names the field and what would be right.
        """
        if self.counts == "equal" and num_microbatches % self.count:
            raise InputError(
                f"expected a multiple of the {self.count} replicas with equal counts, got "
                f"{num_microbatches}",
                field="num_microbatches",
            )
        if num_microbatches < self.count:
            raise InputError(
                f"expected at most {num_microbatches} (a micro-batch for each), got {self.count}",
                field="replicas.count",
            )
        if self.members is None:
            return
        if self.assignment == "free":
            raise InputError(
                'expected no members with assignment "free", or assignment "fixed"',
                field="replicas.members",
            )
        problem = fault(self, self.members, num_microbatches)
        if problem is not None:
            raise InputError(problem, field="replicas.members")


def fault(
    replicas: Replicas, members: Sequence[Sequence[int]], num_microbatches: int
) -> str | None:
    """Return in words why lists of micro-batches are no assignment, or None if they are one.

    Parameters
    ----------
    replicas : Replicas
    members : sequence of sequences of int
        Micro-batches of each replica.
    num_microbatches : int
        Number of micro-batches that there are.

    Returns
    -------
    str or None
    """
    if len(members) != replicas.count:
        return f"expected one list for each of the {replicas.count} replicas, got {len(members)}"
    owner: dict[int, int] = {}
    for replica, those in enumerate(members):
        for microbatch in those:
            if not 0 <= microbatch < num_microbatches:
                return (
                    f"expected micro-batches from 0 to {num_microbatches - 1}, got {microbatch} "
                    f"in replica {replica}"
                )
            if microbatch in owner:
                return (
                    f"expected every micro-batch once, {microbatch} is in replicas "
                    f"{owner[microbatch]} and {replica}"
                )
            owner[microbatch] = replica
    if len(owner) < num_microbatches:
        absent = next(number for number in range(num_microbatches) if number not in owner)
        return f"expected every micro-batch once, {absent} is in no replica"
    return _wrong_counts(replicas, [len(those) for those in members])


def _wrong_counts(replicas: Replicas, counts: list[int]) -> str | None:
    if replicas.counts == "equal" and len(set(counts)) > 1:
        return (
            f"expected as many micro-batches in every replica, got {min(counts)} and {max(counts)}"
        )
    if 0 in counts:
        return f"expected a micro-batch in every replica, replica {counts.index(0)} has none"
    return None


def longest_first(work: Sequence[Any], replicas: int, most: int) -> list[list[int]]:
    """Give each micro-batch, the longest first, to the replica with the least work.

    Parameters
    ----------
    work : sequence of number
        Work of each of the m micro-batches.
    replicas : int
        Number of replicas R.
    most : int
        Most micro-batches of one replica.

    Returns
    -------
    list of list of int
        Micro-batches of each replica, by falling work.
    """
    members: list[list[int]] = [[] for _ in range(replicas)]
    least: list[tuple[Any, int, int]] = [(0, 0, replica) for replica in range(replicas)]
    for microbatch in sorted(range(len(work)), key=lambda number: -work[number]):
        load, count, replica = heapq.heappop(least)
        members[replica].append(microbatch)
        if count + 1 < most:
            heapq.heappush(least, (load + work[microbatch], count + 1, replica))
    return members


def first_members(instance: PipelineInstance) -> Members:
    """Return the members of fixed replicas, or those of the rule longest first."""
    replicas, count = _replicas_of(instance), instance.num_microbatches
    if not replicas.is_free:
        return replicas.blocks(count)
    plain = instance.in_numbers()
    work = [sum(_durations(plain, number)) for number in range(count)]
    most = count // replicas.count if replicas.counts == "equal" else count
    members = longest_first(work, replicas.count, most)
    return tuple(tuple(sorted(those)) for those in members)


def _durations(instance: PipelineInstance, microbatch: int) -> Iterator[Fraction]:
    for entry in instance.times.by_kind().values():
        for stage in range(instance.num_stages):
            yield entry_at(entry, stage, microbatch)


def read_assignment(data: Any, instance: PipelineInstance) -> Members:
    """Return the assignment that a document claims, or the first one where it claims none.

    Parameters
    ----------
    data : object
        A result, an entry or a schedule.
    instance : PipelineInstance

    Returns
    -------
    tuple of tuple of int
    """
    claim = data.get("assignment") if isinstance(data, dict) else None
    is_free = _replicas_of(instance).is_free
    if claim is None or not is_free or _fault_of_claim(claim, instance) is not None:
        return first_members(instance)
    return tuple(map(tuple, claim))


def assignment_violations(data: Any, instance: PipelineInstance) -> list[Violation]:
    """Check the assignment that a document claims.

    Parameters
    ----------
    data : object
        A result, an entry or a schedule; one without an assignment claims none.
    instance : PipelineInstance

    Returns
    -------
    list of Violation
        At most one, of the rule ``assignment``.
    """
    claim = data.get("assignment") if isinstance(data, dict) else None
    if claim is None:
        return []
    wrong = _fault_of_claim(claim, instance)
    replicas = _replicas_of(instance)
    if wrong is None and not replicas.is_free:
        given = replicas.blocks(instance.num_microbatches)
        if [sorted(those) for those in claim] != [sorted(those) for those in given]:
            wrong = "the members of the replicas are fixed, and these are others"
    return [] if wrong is None else [Violation(RULE, wrong, ())]


def _fault_of_claim(claim: Any, instance: PipelineInstance) -> str | None:
    is_table = isinstance(claim, list | tuple) and all(
        isinstance(those, list | tuple) and all(type(number) is int for number in those)
        for those in claim
    )
    if not is_table:
        return "expected a list of micro-batches for each replica"
    return fault(_replicas_of(instance), claim, instance.num_microbatches)


def _replicas_of(instance: PipelineInstance) -> Replicas:
    assert instance.replicas is not None
    return instance.replicas


def replica_of(instance: PipelineInstance, members: Sequence[int]) -> PipelineInstance:
    """Return the pipeline of one replica alone.

    Parameters
    ----------
    instance : PipelineInstance
    members : sequence of int
        Micro-batches of the replica, in the order in which it numbers them.

    Returns
    -------
    PipelineInstance
        The same pipeline with these micro-batches, numbered from 0, and one replica.
    """
    update: dict[str, Any] = {"replicas": None, "num_microbatches": len(members)}
    if instance.lengths is not None:
        update["lengths"] = tuple(instance.lengths[number] for number in members)
    for name in ("times", "memory", "p2p"):
        part = getattr(instance, name)
        if part is not None:
            update[name] = part.model_copy(
                update={
                    field: _chosen(entry, members)
                    for field, entry in part
                    if isinstance(entry, tuple) and field in _PER_MICROBATCH
                }
            )
    return instance.model_copy(update=update)


_PER_MICROBATCH = frozenset(
    {
        *("forward", "backward", "backward_input", "backward_weight"),
        *("activation", "forward_peak", "bytes"),
    }
)
"""Fields of times, memory and p2p whose entries may be lists per micro-batch."""


def _chosen(entry: tuple[Any, ...], members: Sequence[int]) -> tuple[Any, ...]:
    return tuple(
        tuple(item[number] for number in members) if isinstance(item, tuple) else item
        for item in entry
    )
