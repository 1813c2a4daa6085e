"""Micro-batches by work: the same published schedules, with another order of micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.documents.errors import (
    DeadlockError,
    HeuristicFailedError,
    NotApplicableError,
)
from ppsolve.models.pipeline.costs import sums_of
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request
from ppsolve.solver.pipeline.actions import COMPUTE_KINDS
from ppsolve.solver.pipeline.event_driven.clusters import MAX_ORDERS, cluster_orders
from ppsolve.solver.pipeline.event_driven.heuristics import EVENT_DRIVEN
from ppsolve.solver.pipeline.published import A_PIPELINE, ONE_PIPE, PUBLISHED, UNEQUAL

PATTERNS = tuple(
    heuristic for heuristic in (*PUBLISHED, *EVENT_DRIVEN) if ONE_PIPE in heuristic.requirements
)
"""Published schedules of one pipe, under which micro-batches may take any order."""

CLUSTERED = ("1f1b", "relaxed-1f1b", "interleaved-1f1b", "fifo", "wait-free-cyclic")
"""Patterns of DynaPipe's planner; its others run these orders, and wait at barriers besides."""

MAX_OPS = 30_000
"""Ops that `clusters` places under one pattern, in all its orders together. An op takes 5 to 15 us
where time goes by in Python, so that 25 orders of 8 devices and 32 micro-batches (512 ops) take
about 0.4 s under three patterns; larger pipelines get fewer orders, at least two."""


class Pattern(Protocol):
    """A published schedule that takes an order of micro-batches."""

    def __call__(self, request: Request, permutation: IntArray | None = None) -> Proposal:
        """Schedule the micro-batches in an order."""


def under_patterns(
    request: Request, patterns: Iterable[Heuristic], permutations: Sequence[IntArray]
) -> Proposal:
    """Run published schedules on orders of micro-batches, and keep the best.

    Parameters
    ----------
    request : Request
        Instance and problem.
    patterns : iterable of Heuristic
        Published schedules; those that do not apply are left out.
    permutations : sequence of int64[m]
        Orders: the micro-batch at each place.

    Returns
    -------
    Proposal
        The best valid schedule and the name of its pattern; the shortest where none is valid.

    Raises
    ------
    NotApplicableError
        No pattern applies, or every order waits for itself under those that do.
    """
    found = [
        replace(proposal, pattern=heuristic.name)
        for heuristic in patterns
        if heuristic.obstacle(request.instance) is None
        for proposal in _proposals(heuristic, request, permutations)
    ]
    if not found:
        raise NotApplicableError("needs a published schedule that applies")
    found.sort(key=lambda proposal: proposal.schedule.normalised().value)
    valid = (each for each in found if not check_schedule(request.problem, each.schedule))
    return next(valid, found[0])


def _proposals(
    heuristic: Heuristic, request: Request, permutations: Sequence[IntArray]
) -> Iterable[Proposal]:
    pattern = cast("Pattern", heuristic.propose)
    for permutation in permutations:
        try:
            yield pattern(request, permutation)
        except NotApplicableError:
            return
        except (DeadlockError, HeuristicFailedError):
            continue


def work_of(problem: Problem) -> IntArray:
    """Return the compute time of each micro-batch on all stages together, int64[m] in ticks."""
    ops = np.flatnonzero(problem.kind_mask(*COMPUTE_KINDS) & (problem.microbatch >= 0))
    work = np.zeros(int(problem.microbatch.max()) + 1, dtype=np.int64)
    np.add.at(work, problem.microbatch[ops], problem.duration[ops])
    return work


def sizes_of(instance: PipelineInstance, problem: Problem) -> IntArray:
    """Return the numbers by which micro-batches are ordered.

    Parameters
    ----------
    instance : PipelineInstance
        A pipeline.
    problem : Problem
        Its problem.

    Returns
    -------
    int64[m]
        The sum of the squares of its sequence lengths where the pipeline has lengths, which is
        what attention takes; else the compute time in ticks.
    """
    if instance.lengths is None:
        return work_of(problem)
    return np.array(sums_of(instance.lengths).squares, dtype=np.int64)


@dataclass(frozen=True)
class BySize:
    """Runs every published schedule that applies on micro-batches by size, and keeps the best."""

    sign: int

    def __call__(self, request: Request) -> Proposal:
        """Return the best schedule; micro-batches of one size go by index."""
        sizes = self.sign * sizes_of(request.instance, request.problem)
        return under_patterns(request, PATTERNS, [np.argsort(sizes, kind="stable")])


def clusters(request: Request) -> Proposal:
    """Return the best schedule of DynaPipe's planner: its schedulers on orders of clusters."""
    problem = request.problem
    count = min(MAX_ORDERS, max(2, MAX_OPS // problem.num_ops))
    permutations = cluster_orders(work_of(problem))[:count]
    patterns = [heuristic for heuristic in PATTERNS if heuristic.name in CLUSTERED]
    return under_patterns(request, patterns, permutations)


ORDERS = (
    Heuristic(
        "descending",
        "micro-batches by size, long ones first, under the best published schedule",
        BySize(-1),
        A_PIPELINE,
        (ONE_PIPE, UNEQUAL),
    ),
    Heuristic(
        "ascending",
        "micro-batches by size, short ones first, under the best published schedule",
        BySize(1),
        A_PIPELINE,
        (ONE_PIPE, UNEQUAL),
    ),
    Heuristic(
        "clusters",
        "the best of DynaPipe's orders of clusters of micro-batches, under its schedulers",
        clusters,
        A_PIPELINE,
        (ONE_PIPE, UNEQUAL),
    ),
)
"""Orders of unequal micro-batches, each under every published schedule."""
