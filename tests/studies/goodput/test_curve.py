"""Curves of makespan over micro-batches: as measured, extended, and bounded from below."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.studies.goodput.curve import ScheduleCurve, WrongBoundError, at_most
from ppsolve.solver.studies.plan.curve import (
    measure_curve,
    with_microbatches,
)
from tests.bruteforce import brute_force
from tests.marks import examples, first
from tests.running import run_heuristic
from tests.studies.goodput.curve_cases import curve, numbers_of, pipeline, uneven

SPLIT = ("forward", "backward_input", "backward_weight")
TIGHT = {"capacity": 5, "activation": 1}


class TestOneFOneBWithLatency:
    """4 stages, F = 1, B = 2, latency 1: 18 per 4 micro-batches, not 3 for each."""

    def test_measured_at_64(self) -> None:
        measured = measure_curve(pipeline(), [32, 64], heuristics=["1f1b"])
        assert measured.makespan(64) == 301
        assert not measured.is_extrapolated(64)
        assert measured.slope == 4.5

    @pytest.mark.parametrize(
        "points",
        [
            None,
            range(1, 10),
            range(16, 25),
            [*range(16, 25), 32],
            [4, 8, 16],
            [2, 4, 8, 16, 32],
        ],
    )
    def test_extrapolated_to_64(self, points: Any) -> None:
        instance = pipeline()
        measured = measure_curve(
            instance, points or numbers_of(instance), heuristics=["1f1b"]
        )
        assert max(measured.microbatches) < 64
        assert measured.is_extrapolated(64)
        assert measured.slope == 4.5
        assert measured.makespan(64) == 301
        closed_form = (4 + 64 - 1) * 3
        assert closed_form == 201 < measured.bound(64) == 207

    def test_repeats_after_four(self) -> None:
        instance = pipeline()
        measured = measure_curve(instance, numbers_of(instance), heuristics=["1f1b"])
        assert (measured.steady.period, measured.steady.growth) == (4, 18)
        assert np.diff(measured.makespan(np.arange(100, 106))).tolist() == [
            5,
            3,
            5,
            5,
            5,
        ]

    def test_between_two_points_the_next_schedule_is_taken(self) -> None:
        every = measure_curve(pipeline(), range(16, 33), heuristics=["1f1b"])
        few = measure_curve(pipeline(), [16, 32], heuristics=["1f1b"])
        numbers = np.arange(17, 33)
        assert every.makespan(17) == 90
        assert few.makespan(numbers).tolist() == [every.makespan(32)] * 16
        assert np.all(few.makespan(numbers) >= every.makespan(numbers))
        assert not np.any(few.is_extrapolated(numbers))
        assert few.is_extrapolated(33)


class TestBeyondWhatWasMeasured:
    @pytest.mark.parametrize("seed", first(1, range(4)))
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
        measured = measure_curve(instance, numbers_of(instance), heuristics=[name])
        far = 4 * measured.microbatches[-1]
        direct = measure_curve(instance, [far], heuristics=[name])
        assert measured.steady.repeats
        assert measured.makespan(far) == direct.makespan(far)

    @pytest.mark.parametrize("seed", first(1, range(4)))
    @pytest.mark.parametrize("name", ["1f1b", "gpipe"])
    def test_published_orders_on_uneven_stages(self, name: str, seed: int) -> None:
        instance = uneven(seed)
        measured = measure_curve(instance, numbers_of(instance), heuristics=[name])
        numbers = [70, 71, 73]
        direct = measure_curve(instance, numbers, heuristics=[name])
        assert measured.makespan(numbers).tolist() == list(direct.makespans)

    @examples(3)
    @given(st.integers(0, 10**6), st.booleans())
    def test_bound_is_below_every_schedule(self, seed: int, capped: bool) -> None:
        memory = {"capacity": 3, "activation": 1} if capped else None
        instance = uneven(seed, memory=memory)
        measured = measure_curve(
            instance, [2, 3, 6, 9], heuristics=["list-tail", "1f1b"]
        )
        others = measure_curve(
            instance, [1, 4, 5, 7, 12, 21], heuristics=["list-work", "1f1b"]
        )
        for number, makespan, bound in zip(
            others.microbatches, others.makespans, others.bounds, strict=True
        ):
            assert measured.bound(number) <= makespan
            assert bound <= makespan
        assert measured.bound_slope <= measured.slope

    @examples(5)
    @given(st.integers(0, 10**6), st.sampled_from([None, 1, 2]))
    def test_bound_is_below_the_optimum(self, seed: int, capacity: int | None) -> None:
        memory = None if capacity is None else {"capacity": capacity, "activation": 1}
        rng = np.random.default_rng(seed)
        times = {
            name: rng.integers(1, 5, 2).tolist() for name in ("forward", "backward")
        }
        instance = pipeline(num_devices=2, times=times, memory=memory)
        near = measure_curve(instance, [1, 2], heuristics=["list-tail"])
        far = measure_curve(instance, [2, 4], heuristics=["list-tail"])
        for number in (1, 2, 3):
            optimum = brute_force(lower(with_microbatches(instance, number)))
            assert optimum is not None
            assert max(near.bound(number), far.bound(number)) <= optimum
            assert optimum <= far.makespan(number)
            assert number > 2 or optimum <= near.makespan(number)

    @pytest.mark.parametrize("name", ["list-tail", "list-backward-first"])
    @pytest.mark.parametrize(
        "fields",
        [
            {"memory": TIGHT, "allreduce": [9, 3, 0, 5], "optimizer": [1, 0, 7, 2]},
            {"times": {kind: [1, 4, 2, 0] for kind in SPLIT}, "memory": TIGHT},
            {
                "placement": "vshape",
                "times": {kind: [2, 1, 0, 3] * 2 for kind in SPLIT},
            },
            {"placement": "interleaved", "stages_per_device": 2, "memory": TIGHT},
            {"p2p": {"mode": "nic", "bytes": 5, "bandwidth": 2, "latency": 1}},
            {"collectives": {"all_gather": [3, 0, 20, 4], "reduce_scatter": 25}},
        ],
    )
    @pytest.mark.parametrize("left_out", [0, 4])
    def test_a_microbatch_left_out_leaves_a_schedule(
        self, fields: dict[str, Any], name: str, left_out: int
    ) -> None:
        seven, six = (pipeline(num_microbatches=number, **fields) for number in (7, 6))
        schedule = run_heuristic(name, seven, lower(seven)).schedule
        assert schedule is not None
        more, fewer = schedule.problem, lower(six)
        names = more.op_names(range(more.num_ops))
        starts = dict(zip(names, schedule.start.tolist(), strict=True))

        def in_seven(op: str) -> str:
            stage, dot, rest = op.partition(".")
            number = rest.split("/")[0]
            if not number.isdigit():
                return op
            kept = int(number) + (int(number) >= left_out)
            return stage + dot + str(kept) + rest[len(number) :]

        kept = fewer.op_names(range(fewer.num_ops))
        start = np.array([starts[in_seven(op)] for op in kept])
        shorter = Schedule(fewer, start)
        assert check_schedule(fewer, shorter) == []
        assert shorter.makespan <= schedule.makespan

    @examples(5)
    @given(st.integers(0, 10**6), st.sets(st.integers(1, 24), min_size=2, max_size=6))
    def test_nothing_decreases(self, seed: int, points: set[int]) -> None:
        measured = measure_curve(
            uneven(seed), sorted(points), heuristics=["list-backward-first"]
        )
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
            {
                "placement": "vshape",
                "times": {name: [2, 1, 0, 3] * 2 for name in SPLIT},
            },
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
                for field in (
                    "microbatches",
                    "makespans",
                    "bounds",
                    "work_bounds",
                    "methods",
                )
            }
            part = ScheduleCurve(
                **few, time_unit=direct.time_unit, multiple=direct.multiple
            )
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
    def test_between_and_below_points(self) -> None:
        found = curve({4: 10.0, 8: 22.0, 16: 46.0})
        assert found.makespan([1, 4, 6, 8, 12, 16, 17]).tolist() == [
            10,
            10,
            22,
            22,
            46,
            46,
            49,
        ]
        assert found.is_extrapolated([1, 6, 8, 16, 17]).tolist() == [False] * 4 + [True]

    def test_estimates_are_not_below_the_bound(self) -> None:
        bounds = {"bounds": [10.0, 20.0], "work_bounds": [10.0, 20.0]}
        found = curve({1: 20.0, 2: 21.0}, **bounds)
        assert found.slope == found.bound_slope == 10
        assert found.makespan(5) == 51 > found.bound(5) == 50

    def test_rounding_only_is_clamped(self) -> None:
        low, high = np.array([1.0, 2.0 + 1e-9, 3.0]), np.array([1.5, 2.0, 3.0])
        assert at_most(low, high).tolist() == [1, 2, 3]
        assert at_most(low, high + 100, largest=100).tolist() == low.tolist()
        with pytest.raises(
            WrongBoundError, match=r"bound 2.1 above the 2 that a schedule takes"
        ):
            at_most(np.array([1.0, 2.1]), np.array([2.0, 2.0]))
        with pytest.raises(WrongBoundError, match=r"bound 4 above the 3"):
            at_most(np.float64(4), np.float64(3))

    def test_wrong_bounds_are_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = curve({1: 20.0, 2: 21.0})
        monkeypatch.setattr(ScheduleCurve, "_line", lambda *_: np.float64(30))
        with pytest.raises(
            WrongBoundError, match="bound 30 above the 21 that a schedule takes"
        ):
            found.bound(2)
        with pytest.raises(
            WrongBoundError, match="bound 30 above the 22 that a schedule takes"
        ):
            found.makespan(3)
        assert found.makespan(2) == 21

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


class TestFailures:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            (
                {"microbatches": [2, 1]},
                "microbatches: expected at least one number, in ascending",
            ),
            (
                {"microbatches": [1, 1]},
                "microbatches: expected at least one number, in ascending",
            ),
            (
                {"microbatches": []},
                "microbatches: expected at least one number, in ascending",
            ),
            (
                {"microbatches": [0, 1]},
                r"microbatches\[0\]: expected a whole number >= 1, got 0",
            ),
            (
                {"makespans": [1.0]},
                r"makespans: expected 2 entries \(one per number of",
            ),
            (
                {"makespans": [1.0, float("nan")]},
                r"makespans\[1\]: expected a number >= 0, got nan",
            ),
            (
                {"makespans": "fast"},
                'makespans: expected a number, got the text "fast"',
            ),
            ({"makespans": [0.0, 1.0]}, r"makespans\[0\]: expected a time > 0, got 0"),
            (
                {"makespans": [3.0, 2.0]},
                "makespans: expected makespans that do not decrease",
            ),
            (
                {"bounds": [1.0, 7.0]},
                r"bounds\[1\]: expected at most the makespan, got 7",
            ),
            (
                {"work_bounds": [0.0, 1.0]},
                r"work_bounds\[1\]: expected at most the bound, got 1",
            ),
            ({"multiple": 2}, r"microbatches\[0\]: expected a multiple of 2, got 1"),
            ({"multiple": 0}, "multiple: expected a whole number of at least 1, got 0"),
            ({"has_sync": 1}, "has_sync: expected true or false, got 1"),
            (
                {"replicas": 4},
                "replicas: expected none, as there is no sync in the schedules",
            ),
            (
                {"has_sync": True, "replicas": 1.5},
                "replicas: expected a whole number >= 1, got 1.5",
            ),
            (
                {"has_sync": True, "replicas": [4]},
                "replicas: expected one number, got 1",
            ),
        ],
    )
    def test_bad_curves(self, fields: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            curve({1: 3.0, 2: 6.0}, **fields)

    @pytest.mark.parametrize("work", [[0.0, 2.0, 3.0], [2.0, 1.0, 1.0]])
    def test_work_bounds_that_are_not_convex(self, work: list[float]) -> None:
        message = (
            "work_bounds: expected values that do not decrease and grow ever faster"
        )
        with pytest.raises(InputError, match=message):
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
        assert found.makespan([1, 4]).tolist() == [10, 10]
        message = (
            "expected at least two measured numbers of micro-batches .* got only 4"
        )
        for use in (
            lambda: found.slope,
            lambda: found.bound_slope,
            lambda: found.makespan(5),
            lambda: found.makespan([4, 6]),
        ):
            with pytest.raises(InputError, match=message):
                use()
