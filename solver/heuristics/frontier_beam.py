"""Schedules of alike micro-batches in tight memory, grown op by op in a beam over frontiers.

Alike rows run in index order, so what has run is said by how many of them have passed each column,
and so is what each pool holds. A dynamic programme over these counts, with labels of the moments
that matter to the rest, is exact; a beam keeps the labels of least bound of each level. The least
bound of the labels that it left out bounds everything that it has not seen.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.solver.bounds.frontier_chains import (
    alone,
    chain_columns,
    chain_of,
    device_ops,
)
from ppsolve.solver.bounds.frontier_search import (
    NOTHING_AHEAD,
    device_ahead,
    longer,
    look_ahead,
)
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.heuristics.order_search import (
    LocalMemory,
    local_memory,
    obstacle,
    resources_of_ops,
)
from ppsolve.solver.heuristics.params import COMPACTION, FrontierBeamParams
from ppsolve.solver.heuristics.spans import compact_spans
from ppsolve.solver.kernels.compilation import expect, is_compiled
from ppsolve.solver.kernels.frontier import LookAhead
from ppsolve.solver.kernels.frontier_beam import (
    BEAM_LABEL_FIGURES,
    LABEL_STEPS,
    RowColumns,
    beam_newest_at,
    beam_steps,
    grow_beam,
)
from ppsolve.solver.kernels.frontier_levels import LINKS, TALLY, FrontierLevels
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import Column, ImpliedOrder
from ppsolve.solver.structure.timing import time_orders

FRONTIER_BEAM = "frontier-beam"
"""Name of the search in reports."""


STEPS_OF_A_LABEL = 20
"""What a label costs beside an op that a list rule places."""


class AlikeRows(NamedTuple):
    """Rows of a problem as a beam takes them."""

    numbers: IntArray  # of the columns in their family
    columns: RowColumns
    ahead: LookAhead


def frontier_beam(problem: Problem, effort: Effort) -> Schedule | None:
    """Return the best schedule that beams of growing width find, None if they find none.

    For a makespan it is better than the board's schedule; for device spans the shortest makespan
    is sought, and spans are compacted. Better schedules are proposed to the board, and the bounds
    of what was left out. A `NotApplicableError` says what the problem lacks.
    """
    on_spans = problem.objective is Objective.DEVICE_SPAN
    shortest = replace(problem, objective=Objective.MAKESPAN) if on_spans else problem
    board, params, clock = effort.board, effort.params.beam, effort.clock
    rows = alike_rows(shortest, params)
    best, width, labels = None, params.first_width, 0
    most_labels = min(params.labels, params.labels_per_op * problem.num_ops)
    if clock.is_limited:
        most_labels *= params.clock_factor
    while width <= params.most_width and not (clock.is_over or board.is_closed):
        value = None if on_spans else board.value
        upper = _horizon(rows.columns) if value is None else value
        beam = _Beam(rows, width, upper, params)
        beam.run(clock, 2 * (most_labels - labels))
        if beam.sequence:
            schedule = _timed(problem, rows, beam.sequence)
            if on_spans:
                schedule = compact_spans(schedule, clock.share(COMPACTION.share))
            if best is None or schedule.value < best.value:
                best = schedule
            board.propose(schedule, FRONTIER_BEAM)
        if not on_spans:
            board.raise_bound(beam.bound, FRONTIER_BEAM)
        labels += beam.labels
        growth = min(params.widening, (most_labels - labels) // max(1, beam.labels))
        if beam.is_exact or growth < 2:
            break
        width *= growth
    return best


def _all_fit(columns: RowColumns) -> bool:
    """Whether pools have room for all that all rows take."""
    taken = np.zeros_like(columns.room)
    np.add.at(taken, columns.resource, columns.members * columns.acquire)
    return bool((taken <= columns.room).all())


def narrow_beam(
    problem: Problem, width: int, upper: int, clock: Clock
) -> Schedule | None:
    """Return the schedule of one beam that ends before a moment, None if it finds none.

    A `NotApplicableError` says what the problem lacks.
    """
    params = FrontierBeamParams()
    rows = alike_rows(problem, params)
    beam = _Beam(rows, width, upper, params)
    beam.run(clock, params.labels * (params.clock_factor if clock.is_limited else 1))
    return _timed(problem, rows, beam.sequence) if beam.sequence else None


def alike_rows(problem: Problem, params: FrontierBeamParams) -> AlikeRows:
    """Return the rows of a problem whose memory not all of them fit into.

    A `NotApplicableError` says what the problem lacks.
    """
    reason = obstacle(problem) or _lacking(problem)
    if reason is not None:
        raise NotApplicableError(reason)
    implied, family = ImpliedOrder(problem), problem.families[0]
    resource, duration = (
        resources_of_ops(problem)[family[0]],
        problem.duration[family[0]],
    )
    memory = local_memory(problem)
    need, freed = memory.need[family[0]], memory.freed[family[0]]
    rows = chain_columns(
        implied,
        [Column(0, index) for index in np.flatnonzero(resource != FREE).tolist()],
    )
    if rows is None or any(
        resource[rows.chain[place].index] != resource[column.index]
        or implied.way(rows.chain[place], column) != duration[rows.chain[place].index]
        or need[column.index]
        for place, column in rows.loose
    ):
        raise NotApplicableError(
            "needs micro-batches whose ops are a chain, but for weight gradients behind it"
        )
    delay = [implied.way(a, b) for a, b in pairwise(rows.chain)]
    rows.loose.sort(
        key=lambda entry: Fraction(
            -int(freed[entry[1].index]), int(duration[entry[1].index])
        )
    )
    columns = [*rows.chain, *(column for _, column in rows.loose)]
    numbers = np.array([column.index for column in columns], dtype=np.int64)
    tables = _columns(
        duration[numbers],
        resource[numbers],
        LocalMemory(need[numbers], freed[numbers], memory.room),
        np.array([*delay, 0], dtype=np.int64),
        [place for place, _ in rows.loose],
        len(family),
    )
    if _all_fit(tables):
        raise NotApplicableError("needs memory that not all micro-batches fit into")
    ahead, seat = _look_ahead(Relaxations(implied), tables, params)
    return AlikeRows(numbers, tables._replace(seat=seat), ahead)


def _lacking(problem: Problem) -> str | None:
    if len(problem.families) != 1 or problem.families[0].size < problem.num_ops:
        return "needs alike micro-batches, and no other ops"
    if len(problem.families[0]) < 2 or not problem.pools:
        return "needs several micro-batches, and memory that is limited"
    return None


def _columns(
    duration: IntArray,
    resource: IntArray,
    memory: LocalMemory,
    delay: IntArray,
    places: list[int],
    members: int,
) -> RowColumns:
    """Return the tables of columns for the kernel; loose ones follow the given places."""
    need, freed, room = memory
    length, resources = len(delay), len(room)
    loose, work = np.zeros((2, length), dtype=np.int64)
    np.add.at(loose, places, duration[length:])
    np.add.at(work, places, duration[length:])
    to_end, to_release = np.zeros((2, length), dtype=np.int64)
    ways = np.full((length + 1, resources), NEVER, dtype=np.int64)
    tails = np.zeros(resources, dtype=np.int64)
    kept = (need - freed)[:length]
    np.add.at(kept, places, (need - freed)[length:])
    following, opening = 0, NEVER
    for j in range(length - 1, -1, -1):
        here = resource[j]
        following = max(delay[j] + following, duration[j] + work[j])
        to_end[j] = following
        if ways[j + 1, here] == NEVER:
            tails[here] = following - duration[j]
        ways[j] = np.where(ways[j + 1] < NEVER, ways[j + 1] + delay[j], NEVER)
        ways[j, here] = 0
        gives = freed[j] > 0 or any(
            freed[length + k] > 0 for k, place in enumerate(places) if place == j
        )
        if opening < NEVER:
            opening += delay[j]
        if gives and here == resource[0]:
            opening = duration[j]
        to_release[j] = opening
    return RowColumns(
        duration=duration,
        resource=resource,
        before=np.array([*range(-1, length - 1), *places], dtype=np.int64),
        acquire=need,
        change=need - freed,
        kept=kept,
        loose=loose,
        delay=delay,
        to_end=to_end,
        to_release=to_release,
        ways=ways[:-1].ravel(),
        tails=tails,
        room=room,
        seat=np.full(resources, FREE, dtype=np.int64),
        members=members,
        rows=_rows_on_their_way(resource[:length], need - freed, room, members),
        ends_in_turn=int(_end_in_turn(resource[:length], need[:length], kept)),
    )


def _end_in_turn(resource: IntArray, need: IntArray, kept: IntArray) -> bool:
    """Whether rows that can end can end in turn: on no resource a row takes after it gave back."""
    for here in np.unique(resource):
        own = resource == here
        first_release = np.argmax(kept[own] < 0)
        if need[own][first_release + 1 :].any():
            return False
    return True


def _rows_on_their_way(
    resource: IntArray, change: IntArray, room: IntArray, members: int
) -> int:
    """Return the most rows that can have begun their chain and not ended it."""
    first = resource[0]
    held = np.cumsum(np.where(resource == first, change[: len(resource)], 0))[:-1]
    smallest = int(held.min(initial=0 if resource[-1] != first else NEVER))
    if smallest <= 0:
        return members
    return max(1, min(members, int(room[first]) // smallest))


def _look_ahead(
    relaxations: Relaxations, columns: RowColumns, params: FrontierBeamParams
) -> tuple[LookAhead, IntArray]:
    """Return the times that each device alone still takes, and the device of each resource.

    None has a device where one of them has too many states, or its ops are no part of the chain.
    """
    seat = columns.seat.copy()
    try:
        devices = list(device_ops(relaxations))
    except MemoryInfeasible:  # no order of the ops keeps memory: no label will last
        return NOTHING_AHEAD, seat
    chain = chain_of(relaxations, devices) if devices else None
    if chain is None or len(chain.device) != len(columns.delay):
        return NOTHING_AHEAD, seat
    tables = []
    for device in range(len(devices)):
        part = alone(chain, device)
        table = device_ahead(part, params.ahead_rows, params.ahead_states)
        if table is None:
            return NOTHING_AHEAD, seat
        tables.append(table)
    seat[columns.resource[: len(chain.device)]] = chain.device
    return look_ahead(chain, tables), seat


def _horizon(columns: RowColumns) -> int:
    """Return a makespan that no schedule without idle time on all resources reaches."""
    work = columns.duration.sum() + columns.delay.sum()
    return int(columns.members * work) + 1


def _timed(problem: Problem, rows: AlikeRows, sequence: list[int]) -> Schedule:
    """Return the schedule of ops in the order of a sequence of columns."""
    passed = [0] * len(rows.numbers)
    orders: list[list[int]] = [[] for _ in range(problem.num_resources)]
    for j in sequence:
        op = problem.families[0][passed[j], rows.numbers[j]]
        orders[rows.columns.resource[j]].append(int(op))
        passed[j] += 1
    return time_orders(problem, [np.array(order, dtype=np.int64) for order in orders])


class _Beam:
    """Levels of states grown from none to all ops, with so many labels of each.

    `sequence` has the columns of the ops of the best schedule below an upper bound in the order of
    their starts, and is empty if none was found. `bound` is a lower bound on all schedules.
    """

    def __init__(
        self, rows: AlikeRows, width: int, upper: int, params: FrontierBeamParams
    ) -> None:
        columns = rows.columns
        self._rows = rows
        self.sequence: list[int] = []
        self.bound = 0
        self._columns, self._width, self._upper = columns, width, upper
        self._params = params
        count, resources = len(columns.duration), len(columns.room)
        self._newest = beam_newest_at(count, resources)
        self._state_size = self._newest + LINKS
        self._moments = resources + columns.rows
        self._label_size = self._moments + BEAM_LABEL_FIGURES
        self._last = columns.members * count
        self._room = (2 * width, 4 * width)
        self._states = np.zeros(2 * self._room[0] * self._state_size, dtype=np.int64)
        self._labels = np.zeros(2 * self._room[1] * self._label_size, dtype=np.int64)
        self._entries = np.zeros(1 + width * self._last, dtype=np.int64)
        work = self._states[count + resources : count + 4 * resources]
        length = len(columns.delay)
        np.add.at(work, columns.resource[:length], columns.duration[:length])
        np.add.at(
            work, resources + columns.resource[length:], columns.duration[length:]
        )
        work *= columns.members
        self._labels[self._label_size - 1] = FREE
        self._tally = np.zeros(TALLY.size, dtype=np.int64)
        self._tally[TALLY.states] = self._tally[TALLY.entries] = 1
        self._tally[TALLY.least_left] = NEVER

    @property
    def labels(self) -> int:
        """Labels made, or what takes as long."""
        return int(beam_steps(self._tally)) // LABEL_STEPS

    @property
    def is_exact(self) -> bool:
        """Whether it has grown all levels, and left nothing out below the upper bound."""
        return self.bound > 0 and self._tally[TALLY.least_left] >= self._upper

    def run(self, clock: Clock, most_labels: int) -> None:
        """Grow all levels, unless time, labels or room run out before."""
        level = 0
        expect(STEPS_OF_A_LABEL * self._width * self._last)
        while level < self._last:
            if clock.is_over or self.labels >= most_labels:
                return
            before, labels = level, self.labels
            level = self._grow(level, most_labels)
            expect(STEPS_OF_A_LABEL * (self.labels - labels))
            if level == before and not self._widen():
                return
        self.bound = min(self._upper, int(self._tally[TALLY.least_left]))
        if self._tally[TALLY.states + self._last % 2]:
            self._end()

    def _grow(self, level: int, most_labels: int) -> int:
        tally, params = self._tally, self._params
        few = params.call if is_compiled() else params.call // 64
        levels = FrontierLevels(
            first=level,
            last=self._last,
            ring=2,
            counts=len(self._columns.duration),
            newest=self._newest,
            moments=self._moments,
            label_size=self._label_size,
            states=self._room[0],
            labels=self._room[1],
            merged=NEVER,
            width=self._width,
            in_turn=0,
            upper=self._upper,
            steps=LABEL_STEPS * min(self.labels + few, most_labels),
        )
        table = np.full(2 * self._room[0] + 1, FREE, dtype=np.int64)
        firsts = np.zeros(len(self._columns.room), dtype=np.int64)
        arrays = self._states, self._labels, table, firsts, self._entries, tally
        return int(grow_beam(*self._rows[1:], levels, *arrays))

    def _widen(self) -> bool:
        """Make room for twice as many states and labels; return whether there may be."""
        states, labels = 2 * self._room[0], 2 * self._room[1]
        if 2 * labels * self._label_size > self._params.words:
            return False
        self._states = longer(self._states, 2 * states * self._state_size)
        self._labels = longer(self._labels, 2 * labels * self._label_size)
        self._room = (states, labels)
        return True

    def _end(self) -> None:
        """Note the end and the sequence of the label of the last level that ends first."""
        width, count = self._label_size, len(self._columns.duration)
        state = self._last % 2 * self._state_size
        label = int(self._states[state + self._newest])
        entry = FREE
        while label >= 0:
            end, _, origin, label = self._labels[(label + 1) * width - 4 :][:4].tolist()
            if entry == FREE or end < self.bound:
                self.bound, entry = min(self.bound, end), origin
        while entry > 0:
            entry, column = divmod(int(self._entries[entry]), count)
            self.sequence.append(column)
        self.sequence.reverse()
