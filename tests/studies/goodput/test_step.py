"""The one model of step times: what runs prove and reach, and the rates that follow."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.result import HeuristicStatus
from ppsolve.solver.api.api import optimize
from ppsolve.solver.studies.goodput.step import Interval, StepTime
from tests.studies.goodput.curve_cases import pipeline


class TestIntervals:
    def test_the_longest_time_gives_the_lowest_rate(self) -> None:
        assert Interval(2.0, 4.0).rate(8) == Interval(2.0, 4.0)
        assert Interval(1.0, float("inf")).rate(3.0) == Interval(0.0, 3.0)
        rates = Interval(np.array([0.0, 1.0]), np.array([1.0, 2.0])).rate(
            np.array([1.0, 4.0])
        )
        assert rates.low.tolist() == [1, 2]
        assert rates.high.tolist() == [np.inf, 4]

    def test_both_ends_are_scaled(self) -> None:
        assert Interval(1.0, 3.0) * 2 == Interval(2.0, 6.0)

    def test_scalars_are_plain(self) -> None:
        plain = Interval(np.array(1.5), np.array(2.0)).plain()
        assert (type(plain.low), type(plain.high)) == (float, float)


class TestSteps:
    def test_nothing_is_known_without_runs(self) -> None:
        assert StepTime(3).time == Interval(3.0, float("inf"))

    def test_runs_only_add_to_what_is_known(self) -> None:
        step, instance = StepTime(), pipeline(num_microbatches=16)
        first = optimize(instance, time_limit=0, heuristics=["1f1b"])
        step.learn(first)
        assert first.bound is not None
        assert first.makespan is not None
        assert first.bound < first.makespan
        assert step.time == Interval(first.bound, first.makespan)
        assert step.method == "1f1b"
        worse = first.model_copy(
            update={"bound": 1.0, "makespan": 99.0, "best_by": "worse"}
        )
        step.learn(worse)
        assert step.time == Interval(first.bound, first.makespan)
        better = first.model_copy(update={"makespan": first.bound, "best_by": "cp-sat"})
        step.learn(better)
        assert step.time == Interval(first.bound, first.bound)
        assert step.method == "cp-sat"

    def test_what_is_proved_of_rounded_times_holds_for_the_given_ones(self) -> None:
        step, times = (
            StepTime(),
            {"forward": 1.0123456789012345, "backward": 2.3333333333333335},
        )
        result = optimize(pipeline(times=times), time_limit=0)
        assert result.bound is not None
        assert result.tick_error > 0
        step.learn(result)
        assert step.floor == result.bound - result.tick_error

    def test_failures_that_do_not_apply_come_last(self) -> None:
        step, instance = StepTime(), pipeline(memory={"capacity": 3, "activation": 1})
        names = ["chimera", "gpipe", "1f1b"]
        step.learn(optimize(instance, time_limit=0, heuristics=names))
        assert [(failed.name, failed.status) for failed in step.failures] == [
            ("1f1b", HeuristicStatus.INFEASIBLE),
            ("gpipe", HeuristicStatus.INFEASIBLE),
            ("chimera", HeuristicStatus.NOT_APPLICABLE),
        ]
        assert step.reached is None
