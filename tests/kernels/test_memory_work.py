"""The least time at which memory has room, against the definition in plain loops."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.bounds.memory_work import ReleaseAmounts
from ppsolve.solver.kernels import compilation
from ppsolve.solver.kernels.memory_work import (
    LaneMemory,
    WorkBuffers,
    raise_acquires,
    working_room,
)
from ppsolve.solver.kernels.records import NEVER
from tests.marks import examples

SHARES = ("0.43243243243243246", "0.5", "0.25", "0.9")


@st.composite
def rooms(draw: st.DrawFn) -> tuple[ReleaseAmounts, LaneMemory, IntArray]:
    """Amounts, the kernel's record, and heads by column."""
    lanes, rows = draw(st.integers(1, 2)), draw(st.integers(1, 6))
    share = Fraction(draw(st.sampled_from(SHARES)))
    taken = tuple(draw(st.sampled_from((1, 2))) * Fraction(1) for _ in range(lanes))
    two = draw(st.booleans())
    shares = (share * max(taken), (1 - share) * max(taken)) if two else (max(taken),)
    limit = Fraction(draw(st.integers(1, 3 * rows))) * Fraction(
        1_000_000_001, 1_000_000_000
    )
    amounts = ReleaseAmounts(taken, shares, limit, rows)
    lengths = draw(st.lists(st.integers(0, 5), min_size=lanes + 2, max_size=lanes + 2))
    room = LaneMemory(
        np.array([int(lane > 0) for lane in range(lanes)]),
        np.array(lengths[:lanes]),
        np.array([lengths[lanes], lengths[lanes + 1] if two else 0]),
        *amounts.fractions,
        *amounts.choices(1),
    )
    columns = lanes * (1 + len(shares))
    gaps = st.lists(st.integers(0, 4), min_size=rows, max_size=rows)
    heads = np.cumsum([draw(gaps) for _ in range(columns)], axis=1)
    return amounts, room, heads.astype(np.int64)


def room_for(room: LaneMemory, heads: IntArray) -> WorkBuffers:
    return working_room(*heads.shape, len(room.extra))


def earliest(
    amounts: ReleaseAmounts, room: LaneMemory, heads: IntArray, j: int, thinning: int
) -> int:
    """Return the least time for acquire j: over all choices, the latest over all times."""
    ends = times_by_choice(amounts, room, heads, choices(amounts, j), j, thinning)
    return min(ends, default=0)


def times_by_choice(
    amounts: ReleaseAmounts,
    room: LaneMemory,
    heads: IntArray,
    tried: list[tuple[int, ...]],
    j: int,
    thinning: int,
) -> list[int]:
    """Return, for each choice of releases, the earliest start of acquire j."""
    lanes = len(amounts.taken)
    acquired = heads[:lanes]
    released = [
        np.sort(heads[block : block + lanes].ravel())
        for block in range(lanes, len(heads), lanes)
    ]
    cuts = np.unique(np.concatenate([part[: j + 1] for part in (*acquired, *released)]))
    before = [j + int(extra) for extra in room.extra]
    found = []
    for choice in tried:
        # Without work before it a release has no time, not time 0: heads may be of any sign.
        ends = [-NEVER]
        for cut in cuts.tolist()[::thinning]:
            started = [int((part < cut).sum()) for part in released]
            late = sum(
                max(count - int((part < cut).sum()), 0) * int(length)
                for count, part, length in zip(
                    before, acquired, room.length, strict=True
                )
            )
            shares = zip(started, amounts.shares, strict=True)
            free = amounts.available + sum(count * share for count, share in shares)
            unfit = max(sum(before) - free // min(amounts.taken), 0) * int(
                min(room.length)
            )
            work = max(late, unfit)
            for count, done, length in zip(
                choice, started, room.release_length, strict=False
            ):
                work += max(count - done, 0) * int(length)
            ends.append(cut + work if work else -NEVER)
        found.append(max(ends))
    return found


def choices(amounts: ReleaseAmounts, j: int) -> list[tuple[int, ...]]:
    """Return the least numbers of releases that free what acquire j lacks."""
    missing = (j + 1) * sum(amounts.taken) - amounts.available
    if missing <= 0:
        return []
    most = j * len(amounts.taken)
    if len(amounts.shares) == 1:
        fewest = int(-(-missing // amounts.shares[0]))
        return [(fewest,)] if fewest <= most else []
    found = []
    for first in range(most + 1):
        rest = missing - first * amounts.shares[0]
        second = max(0, int(-(-rest // amounts.shares[1])))
        enough = first > 0 and missing - (first - 1) * amounts.shares[0] <= 0
        if second <= first and not enough:
            found.append((first, second))
    return found


@examples(50)
@given(rooms(), st.integers(1, 3))
def test_every_acquire_waits_as_long_as_the_definition_says(
    case: tuple[ReleaseAmounts, LaneMemory, IntArray], thinning: int
) -> None:
    amounts, room, heads = case
    raised, room = heads[0].copy(), room._replace(thinning=thinning)
    raise_acquires(room, heads.ravel().copy(), raised, room_for(room, heads))
    for j, head in enumerate(heads[0].tolist()):
        assert raised[j] == max(head, earliest(amounts, room, heads, j, thinning))


def test_compiled_raises_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    @examples(14)
    @given(rooms(), st.integers(1, 3), st.integers(1, 3))
    def check(
        case: tuple[ReleaseAmounts, LaneMemory, IntArray], step: int, thinning: int
    ) -> None:
        _, room, heads = case
        room = room._replace(step=step, thinning=thinning)
        answers = []
        for compiled in (False, True):
            monkeypatch.setitem(compilation._state, "compiled", compiled)
            raised = heads[0].copy()
            raise_acquires(room, heads.ravel().copy(), raised, room_for(room, heads))
            answers.append(raised.tolist())
        assert answers[0] == answers[1]

    check()


def test_amounts_too_fine_for_64_bits_only_let_more_fit() -> None:
    fine = Fraction(10**40 + 1, 10**40)
    amounts = ReleaseAmounts((fine,), (fine,), Fraction(5, 2), 4)
    smallest, free, over, released, released_over = amounts.fractions
    for count in range(5):
        exact = (amounts.available + count * fine) // fine
        fits = free + released[count] + (over + released_over[count]) // smallest
        assert exact <= fits <= exact + 1
