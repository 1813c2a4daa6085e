"""Goodput of pipelines: step times of measured schedules, and intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.goodput.params import PerfParams
from ppsolve.solver.studies.goodput.curve import ScheduleCurve, WrongBoundError
from ppsolve.solver.studies.goodput.model import GoodputModel
from ppsolve.solver.studies.goodput.pipeline import PipelineGoodput
from ppsolve.solver.studies.goodput.step import Interval
from ppsolve.solver.studies.plan.curve import measure_curve
from tests.marks import examples
from tests.studies.goodput.curve_cases import numbers_of
from tests.studies.goodput.pipeline_cases import (
    GRAD,
    SIZES,
    measured,
    model,
    performance,
    pipeline,
)


def one_stage(perf: PerfParams, points: Any = (1, 2, 3, 4)) -> dict[int, ScheduleCurve]:
    """Return curves of a single stage: M (alpha_c + beta_c b), and no schedule is shorter."""
    curves = {}
    for size in SIZES:
        times = [number * (perf.alpha_c + perf.beta_c * size) for number in points]
        curves[size] = ScheduleCurve(
            points, times, times, times, ["x"] * len(points), "s"
        )
    return curves


@pytest.fixture(scope="module")
def curves() -> dict[int, ScheduleCurve]:
    return measured()


def published(
    perf: PerfParams, makespan: float, slope: float, number: int, sync: float
) -> float:
    """Return the step time, written as in the literature."""
    c = makespan - number * slope
    rest = (c + slope) ** perf.gamma + sync**perf.gamma
    return float((number - 1) * slope + rest ** (1 / perf.gamma))


class TestOneStage:
    @examples(10)
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
        curve = measure_curve(instance, range(1, 9))
        pipelines = PipelineGoodput(base, {8: curve})
        expected = base.throughput(2, 4, 8, np.arange(30))
        found = pipelines.evaluate(2, 4, 8, np.arange(1, 31))
        np.testing.assert_allclose(found.throughput.low, expected, rtol=1e-12)
        np.testing.assert_allclose(found.throughput.high, expected, rtol=1e-12)
        assert found.extrapolated.tolist() == [number > 8 for number in range(1, 31)]


class TestStepTime:
    @pytest.mark.parametrize("stages", [2, 4, 8])
    def test_gpipe_on_equal_stages_is_the_published_pipeline_model(
        self, stages: int
    ) -> None:
        instance = pipeline(num_devices=stages, times={"forward": 5, "backward": 10})
        curve = measure_curve(instance, range(1, 13), heuristics=["gpipe"])
        base = model(gamma=1, init_batch_size=1)
        numbers = np.arange(1, 200)
        found = PipelineGoodput(base, {2: curve}).step_time(2, 6, 2, numbers)
        sync = base.perf.network_time(2, 6) * 1000
        expected = 3 * (stages - 1 + numbers) * 5 + sync
        np.testing.assert_allclose(found.high, expected, rtol=1e-12)
        np.testing.assert_allclose(found.low, expected, rtol=1e-12)

    def test_1f1b_with_latency_by_measurement(self) -> None:
        instance = pipeline(p2p={"latency": 1})
        curve = measure_curve(instance, numbers_of(instance), heuristics=["1f1b"])
        base = model()
        found = PipelineGoodput(base, {1: curve}).step_time(2, 2, 1, 64)
        sync = base.perf.network_time(2, 2) * 1000
        assert found.high == pytest.approx(
            published(base.perf, 301, 4.5, 64, sync), rel=1e-12
        )
        assert found.low == pytest.approx(
            published(base.perf, 207, 3, 64, sync), rel=1e-12
        )

    def test_formula_for_every_size(self, curves: dict[int, ScheduleCurve]) -> None:
        base = model()
        sizes, numbers = np.array(SIZES)[:, None], np.arange(1, 60)
        found = PipelineGoodput(base, curves).step_time(3, 5, sizes, numbers)
        sync = base.perf.network_time(3, 5) * 1000
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
        pipelines = PipelineGoodput(model(), {4: curve})
        assert pipelines.has_sync
        found = pipelines.evaluate(1, [[4], [8]], 4, [4, 20])
        assert (
            found.step_time.high.tolist()
            == [[curve.makespan(4), curve.makespan(20)]] * 2
        )
        assert found.step_time.low.tolist() == [[curve.bound(4), curve.bound(20)]] * 2

    def test_sync_beside_the_schedule(self) -> None:
        curve = measure_curve(pipeline(), [4, 8, 16], heuristics=["1f1b"])
        pipelines = PipelineGoodput(model(), {4: curve})
        assert not pipelines.has_sync
        few, many = (
            pipelines.step_time(1, replicas, 4, [4, 20]) for replicas in (4, 64)
        )
        assert np.all(few.high < many.high)
        assert np.all(few.low < many.low)
        assert np.all(few.high > curve.makespan([4, 20]))

    @pytest.mark.parametrize("points", [[17, 18], [21, 22], [18, 20], [16, 32]])
    def test_no_more_of_the_sync_is_hidden_than_can_be_shown(
        self, points: list[int]
    ) -> None:
        # The steps after 17 and 21 are 3 by chance, 4.5 in truth.
        instance = pipeline(p2p={"latency": 1})
        sync, base = 0.02, model(1, alpha_r=0.02, beta_r=0.0, gamma=3)
        every = measure_curve(instance, numbers_of(instance), heuristics=["1f1b"])
        few = measure_curve(instance, points, heuristics=["1f1b"])
        assert every.steady.repeats
        assert not few.steady.repeats
        number = points[0]
        true, safe = (
            PipelineGoodput(base, {1: curve}).evaluate(1, 2, 1, number)
            for curve in (every, few)
        )
        assert safe.step_time.high == few.makespan(number) + sync * 1000
        assert safe.goodput.low < true.goodput.low
        assert safe.goodput.high >= true.goodput.high * (1 - 1e-12)
        assert not safe.extrapolated

    def test_one_microbatch_hides_the_same_whatever_the_slope(self) -> None:
        curve = measure_curve(pipeline(), [1, 2], heuristics=["1f1b"])
        base = model(1)
        found = PipelineGoodput(base, {1: curve}).step_time(1, 4, 1, 1)
        sync = base.perf.network_time(1, 4) * 1000
        assert not curve.steady.repeats
        assert found.high == pytest.approx(
            published(base.perf, 12, 0, 1, sync), rel=1e-12
        )

    def test_one_measured_number_is_enough_inside_the_schedule(self) -> None:
        curve = measure_curve(pipeline(allreduce=1), [16])
        pipelines = PipelineGoodput(model(), {1: curve})
        chosen = pipelines.optimize(1, 1, max_batch_size=16, microbatches=[8, 16])
        assert (chosen.microbatches, chosen.extrapolated) == (16, False)
        assert pipelines.step_time(1, 1, 1, 8).high == curve.makespans[0]
        with pytest.raises(InputError, match="expected at least two measured numbers"):
            pipelines.step_time(1, 1, 1, 17)

    def test_nothing_is_left_to_overlap(self) -> None:
        # Few micro-batches run at 1 each, many at 10: c + tau would be below 0 at 10.
        times = [10.0, 30.0, 50.0, 70.0]
        curve = ScheduleCurve([10, 12, 14, 16], times, [0] * 4, [0] * 4, ["x"] * 4, "s")
        base = model(gamma=2)
        found = PipelineGoodput(base, {1: curve}).step_time(2, 2, 1, 10)
        sync = base.perf.network_time(2, 2)
        assert curve.steady.repeats
        assert curve.makespan(10) - 9 * curve.slope < 0
        assert found.high == 10 + sync
        assert found.low == pytest.approx(sync)

    def test_bounds_of_zero_are_no_limit(self) -> None:
        fields: dict[str, Any] = {"time_unit": "s", "has_sync": True}
        curve = ScheduleCurve([1, 2], [1.0, 2.0], [0, 0], [0, 0], ["x"] * 2, **fields)
        found = PipelineGoodput(model(1), {1: curve}).evaluate(1, 1, 1, 2)
        assert found.throughput == Interval(1.0, np.inf)

    def test_long_times_do_not_overflow(self) -> None:
        times = [2.5e14, 5e14, 7.5e14, 1e15]
        curve = ScheduleCurve([1, 2, 3, 4], times, times, times, ["x"] * 4, "s")
        base = model(gamma=1e6, alpha_n=1e15)
        found = PipelineGoodput(base, {1: curve}).step_time(2, 2, 1, 4)
        assert found.low == found.high == pytest.approx(1.75e15, rel=1e-6)

    def test_wrong_bounds_are_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pipelines = PipelineGoodput(model(1), {1: measure_curve(pipeline(), [2, 4])})
        monkeypatch.setattr(
            ScheduleCurve, "bound", lambda _, numbers: np.full_like(numbers, 99.0)
        )
        with pytest.raises(
            WrongBoundError, match=r"bound 99.* above the .* that a schedule takes"
        ):
            pipelines.evaluate(1, 1, 1, [2, 4])


class TestIntervals:
    @examples(10)
    @given(
        st.lists(st.floats(0.01, 50), min_size=2, max_size=6),
        st.floats(0, 1),
        st.floats(1, 10),
        st.floats(1e-3, 1e3),
        st.data(),
    )
    def test_ends_are_those_of_schedule_and_bound(
        self, steps: list[float], share: float, gamma: float, sync: float, data: Any
    ) -> None:
        drawn = data.draw(
            st.sets(st.integers(1, 40), min_size=len(steps), max_size=len(steps))
        )
        points = sorted(drawn)
        work = np.array(points) * 0.5 + 1
        makespans = work + np.cumsum(steps)
        bounds = work + (makespans - work) * share
        curve = ScheduleCurve(points, makespans, bounds, work, ["x"] * len(points), "s")
        base = model(1, alpha_n=sync, gamma=gamma)
        net, numbers = base.perf.network_time(2, 2), np.arange(1, 80)
        found = PipelineGoodput(base, {1: curve}).step_time(2, 2, 1, numbers)
        for end, makespan, slope in (
            (found.high, curve.makespan(numbers), curve.slope),
            (found.low, curve.bound(numbers), curve.bound_slope),
        ):
            is_known = curve.steady.repeats or end is found.low
            steady = np.minimum(
                (numbers - 1) * slope if is_known else makespan, makespan
            )
            steady[numbers == 1] = 0
            expected = steady + ((makespan - steady) ** gamma + net**gamma) ** (
                1 / gamma
            )
            np.testing.assert_allclose(end, expected, rtol=1e-9)
        assert np.all(np.diff(found.low) >= -1e-9 * found.high[1:])

    @examples(10)
    @given(
        st.tuples(*[st.floats(0.1, 50)] * 2),
        st.tuples(*[st.floats(0, 100)] * 2),
        st.floats(1, 10),
        st.floats(1e-3, 1e3),
    )
    def test_step_time_decreases_neither_in_makespan_nor_in_slope(
        self, slopes: Any, fills: Any, gamma: float, sync: float
    ) -> None:
        def steps(slope: float, fill: float, points: Any) -> Any:
            times, none = (
                [fill + slope * number for number in points],
                [0.0] * len(points),
            )
            curve = ScheduleCurve(points, times, none, none, ["x"] * len(points), "s")
            assert curve.steady.repeats == (len(points) > 2)
            return (
                PipelineGoodput(base, {1: curve})
                .step_time(2, 2, 1, np.arange(1, 25))
                .high
            )

        base = model(1, alpha_n=sync, gamma=gamma)
        run = range(8, 13)
        # The same makespans at 12 and up to 8, with a steeper and a flatter way between them.
        steep, flat = max(slopes), min(slopes)
        faster = steps(flat, fills[0] + 12 * (steep - flat), run)
        slower = steps(steep, fills[0], run)
        assert np.all(slower[11] >= faster[11] * (1 - 1e-12))
        assert np.all(steps(steep, fills[0], [8, 12])[:12] >= slower[:12] * (1 - 1e-12))
        longer, shorter = (steps(steep, fill, run) for fill in (max(fills), min(fills)))
        assert np.all(longer >= shorter * (1 - 1e-12))

    @examples(2)
    @given(
        st.integers(0, 10**6),
        st.booleans(),
        st.floats(1, 5),
        st.sampled_from([1e-3, 0.02, 1]),
    )
    def test_high_is_above_every_schedule(
        self, seed: int, capped: bool, gamma: float, sync: float
    ) -> None:
        rng = np.random.default_rng(seed)
        times = {
            kind: rng.integers(1, 9, 3).tolist() for kind in ("forward", "backward")
        }
        memory = {"capacity": 3, "activation": 1} if capped else None
        fields = {"p2p": {"latency": int(rng.integers(0, 5))}, "memory": memory}
        instance = pipeline(num_devices=3, times=times, **fields)
        base = model(1, alpha_r=sync, gamma=gamma)
        few = measure_curve(instance, [2, 5, 9], heuristics=["list-tail"])
        numbers = np.arange(1, 17)
        claimed = PipelineGoodput(base, {1: few}).evaluate(1, 2, 1, numbers)
        for name in ("1f1b", "list-work"):
            every = measure_curve(instance, numbers.tolist(), heuristics=[name])
            reached = PipelineGoodput(base, {1: every}).evaluate(1, 2, 1, numbers)
            for figure in ("goodput", "throughput"):
                most, taken = (
                    getattr(claimed, figure).high,
                    getattr(reached, figure).low,
                )
                assert np.all(most >= taken * (1 - 1e-12))
            assert np.all(claimed.step_time.low <= reached.step_time.high * (1 + 1e-12))

    @pytest.mark.parametrize("seed", range(3))
    def test_high_is_above_the_optimum(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        times = {
            name: rng.integers(1, 6, 2).tolist() for name in ("forward", "backward")
        }
        memory = {"capacity": 2, "activation": 1}
        instance = pipeline(
            num_devices=2, times=times, p2p={"latency": 1}, memory=memory
        )
        best = measure_curve(
            instance, range(1, 6), exact=True, time_limit=20, workers=1
        )
        assert all(best.optimal)
        few = measure_curve(instance, [2, 3], heuristics=["list-work"])
        base = model(1)
        numbers = np.arange(1, 6)
        claimed, optimal = (
            PipelineGoodput(base, {1: curve}).evaluate(1, 2, 1, numbers)
            for curve in (few, best)
        )
        assert np.all(claimed.goodput.high >= optimal.goodput.low * (1 - 1e-12))

    def test_goodput_is_throughput_times_efficiency(
        self, curves: dict[int, ScheduleCurve]
    ) -> None:
        found = PipelineGoodput(model(), curves).evaluate([[1], [2]], 4, 4, [1, 7, 90])
        assert found.goodput.low.shape == (2, 3)
        assert found.batch_size.tolist() == [[16, 112, 1440]] * 2
        for end in ("low", "high"):
            throughput, goodput = (
                getattr(found.throughput, end),
                getattr(found.goodput, end),
            )
            assert goodput.tolist() == (throughput * found.efficiency).tolist()
        step = found.step_time.high / 1000
        np.testing.assert_allclose(
            found.throughput.low, found.batch_size / step, rtol=1e-14
        )
        assert found.extrapolated.tolist() == [[False, False, True]] * 2

    def test_scalars_in_scalars_out(self, curves: dict[int, ScheduleCurve]) -> None:
        pipelines = PipelineGoodput(model(), curves)
        found = pipelines.evaluate(1, 4, 4, 33)
        assert isinstance(found.goodput.low, float)
        assert isinstance(found.batch_size, int)
        assert found.extrapolated is True
        chosen = pipelines.optimize(1, 4, max_batch_size=100)
        assert isinstance(chosen.goodput.high, float)
        assert isinstance(chosen.microbatches, int)

    @pytest.mark.parametrize(("unit", "factor"), [("ms", 1), ("s", 1000), ("us", 1e-3)])
    def test_time_units(
        self, curves: dict[int, ScheduleCurve], unit: str, factor: float
    ) -> None:
        plain = performance(alpha_n=120.0, beta_n=7.0)
        scaled = performance(alpha_n=120.0 / factor, beta_n=7.0 / factor)
        expected = PipelineGoodput(
            GoodputModel(plain, GRAD, 16), curves, time_unit="ms"
        )
        found = PipelineGoodput(GoodputModel(scaled, GRAD, 16), curves, time_unit=unit)
        a, b = expected.evaluate(2, 8, 2, [4, 30]), found.evaluate(2, 8, 2, [4, 30])
        np.testing.assert_allclose(b.step_time.high, a.step_time.high, rtol=1e-14)
        np.testing.assert_allclose(b.goodput.low, a.goodput.low * factor, rtol=1e-14)

    def test_unknown_units_if_they_are_the_same(self) -> None:
        curve = ScheduleCurve([1, 2], [1, 2], [1, 2], [1, 2], ["x"] * 2, "ticks")
        found = PipelineGoodput(model(1), {4: curve}, time_unit="ticks").step_time(
            1, 1, 4, 2
        )
        assert found.high == pytest.approx(2)


class TestFailures:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                (1, 1, 1, 4),
                r"microbatches: expected replicas x micro-batch size x .* 16, got 4",
            ),
            (
                (1, 2, 4, [8, 1]),
                r"microbatches\[1\]: expected replicas x .* at least 16, got 8",
            ),
            (
                (1, 2, 3, 8),
                r"atomic_bsz: expected a micro-batch .* curve \(1, 2, 4, 8\), got 3",
            ),
            (
                (3, 2, 4, 8),
                "num_nodes: expected at most as many nodes as replicas, got 3",
            ),
            ((0, 2, 4, 8), "num_nodes: expected a whole number >= 1, got 0"),
            ((1, 2.5, 4, 8), "num_replicas: expected a whole number >= 1, got 2.5"),
            ((1, 2, 4, 0), "microbatches: expected a whole number >= 1, got 0"),
            ((1, 2, "4", 8), 'atomic_bsz: expected a number, got the text "4"'),
            (
                (1, [2, 4], 4, [8, 9, 10]),
                r"microbatches: expected shapes that broadcast together",
            ),
        ],
    )
    def test_bad_configurations(
        self, curves: dict[int, ScheduleCurve], arguments: Any, message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            PipelineGoodput(model(), curves).evaluate(*arguments)

    def test_step_time_of_small_batches(self, curves: dict[int, ScheduleCurve]) -> None:
        assert PipelineGoodput(model(), curves).step_time(1, 1, 1, 1).high > 0

    def test_bad_curves(self, curves: dict[int, ScheduleCurve]) -> None:
        other = ScheduleCurve([1, 2], [1, 2], [1, 2], [1, 2], ["x"] * 2, "ticks")
        synced = measure_curve(pipeline(allreduce=1), [2, 4], heuristics=["1f1b"])
        for given_curves, fields, message in (
            ({}, {}, "curves: expected a curve for at least one micro-batch size"),
            ({0: other}, {}, r"curves\[0\]: expected a whole number >= 1, got 0"),
            (
                {**curves, 16: other},
                {},
                "curves: expected one time unit for all, got ms, ticks",
            ),
            ({1: other}, {}, 'time_unit: expected one of ns, us, ms, s, got "ticks"'),
            (
                curves,
                {"time_unit": "h"},
                'time_unit: expected one of ns, us, ms, s, got "h"',
            ),
            (
                {**curves, 16: synced},
                {},
                "curves: expected all-reduces of gradients in the schedules of all curves or of "
                "none, got them for the micro-batch sizes 16 of 1, 2, 4, 8, 16",
            ),
        ):
            with pytest.raises(InputError, match=message):
                PipelineGoodput(model(), given_curves, **fields)
