"""Orders of V-Half and V-Min: building blocks repeated, reordered and squeezed (Qi et al. 2024).

Chunk a is stage d, chunk b stage 2p - 1 - d. An op takes one slot of its device, whatever it takes
in time, and the slots of a micro-batch are those of the one before it, `PERIOD` later.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Container, Iterator
from enum import Enum, auto
from itertools import accumulate

from ppsolve.solver.kinds.pipeline.actions import Order
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
)

PERIOD = 6
"""Slots between a micro-batch and the next one: two chunks of a forward and two halves."""

FORWARD_A, FORWARD_B, INPUT_B, INPUT_A, WEIGHT, IDLE = range(6)
"""What a slot holds, in the order in which a micro-batch passes a device.

Weight gradients are those of any chunk, until the order is written.
"""

_BACKWARDS = (INPUT_B, INPUT_A)
_TOWARDS_LAST = (FORWARD_A, INPUT_B)
_TAKEN = (1, 1, 0, 0, -1, 0)  # chunks that each of these takes

Block = tuple[int, int, int, int]
"""Slots of `FORWARD_A` to `INPUT_A` of micro-batch 0 on one device."""

Row = list[int]
"""What each slot of a device holds."""


def v_half(num_devices: int, num_microbatches: int) -> list[Order]:
    """Return the orders of V-Half, which holds about half of what 1F1B holds."""
    return _orders(_half_block, num_devices, num_microbatches)


def v_min(num_devices: int, num_microbatches: int) -> list[Order]:
    """Return the orders of V-Min, which holds about a third of what 1F1B holds."""
    return _orders(_min_block, num_devices, num_microbatches)


def _half_block(devices: int, device: int) -> Block:
    # Else `FORWARD_B` and `INPUT_A` would meet in one slot of the period.
    pause = 3 if devices % 2 == 0 else 0
    turn = 3 * devices - 2
    return (
        2 * device,
        turn - device,
        turn + 1 + pause + 2 * device,
        turn + 3 * devices + pause - device,
    )


def _min_block(devices: int, device: int) -> Block:
    # As for V-Half.
    pause = 2 if devices % 3 == 0 else 0
    turn = 2 * devices - 1
    return (
        device,
        turn - device,
        turn + 1 + pause + device,
        turn + 2 * devices + pause - device,
    )


def _orders(
    block: Callable[[int, int], Block], devices: int, count: int
) -> list[Order]:
    """Reorder repeated blocks with their weight gradients, then the cool-down without them.

    Without the slots of weight gradients other ops can come earlier, and these run between them.
    """
    rows = [_repeated(block(devices, device), count) for device in range(devices)]
    rows = list(map(_with_weights, rows))
    rows = _squeezed(_reordered(rows, (_Phase.WARM_UP, _Phase.COOL_DOWN)))
    rows = _reordered(list(map(_without_weights, rows)), (_Phase.COOL_DOWN,))
    rows = _squeezed(list(map(_with_weights, rows)))
    rows = [_with_weights(_without_weights(row)) for row in rows]
    return [_order(row, device, devices) for device, row in enumerate(rows)]


def _repeated(block: Block, count: int) -> Row:
    row = [IDLE] * (max(block) + 1 + PERIOD * (count - 1))
    for kind, slot in enumerate(block):
        for number in range(count):
            row[slot + PERIOD * number] = kind
    return row


def _with_weights(row: Row) -> Row:
    """Put weight gradients into the idle slots, as soon as they can run; the rest at the end."""
    filled, pending = [], 0
    for kind in row:
        if kind in _BACKWARDS:
            pending += 1
        if kind == IDLE and pending:
            kind = WEIGHT
            pending -= 1
        filled.append(kind)
    return filled + [WEIGHT] * pending


def _without_weights(row: Row) -> Row:
    return [IDLE if kind == WEIGHT else kind for kind in row]


def _peak(row: Row) -> int:
    """Return the most chunks that the device holds at once.

    Weight gradients that have no slots yet are taken to fill idle ones.
    """
    placed = row if WEIGHT in row else _with_weights(row)
    return max(accumulate(map(_TAKEN.__getitem__, placed)))


class _Slots:
    """Slots of the ops placed so far, and what later ones wait for."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        # By device and kind, in the order of micro-batches.
        self.slots: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        self.backwards: list[list[int]] = [[] for _ in range(devices)]  # of any chunk

    def put(self, device: int, kind: int, slot: int) -> None:
        self.slots[device, kind].append(slot)
        if kind in _BACKWARDS:
            insort(self.backwards[device], slot)

    def first_free(self, device: int, kind: int) -> int:
        """Return the slot behind all that the next op of this kind waits for."""
        before = self.slots[device, kind]
        number = len(before)
        waits = before[-1:]
        if kind == WEIGHT:
            waits.append(self.backwards[device][number])
        else:
            waits += [self.slots[row][number] for row in self._sources(device, kind)]
        return max(waits, default=-1) + 1

    def _sources(self, device: int, kind: int) -> Iterator[tuple[int, int]]:
        if kind != FORWARD_A:
            yield device, kind - 1
        neighbour = device - 1 if kind in _TOWARDS_LAST else device + 1
        if 0 <= neighbour < self.devices:
            yield neighbour, kind


