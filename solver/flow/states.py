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
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.clock import Clock
from ppsolve.solver.flow.flow import Flow
from ppsolve.solver.flow.phases import shape_of
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

FIRST_WIDTH, WIDENING = 4, 4
"""States of a level in the first round, and the factor of the next. To prove 86 recorded steps (2
stages, 8 micro-batches) takes 1,300 ops placed in the median and 27,000 in the mean; with 16 and 4:
4,000 and 27,000; 64 and 4: 10,500 and 30,000; 16 and 2: 2,900 and 36,000; 16 and 16: 8,300 and
19,000, but then a round may take 16 times what all before it took."""

ROOM = 4
"""Rows for new states, as a multiple of those that stay."""

STATES_A_CALL = 4_096
"""States that one call of the kernel grows: about 30 ms compiled. A call alone takes 0.1 ms."""

STEPS_PER_OP = 20
"""Steps of other kernels that take as long by Python as placing an op here: 10,000 ops a second."""

MAX_WORDS = 2**26
"""Most numbers in the rows of one level: 512 MB."""


@dataclass(frozen=True, eq=False)
class StatesAnswer:
    """What a search through states found.

    Parameters
    ----------
    value : int or None
        Makespan in ticks; None if none below the upper bound was found.
    starts : int64[m, V] or None
        Start of each op in ticks.
    bound : int
        Lower bound on the makespan in ticks; at most the upper bound.
    proved : bool
        Whether nothing below `value`, or else below the upper bound, exists.
    placed : int
        Ops that were placed in all.
    """

    value: int | None
    starts: IntArray | None
    bound: int
    proved: bool
    placed: int


def solve_states(
    flow: Flow,
    upper: int,
    *,
    delay: IntArray | None = None,
    lower: int = 0,
    clock: Clock | None = None,
    max_states: int = 2**16,
    max_placed: float = math.inf,
) -> StatesAnswer | None:
    """Search for a makespan below an upper bound.

    Parameters
    ----------
    flow : Flow
        m micro-batches that pass V positions.
    upper : int
        Only a makespan below this is of use, in ticks.
    delay : int64[m, V], optional
        Ticks for which all that follows an op in its micro-batch waits beside its lags. Delays are
        between ops of different resources, beside lags or at the end.
    lower : int
        A makespan that is known to be a lower bound, in ticks: the search ends where it is met.
    clock : Clock, optional
        Asked after each op that is placed.
    max_states : int
        Most states of a level.
    max_placed : float
        Ops that may be placed: no round begins that is expected to place more.

    Returns
    -------
    StatesAnswer or None
        None where flows of this shape have no such states, see `shape_of`.
    """
    shape = shape_of(flow)
    if shape is None:
        return None
    delay = np.zeros_like(flow.duration) if delay is None else delay
    batch = batch_of(flow, shape, delay)
    clock = Clock() if clock is None else clock
    best: list[int] | None = None
    asked, upper = upper, min(upper, _horizon(flow, delay))
    bound, placed, last_placed = min(lower, upper), 0, 0
    width = min(FIRST_WIDTH, max_states)
    while bound < upper and not clock.is_over:
        levels = _Round(shape, batch, width)
        expect(STEPS_PER_OP * WIDENING * last_placed)
        sequence, reached = levels.run(upper, clock)
        if sequence is not None:
            best, upper = sequence, reached
        bound, last_placed = max(bound, min(levels.least_left, upper)), levels.placed
        placed += last_placed
        width *= WIDENING
        is_too_wide = width > max_states or width * ROOM * levels.columns.width > MAX_WORDS
        if is_too_wide or placed + WIDENING * last_placed > max_placed:
            break
    if best is None and bound >= upper:
        upper = bound = asked
    starts = None if best is None else starts_of(flow, best, delay)
    return StatesAnswer(None if best is None else upper, starts, bound, bound >= upper, placed)


def batch_of(flow: Flow, shape: FlowShape, delay: IntArray) -> Batch:
    """Return the durations and amounts of a flow as the kernel reads them.

    Parameters
    ----------
    flow : Flow
        The flow.
    shape : FlowShape
        Its shape.
    delay : int64[m, V]
        Ticks after each op.

    Returns
    -------
    Batch
        Tails, ops by tail and the micro-batches that are alike are worked out.
    """
    tail = _tails(flow, shape, delay).ravel()
    numbers = np.arange(flow.duration.size).reshape(flow.duration.shape)
    ranked = []
    for resource in range(flow.num_resources):
        own = numbers[:, flow.resource == resource].ravel()
        ranked.append(own[np.argsort(-tail[own], kind="stable")])
    generator = np.random.default_rng(0)
    return Batch(
        flow.duration.ravel(),
        delay.ravel(),
        tail,
        flow.acquire.ravel(),
        flow.release.ravel(),
        flow.room,
        _least_amounts(flow),
        _twins(flow, delay),
        np.cumsum([0, *map(len, ranked)], dtype=np.int64),
        np.concatenate(ranked),
        generator.integers(0, 2**40, flow.num_microbatches * len(shape.slot)),
    )


