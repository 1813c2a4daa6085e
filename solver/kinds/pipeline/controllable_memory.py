"""Orders of V-Half and V-Min: building blocks repeated, reordered and squeezed (Qi et al. 2024).

Weight gradients are `WEIGHT_B` whatever their chunk, until the orders are written.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from enum import Enum, auto

from ppsolve.solver.kinds.pipeline.actions import Order
from ppsolve.solver.kinds.pipeline.slot_rows import (
    BACKWARDS,
    FORWARD_A,
    IDLE,
    INPUT_A,
    INPUT_B,
    WEIGHT_A,
    WEIGHT_B,
    PlacedOps,
    Row,
    order_of,
    peak_of,
    repeated,
)

Block = tuple[int, int, int, int]
"""Slots of `FORWARD_A` to `INPUT_A` of micro-batch 0 on one device."""


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
    rows = [repeated(block(devices, device), count) for device in range(devices)]
    rows = list(map(_with_weights, rows))
    rows = _squeezed(_reordered(rows, (_Phase.WARM_UP, _Phase.COOL_DOWN)))
    rows = _reordered(list(map(_without_weights, rows)), (_Phase.COOL_DOWN,))
    rows = _squeezed(list(map(_with_weights, rows)))
    rows = [_with_weights(_without_weights(row)) for row in rows]
    return [order_of(_labelled(row), d, devices) for d, row in enumerate(rows)]


def _with_weights(row: Row) -> Row:
    """Put weight gradients into the idle slots, as soon as they can run; the rest at the end."""
    filled, pending = [], 0
    for kind in row:
        if kind in BACKWARDS:
            pending += 1
        if kind == IDLE and pending:
            kind = WEIGHT_B
            pending -= 1
        filled.append(kind)
    return filled + [WEIGHT_B] * pending


def _without_weights(row: Row) -> Row:
    return [IDLE if kind == WEIGHT_B else kind for kind in row]


def _peak(row: Row) -> int:
    """Return the most chunks that the device holds at once.

    Weight gradients that have no slots yet are taken to fill idle ones.
    """
    return peak_of(row if WEIGHT_B in row else _with_weights(row))


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
    placed = PlacedOps(len(rows))
    for _, device, kind in _cells(rows):
        row = squeezed[device]
        row += [IDLE] * (placed.first_free(device, kind) - len(row))
        placed.add(device, kind, len(row))
        row.append(kind)
    return squeezed


def _reordered(rows: list[Row], moved: Container[_Phase]) -> list[Row]:
    """Move the ops of some phases into earlier idle slots, as far as no device holds more.

    The stable phase is that from the first `INPUT_A` of device 0 to the last forward that enters.
    """
    limit = max(map(_peak, rows))
    last = rows[0].count(FORWARD_A)
    placed, phase = PlacedOps(len(rows)), _Phase.WARM_UP
    for slot, device, kind in _cells(rows):
        if phase is _Phase.WARM_UP and (device, kind) == (0, INPUT_A):
            phase = _Phase.STABLE
        if phase in moved:
            first = placed.first_free(device, kind)
            slot = _moved(rows[device], slot, first, limit)
        placed.add(device, kind, slot)
        is_last = kind == FORWARD_A and len(placed.slots[device, kind]) == last
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


def _labelled(row: Row) -> Row:
    """Name the chunk of each weight gradient: b where one of b waits."""
    labelled, of_b = [], 0
    for kind in row:
        if kind == WEIGHT_B and not of_b:
            kind = WEIGHT_A
        of_b += (kind == INPUT_B) - (kind == WEIGHT_B)
        labelled.append(kind)
    return labelled
