"""Integer demands stand for exactly the same sets of holds as the fractions."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.solver.exact import memory
from ppsolve.solver.exact.memory import (
    _largest_capacity,
    _same_sets,
    integer_demands,
)
from ppsolve.solver.exact.params import AmountParams
from ppsolve.solver.structure.holds import Holds

HORIZON = 2**30

amounts = st.fractions(min_value=Fraction(1, 50), max_value=3, max_denominator=60)


def holds(*parts: Fraction, base: Fraction = Fraction(0)) -> Holds:
    nothing = np.zeros(len(parts), dtype=np.int64)
    return Holds(base, nothing, nothing, parts, np.arange(len(parts)))


@given(
    st.lists(amounts, min_size=1, max_size=4), amounts, st.sampled_from(["up", "down"])
)
def test_same_subsets_fit(
    parts: list[Fraction], limit: Fraction, rounding: str
) -> None:
    demands = integer_demands(holds(*parts), limit, rounding, HORIZON)  # type: ignore[arg-type]
    for chosen in product([0, 1], repeat=len(parts)):
        used = sum((a for a, c in zip(parts, chosen, strict=True) if c), Fraction(0))
        whole = sum(d for d, c in zip(demands.demand, chosen, strict=True) if c)
        if demands.is_exact:
            assert (used <= limit) == (whole <= demands.capacity)
        elif rounding == "up":
            assert used <= limit or whole > demands.capacity
        else:
            assert used > limit or whole <= demands.capacity


def test_published_share_needs_small_integers_only() -> None:
    share = Fraction("0.43243243243243246")
    limit = Fraction(8) + Fraction(8, 10**9)
    demands = integer_demands(holds(*[share, 1 - share] * 24), limit, "down", HORIZON)
    assert demands.is_exact
    assert demands.capacity <= 2**20


def test_many_odd_amounts_are_rounded() -> None:
    parts = [Fraction(10**9 + k * k, 10**9 + 7) for k in range(40)]
    up = integer_demands(holds(*parts), Fraction(20), "up", HORIZON)
    down = integer_demands(holds(*parts), Fraction(20), "down", HORIZON)
    assert not up.is_exact
    assert not down.is_exact
    assert all(high >= low for high, low in zip(up.demand, down.demand, strict=True))


def test_base_leaves_less_room() -> None:
    demands = integer_demands(
        holds(Fraction(1), base=Fraction(2)), Fraction(5), "down", HORIZON
    )
    assert demands.capacity // demands.demand[0] == 3


def test_short_horizons_allow_finer_integers() -> None:
    parts = [Fraction(10**9 + k * k, 10**9 + 7) for k in range(40)]
    coarse = integer_demands(holds(*parts), Fraction(20), "down", horizon=2**40)
    fine = integer_demands(holds(*parts), Fraction(20), "down", horizon=100)
    assert coarse.capacity * 2**40 * 40 < 2**63
    assert fine.capacity > coarse.capacity
    assert fine.capacity * 100 * 40 < 2**63


@pytest.mark.parametrize(
    ("counts", "whole", "available", "capacity", "same"),
    [
        # Two of 3 do not fit into 5: as integers neither.
        ({3: 2, 1: 1}, {3: 3, 1: 1}, 5, 5, True),
        # Into 6 they do, but 4 + 4 not into 7.
        ({3: 2, 1: 1}, {3: 4, 1: 1}, 6, 7, False),
        # Two 3s and two 1s: 5 would keep the second 1 from one 3.
        ({3: 1, 1: 2}, {3: 3, 1: 1}, 5, 5, True),
        ({3: 1, 1: 2}, {3: 4, 1: 1}, 5, 5, False),
        # What is never there need not agree: a third 1 would fit, or not.
        ({1: 2}, {1: 2}, 3, 4, True),
        ({1: 3}, {1: 2}, 3, 4, False),
    ],
)
def test_sets_that_fit_are_compared_amount_by_amount(
    counts: dict[int, int],
    whole: dict[int, int],
    available: int,
    capacity: int,
    same: bool,
) -> None:
    held = Counter({Fraction(amount): count for amount, count in counts.items()})
    integers = {Fraction(amount): demand for amount, demand in whole.items()}
    assert _same_sets(held, integers, Fraction(available), capacity) is same


def test_amounts_beyond_64_bits_are_compared_too() -> None:
    huge, third = Fraction(10**30), Fraction(1, 3)
    demands = integer_demands(
        holds(huge, third, third), Fraction(1, 2), "down", HORIZON
    )
    assert demands.is_exact
    assert demands.demand[0] > demands.capacity
    assert demands.demand[1] <= demands.capacity < 2 * demands.demand[1]
    for bit in (Fraction(0), Fraction(1, 10**25)):
        two, three = 2 + bit, Fraction(3)
        counts, whole = {two: 2, three: 2}, {two: 2, three: 3}
        assert _same_sets(counts, whole, three + two, 5) is True
        assert _same_sets(counts, whole, three + two, 4) is False


def test_too_many_sets_are_not_compared() -> None:
    held = Counter({Fraction(2): 999, Fraction(1): 5})
    integers = {Fraction(2): 2, Fraction(1): 1}
    assert _same_sets(held, integers, Fraction(3000), 3000)
    with patch.object(memory, "AMOUNTS", AmountParams(combinations=999)):
        assert not _same_sets(held, integers, Fraction(3000), 3000)


@pytest.mark.parametrize(
    ("num_holds", "horizon", "bits"),
    [
        (2**10 - 1, 2**30 - 1, 21),
        (2**10, 2**30, 19),
        (1, 2**20 - 1, 40),
        (1, 2**21, 38),
    ],
)
def test_energy_of_all_holds_stays_below_two_to_the_61(
    num_holds: int, horizon: int, bits: int
) -> None:
    assert _largest_capacity(num_holds, horizon) == 2**bits
    assert 2**bits * num_holds * horizon < 2**61


def test_capacities_are_neither_tiny_nor_needlessly_large() -> None:
    assert _largest_capacity(2**30, 2**40) == AmountParams.coarsest == 64
    assert _largest_capacity(0, 0) == AmountParams.finest == 2**40


def test_no_room_at_all_fits_nothing() -> None:
    demands = integer_demands(
        holds(Fraction(1), base=Fraction(5)), Fraction(5), "down", HORIZON
    )
    assert demands.is_exact
    assert demands.capacity < demands.demand[0]
