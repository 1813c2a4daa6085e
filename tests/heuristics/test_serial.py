"""Parts of serial generation: free intervals of a resource, and use of a pool over time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.kernels.serial_sgs import (
    AllowedStarts,
    Gaps,
    Usage,
    add_change,
    allowed_from,
    block,
    gap_from,
    room_from,
)

MOMENTS = st.integers(0, 12)


def unused(changes: int) -> Usage:
    """One pool with room for a number of changes."""
    return Usage([0] * changes, [0] * changes, [0], [0], [0])


@given(
    st.lists(st.tuples(MOMENTS, st.integers(1, 4)), max_size=6),
    MOMENTS,
    st.integers(1, 4),
)
def test_first_gap_is_the_first_free_stretch(
    taken: list[tuple[int, int]], time: int, length: int
) -> None:
    slots, busy = len(taken) + 1, set()
    gaps = Gaps([0] * slots, [NEVER] + [0] * len(taken), [0], [0])
    for begin, size in taken:
        block(gaps, 0, begin, begin + size)
        busy |= set(range(begin, begin + size))
    expected = time
    while busy & set(range(expected, expected + length)):
        expected += 1
    assert max(time, gaps.begin[gap_from(gaps, 0, time, length)]) == expected


@pytest.mark.parametrize(
    ("op", "time", "start"),
    [
        (0, 0, 2),
        (0, 3, 3),
        (0, 5, 5),
        (0, 6, 9),
        (0, 10, 10),
        (1, 6, 6),
        (2, 0, 0),
        (2, 5, 7),
    ],
)
def test_an_op_starts_in_its_windows(op: int, time: int, start: int) -> None:
    # Op 0 in 2..5 or at 9, op 1 at any time, op 2 at 0 or 7; after the last window nothing holds.
    allowed = AllowedStarts([0, -1, 1], [0, 2, 4], [2, 9, 0, 7], [5, 9, 0, 7])
    assert allowed_from(allowed, op, time) == start


@given(
    st.lists(st.tuples(MOMENTS, st.integers(-3, 3)), max_size=7),
    MOMENTS,
    st.integers(0, 5),
)
def test_first_moment_from_which_the_use_stays_within_the_room(
    changes: list[tuple[int, int]], time: int, room: int
) -> None:
    usage = unused(len(changes))
    for moment, amount in changes:
        add_change(usage, 0, moment, amount)
    if usage.final[0] > room:
        return  # Nobody asks: the pool has no room for such an op.
    levels = [sum(a for m, a in changes if m <= t) for t in range(14)]
    expected = next(
        t for t in range(time, 14) if all(level <= room for level in levels[t:])
    )
    assert room_from(usage, 0, time, room) == expected


@pytest.mark.parametrize(("room", "moment"), [(1, 4), (2, 0), (3, 0)])
def test_what_ends_and_starts_at_one_moment_is_one_step(room: int, moment: int) -> None:
    # Two units until 4, where one is given back and taken again, and one more given back.
    usage = unused(4)
    for time, amount in ((0, 2), (4, -1), (4, 1), (4, -1)):
        add_change(usage, 0, time, amount)
    assert room_from(usage, 0, 0, room) == moment
