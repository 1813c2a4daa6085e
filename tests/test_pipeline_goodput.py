"""Goodput of pipelines: step times of measured schedules, intervals, and the best configuration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppsolve.models.errors import InputError
from ppsolve.models.goodput import GoodputModel, GradParams, PerfParams
from ppsolve.models.pipeline import PipelineInstance
from ppsolve.models.pipeline_goodput import Interval, PipelineGoodput
from ppsolve.models.schedule_curve import ScheduleCurve
from ppsolve.solver.plan.curve import default_microbatches, measure_curve

GRAD = GradParams(0.002, 0.03)
SIZES = (1, 2, 4, 8)


def performance(**changed: float) -> PerfParams:
    plain = {"alpha_c": 0.02, "beta_c": 0.002, "alpha_n": 0.12, "beta_n": 0.007}
    plain |= {"alpha_r": 0.013, "beta_r": 0.0009, "gamma": 2.75}
    return PerfParams(**{**plain, **changed})


def model(init_batch_size: float = 16, **changed: float) -> GoodputModel:
    return GoodputModel(performance(**changed), GRAD, init_batch_size)


def one_stage(perf: PerfParams, points: tuple[int, ...] = (1, 2)) -> dict[int, ScheduleCurve]:
    """Return curves of a single stage: M (alpha_c + beta_c b), and no schedule is shorter."""
    curves = {}
    for size in SIZES:
        times = [number * (perf.alpha_c + perf.beta_c * size) for number in points]
        curves[size] = ScheduleCurve(points, times, times, times, ["x"] * len(points), "s")
    return curves


def pipeline(**fields: Any) -> PipelineInstance:
    plain = {"num_devices": 4, "num_microbatches": 4, "times": {"forward": 1, "backward": 2}}
    return PipelineInstance.parse({"time_unit": "ms", **plain, **fields})


def measured(name: str = "1f1b", **fields: Any) -> dict[int, ScheduleCurve]:
    """Return curves of 4 stages with latency whose times grow with the micro-batch size."""
    curves = {}
    for size in SIZES:
        times = {"forward": 2 + size, "backward": 4 + 2 * size}
        instance = pipeline(times=times, p2p={"latency": 3}, **fields)
        curves[size] = measure_curve(instance, default_microbatches(instance), heuristics=[name])
    return curves


@pytest.fixture(scope="module")
def curves() -> dict[int, ScheduleCurve]:
    return measured()


def published(perf: PerfParams, makespan: float, slope: float, number: int, sync: float) -> float:
    """Return the step time, written as in the literature."""
    c = makespan - number * slope
    rest = (c + slope) ** perf.gamma + sync**perf.gamma
    return float((number - 1) * slope + rest ** (1 / perf.gamma))


class TestOneStage:
    @settings(max_examples=50, deadline=None)
    @given(
        st.tuples(*[st.floats(1e-4, 2.0)] * 6),
        st.floats(1, 10),
        st.integers(1, 40),
        st.integers(1, 40),
        st.sampled_from(SIZES),
        st.integers(1, 100),
    )
    def test_is_the_published_model(
        self, times: Any, gamma: float, a: int, b: int, size: int, number: int
    ) -> None:
        nodes, replicas = min(a, b), max(a, b)
        base = GoodputModel(PerfParams(*times, gamma), GRAD, 1)
        pipelines = PipelineGoodput(base, one_stage(base.perf))
        expected = base.throughput(nodes, replicas, size, number - 1)
        found = pipelines.evaluate(nodes, replicas, size, number)
        assert found.throughput.low == pytest.approx(expected, rel=1e-12)
        assert found.throughput.high == pytest.approx(expected, rel=1e-12)
        assert found.efficiency == base.efficiency(found.batch_size)
        goodput = base.evaluate(nodes, replicas, size, number - 1)
        assert found.goodput.low == pytest.approx(goodput, rel=1e-12)

    def test_measured_one_stage(self) -> None:
        base = model(alpha_c=0.003, beta_c=0.0, init_batch_size=1)
        instance = pipeline(num_devices=1)
        curve = measure_curve(instance, default_microbatches(instance))
        pipelines = PipelineGoodput(base, {8: curve})
        expected = base.throughput(2, 4, 8, np.arange(30))
        found = pipelines.evaluate(2, 4, 8, np.arange(1, 31))
        np.testing.assert_allclose(found.throughput.low, expected, rtol=1e-12)
        np.testing.assert_allclose(found.throughput.high, expected, rtol=1e-12)
        assert found.extrapolated.tolist() == [n not in curve.microbatches for n in range(1, 31)]


class TestStepTime:
    @pytest.mark.parametrize("stages", [2, 4, 8])
    def test_gpipe_on_equal_stages_is_the_published_pipeline_model(self, stages: int) -> None:
        instance = pipeline(num_devices=stages, times={"forward": 5, "backward": 10})
        curve = measure_curve(instance, default_microbatches(instance), heuristics=["gpipe"])
        base = model(gamma=1, init_batch_size=1)
        numbers = np.arange(1, 200)
        found = PipelineGoodput(base, {2: curve}).step_time(2, 6, 2, numbers)
        sync = base.network_time(2, 6) * 1000
        expected = 3 * (stages - 1 + numbers) * 5 + sync
        np.testing.assert_allclose(found.high, expected, rtol=1e-12)
        np.testing.assert_allclose(found.low, expected, rtol=1e-12)

    def test_1f1b_with_latency_by_measurement(self) -> None:
        instance = pipeline(p2p={"latency": 1})
        curve = measure_curve(instance, default_microbatches(instance), heuristics=["1f1b"])
        base = model()
        found = PipelineGoodput(base, {1: curve}).step_time(2, 2, 1, 64)
        sync = base.network_time(2, 2) * 1000
        assert found.high == pytest.approx(published(base.perf, 301, 4.5, 64, sync), rel=1e-12)
        assert found.low == pytest.approx(published(base.perf, 207, 3, 64, sync), rel=1e-12)

    def test_formula_for_every_size(self, curves: dict[int, ScheduleCurve]) -> None:
        base = model()
        sizes, numbers = np.array(SIZES)[:, None], np.arange(1, 60)
        found = PipelineGoodput(base, curves).step_time(3, 5, sizes, numbers)
        sync = base.network_time(3, 5) * 1000
        for row, curve in zip(found.high, curves.values(), strict=True):
            slope = curve.slope
            expected = [
                published(base.perf, curve.makespan(number), slope, number, sync)
                for number in numbers.tolist()
            ]
            np.testing.assert_allclose(row, expected, rtol=1e-12)

    def test_sync_inside_the_schedule(self) -> None:
        fields = {"p2p": {"latency": 1}, "allreduce": 20}
        instance = pipeline(**fields)
        curve = measure_curve(instance, [4, 8, 16], heuristics=["1f1b"])
        found = PipelineGoodput(model(), {4: curve}, sync="in_schedule").evaluate(1, 4, 4, [4, 20])
        assert found.step_time.high.tolist() == [curve.makespan(4), curve.makespan(20)]
        assert found.step_time.low.tolist() == [curve.bound(4), curve.bound(20)]
        added = PipelineGoodput(model(), {4: curve}).step_time(1, 4, 4, [4, 20])
        assert np.all(added.high > found.step_time.high)

    def test_one_measured_number_is_enough_inside_the_schedule(self) -> None:
        curve = measure_curve(pipeline(allreduce=1), [16])
        pipelines = PipelineGoodput(model(), {1: curve}, sync="in_schedule")
        chosen = pipelines.optimize(1, 1, max_batch_size=16, microbatches=[8, 16])
        assert (chosen.microbatches, chosen.extrapolated) == (16, False)
        with pytest.raises(InputError, match="expected at least two measured numbers"):
            pipelines.step_time(1, 1, 1, 8)

    def test_nothing_is_left_to_overlap(self) -> None:
        # Few micro-batches run at 1 each, many at 10: c + tau would be below 0 at 10.
        times = [10.0, 30.0, 50.0]
        curve = ScheduleCurve([10, 12, 14], times, [0, 0, 0], [0, 0, 0], ["x"] * 3, "s")
        base = model(gamma=2)
        found = PipelineGoodput(base, {1: curve}).step_time(2, 2, 1, 10)
        sync = base.network_time(2, 2)
        assert curve.makespan(10) - 9 * curve.slope < 0
        assert found.high == 10 + sync
        assert found.low == pytest.approx(sync)

    def test_bounds_of_zero_are_no_limit(self) -> None:
        curve = ScheduleCurve([1, 2], [1.0, 2.0], [0, 0], [0, 0], ["x"] * 2, "s")
        found = PipelineGoodput(model(1), {1: curve}, sync="in_schedule").evaluate(1, 1, 1, 2)
        assert found.throughput == Interval(1.0, np.inf)

    def test_long_times_do_not_overflow(self) -> None:
        times = [5e14, 1e15]
        curve = ScheduleCurve([1, 2], times, times, times, ["x"] * 2, "s")
        base = model(gamma=1e6, alpha_n=1e15)
        found = PipelineGoodput(base, {1: curve}).step_time(2, 2, 1, 2)
        assert found.low == found.high == pytest.approx(1.5e15, rel=1e-6)


class TestIntervals:
    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.tuples(*[st.floats(0.01, 50)] * 2), min_size=2, max_size=6),
        st.floats(1, 10),
        st.floats(1e-3, 1e3),
        st.data(),
    )
    def test_low_is_below_high_and_nothing_is_gained_by_slower_schedules(
        self, steps: Any, gamma: float, sync: float, data: Any
    ) -> None:
        drawn = data.draw(st.sets(st.integers(1, 40), min_size=len(steps), max_size=len(steps)))
        points = sorted(drawn)
        work = np.array(points) * 0.5 + 1
        makespans = work + np.cumsum([step for step, _ in steps])
        bounds = work + (makespans - work) * data.draw(st.floats(0, 1))
        fields = {"methods": ["x"] * len(points), "time_unit": "s"}
        curve = ScheduleCurve(points, makespans, bounds, work, **fields)
        slower = ScheduleCurve(points, makespans * 1.5, bounds, work, **fields)
        base = model(1, alpha_n=sync, gamma=gamma)
        numbers = np.arange(1, 80)
        found = PipelineGoodput(base, {1: curve}).evaluate(2, 2, 1, numbers)
        worse = PipelineGoodput(base, {1: slower}).evaluate(2, 2, 1, numbers)
        for interval in (found.step_time, found.throughput, found.goodput):
            assert np.all(interval.low <= interval.high)
        assert np.all(worse.step_time.high >= found.step_time.high * (1 - 1e-12))
        assert np.all(np.diff(found.step_time.low) >= -1e-9 * found.step_time.high[1:])

    @settings(max_examples=60)
    @given(
        st.floats(1, 10),
        st.floats(0, 1e3),
        st.tuples(st.floats(0.1, 1e3), st.floats(0.1, 1e3)),
        st.tuples(st.floats(0, 1e2), st.floats(0, 1e2)),
        st.integers(1, 50),
    )
    def test_step_time_decreases_neither_in_makespan_nor_in_slope(
        self, gamma: float, sync: float, makespans: Any, slopes: Any, number: int
    ) -> None:
        def step(makespan: float, slope: float) -> float:
            steady = min((number - 1) * slope, makespan)
            return float(steady + ((makespan - steady) ** gamma + sync**gamma) ** (1 / gamma))

        low, high = step(min(makespans), min(slopes)), step(max(makespans), max(slopes))
        assert low <= high * (1 + 1e-9)

    def test_goodput_is_throughput_times_efficiency(self, curves: dict[int, ScheduleCurve]) -> None:
        found = PipelineGoodput(model(), curves).evaluate([[1], [2]], 4, 4, [1, 7, 90])
        assert found.goodput.low.shape == (2, 3)
        assert found.batch_size.tolist() == [[16, 112, 1440]] * 2
        for end in ("low", "high"):
            throughput, goodput = getattr(found.throughput, end), getattr(found.goodput, end)
            assert goodput.tolist() == (throughput * found.efficiency).tolist()
        step = found.step_time.high / 1000
        np.testing.assert_allclose(found.throughput.low, found.batch_size / step, rtol=1e-14)
        assert found.extrapolated.tolist() == [[False, True, True]] * 2

    def test_scalars_in_scalars_out(self, curves: dict[int, ScheduleCurve]) -> None:
        pipelines = PipelineGoodput(model(), curves)
        found = pipelines.evaluate(1, 4, 4, 7)
        assert isinstance(found.goodput.low, float)
        assert isinstance(found.batch_size, int)
        assert found.extrapolated is True
        chosen = pipelines.optimize(1, 4, max_batch_size=100)
        assert isinstance(chosen.goodput.high, float)
        assert isinstance(chosen.microbatches, int)

    @pytest.mark.parametrize(("unit", "factor"), [("ms", 1), ("s", 1000), ("us", 1e-3)])
    def test_time_units(self, curves: dict[int, ScheduleCurve], unit: str, factor: float) -> None:
        plain = performance(alpha_n=120.0, beta_n=7.0)
        scaled = performance(alpha_n=120.0 / factor, beta_n=7.0 / factor)
        expected = PipelineGoodput(GoodputModel(plain, GRAD, 16), curves, time_unit="ms")
        found = PipelineGoodput(GoodputModel(scaled, GRAD, 16), curves, time_unit=unit)
        a, b = expected.evaluate(2, 8, 2, [4, 30]), found.evaluate(2, 8, 2, [4, 30])
        np.testing.assert_allclose(b.step_time.high, a.step_time.high, rtol=1e-14)
        np.testing.assert_allclose(b.goodput.low, a.goodput.low * factor, rtol=1e-14)

    def test_unknown_units_if_they_are_the_same(self) -> None:
        curve = ScheduleCurve([1, 2], [1, 2], [1, 2], [1, 2], ["x"] * 2, "ticks")
        found = PipelineGoodput(model(1), {4: curve}, time_unit="ticks").step_time(1, 1, 4, 2)
        assert found.high == pytest.approx(2)


class TestBest:
    def exhaustive(
        self, pipelines: PipelineGoodput, nodes: int, replicas: int, largest: int, numbers: Any
    ) -> tuple[float, int, int]:
        best = (0.0, 0, 0)
        for size in pipelines.curves:
            for number in numbers:
                batch = replicas * size * number
                if pipelines.model.init_batch_size <= batch <= largest:
                    value = pipelines.evaluate(nodes, replicas, size, number).goodput.low
                    if value > best[0]:
                        best = (value, size, number)
        return best

    @pytest.mark.parametrize("largest", [16, 37, 300])
    def test_is_the_best_of_all(self, curves: dict[int, ScheduleCurve], largest: int) -> None:
        pipelines = PipelineGoodput(model(), curves)
        for nodes, replicas in ((1, 1), (1, 3), (2, 5), (3, 17), (4, 40)):
            chosen = pipelines.optimize(nodes, replicas, max_batch_size=largest)
            found = (chosen.goodput.low, chosen.atomic_bsz, chosen.microbatches)
            # Up to 64 every number is tried.
            expected = self.exhaustive(pipelines, nodes, replicas, largest, range(1, 65))
            assert found[0] >= expected[0] * (1 - 1e-12)
            if found[2] <= 64:
                assert found == pytest.approx(expected, rel=1e-12)

    @settings(max_examples=40, deadline=None)
    @given(st.integers(1, 60), st.integers(1, 60), st.integers(16, 3000), st.booleans())
    def test_limits_are_kept(
        self, curves: dict[int, ScheduleCurve], a: int, b: int, largest: int, some: bool
    ) -> None:
        pipelines = PipelineGoodput(model(), curves)
        nodes, replicas = min(a, b), max(a, b)
        numbers = [3, 8, 21] if some else None
        chosen = pipelines.optimize(nodes, replicas, max_batch_size=largest, microbatches=numbers)
        every = range(1, largest + 1) if numbers is None else numbers
        batches = [replicas * size * number for size in SIZES for number in every]
        if not any(16 <= batch <= largest for batch in batches):
            assert chosen.goodput == Interval(0, 0)
            assert (chosen.atomic_bsz, chosen.microbatches, chosen.batch_size) == (0, 0, 0)
            return
        assert 16 <= chosen.batch_size <= largest
        assert chosen.batch_size == replicas * chosen.atomic_bsz * chosen.microbatches
        assert numbers is None or chosen.microbatches in numbers
        again = pipelines.evaluate(nodes, replicas, chosen.atomic_bsz, chosen.microbatches)
        assert chosen.goodput.low == pytest.approx(again.goodput.low, rel=1e-12)
        assert chosen.goodput.high == pytest.approx(again.goodput.high, rel=1e-12)
        assert chosen.extrapolated == again.extrapolated

    def test_table_is_optimize_for_every_pair(self, curves: dict[int, ScheduleCurve]) -> None:
        pipelines = PipelineGoodput(model(), curves)
        nodes, replicas = [1, 2, 7], [1, 2, 3, 8, 30]
        table = pipelines.table(nodes, replicas, max_batch_size=100)
        assert table.goodput.low.shape == (3, 5)
        for i, n in enumerate(nodes):
            for j, k in enumerate(replicas):
                if n > k:
                    assert table.goodput.low[i, j] == table.microbatches[i, j] == 0
                    continue
                one = pipelines.optimize(n, k, max_batch_size=100)
                assert table.goodput.low[i, j] == one.goodput.low
                assert table.goodput.high[i, j] == one.goodput.high
                assert table.atomic_bsz[i, j] == one.atomic_bsz
                assert table.microbatches[i, j] == one.microbatches
                assert table.extrapolated[i, j] == one.extrapolated

    def test_ten_thousand_pairs(self, curves: dict[int, ScheduleCurve]) -> None:
        pipelines = PipelineGoodput(model(), curves)
        numbers = np.arange(1, 101)
        table = pipelines.table(numbers, numbers, max_batch_size=10_000)
        possible = numbers[:, None] <= numbers
        assert np.all((table.goodput.low > 0) == possible)
        assert np.all(table.goodput.low <= table.goodput.high)
        # More nodes only make the sync longer; what counts is whether there is more than one.
        assert np.all(table.goodput.low[0] >= table.goodput.low[1])

    def test_even_numbers_of_bidirectional_pipes(self) -> None:
        instance = pipeline(placement="bidirectional", p2p={"latency": 1})
        curve = measure_curve(instance, default_microbatches(instance), heuristics=["chimera"])
        pipelines = PipelineGoodput(model(), {1: curve})
        chosen = pipelines.optimize(1, [1, 3], max_batch_size=20)
        assert np.all(chosen.microbatches % 2 == 0)
        assert chosen.batch_size.tolist() in [[16, 18], [18, 18], [20, 18]]
        odd = pipelines.optimize(1, 1, max_batch_size=20, microbatches=[17, 19])
        assert odd.microbatches == 0

    def test_bad_limits_at_the_edge_of_doubles(self, curves: dict[int, ScheduleCurve]) -> None:
        chosen = PipelineGoodput(model(), curves).optimize(1, 10**15, max_batch_size=10**15)
        assert (chosen.atomic_bsz, chosen.microbatches) == (1, 1)


class TestFailures:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((1, 1, 1, 4), r"microbatches: expected replicas x micro-batch size x .* 16, got 4"),
            ((1, 2, 4, [8, 1]), r"microbatches\[1\]: expected replicas x .* at least 16, got 8"),
            ((1, 2, 3, 8), r"atomic_bsz: expected a micro-batch .* curve \(1, 2, 4, 8\), got 3"),
            ((3, 2, 4, 8), "num_nodes: expected at most as many nodes as replicas, got 3"),
            ((0, 2, 4, 8), "num_nodes: expected a whole number >= 1, got 0"),
            ((1, 2.5, 4, 8), "num_replicas: expected a whole number >= 1, got 2.5"),
            ((1, 2, 4, 0), "microbatches: expected a whole number >= 1, got 0"),
            ((1, 2, "4", 8), 'atomic_bsz: expected a number, got the text "4"'),
            ((1, [2, 4], 4, [8, 9, 10]), r"microbatches: expected shapes that broadcast together"),
        ],
    )
    def test_bad_configurations(
        self, curves: dict[int, ScheduleCurve], arguments: Any, message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            PipelineGoodput(model(), curves).evaluate(*arguments)

    def test_step_time_of_small_batches(self, curves: dict[int, ScheduleCurve]) -> None:
        assert PipelineGoodput(model(), curves).step_time(1, 1, 1, 1).high > 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"max_batch_size": 15}, "max_batch_size: expected at least the initial batch size 16"),
            ({"max_batch_size": [99]}, "max_batch_size: expected one number, got 1"),
            ({"microbatches": [0]}, r"microbatches\[0\]: expected a whole number >= 1, got 0"),
            (
                {"num_nodes": 9},
                r"num_nodes\[0\]: expected at most as many nodes as replicas, got 9",
            ),
            ({"num_nodes": [1, 1, 1]}, "num_nodes, num_replicas: expected shapes that broadcast"),
        ],
    )
    def test_bad_limits(
        self, curves: dict[int, ScheduleCurve], arguments: Any, message: str
    ) -> None:
        plain = {"num_nodes": 1, "num_replicas": [2, 4], "max_batch_size": 99}
        with pytest.raises(InputError, match=message):
            PipelineGoodput(model(), curves).optimize(**{**plain, **arguments})

    def test_bad_curves(self, curves: dict[int, ScheduleCurve]) -> None:
        other = ScheduleCurve([1, 2], [1, 2], [1, 2], [1, 2], ["x"] * 2, "ticks")
        for given_curves, fields, message in (
            ({}, {}, "curves: expected a curve for at least one micro-batch size"),
            ({0: other}, {}, r"curves\[0\]: expected a whole number >= 1, got 0"),
            ({**curves, 16: other}, {}, "curves: expected one time unit for all, got ms, ticks"),
            ({1: other}, {}, 'time_unit: expected one of ns, us, ms, s, got "ticks"'),
            (curves, {"time_unit": "h"}, 'time_unit: expected one of ns, us, ms, s, got "h"'),
            (curves, {"sync": "none"}, 'sync: expected "published" or "in_schedule", got "none"'),
        ):
            with pytest.raises(InputError, match=message):
                PipelineGoodput(model(), given_curves, **fields)
