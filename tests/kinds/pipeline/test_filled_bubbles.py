from __future__ import annotations

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.api import check, optimize, simulate
from ppsolve.solver.run.params import OptionsParams, SearchParams
from tests.kinds.pipeline.filler_instances import greedy, instance


def test_greedy_fills_the_first_bubbles_longest_first() -> None:
    # 1F1B on device 0: F 0-2, idle 2-4, B 4-6, idle 6-7, B 7-9.
    fillers = [{"pieces": [1]}, {"pieces": [2]}, {"pieces": [1], "after": "B0.0"}]
    found, order = greedy(instance(*fillers))
    assert order == ["F0.0", "F0.1", "x1", "B0.0", "x0", "B0.1", "x2"]
    assert found.value == 10


def test_greedy_delays_what_waits_for_a_filler_that_no_bubble_takes() -> None:
    # F0.0 has to wait, and so has all that follows.
    found, order = greedy(instance({"pieces": [3], "before": "F0.0"}))
    assert order[:2] == ["x0", "F0.0"]
    assert found.value == 9 + 3
    # The bubble 2-4 lacks less than any other one before B0.1.
    found, order = greedy(instance({"pieces": [4], "after": "F0.0", "before": "B0.1"}))
    assert order == ["F0.0", "F0.1", "x0", "B0.0", "B0.1"]
    assert found.value == 2 + 4 + 2 + 2


def test_greedy_runs_pieces_in_different_bubbles_and_copies_beside() -> None:
    found, order = greedy(
        instance({"pieces": [2, 1]}, {"stream": "host", "pieces": [5]})
    )
    assert order == ["F0.0", "x1", "F0.1", "x0/0", "B0.0", "x0/1", "B0.1"]
    assert found.value == 9


def test_greedy_repeats_its_order_in_each_step() -> None:
    found, order = greedy(instance({"after": "B0"}, steps=2))
    # Stage 1 begins the second step at 8, at once; stage 0 at 9, with a forward.
    assert order[4:7] == ["STEP0@0", "F0.0@1", "F0.1@1"]
    assert found.value == 18


def test_every_published_order_runs_with_fillers() -> None:
    fillers = [{"device": i % 2, "before": f"F0.{i}"} for i in range(4)]
    times = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    data = instance(*fillers, times=times, num_microbatches=4, steps=2)
    for name in ("1f1b", "gpipe", "zb-1p", "zb-h1", "zb-h2", "looped-bfs"):
        assert greedy(data, name)[0].status == "feasible"


def test_an_order_that_waits_for_itself_through_a_filler_fails() -> None:
    data = instance({"after": "B0.0", "before": "F0.1"})
    found = simulate(PipelineInstance.parse(data), "gpipe")
    assert found.status == "failed"
    assert "deadlock" in str(found.reason)


CHOICE = (
    {"after": "B0", "devices": [1]},
    {"pieces": [3], "after": "B0.0", "devices": [1]},
    {"pieces": [2], "devices": [1]},
    {"pieces": [2], "devices": [1]},
)


def test_the_result_names_the_devices_of_fillers_and_check_knows_them() -> None:
    made = PipelineInstance.parse(instance(*CHOICE))
    result = optimize(made, seed=0)
    assert (result.status, result.value) == ("OPTIMAL", 11)
    data = result.model_dump(mode="json", by_alias=True)
    assert check(made, data) == []
    moved = {
        op["id"]: op["device"] for op in data["schedule"]["ops"] if op["device"] == 1
    }
    assert data["devices"] == {name: 1 for name in moved if name.startswith("x")}
    # Elsewhere two ops of one device run at once.
    assert check(made, data | {"devices": {}})
    for wrong in ({"x0": 0}, {"F0.0": 1}, {"x0": [1]}, ["x0"]):
        with pytest.raises(InputError, match="devices: expected fillers"):
            check(made, data | {"devices": wrong})


def test_greedy_takes_the_device_on_which_a_filler_starts_first() -> None:
    found, order = greedy(
        instance({"after": "B0.0"}, {"after": "B0.0", "devices": [1]})
    )
    # Device 0 is free from 6 to 7, device 1 from 7 on.
    assert found.devices == {"x1": 1}
    assert order == ["F0.0", "F0.1", "B0.0", "x0", "B0.1"]
    assert found.value == 9


def test_bounds_hold_whichever_device_runs_a_filler() -> None:
    # 12 of work on each device and 10 on any; device 1 waits for F0.0, device 0 for the last B1.
    fillers = [{"pieces": [5], "after": "F0.0", "devices": [1]}] * 2
    made = PipelineInstance.parse(instance(*fillers, num_microbatches=4))
    result = optimize(made, seed=0)
    assert (result.bound, result.bound_by, result.value) == (
        18,
        "work of all devices",
        18,
    )


def test_orders_of_the_best_devices_are_searched_before_all_is_one_model() -> None:
    made = PipelineInstance.parse(instance(*CHOICE))
    slow = SearchParams(options=OptionsParams(quick_options=0))
    result = optimize(made, seed=0, params=slow)
    assert (result.status, result.value) == ("OPTIMAL", 11)
    assert {step.name for step in result.steps} >= {"orders", "cp-sat"}
