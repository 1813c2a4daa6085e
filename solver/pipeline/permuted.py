"""Micro-batches by work: the same published schedules, with another order of micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
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
from ppsolve.solver.pipeline.event_driven.clusters import MAX_ORDERS, cluster_orders
from ppsolve.solver.pipeline.event_driven.heuristics import DYNAPIPE, EVENT_DRIVEN
from ppsolve.solver.pipeline.grammar import COMPUTE_KINDS
from ppsolve.solver.pipeline.published import A_PIPELINE, ONE_PIPE, PUBLISHED, UNEQUAL

PATTERNS = tuple(
    heuristic for heuristic in (*PUBLISHED, *EVENT_DRIVEN) if ONE_PIPE in heuristic.requirements
)
"""Published schedules of one pipe, under which micro-batches may take any order."""

WITH_BARRIERS = ("cyclic", "interleaved-cyclic-1f1b")
"""Patterns that run the orders of another one (`wait-free-cyclic`, `interleaved-1f1b`) and wait at
barriers besides, so that they are never the best."""

FREE_PATTERNS = tuple(pattern for pattern in PATTERNS if pattern.name not in WITH_BARRIERS)
"""Patterns that orders of micro-batches are tried under."""

MAX_OPS = 12_500
"""Ops that `clusters` places under one pattern, in all its orders together: all 25 up to 500 ops,
at least two beyond. On 8 devices and 16 micro-batches (256 ops, 480 with transfers) 25 orders under
five patterns take 0.6 to 1.3 s of processor time (tests/data/unequal)."""


class Permutable(Protocol):
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
    able = [pattern for pattern in patterns if pattern.obstacle(request.instance) is None]
    found: list[Proposal] = []
    for permutation in permutations:
        if not found or not request.effort.clock.is_over:
            found += _under_each(able, request, permutation)
    if not found:
        raise NotApplicableError("needs a published schedule that applies")
    found.sort(key=lambda proposal: proposal.schedule.normalised().value)
    valid = (each for each in found if not check_schedule(request.problem, each.schedule))
    return next(valid, found[0])


def _under_each(
    patterns: Iterable[Heuristic], request: Request, permutation: IntArray
) -> Iterator[Proposal]:
    for heuristic in patterns:
        pattern = cast("Permutable", heuristic.propose)
        with suppress(NotApplicableError, DeadlockError, HeuristicFailedError):
            yield replace(pattern(request, permutation), pattern=heuristic.name)


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
    problem : Problem

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
        return under_patterns(request, FREE_PATTERNS, [np.argsort(sizes, kind="stable")])


def clusters(request: Request) -> Proposal:
    """Return the best of DynaPipe's orders of clusters under all published schedules."""
    problem = request.problem
    count = min(MAX_ORDERS, max(2, MAX_OPS // problem.num_ops))
    permutations = cluster_orders(work_of(problem))[:count]
    return under_patterns(request, FREE_PATTERNS, permutations)


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
        "DynaPipe's orders of clusters of micro-batches, under the best published schedule",
        clusters,
        A_PIPELINE,
        (ONE_PIPE, UNEQUAL),
        is_search=True,
        source=DYNAPIPE,
    ),
)
"""Orders of unequal micro-batches, each under every published schedule."""
