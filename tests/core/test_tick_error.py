"""Times without a common tick: how far the optimum on ticks is from that of the given times."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ppsolve
from ppsolve.models.core import timescale
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import Status
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.graph import GraphInstance, lower_graph
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower

FORWARD, BACKWARD = 1.0123456789012345, 2.3333333333333335
MEASURED = {
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": [FORWARD, 1], "backward": [BACKWARD, 3000]},
}


def measured(**changes: Any) -> PipelineInstance:
    return PipelineInstance.parse({**MEASURED, **changes}, "measured")


class TestWhatIsCounted:
    """Ops that take time, lags of which each op waits for one, and one release time."""

    def graph(self, first: float = 0.12345678901234567, **second: Any) -> Problem:
        ops = [
            {"id": "a", "duration": first, "resources": ["r"]},
            {"id": "b", "duration": 1e9, "resources": ["r"]},
            {"id": "c", "duration": 0},
        ]
        ops[1] |= second
        edges = [{"before": "a", "after": "b", "lag": 2}, {"before": "b", "after": "c"}]
        data = {"resources": ["r"], "ops": ops, "precedences": edges}
        return lower_graph(GraphInstance.parse(data))

    def test_ops_that_take_time_and_ops_behind_a_lag(self) -> None:
        assert self.graph().tick_error == 2 + 1

    def test_one_release(self) -> None:
        assert self.graph(release=7).tick_error == 2 + 1 + 1

    def test_nothing_where_ticks_are_exact(self) -> None:
        assert self.graph(0.125).tick_error == 0

    def test_pipeline(self) -> None:
        problem = lower(measured())
        assert problem.tick_error == 8
        assert lower(measured(p2p={"latency": 0.5})).tick_error == 8 + 4


class TestResults:
    def test_optimum_is_no_lower_than_that_of_the_times_and_says_by_how_much_at_most(
        self,
    ) -> None:
        result = ppsolve.optimize(measured())
        # The second device is busy from the first forward on, and the last backward follows.
        exact = Fraction(str(FORWARD)) + 2 * 3001 + Fraction(str(BACKWARD))
        problem = lower(measured())
        assert result.status is Status.OPTIMAL
        assert result.tick_error == problem.scale.time(8)
        assert 0 < result.tick_error < 1e-4
        value = Fraction(result.value)
        assert exact <= value + Fraction(1, 10**12)
        assert value - exact <= Fraction(result.tick_error)

    def test_check_accepts_them(self) -> None:
        result = ppsolve.optimize(measured())
        assert ppsolve.check(measured(), result) == []
        assert ppsolve.check(measured(), result.model_dump(mode="json")) == []

    def test_check_refutes_a_smaller_error(self) -> None:
        result = ppsolve.optimize(measured())
        claimed = result.model_copy(update={"tick_error": result.tick_error / 2})
        (violation,) = ppsolve.check(measured(), claimed)
        assert violation.message.startswith("tick_error is given as ")

    def test_exact_refuses(self) -> None:
        for call in (
            lambda: ppsolve.optimize(measured(), exact=True),
            lambda: ppsolve.simulate(measured(), "1f1b", exact=True),
            lambda: ppsolve.check(
                measured(), {"time_unit": "us", "ops": []}, exact=True
            ),
        ):
            with pytest.raises(InputError, match="no common tick") as caught:
                call()
            assert caught.value.field == "times"

    def test_nothing_is_rounded_where_ticks_are_exact(self) -> None:
        times = {"forward": 1, "backward": 2.5}
        assert ppsolve.optimize(measured(times=times)).tick_error == 0
        assert ppsolve.simulate(measured(times=times), "1f1b").tick_error is None

    def test_simulate(self) -> None:
        assert ppsolve.simulate(measured(), "1f1b").tick_error == lower(
            measured()
        ).scale.time(8)


class TestPins:
    """An op that just fits between pinned ops may not fit once it is rounded up."""

    def test_graph(self) -> None:
        third = 1 / 3
        ops = [
            {"id": "a", "duration": third, "start": 0, "resources": ["r"]},
            {"id": "b", "duration": 1e9, "resources": ["r"]},
        ]
        instance = GraphInstance.parse({"resources": ["r"], "ops": ops})
        with pytest.raises(
            InputError, match=r"no common tick .* pinned ops leave no room"
        ):
            lower(instance)

    def test_refresh(self) -> None:
        work = {
            f"{kind}_{factor}": 1 / 3
            for kind in ("curvature", "inverse")
            for factor in "ab"
        }
        module = {"name": "m", "stage": 0, "precondition": 1, **work}
        data = {
            "pipeline": {**MEASURED, "kind": "pipeline"},
            "modules": [module],
            "pattern": "1f1b",
            "objective": "iterations",
        }
        instance = KfacInstance.parse(data, "refresh")
        for call in (ppsolve.optimize, lower):
            with pytest.raises(
                InputError, match=r"no common tick .* pinned ops leave no room"
            ):
                call(instance)


@st.composite
def pipelines(draw: st.DrawFn) -> PipelineInstance:
    times = st.decimals(1, 9, places=3)
    devices, microbatches = draw(st.integers(1, 3)), draw(st.integers(1, 3))

    def row() -> list[float]:
        return [float(draw(times)) for _ in range(devices)]

    latency = draw(st.sampled_from([0, 0.123, 1.017]))
    link = {"mode": draw(st.sampled_from(["link", "nic"])), "bytes": 3, "bandwidth": 2}
    kinds = draw(
        st.sampled_from([("backward",), ("backward_input", "backward_weight")])
    )
    capacity = draw(st.sampled_from([None, devices, 2]))
    return PipelineInstance.parse(
        {
            "num_devices": devices,
            "num_microbatches": microbatches,
            "times": {kind: row() for kind in ("forward", *kinds)},
            "p2p": {"latency": latency, **draw(st.sampled_from([{}, link]))},
            "memory": None
            if capacity is None
            else {"capacity": capacity, "activation": 1},
            "objective": draw(st.sampled_from(["makespan", "device_span"])),
        }
    )


def coarse(instance: PipelineInstance, tick: Fraction) -> Problem:
    """Return the instance lowered to a tick of which its times are no multiples."""
    fitted = TimeScale(tick, instance.time_unit, is_exact=False)
    with mock.patch.object(timescale.TimeScale, "fit", return_value=fitted):
        return lower(instance)


def optimum(instance: PipelineInstance) -> Fraction:
    result = ppsolve.optimize(instance, workers=1)
    assert result.status is Status.OPTIMAL
    return Fraction(result.value)


@given(
    pipelines(),
    st.sampled_from([Fraction(1, 7), Fraction(1, 2), Fraction(3, 2), Fraction(5)]),
)
def test_the_optimum_on_ticks_is_above_the_exact_one_by_the_stated_error_at_most(
    instance: PipelineInstance, tick: Fraction
) -> None:
    problem = coarse(instance, tick)
    fitted = problem.scale
    with mock.patch.object(timescale.TimeScale, "fit", return_value=fitted):
        rounded = ppsolve.optimize(instance, workers=1)
    assert rounded.status is Status.OPTIMAL
    exact, reached = optimum(instance), Fraction(rounded.value)
    slack = Fraction(1, 10**9)
    assert exact - slack <= reached <= exact + Fraction(rounded.tick_error) + slack


@given(pipelines(), st.sampled_from([Fraction(1, 7), Fraction(3, 2), Fraction(5)]))
def test_a_schedule_on_ticks_is_one_of_the_given_times(
    instance: PipelineInstance, tick: Fraction
) -> None:
    rounded = coarse(instance, tick)
    with mock.patch.object(timescale.TimeScale, "fit", return_value=rounded.scale):
        found = ppsolve.optimize(instance, workers=1, time_limit=0)
    if found.schedule is None:
        return
    # The same starts, in a scale that holds the given times and the ticks.
    fine = lower(instance).scale.tick / 14
    exact = coarse(instance, fine)
    document = {
        "time_unit": instance.time_unit,
        "ops": [{"id": op.id, "start": float(op.start)} for op in found.schedule.ops],
    }
    with mock.patch.object(
        timescale.TimeScale, "fit", return_value=replace(exact.scale)
    ):
        assert ppsolve.check(instance, document) == []


FACTOR, DIGITS = Decimal("1.0123456789012345678"), Decimal("1e-16")
"""Times of three digits that are multiplied and cut to sixteen have no common tick."""


def cut(time: Any) -> Any:
    if isinstance(time, list | tuple):
        return [cut(item) for item in time]
    return (Decimal(str(time)) * FACTOR).quantize(DIGITS)


def stretched(instance: PipelineInstance) -> PipelineInstance:
    data = instance.model_dump(mode="json", exclude_none=True)
    data["times"] = {kind: cut(entry) for kind, entry in data["times"].items()}
    for field in {"latency", "bytes"} & set(data["p2p"]):
        data["p2p"][field] = cut(data["p2p"][field])
    return PipelineInstance.parse(data)


@given(pipelines())
def test_times_in_another_unit_have_the_same_optimum_in_it(
    instance: PipelineInstance,
) -> None:
    found = ppsolve.optimize(stretched(instance), workers=1)
    assert found.status is Status.OPTIMAL
    # Few times may have a common tick all the same; values are doubles, good to 1e-12 here.
    exact = optimum(instance) * Fraction(FACTOR)
    assert -1e-12 < Fraction(found.value) - exact < found.tick_error + 1e-12
