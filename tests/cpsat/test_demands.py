"""Integer demands stand for exactly the same sets of holds as the fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.solver.cpsat.demands import integer_demands
from ppsolve.solver.structure.holds import Holds

HORIZON = 2**30

amounts = st.fractions(min_value=Fraction(1, 50), max_value=3, max_denominator=60)


def holds(*parts: Fraction, base: Fraction = Fraction(0)) -> Holds:
    nothing = np.zeros(len(parts), dtype=np.int64)
    return Holds(base, nothing, nothing, parts)


@given(st.lists(amounts, min_size=1, max_size=4), amounts, st.sampled_from(["up", "down"]))
def test_same_subsets_fit(parts: list[Fraction], limit: Fraction, rounding: str) -> None:
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
    demands = integer_demands(holds(Fraction(1), base=Fraction(2)), Fraction(5), "down", HORIZON)
    assert demands.capacity // demands.demand[0] == 3


def test_short_horizons_allow_finer_integers() -> None:
    parts = [Fraction(10**9 + k * k, 10**9 + 7) for k in range(40)]
    coarse = integer_demands(holds(*parts), Fraction(20), "down", horizon=2**40)
    fine = integer_demands(holds(*parts), Fraction(20), "down", horizon=100)
    assert coarse.capacity * 2**40 * 40 < 2**63
    assert fine.capacity > coarse.capacity
    assert fine.capacity * 100 * 40 < 2**63


def test_no_room_at_all_fits_nothing() -> None:
    demands = integer_demands(holds(Fraction(1), base=Fraction(5)), Fraction(5), "down", HORIZON)
    assert demands.is_exact
    assert demands.capacity < demands.demand[0]
