"""Exact search through the states of a small flow: dynamic programming with bounds and a beam.

A state is a set of ops that have started, and the moments that matter to the rest: when each
resource is free, and when each micro-batch's next op finds what comes from another resource. Memory
is no matter of time: all ops of a pool run on one resource, each gives back when it ends, so what
the next op finds in use follows from the set. States grow by one op, which starts as early as its
predecessors and its resource allow, but never before the op that was placed last.

Why an optimum is among what is enumerated
    The makespan never falls when an op starts later, so among schedules with the same orders on all
    resources the earliest one is best, and it keeps memory if any does, as orders decide about
    that. Sorted by start (of equals, predecessors first) its ops are a sequence that the search can
    follow: each starts no earlier than the one before. Lags and transfers (ops of send queues) are
    in the predecessors, split backwards are more positions.

Why a state may be dropped for another one of the same ops
    Call ``v`` the moments of a state, all raised to the start of its last op. Placing an op is
    max-plus in ``v``, so if ``v(S) <= v(T)`` in every moment, every sequence that completes T
    completes S with no op later. S is *delayed* where its last op waits for nothing but the op
    placed before it. Delayed states are not made. Claim: for every sequence of ops there is a kept
    state of the same ops with no greater ``v``. Take a counterexample of least length, of those one
    with the least sum of ``v``; let o be its last op, and S a kept state for the ops before. S
    followed by o is no counterexample unless it is delayed. Then insert o where its start belongs
    in the sequence that led to S: it runs on its resource after all of S's ops there, so nothing
    else moves, but o ends earlier, which lowers the moment at which its resource is free (ops take
    time, so this moment is after the last start). This sequence has a smaller sum, so it is no
    counterexample, and its kept state serves for o as well.

Micro-batches that are alike
    Sorted by start, their ops can be renumbered position by position, so that each position is
    passed in the order of their numbers; only such sequences are followed. Inserting an op behind
    all others of its resource keeps that order, and so does completing another state of the same
    ops.

What is left out
    Of each level (number of ops placed) a number of states of least bound is kept; what is found
    then is a heuristic's, and the least bound of all states left out bounds everything that was not
    seen. Rounds widen the levels until that bound meets the best makespan.

When a flow has no schedule at all
    A longest path of an earliest schedule passes each op, delay and lag at most once, so all of
    them together, and a tick, are a horizon that no such schedule reaches. A round that leaves
    nothing out and finds nothing below the horizon shows that memory lets no schedule be, and any
    upper bound is then a lower one. Only such a round does: a lower bound that is known may be of
    more than the flow, say of work behind stages that are left out, and pass the horizon. It stays
    what it is, and there is nothing left to search for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.bounds.flow.flow import Flow, earlier_twins
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.kernels.state_search import (
    Batch,
    FlowShape,
    LevelRange,
    StateSearch,
    search_states,
    state_columns,
)


@dataclass(frozen=True)
class StatesParams:
    """Effort of the search through states."""

    max_states: int = 2**16  # of a level
    max_placed: float = math.inf  # ops: no round begins that is expected to place more
    first_width: int = 4  # states of a level in the first round
    widening: int = 4  # factor of the next one
    room: int = 4  # rows for new states, as a multiple of those that stay
    states_a_call: int = (
        4_096  # states grown between two looks at the clock, 30 ms compiled
    )
    max_words: int = 2**26  # most numbers in the rows of one level, 8 bytes each
    max_phases: int = 4_096  # 8 stages with split backwards have 519, 11 have 4,106


STATES = StatesParams()


@dataclass(frozen=True, eq=False)
class StatesAnswer:
    """A result of a search through states."""

    value: int | None  # ticks; None if none below the upper bound was found
    starts: IntArray | None  # int64[m, V] in ticks
    bound: int  # ticks, at most the upper bound; no less than a lower one that is known
    proved: bool  # the bound meets `value`, or else the upper bound
    placed: int  # ops placed in all


def solve_states(
    flow: Flow,
    upper: int,
    *,
    delay: IntArray | None = None,
    lower: int = 0,
    clock: Clock | None = None,
    params: StatesParams = STATES,
) -> StatesAnswer | None:
    """Search for a makespan below an upper bound; None where the flow has no such states.

    Such states are those of `_shape_of`. All that follows an op in its micro-batch waits for its
    `delay`, int64[m, V], beside its lags: between ops of different resources, or at the end. The
    search ends where it meets the lower bound, which may be of more than this flow, whose own
    schedules may all end sooner.
    """
    shape = _shape_of(flow)
    if shape is None:
        return None
    delay = np.zeros_like(flow.duration) if delay is None else delay
    batch = _batch_of(flow, shape, delay)
    clock = Clock() if clock is None else clock
    best: list[int] | None = None
    limit = min(upper, _horizon(flow, delay))  # only what ends sooner is looked for
    bound, placed, last_placed = min(lower, upper), 0, 0
    width = min(params.first_width, params.max_states)
    while bound < limit and not clock.is_over:
        levels = _Round(shape, batch, width, params)
        expect(
            20 * params.widening * last_placed
        )  # an op takes 20 steps of other kernels
        sequence, reached = levels.run(limit, clock)
        if sequence is not None:
            best, limit = sequence, reached
        if best is None and levels.least_left >= limit:
            bound = limit = upper  # nothing below the horizon, so nothing at all
        bound, last_placed = max(bound, min(levels.least_left, limit)), levels.placed
        placed += last_placed
        width *= params.widening
        words = width * params.room * levels.columns.width
        is_too_wide = width > params.max_states or words > params.max_words
        if is_too_wide or placed + params.widening * last_placed > params.max_placed:
            break
    if best is None:
        return StatesAnswer(None, None, bound, bound >= upper, placed)
    starts = _starts_of(flow, best, delay)
    return StatesAnswer(limit, starts, bound, bound >= limit, placed)


def _batch_of(flow: Flow, shape: FlowShape, delay: IntArray) -> Batch:
    tail = _tails(flow, shape, delay).ravel()
    numbers = np.arange(flow.duration.size).reshape(flow.duration.shape)
    ranked = []
    for resource in range(flow.num_resources):
        ops = numbers[:, flow.resource == resource].ravel()
        ranked.append(ops[np.argsort(-tail[ops], kind="stable")])
    generator = np.random.default_rng(0)
    return Batch(
        flow.duration.ravel(),
        delay.ravel(),
        tail,
        flow.acquire.ravel(),
        flow.release.ravel(),
        flow.room,
        _least_amounts(flow),
        earlier_twins(np.hstack([flow.duration, delay, flow.acquire, flow.release])),
        np.cumsum([0, *map(len, ranked)], dtype=np.int64),
        np.concatenate(ranked),
        generator.integers(0, 2**40, flow.num_microbatches * len(shape.slot)),
    )


def _starts_of(flow: Flow, sequence: Sequence[int], delay: IntArray) -> IntArray:
    """Return the starts of ops ``j * V + v`` placed in turn, each as early as possible."""
    free = [0] * flow.num_resources
    start = np.zeros_like(flow.duration)
    before: list[list[tuple[int, int]]] = [[] for _ in range(flow.num_positions)]
    for u, v, lag in zip(flow.before, flow.after, flow.lag, strict=True):
        before[v].append((u, lag))
    for op in sequence:
        j, v = divmod(op, flow.num_positions)
        arrivals = (
            start[j, u] + flow.duration[j, u] + delay[j, u] + lag
            for u, lag in before[v]
        )
        start[j, v] = max(free[flow.resource[v]], *arrivals, 0)
        free[flow.resource[v]] = start[j, v] + flow.duration[j, v]
    return start


def _horizon(flow: Flow, delay: IntArray) -> int:
    """Return a makespan that no earliest schedule reaches: all ops and waits in turn, one tick."""
    work = int((flow.duration + delay).sum() + flow.behind.max(initial=0))
    return work + flow.num_microbatches * int(flow.lag.sum()) + 1


def _tails(flow: Flow, shape: FlowShape, delay: IntArray) -> IntArray:
    """Return the longest time from the end of each op to that of all that must follow it."""
    tail = np.maximum(delay, flow.behind)
    for v in reversed(shape.todo[: flow.num_positions]):
        for k in range(shape.before_pointer[v], shape.before_pointer[v + 1]):
            u = shape.before[k]
            reach = delay[:, u] + shape.before_lag[k] + flow.duration[:, v] + tail[:, v]
            tail[:, u] = np.maximum(tail[:, u], reach)
    return tail


def _least_amounts(flow: Flow) -> IntArray:
    """Return the least amount that an op takes from each pool."""
    amounts = [flow.acquire[:, flow.pool == pool] for pool in range(len(flow.room))]
    smallest = [int(acquired[acquired > 0].min(initial=NEVER)) for acquired in amounts]
    return np.array(
        [0 if amount == NEVER else amount for amount in smallest], dtype=np.int64
    )


class _Round:
    """One pass through all levels, with so many states of each."""

    def __init__(
        self, shape: FlowShape, batch: Batch, width: int, params: StatesParams
    ) -> None:
        count, resources, pools = (
            len(batch.twin),
            len(batch.ranked_pointer) - 1,
            len(batch.room),
        )
        self.width, self.num_ops, self.placed = width, len(batch.duration), 0
        self._stride = max(1, params.states_a_call // width)
        self.columns = state_columns(count, resources, pools)
        levels = self.num_ops + 1
        self._counts = np.zeros(levels, dtype=np.int64)
        self._counts[0] = 1
        self._rows = np.zeros(width * self.columns.width, dtype=np.int64)
        self._rows[self.columns.hash] = batch.mark.reshape(count, -1)[:, 0].sum()
        self._origin = np.zeros(levels * width, dtype=np.int64)
        self._least_left = np.array([NEVER])
        room = params.room * width
        self._search = StateSearch(
            shape,
            batch,
            self.columns,
            np.zeros(room * self.columns.width, dtype=np.int64),
            np.full(2 * room, FREE, dtype=np.int64),
            np.zeros(room, dtype=np.int64),
            np.zeros(1024, dtype=np.int64),
            np.zeros(pools, dtype=np.int64),
            np.zeros(self.num_ops, dtype=np.int64),
        )

    @property
    def least_left(self) -> int:
        """Least bound of the states left out."""
        return int(self._least_left[0])

    def run(self, upper: int, clock: Clock) -> tuple[list[int] | None, int]:
        """Return the best sequence of ops and its makespan; None and `upper` if there is none."""
        for first in range(0, self.num_ops, self._stride):
            last = min(first + self._stride, self.num_ops)
            levels = LevelRange(first, last, self.width, upper)
            arrays = (self._counts, self._rows, self._origin, self._least_left)
            self.placed += int(search_states(self._search, levels, *arrays))
            if not self._counts[last]:
                return None, upper
            if clock.is_over and last < self.num_ops:
                self._leave(last)
                return None, upper
        makespans = self._states(self.num_ops)[:, self.columns.reach]
        return self._sequence(int(makespans.argmin())), int(makespans.min())

    def _states(self, level: int) -> IntArray:
        number = self._counts[level]
        width = self.columns.width
        return self._rows[: number * width].reshape(number, width)

    def _leave(self, level: int) -> None:
        bounds = self._states(level)[:, self.columns.bound]
        self._least_left[0] = min(self.least_left, bounds.min())

    def _sequence(self, state: int) -> list[int]:
        ops = []
        for level in range(self.num_ops, 0, -1):
            state, op = divmod(
                int(self._origin[level * self.width + state]), self.num_ops
            )
            ops.append(op)
        return ops[::-1]


Before = tuple[tuple[tuple[int, int], ...], ...]
"""By position: the positions before it, each with its lag."""


def _shape_of(flow: Flow) -> FlowShape | None:
    """Return the phases and tables that flows of one shape share.

    None where a state would need more than one moment per micro-batch and resource: ops that
    occupy no resource or take no time, a pool that ops of several resources use, two positions of
    a micro-batch that wait for other resources at once, a release of what was not acquired before;
    or where there are too many phases: sets of positions that are done.
    """
    uses = ((flow.acquire != 0) | (flow.release != 0)).any(axis=0)
    pool = np.where(uses, flow.pool, FREE)
    owners = {
        (int(p), int(r)) for p, r in zip(pool, flow.resource, strict=True) if p != FREE
    }
    if (flow.resource == FREE).any() or (flow.duration <= 0).any():
        return None
    if len({p for p, _ in owners}) < len(owners):
        return None
    edges = sorted(
        zip(flow.after.tolist(), flow.before.tolist(), flow.lag.tolist(), strict=True)
    )
    before = tuple(
        tuple((u, lag) for after, u, lag in edges if after == v)
        for v in range(flow.num_positions)
    )
    takes: list[bool] = np.any(flow.acquire > 0, axis=0).tolist()
    gives: list[bool] = np.any(flow.release > flow.acquire, axis=0).tolist()
    return _shape(
        before,
        tuple(flow.resource.tolist()),
        tuple(pool.tolist()),
        tuple(takes),
        tuple(gives),
        len(flow.room),
    )


@lru_cache(maxsize=16)
def _shape(
    before: Before,
    resource: tuple[int, ...],
    pool: tuple[int, ...],
    takes: tuple[bool, ...],
    gives: tuple[bool, ...],
    num_pools: int,
) -> FlowShape | None:
    masks = _masks(before, STATES.max_phases)
    if len(masks) > STATES.max_phases:
        return None
    waits = tuple(
        tuple((u, lag) for u, lag in row if resource[u] != resource[v] or lag)
        for v, row in enumerate(before)
    )
    slots = [_waiting(mask, waits) for mask in masks]
    if max(map(len, slots)) > 1:
        return None
    slot = [waiting[0] if waiting else FREE for waiting in slots]
    order = _topological(before)
    moves = _moves(masks, before, waits, slot)
    holds = np.zeros((len(masks), num_pools), dtype=np.int64)
    for number, mask in enumerate(masks):
        holds[
            number,
            [pool[v] for v in order if mask >> v & 1 and pool[v] >= 0 and takes[v]],
        ] = 1
        if any(gives[v] and not holds[number, pool[v]] for v in _options(mask, before)):
            return None
    pointer, earlier = _rows([[u for u, _ in row] for row in before])
    done = np.array(
        [[mask >> v & 1 for v in range(len(before))] for mask in masks], dtype=np.int64
    )
    return FlowShape(
        np.array(resource),
        np.array(pool),
        pointer,
        earlier,
        np.array([lag for row in before for _, lag in row], dtype=np.int64),
        *_rows([_options(mask, before) for mask in masks]),
        *_rows([[v for v in order if not mask >> v & 1] for mask in masks]),
        moves.following,
        done.ravel(),
        np.array(slot),
        moves.gain,
        moves.keeps,
        holds.ravel(),
    )


def _options(mask: int, before: Before) -> list[int]:
    """Return the positions that can be next, by the bits of those that are done."""
    return [
        v
        for v, row in enumerate(before)
        if not mask >> v & 1 and all(mask >> u & 1 for u, _ in row)
    ]


def _masks(before: Before, limit: int) -> list[int]:
    """Return the sets of positions that can be done, none first, one more than allowed at most."""
    masks, seen = [0], {0}
    for mask in masks:
        for v in _options(mask, before):
            new = mask | 1 << v
            if new not in seen and len(masks) <= limit:
                seen.add(new)
                masks.append(new)
    return masks


def _waiting(mask: int, waits: Before) -> list[int]:
    """Return the positions for which something is under way from another resource."""
    return [
        v
        for v, row in enumerate(waits)
        if not mask >> v & 1 and any(mask >> u & 1 for u, _ in row)
    ]


def _topological(before: Before) -> list[int]:
    order: list[int] = []
    mask = 0
    while len(order) < len(before):
        order.append(_options(mask, before)[0])
        mask |= 1 << order[-1]
    return order


class _Moves(NamedTuple):
    """Tables by phase and position, see `FlowShape`."""

    following: IntArray
    gain: IntArray
    keeps: IntArray


def _moves(masks: list[int], before: Before, waits: Before, slot: list[int]) -> _Moves:
    number = {mask: index for index, mask in enumerate(masks)}
    size = len(before)
    following, gain = (
        np.full(len(masks) * size, FREE, dtype=np.int64) for _ in range(2)
    )
    keeps = np.zeros(len(masks) * size, dtype=np.int64)
    for phase, mask in enumerate(masks):
        for v in _options(mask, before):
            new, cell = number[mask | 1 << v], phase * size + v
            following[cell] = new
            if slot[new] != FREE:
                gain[cell] = max(
                    (lag for u, lag in waits[slot[new]] if u == v), default=FREE
                )
                keeps[cell] = slot[new] == slot[phase]
    return _Moves(following, gain, keeps)


def _rows(rows: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """Return pointers and values of rows that differ in length."""
    pointer = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return pointer, np.array([value for row in rows for value in row], dtype=np.int64)