def _cells(rows: list[Row]) -> Iterator[tuple[int, int, int]]:
    """Yield slot, device and kind of all ops as they are when the walk comes to them."""
    for slot in range(max(map(len, rows))):
        for device, row in enumerate(rows):
            if slot < len(row) and row[slot] != IDLE:
                yield slot, device, row[slot]


class _Phase(Enum):
    WARM_UP = auto()
    STABLE = auto()
    COOL_DOWN = auto()


def _squeezed(rows: list[Row]) -> list[Row]:
    """Start every op as early as the order of its device allows."""
    squeezed: list[Row] = [[] for _ in rows]
    slots = _Slots(len(rows))
    for _, device, kind in _cells(rows):
        row = squeezed[device]
        row += [IDLE] * (slots.first_free(device, kind) - len(row))
        slots.put(device, kind, len(row))
        row.append(kind)
    return squeezed


def _reordered(rows: list[Row], moved: Container[_Phase]) -> list[Row]:
    """Move the ops of some phases into earlier idle slots, as far as no device holds more.

    The stable phase is that from the first `INPUT_A` of device 0 to the last forward that enters.
    """
    limit = max(map(_peak, rows))
    last = rows[0].count(FORWARD_A)
    slots, phase = _Slots(len(rows)), _Phase.WARM_UP
    for slot, device, kind in _cells(rows):
        if phase is _Phase.WARM_UP and (device, kind) == (0, INPUT_A):
            phase = _Phase.STABLE
        if phase in moved:
            first = slots.first_free(device, kind)
            slot = _moved(rows[device], slot, first, limit)
        slots.put(device, kind, slot)
        is_last = kind == FORWARD_A and len(slots.slots[device, kind]) == last
        if phase is _Phase.STABLE and is_last:
            phase = _Phase.COOL_DOWN
    return rows


def _moved(row: Row, slot: int, first: int, limit: int) -> int:
    """Move an op into the first idle slot where the device holds no more than the limit."""
    for earlier in range(first, slot):
        if row[earlier] == IDLE:
            row[earlier], row[slot] = row[slot], IDLE
            if _peak(row) <= limit:
                return earlier
            row[earlier], row[slot] = IDLE, row[earlier]
    return slot


def _order(row: Row, device: int, devices: int) -> Order:
    """Write the actions of a row; of chunks that wait for a weight gradient b comes first."""
    stages, kinds = [], []
    pending = {INPUT_B: 0, INPUT_A: 0}
    of_b = (FORWARD_B, INPUT_B)
    for kind in row:
        if kind == IDLE:
            continue
        letter = FORWARD
        if kind == WEIGHT:
            kind = INPUT_B if pending[INPUT_B] else INPUT_A
            pending[kind] -= 1
            letter = BACKWARD_WEIGHT
        elif kind in pending:
            pending[kind] += 1
            letter = BACKWARD_INPUT
        stages.append(2 * devices - 1 - device if kind in of_b else device)
        kinds.append(letter)
    return Order.by_index(stages, "".join(kinds))