def starts_of(flow: Flow, sequence: Sequence[int], delay: IntArray) -> IntArray:
    """Return the starts of ops that are placed one after the other, each as early as possible.

    Parameters
    ----------
    flow : Flow
        The flow.
    sequence : sequence of int
        Every op ``j * V + v`` once, predecessors first.
    delay : int64[m, V]
        Ticks after each op.

    Returns
    -------
    int64[m, V]
        Starts in ticks.
    """
    free = [0] * flow.num_resources
    start = np.zeros_like(flow.duration)
    before: list[list[tuple[int, int]]] = [[] for _ in range(flow.num_positions)]
    for u, v, lag in zip(flow.before, flow.after, flow.lag, strict=True):
        before[v].append((u, lag))
    for op in sequence:
        j, v = divmod(op, flow.num_positions)
        ends = (start[j, u] + flow.duration[j, u] + delay[j, u] + lag for u, lag in before[v])
        start[j, v] = max(free[flow.resource[v]], *ends, 0)
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
    least = [int(taken[taken > 0].min(initial=NEVER)) for taken in amounts]
    return np.array([0 if amount == NEVER else amount for amount in least], dtype=np.int64)


def _twins(flow: Flow, delay: IntArray) -> IntArray:
    """Return the last earlier micro-batch that is alike, `FREE` where there is none."""
    rows = np.concatenate([flow.duration, delay, flow.acquire, flow.release], axis=1)
    latest: dict[bytes, int] = {}
    twins = []
    for j, row in enumerate(rows):
        twins.append(latest.get(row.tobytes(), FREE))
        latest[row.tobytes()] = j
    return np.array(twins, dtype=np.int64)


class _Round:
    """One pass through all levels, with a width.

    Parameters
    ----------
    shape, batch : FlowShape, Batch
        What is scheduled.
    width : int
        Most states of a level.
    """

    def __init__(self, shape: FlowShape, batch: Batch, width: int) -> None:
        count, resources, pools = len(batch.twin), len(batch.ranked_pointer) - 1, len(batch.room)
        self.width, self.num_ops, self.placed = width, len(batch.duration), 0
        self.columns = state_columns(count, resources, pools)
        levels = self.num_ops + 1
        self._counts = np.zeros(levels, dtype=np.int64)
        self._counts[0] = 1
        self._rows = np.zeros(width * self.columns.width, dtype=np.int64)
        self._rows[self.columns.hash] = batch.mark.reshape(count, -1)[:, 0].sum()
        self._origin = np.zeros(levels * width, dtype=np.int64)
        self._least_left = np.array([NEVER])
        room = ROOM * width
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
        """Go through all levels; return the best sequence and its makespan, None if there is none.

        Parameters
        ----------
        upper : int
            Only states below this are kept.
        clock : Clock
            Asked after each level.

        Returns
        -------
        list of int or None
            Ops in the order in which they were placed.
        int
            Makespan; the upper bound if there is no sequence.
        """
        stride = max(1, STATES_A_CALL // self.width)
        for first in range(0, self.num_ops, stride):
            last = min(first + stride, self.num_ops)
            levels = LevelRange(first, last, self.width, upper)
            arrays = (self._counts, self._rows, self._origin, self._least_left)
            self.placed += int(search_states(self._search, levels, *arrays))
            if not self._counts[last]:
                return None, upper
            if clock.is_over and last < self.num_ops:
                self._leave(last)
                return None, upper
        ends = self._states(self.num_ops)[:, self.columns.reach]
        return self._sequence(int(ends.argmin())), int(ends.min())

    def _states(self, level: int) -> IntArray:
        number = self._counts[level]
        width = self.columns.width
        return self._rows[: number * width].reshape(number, width)

    def _leave(self, level: int) -> None:
        """Leave out all states of a level."""
        bounds = self._states(level)[:, self.columns.bound]
        self._least_left[0] = min(self.least_left, bounds.min())

    def _sequence(self, state: int) -> list[int]:
        ops = []
        for level in range(self.num_ops, 0, -1):
            state, op = divmod(int(self._origin[level * self.width + state]), self.num_ops)
            ops.append(op)
        return ops[::-1]
