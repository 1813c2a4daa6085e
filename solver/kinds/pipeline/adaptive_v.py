"""Orders of the adaptive V schedules: the building blocks that fit in memory (Qi et al. 2024).

A block is repeated; its warm-up and cool-down are written anew, and idle slots filled.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import permutations

from ppsolve.models.core.problem import Pool
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import HeuristicFailedError
from ppsolve.solver.heuristics.heuristic import (
    Heuristic,
    Proposal,
    Request,
    Requirement,
)
from ppsolve.solver.kinds.pipeline.actions import Order, action_strings, resolved
from ppsolve.solver.kinds.pipeline.published import (
    A_PIPELINE,
    ONE_PIPE,
    SPLIT,
    V_SHAPED,
)
from ppsolve.solver.kinds.pipeline.slot_rows import (
    BACKWARDS,
    FORWARD_A,
    FORWARD_B,
    IDLE,
    INPUT_A,
    INPUT_B,
    PERIOD,
    TAKEN,
    TOWARDS_LAST,
    WEIGHT_A,
    WEIGHT_B,
    WEIGHTS,
    PlacedOps,
    Row,
    order_of,
    peak_of,
    repeated,
)

Block = tuple[tuple[int, ...], ...]
"""Slot within the period of each of the six kinds, on each device."""


def _propose(request: Request) -> Proposal:
    """Time the orders of all blocks that fit; of equal schedules keep the first."""
    problem, effort = request.problem, request.effort
    devices = request.instance.num_devices
    limit = min([2 * devices, *map(_most_chunks, problem.pools)])
    best: tuple[Schedule, list[Order]] | None = None
    tried = adaptive_orders(
        devices,
        request.instance.num_microbatches,
        limit,
        max(1, effort.params.adaptive_v.effort // problem.num_ops),
    )
    for orders in tried:
        chains = resolved(problem, orders)
        if not chains.overfills(problem):
            schedule = chains.timed(problem)
            if best is None or schedule.value < best[0].value:
                best = schedule, orders
        if best is not None and effort.clock.is_over:
            break
    if best is None:
        raise HeuristicFailedError(
            f"no building block that was tried holds {limit} chunks or fewer"
        )
    return Proposal(best[0], action_strings(best[1]))


def _most_chunks(pool: Pool) -> int:
    """Return the most chunks in a pool, each as large as the smallest."""
    least = min((pool.amounts[index] for index in pool.acquire_amount), default=0)
    return math.floor((pool.limit - pool.initial) / least) if least > 0 else sys.maxsize


def adaptive_orders(
    devices: int, count: int, limit: int, most_blocks: int
) -> Iterator[list[Order]]:
    """Yield the orders of the first building blocks that hold no more chunks than a limit.

    The limit is twice the devices or less, and these are two or more.
    """
    peaks: dict[Block, int] = {}
    for family in _families(devices):
        for block in family:
            if block not in peaks:
                if len(peaks) == most_blocks:
                    return
                rows, peaks[block] = _built(block, count, limit)
                if rows is not None and peaks[block] <= limit:
                    yield [order_of(row, d, devices) for d, row in enumerate(rows)]
            # Blocks of one family hold ever more.
            if peaks[block] > limit:
                break


def _families(devices: int) -> Iterator[Iterator[Block]]:
    """Yield blocks that differ in the device behind which the way down becomes faster."""
    for later in permutations(range(1, PERIOD), 3):
        first = _with_weights((0, *later))
        for slow in range(1, PERIOD):
            for fast in range(1, slow + 1):
                yield _family(first, slow, fast, devices)


def _family(
    first: tuple[int, ...], slow: int, fast: int, devices: int
) -> Iterator[Block]:
    for turn in range(1, devices):
        block = [first]
        for device in range(1, devices):
            down = slow if device <= turn else fast
            steps = (down, -1, down, -1)
            slots = tuple(
                (slot + step) % PERIOD
                for slot, step in zip(block[-1], steps, strict=False)
            )
            if len(set(slots)) < len(slots):
                break
            block.append(_with_weights(slots))
        if len(block) == devices:
            yield tuple(block)


def _with_weights(slots: tuple[int, ...]) -> tuple[int, ...]:
    """Add the first free slots of the period behind the input gradients."""
    for kind in BACKWARDS:
        cycle = ((slots[kind] + step) % PERIOD for step in range(PERIOD))
        slots = (*slots, next(slot for slot in cycle if slot not in slots))
    return slots


def _built(block: Block, count: int, limit: int) -> tuple[list[Row] | None, int]:
    """Return the rows of a block, if they are valid, and the chunks that it holds."""
    devices = len(block)
    padded = max(count, 2 * devices)
    rows = [repeated(starts, padded) for starts in _starts(block)]
    peak = _peak(rows)
    if (count == padded and peak > limit) or peak > 2 * devices:
        return None, peak
    rows = _squeezed(_with_warm_up(_squeezed(rows), padded))
    held = _peak(rows)
    if held > peak:
        return None, peak
    if count < padded:
        rows = [_first(row, count) for row in rows]
        if count <= devices and 2 * count <= limit:
            rows = _with_late_weights(rows, min(2 * devices, held))
        rows = _squeezed(rows)
        peak = _peak(rows)
        if peak > limit:
            return None, peak
    rows = _filled(_squeezed(_with_cool_down(rows, count)))
    rows = list(map(_labelled, rows))
    held = _peak(rows)
    return (rows if held <= peak and _is_valid(rows, count) else None), held


def _peak(rows: list[Row]) -> int:
    return max(map(peak_of, rows))


def _starts(block: Block) -> list[list[int]]:
    """Return the slots of micro-batch 0, each the first in its place of the period that is free."""
    devices = len(block)
    starts = [[0] * PERIOD for _ in block]
    slot = 0
    for kind in (FORWARD_A, FORWARD_B, INPUT_B, INPUT_A):
        path = range(devices) if kind in TOWARDS_LAST else reversed(range(devices))
        for device in path:
            slot += (block[device][kind] - slot) % PERIOD
            starts[device][kind] = slot
            slot += 1
            if kind in BACKWARDS:
                weight = kind + 2
                wait = (block[device][weight] - slot) % PERIOD
                starts[device][weight] = slot + wait
    return starts


def _squeezed(rows: list[Row]) -> list[Row]:
    """Start every op as early as the order of its device allows; rows become of one length."""
    devices = len(rows)
    squeezed: list[Row] = [[] for _ in rows]
    placed = PlacedOps(devices)
    for slot in range(max(map(len, rows))):
        cells = [(d, row[slot]) for d, row in enumerate(rows) if slot < len(row)]
        down = [cell for cell in cells if cell[1] in (*TOWARDS_LAST, WEIGHT_B)]
        up = [cell for cell in cells if cell[1] in (FORWARD_B, INPUT_A, WEIGHT_A)]
        for device, kind in down + up[::-1]:
            row = squeezed[device]
            row += [IDLE] * (placed.first_free(device, kind) - len(row))
            placed.add(device, kind, len(row))
            row.append(kind)
    return _of_one_length(squeezed)


def _of_one_length(rows: list[Row]) -> list[Row]:
    length = max(map(len, rows))
    return [row + [IDLE] * (length - len(row)) for row in rows]


def _with_warm_up(rows: list[Row], count: int) -> list[Row]:
    """Write the slots before the first `INPUT_A` of each device anew: forwards, then rounds."""
    peak = min(_peak(rows), 2 * len(rows))
    for device, row in enumerate(rows):
        end = row.index(INPUT_A)
        moved = Counter(kind for kind in row[:end] if kind != IDLE)
        row[:end] = [IDLE] * end
        most_b = min(device + 1, peak // 2, count)
        most_a = min(peak - most_b, count)
        cells = _warm_up(moved, (most_a, most_b), len(rows) - 1 - device, device + 1)
        for slot, kind in enumerate(cells, device):
            if kind != IDLE:
                row[slot] = kind
    return rows


def _warm_up(
    moved: Counter[int], most: tuple[int, int], ahead: int, pairs: int
) -> Iterator[int]:
    # So many forwards of each chunk come first.
    first = Counter({kind: min(moved[kind], most[kind]) for kind in (0, 1)})
    for kind in [FORWARD_A] * (2 * ahead) + [FORWARD_A, FORWARD_B] * pairs:
        if first[kind]:
            first[kind] -= 1
            moved[kind] -= 1
            yield kind
        else:
            yield IDLE
    while moved.total():
        for kinds in ((INPUT_B,), (WEIGHT_B,), (FORWARD_B, FORWARD_A)):
            kind = next((kind for kind in kinds if moved[kind]), IDLE)
            if kind != IDLE:
                moved[kind] -= 1
            yield kind


def _first(row: Row, count: int) -> Row:
    """Leave out all micro-batches but the first ones."""
    seen: Counter[int] = Counter()
    kept = []
    for kind in row:
        seen[kind] += 1
        kept.append(kind if seen[kind] <= count else IDLE)
    return kept


def _with_late_weights(rows: list[Row], peak: int) -> list[Row]:
    """Put off weight gradients where a device has room for them."""
    for row in rows:
        spare = peak - peak_of(row)
        slots = [slot for slot, kind in enumerate(row) if kind in WEIGHTS][:spare]
        late = [row[slot] for slot in slots]
        for slot in slots:
            row[slot] = IDLE
        row += late
    return _of_one_length(rows)


def _with_cool_down(rows: list[Row], count: int) -> list[Row]:
    """Write the last backwards of each device anew, as close to each other as they can be."""
    devices, peak = len(rows), _peak(rows)
    most_a = min((peak + 1) // 2, count)
    most_b = min(peak - most_a, count)
    last = max(slot for slot, kind in enumerate(rows[0]) if kind == FORWARD_B)
    for device, row in enumerate(rows):
        taken_a = _taken(row, INPUT_A, most_a)
        taken_b = _taken(row, INPUT_B, min(most_b, device + 1))
        _take_weights(row, taken_b, taken_a, peak)
        for number in range(taken_a):
            row[last + 2 * devices - device - 2 * number] = INPUT_A
        for number in range(taken_b):
            row[last + 1 + device - 2 * number] = INPUT_B
        _add_weights(row)
    return _of_one_length(rows)


def _taken(row: Row, kind: int, most: int) -> int:
    """Take the last ops of a kind out of the row; return how many these are."""
    slots = [slot for slot, each in enumerate(row) if each == kind][::-1][:most]
    for slot in slots:
        row[slot] = IDLE
    return len(slots)


def _take_weights(row: Row, least_b: int, least_a: int, least: int) -> None:
    """Take weight gradients out of the end of the row, until these are enough."""
    taken = dict.fromkeys(WEIGHTS, 0)
    for slot in reversed(range(len(row))):
        is_enough = taken[WEIGHT_B] >= least_b and taken[WEIGHT_A] >= least_a
        if is_enough and sum(taken.values()) >= least:
            return
        if row[slot] in taken:
            taken[row[slot]] += 1
            row[slot] = IDLE


def _add_weights(row: Row) -> None:
    """Put missing weight gradients into idle slots behind the last one, and at the end."""
    last = max((s for s, kind in enumerate(row) if kind in WEIGHTS), default=-1)
    pending = dict.fromkeys(WEIGHTS, 0)
    for slot, kind in enumerate(row):
        if kind in BACKWARDS:
            pending[kind + 2] += 1
        elif kind in pending:
            pending[kind] -= 1
        elif kind == IDLE and slot > last:
            weight = next((each for each in WEIGHTS if pending[each] > 0), None)
            if weight is not None:
                row[slot] = weight
                pending[weight] -= 1
    for weight in WEIGHTS:
        row += [weight] * pending[weight]


def _filled(rows: list[Row]) -> list[Row]:
    """Fill idle slots with later ops that can run there, as far as no device holds more."""
    peak = _peak(rows)
    placed = PlacedOps(len(rows))
    held = [0] * len(rows)
    for slot in range(len(rows[0])):
        for device, row in enumerate(rows):
            if row[slot] == IDLE:
                _fill(row, slot, placed, device, peak - held[device])
            if row[slot] != IDLE:
                placed.add(device, row[slot], slot)
                held[device] += TAKEN[row[slot]]
    return rows


def _fill(row: Row, slot: int, placed: PlacedOps, device: int, room: int) -> None:
    """Move the first op that can run in an idle slot there."""
    seen = {IDLE}
    level = highest = 0
    for later in range(slot + 1, len(row)):
        kind = row[later]
        before = highest
        level += TAKEN[kind]
        highest = max(highest, level)
        if kind in seen:
            continue
        seen.add(kind)
        fits = kind not in (FORWARD_A, FORWARD_B) or before < room
        if fits and _is_ready(placed, device, kind, slot):
            row[slot], row[later] = kind, IDLE
            return
        if len(seen) == IDLE + 1:
            return


def _is_ready(placed: PlacedOps, device: int, kind: int, slot: int) -> bool:
    number = len(placed.slots[device, kind])
    sources = (placed.slots[source] for source in placed.sources(device, kind))
    return all(len(slots) > number and slots[number] < slot for slots in sources)


def _labelled(row: Row) -> Row:
    """Name the chunk of each weight gradient: they come in the order of the input gradients."""
    waiting = iter([kind + 2 for kind in row if kind in BACKWARDS])
    return [next(waiting) if kind in WEIGHTS else kind for kind in row]


def _is_valid(rows: list[Row], count: int) -> bool:
    """Whether every op is there, behind all that it waits for."""
    placed = PlacedOps(len(rows))
    for device, row in enumerate(rows):
        for slot, kind in enumerate(row):
            if kind != IDLE:
                placed.add(device, kind, slot)
    return all(
        len(placed.slots[device, kind]) == count
        and all(
            before < slot
            for source in placed.sources(device, kind)
            for before, slot in zip(
                placed.slots[source], placed.slots[device, kind], strict=False
            )
        )
        for device in range(len(rows))
        for kind in range(IDLE)
    )


ADAPTIVE_V = Heuristic(
    "v-adaptive",
    "the best of many building blocks of a V that fit in memory",
    _propose,
    A_PIPELINE,
    (
        ONE_PIPE,
        V_SHAPED,
        SPLIT,
        Requirement("2 devices or more", lambda instance: instance.num_devices > 1),
        Requirement("no slices", lambda instance: instance.slices is None),
    ),
    is_search=True,
    source="adaptive V schedules: Qi et al. 2024 (arXiv 2405.15362)",
)
"""The search over building blocks, each of which is timed with the pipeline's own times."""
