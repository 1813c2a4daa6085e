"""The client of the library: what `ppsolve.optimize` takes, gives and raises, over HTTP."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.solver.run.params import SearchParams
from tests.service.cases import OPEN, drawn, pipeline, small
from tests.service.conftest import RunningService


def test_signatures_are_those_of_the_library() -> None:
    for name in ("optimize", "quick"):
        method = inspect.signature(getattr(ppsolve.Client("http://x"), name))
        function = inspect.signature(getattr(ppsolve, name))
        assert list(method.parameters) == list(function.parameters)
        defaults = [
            [parameter.default for parameter in shown.parameters.values()]
            for shown in (method, function)
        ]
        assert defaults[0] == defaults[1]


@pytest.mark.parametrize("url", ["", "localhost:8765", "ftp://x", "http://"])
def test_addresses_are_checked(url: str) -> None:
    with pytest.raises(ppsolve.InputError, match="expected an address"):
        ppsolve.Client(url)


def test_functions_and_unknown_options_are_refused_before_anything_is_sent() -> None:
    client, instance = ppsolve.Client("http://127.0.0.1:9"), pipeline(small(1))
    with pytest.raises(ppsolve.InputError, match="functions are not sent"):
        client.optimize(instance, heuristics=[print])
    with pytest.raises(TypeError, match="time_limt"):
        client.optimize(instance, time_limt=3)
    with pytest.raises(ppsolve.PpsolveError, match="no answer from http"):
        client.optimize(instance)


def test_what_is_stopped_before_it_begins_needs_no_service() -> None:
    stop = threading.Event()
    stop.set()
    client = ppsolve.Client("http://127.0.0.1:9")
    result = client.optimize(pipeline(OPEN), stop=stop)
    assert (result.status, result.stop_reason) == ("UNKNOWN", "cancelled")


@pytest.mark.serve
def test_answers_are_those_of_the_library(service: RunningService) -> None:
    client, instance = service.client(), pipeline(small(11))
    options: dict[str, Any] = {
        "time_limit": 20,
        "workers": 1,
        "heuristics": ["1f1b", "gpipe"],
        "params": SearchParams(),
        "began": None,
    }
    told: list[ppsolve.Progress] = []
    result = client.optimize(instance, on_progress=told.append, **options)
    known = ppsolve.optimize(instance, **options)
    assert type(result) is type(known)
    varying = {"wall_seconds", "steps"}
    assert result.model_dump(exclude=varying) == known.model_dump(exclude=varying)
    assert {"bound", "incumbent"} <= {progress.event for progress in told}
    started = client.optimize(instance, start=known, time_limit=0)
    assert started.value == known.value
    schedule = known.schedule
    assert client.optimize(instance, start=schedule, time_limit=0).value == known.value


@pytest.mark.serve
def test_quick_answers_are_those_of_the_library(service: RunningService) -> None:
    client = service.client()
    for seed in range(5):
        assert client.quick(pipeline(drawn(seed))) == ppsolve.quick(
            pipeline(drawn(seed))  # type: ignore[arg-type]
        )
    arrays = {"latency": [0, 3], "forward": np.array([4.5, 2])}
    answers = client.quick(pipeline(drawn(3)), **arrays)
    known = ppsolve.quick(pipeline(drawn(3)), **arrays)  # type: ignore[arg-type]
    for name in ("value", "bound", "by", "bound_by"):
        assert getattr(answers, name).tolist() == getattr(known, name).tolist()


@pytest.mark.serve
def test_callers_stop_jobs_by_events_replies_and_errors(
    service: RunningService,
) -> None:
    client, instance = service.client(), pipeline(OPEN)
    stop = threading.Event()

    def on_progress(progress: ppsolve.Progress) -> None:
        if progress.event == "incumbent":
            stop.set()

    result = client.optimize(
        instance, time_limit=600, stop=stop, on_progress=on_progress
    )
    assert result.stop_reason == "cancelled"
    assert ppsolve.check(instance, result) == []
    result = client.optimize(
        instance, time_limit=600, seed=1, on_progress=lambda progress: ppsolve.STOP
    )
    assert result.stop_reason == "cancelled"

    def fails(progress: ppsolve.Progress) -> None:
        if progress.event == "incumbent":
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine") as caught:
        client.optimize(instance, time_limit=600, seed=2, on_progress=fails)
    best = caught.value.result  # type: ignore[attr-defined]
    assert ppsolve.check(instance, best) == []


@pytest.mark.serve
def test_wrong_input_is_the_library_s_error(service: RunningService) -> None:
    client = service.client()
    with pytest.raises(ppsolve.InputError, match="greater than or equal to 0") as error:
        client.optimize(pipeline(small(1)), seed=-1)
    assert (error.value.field, error.value.code) == ("options.seed", "range")
    with pytest.raises(ppsolve.InputError, match="unknown heuristic"):
        client.optimize(pipeline(small(1)), heuristics=["nobody"])
    with pytest.raises(ppsolve.InputError, match="without it for a quick answer"):
        client.quick(pipeline(small(1) | {"steps": 2}))
