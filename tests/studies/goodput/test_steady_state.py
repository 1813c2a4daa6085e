"""When the growth of makespans counts as steady."""

from __future__ import annotations

import numpy as np
import pytest

from ppsolve.solver.studies.plan.curve import (
    measure_curve,
)
from tests.studies.goodput.curve_cases import curve, pipeline


class TestSteadyState:
    def test_period_is_the_least_that_repeats(self) -> None:
        steps = [5, 5, 3] * 4
        points = dict(enumerate(np.cumsum([10, *steps]).tolist(), start=5))
        assert curve(points).steady.period == 3
        assert curve(points).slope == 13 / 3

    def test_transient_in_the_first_half_is_forgiven(self) -> None:
        values = np.cumsum([20, 9, 8, 2, 2, 2, 2]).tolist()
        found = curve(dict(enumerate(values, start=2)))
        assert found.steady.repeats
        assert found.slope == 2

    def test_few_neighbours_far_out_say_nothing_of_a_period(self) -> None:
        # Three of the steps 5, 5, 5, 3 of 1F1B: 5 by chance, 4.5 in truth.
        measured = measure_curve(pipeline(), [32, 62, 63, 64], heuristics=["1f1b"])
        assert not measured.steady.repeats
        assert measured.slope == 4.5

    def test_later_point_refutes_a_pattern(self) -> None:
        points = {4: 10.0, 5: 12.0, 6: 14.0, 7: 16.0, 14: 30.0, 28: 100.0}
        found = curve(points)
        assert not found.steady.repeats
        assert found.slope == 5
        assert found.makespan(29) == 105

    def test_later_points_that_were_not_sampled_are_between_their_neighbours(
        self,
    ) -> None:
        points = {8: 80.0, 12: 120.0, 16: 160.0, 20: 200.0}
        assert curve({**points, 34: 350.0}).steady.last == 20
        assert curve({**points, 34: 350.0}).makespan([35, 37]).tolist() == [360, 400]
        for refuting in (319.0, 361.0):
            assert not curve({**points, 34: refuting}).steady.repeats

    def test_later_point_confirms_a_pattern(self) -> None:
        points = {4: 10.0, 5: 12.0, 6: 14.0, 7: 16.0, 14: 30.0, 28: 58.0}
        assert curve(points).steady.last == 7
        assert curve(points).makespan([20, 28, 30]).tolist() == [58, 58, 62]

    def test_three_points_do_not_show_that_a_growth_repeats(self) -> None:
        points = {6: 80.0, 10: 120.0, 14: 160.0}
        assert not curve(points).steady.repeats
        assert curve(points).slope == 10
        assert curve({**points, 18: 200.0}).steady.repeats
        # Two periods of 3 are 7 points.
        steps = np.cumsum([10, 5, 5, 3, 5, 5, 3]).tolist()
        assert curve(dict(enumerate(steps, start=5))).steady.period == 3
        assert not curve(dict(enumerate(steps[:-1], start=5))).steady.repeats

    @pytest.mark.parametrize(
        ("methods", "is_optimal", "repeats"),
        [
            ("aaaaaa", False, True),
            ("baaaaa", False, True),
            ("bbaaaa", False, True),
            ("bbbaaa", False, False),
            ("aaabaa", False, False),
            ("aaaaab", False, False),
            ("ababab", False, False),
            ("ababab", True, True),
        ],
    )
    def test_only_schedules_of_one_method_repeat(
        self, methods: str, is_optimal: bool, repeats: bool
    ) -> None:
        points = {number: 10.0 + 2 * number for number in range(4, 10)}
        bounds = list(points.values()) if is_optimal else [1.0] * 6
        found = curve(points, methods=list(methods), bounds=bounds)
        assert found.steady.repeats == repeats
        assert found.slope == 2
        assert found.makespan(20) == 50

    def test_another_method_at_a_later_point(self) -> None:
        points = {4: 10.0, 5: 12.0, 6: 14.0, 7: 16.0, 14: 30.0}
        assert curve(points).steady.repeats
        assert not curve(points, methods=list("aaaab")).steady.repeats

    def test_growth_below_what_is_proved_does_not_go_on(self) -> None:
        points = {number: 100.0 + number for number in range(4, 10)}
        work = [6.0 * number for number in points]
        found = curve(points, bounds=work, work_bounds=work)
        assert not found.steady.repeats
        assert found.slope == 6
        assert found.makespan(10) == 109 + 6
