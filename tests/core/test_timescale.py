"""Exact scales: the coarsest tick, refusal beyond the limit, rounding up and its error."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.core.timescale import MAX_TICKS, TimeScale
from ppsolve.models.documents.errors import InputError


def fractions(*texts: str) -> list[Fraction]:
    return [Fraction(text) for text in texts]


@pytest.mark.parametrize(
    ("times", "tick"),
    [
        ([], "1"),
        (["0"], "1"),
        (["5", "7"], "1"),
        (["100", "200"], "1"),
        (["0.1", "0.2"], "1/10"),
        (["0.5", "0.25", "3"], "1/4"),
        (["1/3", "1/7"], "1/21"),
        (["0.1", "1/3"], "1/30"),
    ],
)
def test_least_common_scale(times: list[str], tick: str) -> None:
    scale = TimeScale.fit(fractions(*times), "us")
    assert scale.tick == Fraction(tick)
    assert scale.unit == "us"
    assert scale.is_exact
    assert all(scale.ticks(time) * scale.tick == time for time in fractions(*times))


def test_sums_of_decimals_are_exact() -> None:
    scale = TimeScale.fit(fractions("0.1", "0.2", "0.3"), "ms")
    a, b, c = (scale.ticks(time) for time in fractions("0.1", "0.2", "0.3"))
    assert a + b == c


def test_times_are_ints_where_whole() -> None:
    scale = TimeScale.fit(fractions("0.5"), "ms")
    assert scale.time(4) == 2
    assert isinstance(scale.time(4), int)
    assert scale.time(3) == 1.5
    assert TimeScale(Fraction(1, 3), "ms").time(1) == 1 / 3


def test_limit_itself_is_allowed() -> None:
    assert TimeScale.fit([Fraction(MAX_TICKS), Fraction(1)], "us").tick == 1


@pytest.mark.parametrize(
    ("times", "tick"),
    [
        (["1e15", "9e14", "5e14"], "100000000000000"),
        (["1e15"], "1000000000000000"),
        ([str(MAX_TICKS + 2), "2", "0"], "2"),
        (["300000000000.3", "0.6"], "3/10"),
    ],
)
def test_greatest_common_tick_where_the_least_scale_is_too_fine(
    times: list[str], tick: str
) -> None:
    parsed = fractions(*times)
    for exact in (False, True):
        scale = TimeScale.fit(parsed, "us", exact=exact)
        assert (scale.tick, scale.is_exact) == (Fraction(tick), True)
        assert [scale.ticks(time) * scale.tick for time in parsed] == parsed
        assert [scale.time(scale.ticks(time)) for time in parsed] == [
            float(t) for t in parsed
        ]


def test_common_divisors_are_no_ticks_where_units_are() -> None:
    assert TimeScale.fit(fractions("1e11", "3e11"), "us").tick == 1
    assert TimeScale.fit(fractions("0.2", "0.4"), "us").tick == Fraction(1, 5)


def test_finer_scales_are_refused_with_a_remedy() -> None:
    with pytest.raises(InputError) as caught:
        TimeScale.fit([Fraction(MAX_TICKS), Fraction(1, 2)], "us", exact=True)
    assert caught.value.field == "times"
    assert "give fewer digits, or do not ask for exact ticks" in caught.value.message


def test_exact_scale_is_kept_where_rounding_is_allowed_but_not_needed() -> None:
    scale = TimeScale.fit(fractions("0.1", "0.2"), "us")
    assert (scale.tick, scale.is_exact) == (Fraction(1, 10), True)


def test_rounding_up_adds_less_than_a_tick_to_each_time() -> None:
    times = fractions("1000000000000", "0.7", "1000000000.3")
    scale = TimeScale.fit(times, "us")
    errors = [scale.ticks(time) * scale.tick - time for time in times]
    assert min(errors) >= 0
    assert 0 < max(errors) < scale.tick <= max(times) / 10**9
    assert not scale.is_exact
    assert max(scale.ticks(time) for time in times) <= MAX_TICKS


@given(
    st.lists(st.fractions(min_value=0, max_value=1000, max_denominator=60), max_size=4)
)
def test_every_time_is_a_whole_number_of_ticks(times: list[Fraction]) -> None:
    scale = TimeScale.fit(times, "us")
    assert all((time / scale.tick).denominator == 1 for time in times)
    assert scale.tick.numerator == 1


@given(
    st.lists(
        st.fractions(min_value=0, max_value=10**15, max_denominator=10**18),
        min_size=1,
        max_size=4,
    )
)
def test_rounding_up_never_shortens(times: list[Fraction]) -> None:
    scale = TimeScale.fit(times, "us")
    for time in times:
        rounded = scale.ticks(time) * scale.tick
        assert time <= rounded < time + scale.tick
        assert scale.ticks(time) <= MAX_TICKS


@pytest.mark.parametrize(
    "tick",
    [
        Fraction(1),
        Fraction(100),
        Fraction(1, 10),
        Fraction(3, 7),
        Fraction(2**70 + 1, 3),
    ],
)
def test_many_times_are_those_of_each_tick(tick: Fraction) -> None:
    scale = TimeScale(tick, "us")
    ticks = np.array([0, 1, 7, 10, 30, 2**53 + 1, -3])
    expected = [scale.time(number) for number in ticks.tolist()]
    assert [(type(time), time) for time in scale.times(ticks)] == [
        (type(time), time) for time in expected
    ]
