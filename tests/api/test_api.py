"""The library as planners call it: results, limits, determinism, threads, failures."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve import InputError, NotApplicableError, PipelineInstance, Progress, Status
from ppsolve.models.core.result import StopReason
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.board import WrongScheduleError
from ppsolve.solver.bounds import Bound
from ppsolve.solver.heuristics.heuristic import Heuristic
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.solve_run import SolveRun
from tests.marks import first
from tests.paths import DATA

SHARE = 0.43243243243243246
PROFILE_6_2B = {"forward": 29718, "backward_input": 29444, "backward_weight": 19927}


def pipeline(
    devices: int, microbatches: int, capacity: float, **fields: Any
) -> PipelineInstance:
    times = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    memory = {"capacity": capacity, "activation": 1}
    return PipelineInstance(
        **{
            "num_devices": devices,
            "num_microbatches": microbatches,
            "times": times,
            "memory": memory,
            **fields,
        }
    )


def profile(
    devices: int, microbatches: int, capacity: float, **fields: Any
) -> PipelineInstance:
    memory = {
        "capacity": capacity,
        "activation": 1,
        "released_by_backward_weight": SHARE,
    }
    return pipeline(
        devices,
        microbatches,
        capacity,
        **{"times": PROFILE_6_2B, "p2p": {"latency": 527}, "memory": memory, **fields},
    )


def uneven(seed: int, devices: int = 5, microbatches: int = 9) -> PipelineInstance:
    rng = np.random.default_rng(seed)
    times = {
        "forward": rng.integers(50, 151, devices).tolist(),
        "backward_input": rng.integers(50, 151, devices).tolist(),
        "backward_weight": rng.integers(30, 101, devices).tolist(),
    }
    return pipeline(devices, microbatches, devices, times=times, p2p={"latency": 10})


ROWS = json.loads((DATA / "zero_bubble_memory_scan_4x8.json").read_text())["rows"]


@pytest.mark.parametrize(
    "row", first(4, ROWS[::2] + ROWS[1::2]), ids=lambda row: str(row["lim"])
)
def test_memory_scan_is_solved_to_the_listed_optimum(row: dict[str, Any]) -> None:
    result = ppsolve.optimize(profile(4, 8, row["lim"]), time_limit=60)
    assert result.status is Status.OPTIMAL
    assert result.value == result.bound == row["obj"]
    assert ppsolve.check(profile(4, 8, row["lim"]), result) == []


@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize(
    ("devices", "microbatches"), [(4, 8), (8, 16), (8, 32), (16, 64)]
)
def test_uniform_pipelines_are_closed_without_search(
    devices: int, microbatches: int, factor: int
) -> None:
    result = ppsolve.optimize(pipeline(devices, microbatches, factor * devices))
    assert result.status is Status.OPTIMAL
    assert result.value == 3 * microbatches + devices - 1
    assert result.best_by != "cp-sat"
    assert result.bound_by != "cp-sat"


def test_published_8x24_at_cap_p_is_proved_by_a_bound() -> None:
    result = ppsolve.optimize(profile(8, 24, 8))
    assert (result.status, result.value, result.bound) == (
        Status.OPTIMAL,
        2187537,
        2187537,
    )
    assert result.bubble_ratio == pytest.approx(0.1323, abs=5e-5)


def test_published_device_span_is_proved() -> None:
    instance = profile(16, 48, 16, objective="device_span")
    result = ppsolve.optimize(instance, heuristics=["zb-1p", "zb-h1"])
    assert result.status is Status.OPTIMAL
    assert result.value == result.device_span


def test_result_round_trips_through_json() -> None:
    result = ppsolve.optimize(uneven(4), time_limit=20)
    assert type(result).model_validate_json(result.model_dump_json()) == result


def test_gaps_and_heuristics_are_consistent() -> None:
    result = ppsolve.optimize(uneven(1), time_limit=20)
    assert result.value is not None
    assert result.bound is not None
    assert result.gap == pytest.approx((result.value - result.bound) / result.value)
    for entry in result.heuristics:
        if entry.status == "feasible":
            assert entry.value is not None
            assert entry.value >= result.value
            assert entry.gap == pytest.approx(
                (entry.value - result.value) / result.value
            )


def test_deterministic_runs_agree() -> None:
    instance = uneven(2, 6, 10)
    first, second = (
        ppsolve.optimize(instance, deterministic=True, time_limit=1, seed=3)
        for _ in range(2)
    )
    assert (first.value, first.bound, first.status) == (
        second.value,
        second.bound,
        second.status,
    )
    assert first.schedule == second.schedule
    assert first.heuristics == second.heuristics


def test_threads_do_not_disturb_each_other() -> None:
    instances = [uneven(seed, 4, 8) for seed in range(4)]
    alone = [ppsolve.optimize(instance, workers=1).value for instance in instances]
    with ThreadPoolExecutor(4) as pool:
        together = pool.map(
            lambda instance: ppsolve.optimize(instance, workers=1), instances
        )
        assert [result.value for result in together] == alone


def test_compare_takes_several() -> None:
    results = ppsolve.compare([pipeline(2, 4, 2), pipeline(3, 6, 3)], time_limit=5)
    assert [result.status for result in results] == [Status.OPTIMAL] * 2


def test_zero_time_runs_heuristics_and_bounds_only() -> None:
    result = ppsolve.optimize(profile(4, 8, 3), time_limit=0)
    assert result.stop_reason is StopReason.TIME
    assert result.status is Status.FEASIBLE
    assert result.bound_by != "cp-sat"


def test_running_out_of_time_is_not_an_interrupt() -> None:
    memory = {"capacity": 8, "activation": 1, "released_by_backward_weight": SHARE}
    instance = profile(4, 8, 8, placement="wave", stages_per_device=3, memory=memory)
    for time_limit in (0.5, 1.5):
        result = ppsolve.optimize(instance, time_limit=time_limit)
        assert result.stop_reason in {StopReason.TIME, StopReason.PROVED}


def test_gap_limit_stops_early() -> None:
    result = ppsolve.optimize(profile(4, 8, 3), gap=0.2)
    assert result.stop_reason is StopReason.GAP
    assert result.gap is not None
    assert 0 < result.gap <= 0.2


def test_progress_never_goes_back() -> None:
    events: list[Progress] = []
    ppsolve.optimize(profile(4, 8, 3), on_progress=events.append)
    bounds = [event.bound for event in events if event.bound is not None]
    values = [event.incumbent for event in events if event.incumbent is not None]
    assert bounds == sorted(bounds)
    assert values == sorted(values, reverse=True)
    assert next(event.event for event in events if event.event != "phase") == "bound"


def test_memory_below_one_activation_is_infeasible_with_a_reason() -> None:
    result = ppsolve.optimize(pipeline(2, 4, 0.5))
    assert result.status is Status.INFEASIBLE
    assert result.stop_reason is StopReason.INFEASIBLE
    assert result.reason is not None
    assert "capacity 0.5" in result.reason
    assert result.value is None
    assert result.schedule is None


def test_infeasible_pins_are_proved_by_search() -> None:
    graph = ppsolve.GraphInstance(
        resources=("r",),
        ops=(
            {"id": "a", "duration": 3, "resources": ["r"], "start": 0},
            {"id": "b", "duration": 3, "resources": ["r"], "start": 2},
        ),
    )
    result = ppsolve.optimize(graph)
    assert result.status is Status.INFEASIBLE
    assert result.reason is not None


def test_interrupt_during_heuristics_keeps_what_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def interrupted(
        kind: Any, heuristic: Heuristic, *arguments: Any, **named: Any
    ) -> Any:
        calls.append(heuristic.name)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(kind, heuristic, *arguments, **named)

    original = Kind.run_heuristic
    monkeypatch.setattr(Kind, "run_heuristic", interrupted)
    result = ppsolve.optimize(uneven(5))
    assert result.stop_reason is StopReason.INTERRUPTED
    assert result.value is not None


def test_a_schedule_below_the_bound_stops_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ppsolve.solver.run import schedule_task as module

    monkeypatch.setattr(module, "quick_bounds", lambda *_: [Bound("wrong", 10**9)])
    instance = pipeline(2, 4, 2)
    options = Options(
        time_limit=5,
        gap=0,
        deterministic_limit=None,
        workers=None,
        seed=0,
        deterministic=False,
        heuristics=None,
    )
    with pytest.raises(WrongScheduleError, match="below the bound 1000000000 of wrong"):
        SolveRun(kind_of(instance).task(instance), [], options).execute()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_limit": -1}, r"time_limit: expected a number of seconds >= 0, got -1"),
        ({"gap": 1.5}, r"gap: expected a share from 0 to below 1, got 1.5"),
        ({"workers": 0}, r"workers: expected 1 to 1024, got 0"),
        (
            {"workers": 2, "deterministic": True},
            r"workers: expected 1 with deterministic runs",
        ),
        ({"seed": -1}, r"seed: expected 0 to"),
        (
            {"heuristics": ["zb-h3"]},
            r'unknown heuristic "zb-h3"; did you mean "zb-h[12]"\?',
        ),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ppsolve.optimize(pipeline(2, 4, 2), **options)


def test_simulate_says_what_a_heuristic_needs() -> None:
    with pytest.raises(
        NotApplicableError, match="zbv is not applicable: needs a V placement"
    ):
        ppsolve.simulate(pipeline(2, 4, 2), "zbv")


def test_simulate_keeps_the_schedule_that_breaks_memory() -> None:
    instance = pipeline(4, 8, 3)
    entry = ppsolve.simulate(instance, "gpipe")
    assert entry.status == "infeasible"
    assert entry.reason is not None
    assert entry.reason.startswith("memory")
    assert {violation.rule for violation in ppsolve.check(instance, entry)} == {
        "memory"
    }


def test_odd_amounts_are_solved_by_rounding_both_ways() -> None:
    instance = pipeline(
        3,
        6,
        2.9999999,
        memory={
            "capacity": 2.9999999,
            "activation": [1.0000001, 0.9999997, 0.7777777],
            "released_by_backward_weight": 0.3333333333333333,
        },
    )
    result = ppsolve.optimize(instance, time_limit=20)
    assert result.status is Status.OPTIMAL
    assert ppsolve.check(instance, result) == []


def test_unknown_public_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        _ = ppsolve.optimise  # type: ignore[attr-defined]
    assert "optimize" in dir(ppsolve)
    assert ppsolve.__version__
