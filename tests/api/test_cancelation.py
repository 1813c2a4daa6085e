"""Calls that their caller ends: by an event, by the reply of a listener, by its error."""

import threading

import pytest

import ppsolve
from ppsolve.models.core.result import StopReason
from tests.paths import ROOT


def open_pipeline() -> ppsolve.Instance:
    data = {
        "kind": "pipeline",
        "num_devices": 4,
        "num_microbatches": 12,
        "times": {
            "forward": [51, 97, 63, 80],
            "backward_input": [72, 101, 59, 93],
            "backward_weight": [41, 77, 66, 38],
        },
        "memory": {"capacity": 2.5, "activation": 1},
        "p2p": {"latency": 7},
    }
    return ppsolve.parse_instance(data)


def test_an_event_that_is_set_ends_the_call_at_once() -> None:
    stop = threading.Event()
    stop.set()
    result = ppsolve.optimize(open_pipeline(), time_limit=None, stop=stop)
    assert result.stop_reason is StopReason.CANCELLED
    assert result.status is ppsolve.Status.UNKNOWN


def test_an_event_that_another_thread_sets_leaves_the_best_so_far() -> None:
    instance, stop = open_pipeline(), threading.Event()

    def on_progress(progress: ppsolve.Progress) -> None:
        if progress.event == "incumbent":
            threading.Thread(target=stop.set).start()

    result = ppsolve.optimize(
        instance, time_limit=None, stop=stop, on_progress=on_progress
    )
    assert result.value is not None
    assert ppsolve.check(instance, result) == []
    assert result.stop_reason in {StopReason.CANCELLED, StopReason.PROVED}


def test_the_reply_of_a_listener_ends_the_call() -> None:
    instance = open_pipeline()
    result = ppsolve.optimize(
        instance,
        time_limit=None,
        on_progress=lambda progress: (
            ppsolve.STOP if progress.event == "incumbent" else None
        ),
    )
    assert result.value is not None
    assert ppsolve.check(instance, result) == []
    assert result.stop_reason in {StopReason.CANCELLED, StopReason.PROVED}


def test_an_error_of_a_listener_is_raised_with_the_best_so_far() -> None:
    instance = open_pipeline()

    def on_progress(progress: ppsolve.Progress) -> None:
        if progress.event == "incumbent":
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine") as caught:
        ppsolve.optimize(instance, time_limit=None, on_progress=on_progress)
    result = caught.value.result  # type: ignore[attr-defined]
    assert result.value is not None
    assert ppsolve.check(instance, result) == []


def test_a_what_if_that_is_stopped_begins_no_further_search() -> None:
    stop = threading.Event()
    stop.set()
    answer = ppsolve.what_if(
        open_pipeline(), {"capacity": ["3", "4"]}, time_limit=60, stop=stop
    )
    assert answer.interrupted
    assert all(row.value is None for row in answer.rows)


def test_a_plan_takes_replies_and_errors_of_its_listener() -> None:
    request = ppsolve.load_request(
        ROOT / "instances" / "plans" / "small-12x4.plan.json"
    )
    plan = ppsolve.plan(request, on_progress=lambda progress: ppsolve.STOP)
    assert plan.interrupted

    def fails(progress: object) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine") as caught:
        ppsolve.plan(request, on_progress=fails)
    assert caught.value.result.interrupted  # type: ignore[attr-defined]
