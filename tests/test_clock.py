"""The clock of a call."""

from __future__ import annotations

import math

import pytest

from ppsolve.solver import clock as clocks
from ppsolve.solver.clock import Clock


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(clocks.time, "monotonic", lambda: now[0])
    return now


def test_time_goes_by(moment: list[float]) -> None:
    clock = Clock(8.0)
    moment[0] = 103.0
    assert (clock.elapsed, clock.left, clock.is_over, clock.is_limited) == (
        3.0,
        5.0,
        False,
        True,
    )
    moment[0] = 109.0
    assert (clock.left, clock.is_over) == (0.0, True)


def test_without_a_limit_it_is_over_only_when_stopped(moment: list[float]) -> None:
    clock = Clock()
    moment[0] = 1e9
    assert (clock.left, clock.is_over, clock.is_limited) == (math.inf, False, False)
    clock.stop()
    assert clock.is_over


def test_a_share_ends_earlier_and_stops_with_the_whole(moment: list[float]) -> None:
    clock = Clock(10.0)
    moment[0] = 102.0
    share = clock.share(0.25)
    assert share.left == 2.0
    assert not Clock().share(0.5).is_limited
    clock.stop()
    assert share.is_over


def test_a_clock_apart_stops_with_the_whole_but_not_the_other_way_round(
    moment: list[float],
) -> None:
    clock = Clock(10.0)
    moment[0] = 102.0
    one, other = clock.apart(), clock.apart()
    assert one.left == 8.0
    assert not Clock().apart().is_limited
    one.share(0.5).stop()
    assert one.is_over
    assert not clock.is_over
    assert not other.is_over
    clock.stop()
    assert other.share(0.5).is_over


class EndingClock(Clock):
    """A clock that ends between its first look and the next one."""

    def __init__(self) -> None:
        super().__init__(8.0)
        self.looks = iter([8.0])

    @property
    def left(self) -> float:
        return next(self.looks, 0.0)


def test_a_part_of_a_clock_is_read_once_so_that_its_end_divides_by_nothing() -> None:
    assert EndingClock().part_for(2.0) == 0.25
    over = EndingClock()
    assert not over.is_over
    assert over.part_for(2.0) == over.part_for(0.0) == 1.0


def test_no_part_is_more_than_the_whole_and_without_a_limit_all_is_left() -> None:
    assert EndingClock().part_for(9.0) == 1.0
    assert Clock().part_for(5.0) == Clock().part_for(math.inf) == 1.0


def test_the_time_that_is_spent_is_a_part_even_where_a_coarse_clock_stands_still(
    moment: list[float],
) -> None:
    clock = Clock(8.0)
    assert clock.spent == 0.0
    moment[0] = 102.0
    assert clock.spent == 0.25
    assert Clock().spent == 0.0
    stopped = Clock(8.0)
    stopped.stop()
    assert (stopped.elapsed, stopped.left, stopped.spent) == (0.0, 0.0, 1.0)
