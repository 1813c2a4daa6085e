"""Kernels are compiled in a process beside where that is possible, and never where it is not."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.heuristics.justify import Justifier
from ppsolve.solver.heuristics.list_rules import list_serial
from ppsolve.solver.heuristics.order_search import order_search
from ppsolve.solver.kernels import compilation
from ppsolve.solver.kernels.compilation import Kernel
from ppsolve.solver.optimize import ahead
from ppsolve.solver.optimize.kinds import lower

PLACEMENTS = [(1, "linear"), (2, "vshape")]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the commands that would be run where kernels are compiled and none is known."""
    commands: list[Any] = []

    def refuse(command: Any, **_: Any) -> None:
        commands.append(command)
        raise OSError

    monkeypatch.setattr(ahead, "is_warm", lambda _: False)
    monkeypatch.setattr(ahead, "is_complete", lambda: False)
    monkeypatch.setattr(ahead, "_processors", lambda: 2)
    monkeypatch.setattr(ahead, "_begun", [])
    monkeypatch.setattr(subprocess, "Popen", refuse)
    return commands


def test_a_process_is_started_where_kernels_are_cold(started: list[Any]) -> None:
    ahead.compile_beside()  # one that cannot be started is done without
    assert started == [[sys.executable, "-m", "ppsolve.solver.optimize.ahead"]]
    assert not compilation._awaited


def test_no_process_is_started_in_vain(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("is_complete", lambda: True),
        ("_processors", lambda: 1),
        ("folder", lambda: None),
        ("_begun", [object()]),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(ahead, name, value)
            ahead.compile_beside()
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    ahead.compile_beside()
    monkeypatch.setattr(sys, "frozen", False)
    monkeypatch.setattr(sys, "executable", "/opt/application")
    ahead.compile_beside()
    assert started == []


def test_a_kernel_waits_as_long_as_the_process_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [False, True, True]
    monkeypatch.setattr(compilation, "is_stored", lambda _: False)
    compilation.await_kernels(["some"], answers.pop)
    compilation._wait_for("other")
    assert len(answers) == 3
    compilation._wait_for("some")
    assert answers == []
    compilation._wait_for("some")  # not again


def test_a_kernel_does_not_wait_once_its_code_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "is_stored", lambda kernel: kernel == "some")
    compilation.await_kernels(["some"], lambda: True)
    compilation._wait_for("some")


def test_the_process_ends_when_its_parent_is_gone() -> None:
    command = [sys.executable, "-m", "ppsolve.solver.optimize.ahead"]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 1


@pytest.mark.parametrize("chunks, placement", PLACEMENTS)
def test_what_is_compiled_ahead_is_what_runs_call(
    chunks: int, placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from numba import typeof

    types: dict[str, set[Any]] = {}
    call = Kernel.__call__

    def noted(kernel: Kernel, *arguments: Any) -> Any:
        types.setdefault(kernel.function.__name__, set()).add(tuple(map(typeof, arguments)))
        return call(kernel, *arguments)

    monkeypatch.setattr(Kernel, "__call__", noted)
    ahead.compile_first()
    document = {
        "num_devices": 3,
        "stages_per_device": chunks,
        "placement": placement,
        "num_microbatches": 5,
        "times": {"forward": [2, 3, 4] * chunks, "backward_input": 2, "backward_weight": 1},
        "p2p": {"latency": 1},
        "memory": {"capacity": 3, "activation": 1},
    }
    problem = lower(PipelineInstance.parse(document))
    justifier = Justifier(problem)
    order_search(justifier.shake(justifier.improve(list_serial(problem), 1), 2), steps=1)
    assert [len(types[name]) for name in ahead.FIRST] == [1, 1, 1]
