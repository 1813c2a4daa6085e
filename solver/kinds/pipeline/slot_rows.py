"""Rows of slots: what each device of a V placement does slot by slot, whatever ops take in time.

Chunk a is stage d, chunk b stage 2p - 1 - d. Each kind of op runs the micro-batches by index, and
all slots of a micro-batch are those of the one before it, `PERIOD` later (Qi et al. 2024).
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from ppsolve.solver.kinds.pipeline.actions import Order
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
)

PERIOD = 6
"""Slots between a micro-batch and the next one: two chunks of a forward and two halves."""

FORWARD_A, FORWARD_B, INPUT_B, INPUT_A, WEIGHT_B, WEIGHT_A, IDLE = range(7)
"""What a slot holds; the first four in the order in which a micro-batch passes a device."""

WEIGHTS = (WEIGHT_B, WEIGHT_A)
TOWARDS_LAST = (FORWARD_A, INPUT_B)
BACKWARDS = (INPUT_B, INPUT_A)
_OF_B = (FORWARD_B, INPUT_B, WEIGHT_B)
TAKEN = (1, 1, 0, 0, -1, -1, 0)  # chunks that each kind takes
_LETTERS = (
    FORWARD,
    FORWARD,
    BACKWARD_INPUT,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    BACKWARD_WEIGHT,
)

Row = list[int]
"""What each slot of a device holds."""


def repeated(starts: Sequence[int], count: int) -> Row:
    """Return the row of a device whose micro-batch 0 has a slot for each of the first kinds."""
    row = [IDLE] * (max(starts) + 1 + PERIOD * (count - 1))
    for kind, start in enumerate(starts):
        for number in range(count):
            row[start + PERIOD * number] = kind
    return row


def peak_of(row: Row) -> int:
    """Return the most chunks that the device holds at once, each until its weight gradient."""
    return max(accumulate(map(TAKEN.__getitem__, row)))


def order_of(row: Row, device: int, devices: int) -> Order:
    """Return the actions of a row."""
    kinds = [kind for kind in row if kind != IDLE]
    stages = [2 * devices - 1 - device if kind in _OF_B else device for kind in kinds]
    return Order.by_index(stages, "".join(_LETTERS[kind] for kind in kinds))


class PlacedOps:
    """Slots of the ops placed so far, and what later ones wait for."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        # By device and kind, in the order of micro-batches.
        self.slots: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        self.backwards: list[list[int]] = [[] for _ in range(devices)]  # of any chunk

    def add(self, device: int, kind: int, slot: int) -> None:
        """Place the next op of a kind."""
        self.slots[device, kind].append(slot)
        if kind in BACKWARDS:
            insort(self.backwards[device], slot)

    def first_free(self, device: int, kind: int) -> int:
        """Return the slot behind all that the next op of this kind waits for."""
        before = self.slots[device, kind]
        number = len(before)
        waits = before[-1:]
        if kind in WEIGHTS:
            waits.append(self.backwards[device][number])
        else:
            waits += [self.slots[row][number] for row in self.sources(device, kind)]
        return max(waits, default=-1) + 1

    def sources(self, device: int, kind: int) -> Iterator[tuple[int, int]]:
        """Yield device and kind of what an op waits for."""
        if kind in WEIGHTS:
            yield device, kind - 2
            return
        if kind != FORWARD_A:
            yield device, kind - 1
        neighbour = device - 1 if kind in TOWARDS_LAST else device + 1
        if 0 <= neighbour < self.devices:
            yield neighbour, kind
