"""Curves of makespan over micro-batches: measured, extended, and bounded from below."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppsolve.models.errors import InputError
from ppsolve.models.instances import lower
from ppsolve.models.pipeline import PipelineInstance
from ppsolve.models.problem import Problem
from ppsolve.models.result import HeuristicStatus
from ppsolve.models.schedule import Schedule
from ppsolve.models.schedule_curve import ScheduleCurve
from ppsolve.solver.heuristics import Outcome, run_heuristic
from ppsolve.solver.plan import curve as measuring
from ppsolve.solver.plan.curve import (
    NoScheduleError,
    default_microbatches,
    measure_curve,
    with_microbatches,
)
from ppsolve.solver.progress import Progress
from ppsolve.solver.run import WrongScheduleError
from tests.bruteforce import brute_force

SPLIT = ("forward", "backward_input", "backward_weight")
TIGHT = {"capacity": 5, "activation": 1}


def pipeline(**fields: Any) -> PipelineInstance:
    plain = {"num_devices": 4, "num_microbatches": 4, "times": {"forward": 1, "backward": 2}}
    return PipelineInstance.parse({**plain, "p2p": {"latency": 1}, **fields})


def uneven(seed: int, *, equal: bool = False, **fields: Any) -> PipelineInstance:
    """Return a random pipeline of 2 to 4 devices with latency; equal seeds give equal ones."""
    rng = np.random.default_rng(seed)
    devices = int(rng.integers(2, 5))
    stages = devices * fields.get("stages_per_device", 1)

    def times(most: int) -> Any:
        return int(rng.integers(1, most)) if equal else rng.integers(1, most, stages).tolist()

    return pipeline(
        num_devices=devices,
        times={"forward": times(9), "backward": times(17)},
        p2p={"latency": int(rng.integers(0, 5))},
        **fields,
    )


def curve(points: dict[int, float], **fields: Any) -> ScheduleCurve:
    """Return a curve of these makespans, with bounds of 0 unless given."""
    none = [0.0] * len(points)
    plain = {"bounds": none, "work_bounds": none, "methods": ["x"] * len(points)}
    times = {"microbatches": list(points), "makespans": list(points.values()), "time_unit": "s"}
    return ScheduleCurve(**{**times, **plain, **fields})


class TestOneFOneBWithLatency:
    """4 stages, F = 1, B = 2, latency 1: 18 per 4 micro-batches, not 3 for each."""

    def test_measured_at_64(self) -> None:
        measured = measure_curve(pipeline(), [32, 64], heuristics=["1f1b"])
        assert measured.makespan(64) == 301
        assert not measured.is_extrapolated(64)
        assert measured.slope == 4.5

    @pytest.mark.parametrize("points", [None, range(1, 10), [4, 8, 16], [2, 4, 8, 16, 32]])
    def test_extrapolated_to_64(self, points: Any) -> None:
        instance = pipeline()
        measured = measure_curve(
            instance, points or default_microbatches(instance), heuristics=["1f1b"]
        )
        assert max(measured.microbatches) < 64
        assert measured.is_extrapolated(64)
        assert measured.slope == 4.5
        assert measured.makespan(64) == 301
        closed_form = (4 + 64 - 1) * 3
        assert closed_form == 201 < measured.bound(64) == 207

    def test_repeats_after_four(self) -> None:
        instance = pipeline()
        measured = measure_curve(instance, default_microbatches(instance), heuristics=["1f1b"])
        assert (measured.steady.period, measured.steady.growth) == (4, 18)
        assert np.diff(measured.makespan(np.arange(100, 106))).tolist() == [5, 3, 5, 5, 5]


class TestBeyondWhatWasMeasured:
    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize(
        ("name", "fields"),
        [
            ("1f1b", {}),
            ("gpipe", {}),
            ("interleaved-1f1b", {"placement": "interleaved", "stages_per_device": 2}),
        ],
    )
    def test_published_orders_on_equal_stages(
        self, name: str, fields: dict[str, Any], seed: int
    ) -> None:
        instance = uneven(seed, equal=True, **fields)
        measured = measure_curve(instance, default_microbatches(instance), heuristics=[name])
        far = 4 * measured.microbatches[-1]
        direct = measure_curve(instance, [far], heuristics=[name])
        assert measured.steady.repeats
        assert measured.makespan(far) == direct.makespan(far)

    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize("name", ["1f1b", "gpipe"])
    def test_published_orders_on_uneven_stages(self, name: str, seed: int) -> None:
        instance = uneven(seed)
        measured = measure_curve(instance, default_microbatches(instance), heuristics=[name])
        numbers = [70, 71, 73]
        direct = measure_curve(instance, numbers, heuristics=[name])
        assert measured.makespan(numbers).tolist() == list(direct.makespans)

    @settings(max_examples=15, deadline=None)
    @given(st.integers(0, 10**6), st.booleans())
    def test_bound_is_below_every_schedule(self, seed: int, capped: bool) -> None:
        memory = {"capacity": 3, "activation": 1} if capped else None
        instance = uneven(seed, memory=memory)
        measured = measure_curve(instance, [2, 3, 6, 9], heuristics=["list-tail", "1f1b"])
        others = measure_curve(instance, [1, 4, 5, 7, 12, 21], heuristics=["list-work", "1f1b"])
        for number, makespan, bound in zip(
            others.microbatches, others.makespans, others.bounds, strict=True
        ):
            assert measured.bound(number) <= makespan
            assert bound <= makespan
        assert measured.bound_slope <= measured.slope

    @settings(max_examples=15, deadline=None)
    @given(st.integers(0, 10**6), st.sampled_from([None, 1, 2]))
    def test_bound_is_below_the_optimum(self, seed: int, capacity: int | None) -> None:
        memory = None if capacity is None else {"capacity": capacity, "activation": 1}
        rng = np.random.default_rng(seed)
        times = {name: rng.integers(1, 5, 2).tolist() for name in ("forward", "backward")}
        instance = pipeline(num_devices=2, times=times, memory=memory)
        near = measure_curve(instance, [1, 2], heuristics=["list-tail"])
        far = measure_curve(instance, [2, 4], heuristics=["list-tail"])
        for number in (1, 2, 3):
            optimum = brute_force(lower(with_microbatches(instance, number)))
            assert optimum is not None
            assert max(near.bound(number), far.bound(number)) <= optimum

    @settings(max_examples=15, deadline=None)
    @given(st.integers(0, 10**6), st.sets(st.integers(1, 24), min_size=2, max_size=6))
    def test_nothing_decreases(self, seed: int, points: set[int]) -> None:
        measured = measure_curve(uneven(seed), sorted(points), heuristics=["list-backward-first"])
        numbers = np.arange(1, 60)
        makespans, bounds = measured.makespan(numbers), measured.bound(numbers)
        assert np.all(np.diff(makespans) >= 0)
        assert np.all(np.diff(bounds) >= 0)
        assert np.all(bounds <= makespans)
        assert np.all(makespans > 0)

    @pytest.mark.parametrize(
        "fields",
        [
            {"allreduce": [9, 30, 0, 5], "optimizer": [1, 0, 7, 2]},
            {"collectives": {"all_gather": [3, 0, 20, 4], "reduce_scatter": 25}},
            {"collectives": {"forward": {"segments": 2, "allreduce": [3, 1, 0, 2]}}},
            {"p2p": {"mode": "nic", "bytes": 5, "bandwidth": 2, "latency": 1}},
            {"placement": "bidirectional", "allreduce": 12},
            {"placement": "vshape", "times": {name: [2, 1, 0, 3] * 2 for name in SPLIT}},
            {"times": {name: [1, 4, 2, 0] for name in SPLIT}, "memory": TIGHT},
        ],
    )
    def test_bounds_with_everything_around(self, fields: dict[str, Any]) -> None:
        instance = pipeline(**fields)
        numbers = [2, 4, 6, 8, 12, 20, 32]
        direct = measure_curve(instance, numbers, heuristics=["list-tail"])
        for points in combinations(range(len(numbers)), 3):
            few = {
                field: [getattr(direct, field)[point] for point in points]
                for field in ("microbatches", "makespans", "bounds", "work_bounds", "methods")
            }
            part = ScheduleCurve(**few, time_unit=direct.time_unit, multiple=direct.multiple)
            assert np.all(part.bound(numbers) <= direct.makespans)
            lines = replace(part, bounds=part.work_bounds).bound(numbers)
            after = np.array(numbers) >= part.microbatches[0]
            assert np.all(lines[after] <= np.array(direct.work_bounds)[after])

    def test_work_bound_lines_are_the_work_bounds(self) -> None:
        instance = pipeline()
        measured = measure_curve(instance, [5, 8, 16], heuristics=["gpipe"])
        direct = measure_curve(instance, [1, 3, 10, 64], heuristics=["gpipe"])
        for number, work in zip(direct.microbatches, direct.work_bounds, strict=True):
            assert measured.bound(number) == work == 15 + 3 * number


class TestRules:
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
        # Three of the four steps of 1F1B above: 5 and 5 by chance, 4.5 in truth.
        measured = measure_curve(pipeline(), [32, 62, 63, 64], heuristics=["1f1b"])
        assert not measured.steady.repeats
        assert measured.slope == 4.5

    def test_later_point_refutes_a_pattern(self) -> None:
        points = {4: 10.0, 5: 12.0, 6: 14.0, 7: 16.0, 14: 30.0, 28: 100.0}
        found = curve(points)
        assert not found.steady.repeats
        assert found.slope == 5
        assert found.makespan(29) == 105

    def test_later_point_confirms_a_pattern(self) -> None:
        points = {4: 10.0, 5: 12.0, 6: 14.0, 7: 16.0, 14: 30.0, 28: 58.0}
        assert curve(points).steady.last == 7
        assert curve(points).makespan([20, 30]).tolist() == [42, 62]

    def test_between_and_below_points(self) -> None:
        found = curve({4: 10.0, 8: 22.0, 16: 46.0})
        assert found.makespan([4, 6, 8, 12]).tolist() == [10, 16, 22, 34]
        assert found.is_extrapolated([4, 6, 8]).tolist() == [False, True, False]
        # The slope backwards leads to 1; the line to the origin is above it.
        assert found.makespan(1) == 2.5
        assert curve({4: 20.0, 8: 32.0}).makespan(1) == 11

    def test_estimates_are_not_below_the_bound(self) -> None:
        bounds = {"bounds": [10.0, 20.0], "work_bounds": [10.0, 20.0]}
        found = curve({1: 20.0, 2: 21.0}, **bounds)
        assert found.slope == found.bound_slope == 10
        assert found.makespan(5) == found.bound(5) == 50

    def test_lines_hold_outside_their_points_only(self) -> None:
        work = [10.0, 11.0, 12.0, 22.0, 32.0]
        points = dict(zip([1, 2, 3, 6, 8], [100.0] * 5, strict=True))
        found = curve(points, bounds=work, work_bounds=work)
        # At 4 and 5: the line through 2 and 3, or through 6 and 8; not the chord from 3 to 6.
        assert found.bound([4, 5]).tolist() == [13, 17]
        assert found.bound(10) == 42

    def test_bounds_are_carried_to_more_microbatches(self) -> None:
        found = curve({2: 50.0, 4: 60.0}, bounds=[40.0, 30.0], work_bounds=[10.0, 20.0])
        assert found.bound([2, 3, 4, 6]).tolist() == [40, 40, 40, 40]
        assert found.bound(7) == 40
        assert found.bound(1) == 20

    def test_scalars_in_scalars_out(self) -> None:
        found = curve({1: 3.0, 2: 6.0})
        assert isinstance(found.makespan(4), float)
        assert isinstance(found.bound(np.int64(4)), float)
        assert found.is_extrapolated(4) is True
        assert found.makespan([[4], [5]]).tolist() == [[12], [15]]

    def test_optimal_where_the_bound_is_reached(self) -> None:
        measured = measure_curve(pipeline(), [2, 8], heuristics=["1f1b"])
        assert measured.optimal == (True, False)
        assert measured.makespans[0] == measured.bounds[0]


class TestMeasuring:
    def test_best_of_all_that_apply(self) -> None:
        measured = measure_curve(pipeline(), [4, 16])
        assert measured.methods == ("gpipe", "gpipe")
        assert measured.optimal == (True, True)
        assert measured.time_unit == "us"

    def test_exact(self) -> None:
        instance = pipeline(num_devices=2, memory={"capacity": 2, "activation": 1})
        told: list[Progress] = []
        measured = measure_curve(
            instance, [3, 1], exact=True, time_limit=20, workers=1, on_progress=told.append
        )
        optima = [brute_force(lower(with_microbatches(instance, number))) for number in (1, 3)]
        assert measured.microbatches == (1, 3)
        assert list(measured.makespans) == optima
        assert measured.optimal == (True, True)
        assert {"1 micro-batches (1 of 2)", "3 micro-batches (2 of 2)"} <= {t.source for t in told}

    def test_makespan_whatever_the_objective(self) -> None:
        plain = measure_curve(pipeline(), [4], heuristics=["1f1b"])
        span = measure_curve(pipeline(objective="device_span"), [4], heuristics=["1f1b"])
        assert plain == span

    def test_decimals_are_kept(self) -> None:
        times = {"forward": 0.1, "backward": 0.2}
        measured = measure_curve(pipeline(times=times, p2p={}), [3, 7], heuristics=["gpipe"])
        assert measured.makespans == (1.8, 3.0)

    def test_fewer_microbatches_are_never_slower(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def late(name: str, instance: PipelineInstance, problem: Problem) -> Outcome:
            outcome = run_heuristic(name, instance, problem)
            assert outcome.schedule is not None
            if instance.num_microbatches == 5:
                start = outcome.schedule.start.copy()
                start[int(outcome.schedule.end.argmax())] += 1000
                schedule = Schedule(problem, start)
                return Outcome(name, HeuristicStatus.FEASIBLE, schedule)
            return outcome

        monkeypatch.setattr(measuring, "run_heuristic", late)
        measured = measure_curve(pipeline(), [4, 5, 6], heuristics=["1f1b"])
        assert measured.makespan(5) == measured.makespan(6) > measured.makespan(4)

    def test_memory_is_counted(self) -> None:
        tight = pipeline(memory={"capacity": 2, "activation": 1})
        measured = measure_curve(tight, default_microbatches(tight))
        free = measure_curve(pipeline(), default_microbatches(tight))
        assert measured.slope > free.slope
        assert all(a >= b for a, b in zip(measured.bounds, free.bounds, strict=True))

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({}, (1, 2, 4, 8, *range(16, 25), 32)),
            ({"num_devices": 1}, (1, 2, *range(4, 9), 10)),
            ({"num_devices": 16}, (1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 128)),
            ({"placement": "bidirectional"}, (2, 4, 8, *range(16, 33, 2), 48)),
            (
                {"placement": "interleaved", "stages_per_device": 2},
                (1, 2, 4, 8, 12, 16, 20, 24, 32),
            ),
            ({"placement": "vshape"}, (1, 2, 4, 8, *range(16, 25), 32)),
        ],
    )
    def test_defaults(self, fields: dict[str, Any], expected: tuple[int, ...]) -> None:
        instance = pipeline(**fields)
        assert default_microbatches(instance) == expected
        run = measure_curve(instance, expected[:3], heuristics=["list-tail"])
        assert run.microbatches == expected[:3]

    def test_bidirectional_pipes(self) -> None:
        instance = pipeline(placement="bidirectional")
        measured = measure_curve(instance, default_microbatches(instance), heuristics=["chimera"])
        direct = measure_curve(instance, [100], heuristics=["chimera"])
        assert (measured.multiple, measured.slope) == (2, 3)
        assert measured.makespan(100) == direct.makespan(100)
        with pytest.raises(InputError, match=r"microbatches\[1\]: expected a multiple of 2, got 7"):
            measured.makespan([6, 7])


class TestFailures:
    def test_no_heuristic_fits(self) -> None:
        tight = pipeline(memory={"capacity": 4, "activation": 1})
        with pytest.raises(NoScheduleError, match="with 8 micro-batches no schedule was found: "):
            measure_curve(tight, [4, 8], heuristics=["gpipe"])
        with pytest.raises(NoScheduleError) as caught:
            measure_curve(tight, [8], heuristics=["gpipe", "chimera"])
        assert not caught.value.is_proved
        assert caught.value.microbatches == 8
        assert caught.value.reasons[0].startswith("gpipe infeasible: memory: device 0 holds 8 of 4")
        assert caught.value.reasons[1] == "chimera not applicable: needs bidirectional pipes"

    @pytest.mark.parametrize("exact", [False, True])
    def test_memory_that_nothing_fits(self, exact: bool) -> None:
        hopeless = pipeline(memory={"capacity": 1, "activation": 2})
        with pytest.raises(
            NoScheduleError, match=r"with 4 micro-batches .* \(proved\): "
        ) as caught:
            measure_curve(hopeless, [4], exact=exact)
        assert caught.value.is_proved

    def test_exact_without_time(self) -> None:
        tight = pipeline(memory={"capacity": 4, "activation": 1})
        with pytest.raises(NoScheduleError, match="no schedule was found: stopped: time_limit"):
            measure_curve(tight, [8], heuristics=["gpipe"], exact=True, time_limit=0)

    def test_wrong_schedule(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def wrong(name: str, _: PipelineInstance, problem: Problem) -> Outcome:
            start = np.zeros(problem.num_ops, dtype=np.int64)
            return Outcome(name, HeuristicStatus.FEASIBLE, Schedule(problem, start))

        monkeypatch.setattr(measuring, "run_heuristic", wrong)
        with pytest.raises(WrongScheduleError, match="1f1b: "):
            measure_curve(pipeline(), [4], heuristics=["1f1b"])
        monkeypatch.setattr(measuring, "check_schedule", lambda *_: [])
        with pytest.raises(WrongScheduleError, match="1f1b found 2 below the bound 27 of work"):
            measure_curve(pipeline(), [4], heuristics=["1f1b"])

    def test_wrong_exact_schedule(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(measuring, "check", lambda *_, **__: ["overlap: a and b"])
        with pytest.raises(WrongScheduleError, match=r"gpipe: overlap: a and b \(1 in all\)"):
            measure_curve(pipeline(), [4], heuristics=["gpipe"], exact=True, time_limit=0)

    @pytest.mark.parametrize(
        ("fields", "arguments", "message"),
        [
            (
                {"times": {"forward": [1, [1, 2, 3, 4], 1, 1], "backward": 1}},
                {},
                r"pipeline: times.forward\[1\]: expected one number per stage: durations per",
            ),
            (
                {"placement": "bidirectional"},
                {"microbatches": [4, 5]},
                "pipeline: num_microbatches: expected an even number with bidirectional pipes",
            ),
            ({}, {"microbatches": []}, "microbatches: expected at least one number"),
            (
                {},
                {"microbatches": [0, 4]},
                r"microbatches\[0\]: expected a whole number >= 1, got 0",
            ),
            ({}, {"heuristics": ["1f1c"]}, 'unknown heuristic "1f1c"; did you mean "1f1b"'),
            ({}, {"heuristics": []}, "heuristics: expected at least one heuristic"),
        ],
    )
    def test_bad_arguments(
        self, fields: dict[str, Any], arguments: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            measure_curve(pipeline(**fields), **{"microbatches": [4], **arguments})

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"microbatches": [2, 1]}, "microbatches: expected at least one number, in ascending"),
            ({"microbatches": [1, 1]}, "microbatches: expected at least one number, in ascending"),
            ({"microbatches": []}, "microbatches: expected at least one number, in ascending"),
            ({"microbatches": [0, 1]}, r"microbatches\[0\]: expected a whole number >= 1, got 0"),
            ({"makespans": [1.0]}, r"makespans: expected 2 entries \(one per number of"),
            (
                {"makespans": [1.0, float("nan")]},
                r"makespans\[1\]: expected a number >= 0, got nan",
            ),
            ({"makespans": "fast"}, 'makespans: expected a number, got the text "fast"'),
            ({"makespans": [0.0, 1.0]}, r"makespans\[0\]: expected a time > 0, got 0"),
            ({"makespans": [3.0, 2.0]}, "makespans: expected makespans that do not decrease"),
            ({"bounds": [1.0, 7.0]}, r"bounds\[1\]: expected at most the makespan, got 7"),
            ({"work_bounds": [0.0, 1.0]}, r"work_bounds\[1\]: expected at most the bound, got 1"),
            ({"multiple": 2}, r"microbatches\[0\]: expected a multiple of 2, got 1"),
            ({"multiple": 0}, "multiple: expected a whole number of at least 1, got 0"),
        ],
    )
    def test_bad_curves(self, fields: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            curve({1: 3.0, 2: 6.0}, **fields)

    def test_work_bounds_that_are_not_convex(self) -> None:
        work = [0.0, 2.0, 3.0]
        with pytest.raises(InputError, match="work_bounds: expected values that grow ever faster"):
            curve({1: 3.0, 2: 6.0, 3: 9.0}, bounds=work, work_bounds=work)

    @pytest.mark.parametrize(
        ("number", "message"),
        [
            (0, "a whole number >= 1, got 0"),
            (-1, "a whole number >= 1, got -1"),
            (1.5, "a whole number >= 1, got 1.5"),
            (float("nan"), "a whole number >= 1, got nan"),
            ("two", 'a number, got the text "two"'),
            (None, "a number, got null"),
            (True, "a number, got true"),
        ],
    )
    def test_bad_numbers(self, number: Any, message: str) -> None:
        found = curve({1: 3.0, 2: 6.0})
        for method in (found.makespan, found.bound, found.is_extrapolated):
            with pytest.raises(InputError, match=f"microbatches: expected {message}"):
                method(number)

    def test_one_point_has_no_slope(self) -> None:
        found = curve({4: 10.0})
        assert found.makespan(4) == 10
        message = "expected at least two measured numbers of micro-batches .* got only 4"
        for use in (
            lambda: found.slope,
            lambda: found.bound_slope,
            lambda: found.makespan(5),
            lambda: found.makespan([4, 3]),
        ):
            with pytest.raises(InputError, match=message):
                use()
