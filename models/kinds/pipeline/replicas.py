"""Replicas of a pipeline as they are said, and when lists of micro-batches are an assignment."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field

from ppsolve.models.core.result import Figure, HeuristicEntry, Reported, Result
from ppsolve.models.documents.base import StrictModel, Whole
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.overlap.result import OverlapResult

Members = tuple[tuple[int, ...], ...]
"""Micro-batches of each replica."""


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
        cuts = [
            num_microbatches * replica // self.count
            for replica in range(self.count + 1)
        ]
        return tuple(tuple(range(a, b)) for a, b in pairwise(cuts))

    def check(self, num_microbatches: int) -> None:
        """Refuse members that are no assignment, and counts that cannot be equal.

        Raises `InputError`: names the field and what would be right.
        """
        if self.counts == "equal" and num_microbatches % self.count:
            raise InputError(
                f"expected a multiple of the {self.count} replicas with equal counts, got "
                f"{num_microbatches}",
                field="num_microbatches",
                code=ErrorCode.RANGE,
            )
        if num_microbatches < self.count:
            raise InputError(
                f"expected at most {num_microbatches} (a micro-batch for each), got {self.count}",
                field="replicas.count",
                code=ErrorCode.RANGE,
            )
        if self.members is None:
            return
        problem: str | None = (
            'expected no members with assignment "free", or assignment "fixed"'
        )
        if self.assignment != "free":
            problem = fault(self, self.members, num_microbatches)
        if problem is not None:
            raise InputError(problem, field="replicas.members")


def fault(
    replicas: Replicas, members: Sequence[Sequence[int]], num_microbatches: int
) -> str | None:
    """Return in words why lists of micro-batches are no assignment, or None if they are one.

    `num_microbatches`: micro-batches of the step.
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
        absent = min(set(range(num_microbatches)) - owner.keys())
        return f"expected every micro-batch once, {absent} is in no replica"
    counts = [len(those) for those in members]
    if replicas.counts == "equal" and len(set(counts)) > 1:
        few, many = min(counts), max(counts)
        return f"expected as many micro-batches in every replica, got {few} and {many}"
    if 0 in counts:
        return f"expected a micro-batch in every replica, replica {counts.index(0)} has none"
    return None


def longest_first(work: Sequence[Any], replicas: int, most: int) -> list[list[int]]:
    """Give each micro-batch, the longest first, to the replica with the least work.

    `work`: work of each of the m micro-batches.
    `replicas`: number of replicas R.
    `most`: most micro-batches of one replica.
    Returns: micro-batches of each replica, by falling work.
    """
    members: list[list[int]] = [[] for _ in range(replicas)]
    least: list[tuple[Any, int, int]] = [(0, 0, replica) for replica in range(replicas)]
    for microbatch in sorted(range(len(work)), key=lambda number: -work[number]):
        load, count, replica = heapq.heappop(least)
        members[replica].append(microbatch)
        if count + 1 < most:
            heapq.heappush(least, (load + work[microbatch], count + 1, replica))
    return members


class ModeAlternative(Reported):
    """Another mode of one stage: what the step takes at the most, and memory of its device.

    Parameters
    ----------
    stage : int
        The stage.
    mode : str
        The mode that it has instead; all others keep theirs.
    value : number, optional
        The makespan of a schedule; none where none was found that fits.
    peak : float, optional
        Peak memory of its device in that schedule.
    """

    stage: int
    mode: str
    value: Figure | None = None
    peak: float | None = None


class RuntimeFigures(Reported):
    """A schedule that a runtime runs, and what the rules of the runtime cost.

    Parameters
    ----------
    name : str
        The runtime.
    settings : dict
        What makes it run the schedule: ``group_size``, ``mode``, ``kept``; where layers are shared
        out ``virtual_stages`` of each device and ``recompute_num_layers`` of each stage; where
        ranks wait for transfers ``p2p_overlap``. Empty where it reads the order of ops.
    order : str, optional
        The order in words, of a runtime that runs few orders.
    orders : int, optional
        Orders of such a runtime that were timed, each with every choice of modes or of layers that
        recompute.
    free_value, free_bound : number, optional
        Value and bound of the best of all schedules, whatever the runtime runs.
    free_seconds : float, optional
        Time spent on the search for the best of all schedules.
    price : float, optional
        Share of `free_value` by which the schedule is longer.
    transfers : dict, optional
        Best value by how ranks wait for transfers, where that is a setting: ``default``,
        ``warm-up flush``, ``no overlap``.
    virtual_stages : dict, optional
        By number of virtual stages of each device, where layers are shared out: a proved bound on
        the value of such schedules; None where no split of the layers fits.
    waits : dict, optional
        Time for which each rank is idle before its last op, where ranks wait for transfers:
        ``work`` while what its next op needs is not made, ``transfers`` when it is.
    """

    name: str
    settings: dict[str, bool | int | str] = Field(default_factory=dict)
    order: str | None = None
    orders: int | None = None
    free_value: Figure | None = None
    free_bound: Figure | None = None
    free_seconds: float | None = None
    price: float | None = None
    transfers: dict[str, Figure] | None = None
    virtual_stages: dict[int, Figure | None] | None = None
    waits: dict[str, list[Figure]] | None = None


class PipelineEntry(HeuristicEntry):
    """One heuristic on a pipeline.

    Parameters
    ----------
    modes, layers, fused, devices, runtime : optional
        As of `PipelineResult`.
    """

    modes: tuple[str | tuple[str, ...], ...] | None = Field(default=None)
    layers: tuple[dict[str, int], ...] | None = Field(default=None)
    fused: tuple[tuple[str, ...], ...] | None = Field(default=None)
    devices: dict[str, int] | None = Field(default=None)
    runtime: RuntimeFigures | None = Field(default=None)


class PipelineResult(Result):
    """Outcome of `optimize` for a pipeline.

    Parameters
    ----------
    assignment : list of lists of int, optional
        Micro-batches of each replica, where the pipeline has replicas.
    modes : list of str or of lists of str, optional
        Mode of each stage, or of each of its micro-batches, where activations need not be kept.
    layers : list of dict of str to int, optional
        Layers of each stage by type, where they are shared out.
    fused : list of lists of str, optional
        Names of the ops of each fused block, where ops may be fused.
    devices : dict of str to int, optional
        Device of each filler that is not on its first one, where fillers have a choice.
    alternatives : list of ModeAlternative, optional
        What other modes of single stages would change.
    runtime : RuntimeFigures, optional
        The runtime that runs the schedule, where one was asked for.
    programs : dict of str to OverlapResult, optional
        Results of the programs whose values are the times of fused blocks.
    """

    assignment: tuple[tuple[int, ...], ...] | None = Field(default=None)
    modes: tuple[str | tuple[str, ...], ...] | None = Field(default=None)
    layers: tuple[dict[str, int], ...] | None = Field(default=None)
    fused: tuple[tuple[str, ...], ...] | None = Field(default=None)
    devices: dict[str, int] | None = Field(default=None)
    programs: dict[str, OverlapResult] | None = Field(default=None)
    alternatives: tuple[ModeAlternative, ...] | None = Field(default=None)
    heuristics: tuple[PipelineEntry, ...] = ()
    runtime: RuntimeFigures | None = Field(default=None)
