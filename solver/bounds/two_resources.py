"""A bound on a flow by two of its resources, solved exactly: all others are mere delays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.bounds.flow.flow import Flow, Paths
from ppsolve.solver.bounds.flow.states import StatesParams, solve_states
from ppsolve.solver.clock import Clock


@dataclass(frozen=True, eq=False)
class Reduced:
    """A flow without the ops of all other resources, whose ops are one after the other."""

    flow: Flow
    delay: IntArray  # int64[m, n], ticks of the way after each op beyond its lag
    head: int  # ticks before the first op, at least


def two_resources(
    paths: Paths,
    upper: int,
    *,
    clock: Clock | None = None,
    max_placed: float,
    lower: int = 0,
) -> int:
    """Return a lower bound by the resources where micro-batches begin and turn round.

    The ops of these two run one at a time, and their memory is what it is; between them each
    micro-batch takes at least the longest path through all others, but waits for none. That has far
    fewer orders than the flow, so that its states (`flow/states.py`) are searched; an optimum of
    it, or the least bound of the states that were left out, is a bound on the flow. Time runs
    backwards, which takes fewer states where memory is little.

    The bound is at most `upper`, a makespan that is known. What follows a resource that is left out
    may raise the known bound `lower` above every schedule of the two: then it is what is returned.
    No round begins that is expected to place more than `max_placed` ops. The bound is 0 where there
    are no two such resources, where the ops of a micro-batch on them are not one after the other,
    and where they have no states.
    """
    resources = end_resources(paths)
    reduced = None if resources is None else reduced_to(paths.reversed, resources)
    if reduced is None:
        return 0
    head = reduced.head
    answer = solve_states(
        reduced.flow,
        upper - head,
        delay=reduced.delay,
        lower=lower - head,
        clock=clock,
        params=StatesParams(max_placed=max_placed),
    )
    return 0 if answer is None else head + answer.bound


def end_resources(paths: Paths) -> tuple[int, int] | None:
    """Return the resource that micro-batches come to first, and the one they come to last.

    By the mean head of their first ops; None where there is but one.
    """
    head = paths.head.mean(axis=0)
    begins = {
        int(resource): float(head[paths.flow.resource == resource].min())
        for resource in np.unique(paths.flow.resource[paths.flow.resource != FREE])
    }
    if len(begins) < 2:
        return None
    return min(begins, key=begins.__getitem__), max(begins, key=begins.__getitem__)


def reduced_to(paths: Paths, resources: tuple[int, ...]) -> Reduced | None:
    """Return a flow with the ops of some resources alone, without pools that others use.

    There is none where the ops of a micro-batch on them are not one after the other.
    """
    flow = paths.flow
    kept = np.flatnonzero(np.isin(flow.resource, resources))
    kept = kept[
        np.argsort(paths.precedes[np.ix_(kept, kept)].sum(axis=0), kind="stable")
    ]
    if not paths.precedes[kept[:-1], kept[1:]].all():
        return None
    gaps = [
        paths.gap(u)[:, v]
        for u, v in zip(kept[:-1].tolist(), kept[1:].tolist(), strict=True)
    ]
    lag = np.array([gap.min() for gap in gaps], dtype=np.int64)
    # Where one op may follow the other at once on its resource, nothing is under way.
    is_way = (np.diff(flow.resource[kept]) != 0) | (lag > 0)
    excess = [
        (gap - shortest) * waits
        for gap, shortest, waits in zip(gaps, lag, is_way, strict=True)
    ]
    delay = np.stack([*excess, paths.tail[:, kept[-1]]], axis=1)
    uses = ((flow.acquire != 0) | (flow.release != 0)).any(axis=0)
    elsewhere = np.setdiff1d(np.flatnonzero(uses), kept)
    is_whole = ~np.isin(flow.pool[kept], flow.pool[elsewhere])
    subflow = replace(
        flow,
        ops=flow.ops[:, kept],
        duration=flow.duration[:, kept],
        kind=flow.kind[kept],
        stage=flow.stage[kept],
        resource=flow.resource[kept],
        before=np.arange(len(kept) - 1),
        after=np.arange(1, len(kept)),
        lag=lag,
        pool=flow.pool[kept],
        acquire=flow.acquire[:, kept] * is_whole,
        release=flow.release[:, kept] * is_whole,
        ahead=np.zeros(len(kept), dtype=np.int64),
        behind=np.zeros(len(kept), dtype=np.int64),
    )
    return Reduced(subflow, delay, int(paths.head[:, kept[0]].min()))
