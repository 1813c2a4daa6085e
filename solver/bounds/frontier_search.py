"""Levels of states of a chain of devices, grown as far as effort goes: optima and bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.bounds.params import ENDLESS, BoundsEffort
from ppsolve.solver.kernels.compilation import expect, is_compiled
from ppsolve.solver.kernels.frontier import (
    DeviceChain,
    LookAhead,
    grow_frontier,
    moments_of,
    newest_at,
)
from ppsolve.solver.kernels.frontier_ahead import list_entries, list_states
from ppsolve.solver.kernels.frontier_levels import LINKS, TALLY, FrontierLevels
from ppsolve.solver.kernels.records import NEVER

NO_NUMBERS = np.zeros(0, dtype=np.int64)
NOTHING_AHEAD = LookAhead(*(NO_NUMBERS,) * 10)


class BeamLimits(NamedTuple):
    """Which labels a search leaves out."""

    width: int = NEVER  # most labels of a level, those of least bound
    merged: int = NEVER  # labels of a state from which on two become one
    in_turn: bool = False  # only states stay whose rows can end in turn, on one device
    most_steps: int = NEVER  # labels made


class FrontierSearch:
    """Levels of states of a chain, grown until the last one or until the effort is used up."""

    def __init__(
        self,
        chain: DeviceChain,
        upper: int,
        beam: BeamLimits,
        effort: BoundsEffort = ENDLESS,
        ahead: LookAhead = NOTHING_AHEAD,
    ) -> None:
        self.upper = upper
        self._chain, self._ahead, self._beam = chain, ahead, beam
        self._clock, self._params = effort
        columns, devices = len(chain.duration), len(chain.room)
        self._room = (self._params.frontier_states, self._params.frontier_labels)
        self._ring = 3 if (chain.moves.partner >= 0).any() else 2
        self._newest = newest_at(columns, devices)
        self._state_size = self._newest + LINKS
        self._moments = moments_of(chain.rows, devices)
        self._label_size = self._moments + 2
        states, labels = (self._ring * room for room in self._room)
        self._states = np.zeros(states * self._state_size, dtype=np.int64)
        self._labels = np.zeros(labels * self._label_size, dtype=np.int64)
        self._states[: self._state_size] = first_state(chain)
        self._labels[self._label_size - 1] = FREE
        self._tally = np.zeros(TALLY.size, dtype=np.int64)
        self._tally[TALLY.states], self._tally[TALLY.least_left] = 1, NEVER
        self._level, self._last = 0, chain.members * columns

    @property
    def steps(self) -> int:
        """Labels made."""
        return int(self._tally[TALLY.steps])

    @property
    def is_over(self) -> bool:
        """Whether the last level was reached."""
        return self._level == self._last

    @property
    def is_exact(self) -> bool:
        """Whether no label was left out or merged, but for those that reach the limit."""
        is_whole = self._tally[TALLY.least_left] == NEVER
        return self.is_over and is_whole and not self._tally[TALLY.merges]

    @property
    def end(self) -> int:
        """The least end of all labels that were kept, the limit where there is none so far."""
        return min(self.upper, *self._bounds(), NEVER) if self.is_over else self.upper

    @property
    def lower(self) -> int:
        """A lower bound on the end of every schedule, or the limit where that is less."""
        least_left = int(self._tally[TALLY.least_left])
        return min(self.upper, least_left, *self._bounds(), NEVER)

    def run(self) -> None:
        """Go on until enough labels are made."""
        steps = self._beam.most_steps
        while not self.is_over and not self._clock.is_over and self.steps < steps:
            level, before = self._level, self.steps
            self._level = self._grow()
            if self._level == level and not self._widen():
                break
            expect(100 * (self.steps - before))

    def _grow(self) -> int:
        params, beam = self._params, self._beam
        few = params.frontier_call if is_compiled() else params.frontier_call // 64
        levels = FrontierLevels(
            first=self._level,
            last=self._last,
            ring=self._ring,
            counts=len(self._chain.duration),
            newest=self._newest,
            moments=self._moments,
            label_size=self._label_size,
            states=self._room[0],
            labels=self._room[1],
            merged=beam.merged,
            width=beam.width,
            in_turn=int(beam.in_turn),
            upper=self.upper,
            steps=min(self.steps + few, beam.most_steps),
        )
        table = np.full(2 * self._room[0] + 1, -1, dtype=np.int64)
        first = np.zeros(len(self._chain.room), dtype=np.int64)
        arrays = self._states, self._labels, table, first, self._tally
        return int(grow_frontier(self._chain, self._ahead, levels, *arrays))

    def _widen(self) -> bool:
        """Make room for four times as many states and labels; return whether there may be."""
        states, labels = 4 * self._room[0], 4 * self._room[1]
        if self._ring * labels * self._label_size > self._params.frontier_words:
            return False
        self._states = longer(self._states, self._ring * states * self._state_size)
        self._labels = longer(self._labels, self._ring * labels * self._label_size)
        self._room = (states, labels)
        return True

    def _bounds(self) -> Iterator[int]:
        """Yield the lower bounds of all labels that may still be grown, or have reached the end."""
        levels = 1 if self.is_over else self._ring - 1
        for level in range(self._level, self._level - levels, -1):
            slot = level % self._ring
            for state in range(int(self._tally[TALLY.states + slot])):
                row = (self._ring * state + slot) * self._state_size
                number = int(self._states[row + self._newest])
                while number >= 0:
                    bound, number = self._labels[number * self._label_size :][
                        self._moments : self._label_size
                    ].tolist()
                    yield bound


def longer(numbers: IntArray, size: int) -> IntArray:
    """Return numbers with zeros behind them."""
    return np.concatenate([numbers, np.zeros(size - len(numbers), dtype=np.int64)])


def first_state(chain: DeviceChain) -> IntArray:
    """Return the state in which nothing has begun."""
    columns, devices = len(chain.duration), len(chain.room)
    state = np.zeros(newest_at(columns, devices) + LINKS, dtype=np.int64)
    work = state[columns + devices :]
    np.add.at(work, chain.device, chain.members * chain.work)
    np.add.at(work[devices:], chain.device, chain.members * chain.load)
    return state


class DeviceAhead(NamedTuple):
    """What a device alone still takes from each of its states, see `LookAhead`."""

    chain: DeviceChain  # the device alone
    successor: IntArray
    pointer: IntArray
    entries: IntArray


def device_ahead(chain: DeviceChain, most: int, room: int) -> DeviceAhead | None:
    """Return at most so many rows of each state of a device alone, None if it has more states."""
    if min(most, room) < 1:
        return None
    columns, moves = len(chain.duration), len(chain.moves.op)
    first = first_state(chain)
    states = np.zeros((room + 1) * len(first), dtype=np.int64)
    states[: len(first)] = first
    table = np.full(2 * room + 1, -1, dtype=np.int64)
    successor = np.zeros(room * moves, dtype=np.int64)
    number, width = list_states(chain, room, states, table, successor), chain.rows + 2
    if number > room:
        return None
    successor = successor[: number * moves]
    passed = states[: number * len(first)].reshape(number, -1)[:, :columns].sum(axis=1)
    order = np.argsort(-passed, kind="stable")
    count = np.zeros(number, dtype=np.int64)
    entries = np.zeros((number * most + 1) * width, dtype=np.int64)
    list_entries(chain, order, most, states, successor, count, entries)
    rows = entries[:-width].reshape(number, most, width)
    is_used = np.arange(most) < count[:, None]
    return DeviceAhead(chain, successor, _begins(count), rows[is_used].ravel())


def look_ahead(chain: DeviceChain, tables: Sequence[DeviceAhead]) -> LookAhead:
    """Return the times of each device of a chain alone, for the kernel."""
    device_of_move = chain.device[chain.moves.op]
    place = np.zeros_like(device_of_move)
    moves = np.bincount(device_of_move)
    for device, count in enumerate(moves):
        place[device_of_move == device] = np.arange(count)
    openings = [int(np.argmax(chain.device == d)) for d in range(len(tables))]
    return LookAhead(
        place=place,
        moves=moves,
        opening=np.array(openings),
        slots=np.array([table.chain.rows for table in tables]),
        successor=np.concatenate([table.successor for table in tables]),
        successor_at=_begins([len(table.successor) for table in tables]),
        pointer=np.concatenate([table.pointer for table in tables]),
        pointer_at=_begins([len(table.pointer) for table in tables]),
        entries=np.concatenate([table.entries for table in tables]),
        entries_at=_begins([len(table.entries) for table in tables]),
    )


def _begins(lengths: Sequence[int] | IntArray) -> IntArray:
    return np.cumsum([0, *lengths], dtype=np.int64)
