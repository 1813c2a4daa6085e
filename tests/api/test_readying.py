"""Instances that take longer to lower than their call may take."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import ppsolve
from ppsolve import Status
from ppsolve.models.core.result import Result, StopReason
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api.api import task_in_time
from ppsolve.solver.api.kinds import kind_of, load_instance
from ppsolve.solver.clock import Clock
from ppsolve.solver.run.solve_run import OUT_OF_TIME
from tests.paths import ROOT

PATHS = (
    "uniform/uniform-4x8-1p.json",
    "kfac/pinned/bert-4x8-1f1b.json",
    "kfac/free/bert-4x8.json",
    "kfac/measured/barrier.json",
    "overlap/fsdp-large-1000.json",
)


RELEASED = threading.Event()
"""Set once all tests have run, so that what was left behind ends."""


@pytest.fixture(autouse=True, scope="module")
def released() -> Iterator[None]:
    yield
    RELEASED.set()


def forever(*_: Any, **__: Any) -> Any:
    RELEASED.wait()


@pytest.mark.parametrize("path", PATHS)
def test_an_instance_that_is_not_lowered_in_time_stays_unknown(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = load_instance(ROOT / "instances" / path)
    kind = kind_of(instance)
    expected = kind.task(instance).objective
    monkeypatch.setattr(type(kind), "task", forever)
    result = ppsolve.optimize(instance, time_limit=0.01)
    assert (result.status, result.stop_reason) == (Status.UNKNOWN, StopReason.TIME)
    assert (result.value, result.bound, result.objective) == (None, 0, expected)
    assert "failed" in {entry.status for entry in result.heuristics}
    assert {
        entry.reason for entry in result.heuristics if entry.status == "failed"
    } == {OUT_OF_TIME}
    model, _ = kind.documents(kind.value_unit(instance))
    assert (
        Result.model_validate_json(result.model_dump_json()).instance == instance.name
    )
    assert isinstance(result, model)


def test_without_a_limit_lowering_takes_its_time() -> None:
    instance = load_instance(ROOT / "instances" / PATHS[0])
    kind = kind_of(instance)
    task = task_in_time(lambda: kind.task(instance), Clock())
    assert task is not None


def test_what_lowering_refuses_is_refused_under_a_limit_too() -> None:
    def refuse() -> Any:
        raise InputError("expected less", field="num_devices")

    with pytest.raises(InputError, match="num_devices: expected less"):
        task_in_time(refuse, Clock(60.0))


def test_an_interrupt_while_an_instance_is_lowered_is_one_of_the_call() -> None:
    def interrupted() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        task_in_time(interrupted, Clock(60.0))
