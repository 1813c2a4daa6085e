"""Kernels give the same integers compiled or not, and are compiled where that pays."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.kernels import cache, compilation
from ppsolve.solver.kernels.compilation import Kernel, part


class Row(NamedTuple):
    values: Any
    factor: int


@part
def twice(value: int) -> int:
    return 2 * value


@Kernel
def running_sums(row: Row, sums: Any) -> int:
    total = 0
    for place in range(len(row.values)):
        total += twice(row.values[place]) * row.factor
        sums[place] = total
    return total


@pytest.mark.parametrize("compiled", [False, True])
def test_a_kernel_reads_records_and_writes_arrays(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(compilation._state, "compiled", compiled)
    sums = np.zeros(3, dtype=np.int64)
    assert running_sums(Row(np.array([1, 2, 3]), 5), sums) == 60
    assert sums.tolist() == [10, 30, 60]


def test_little_work_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compilation._state, "compiled", False)
    monkeypatch.setitem(compilation._state, "steps", 0.0)
    compilation.expect(compilation.PARAMS.paying_steps - 1)
    assert not compilation.is_compiled()


def test_little_work_of_many_calls_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compilation.SWITCH, raising=False)
    for name, value in (("compiled", False), ("due", math.inf), ("steps", 0.0)):
        monkeypatch.setitem(compilation._state, name, value)
    params = compilation.PARAMS
    told = [
        compilation.expect(params.paying_steps / 2) for _ in range(2 * params.in_all)
    ]
    assert told == [False] * (2 * params.in_all - 1) + [True]
    assert compilation.is_compiled()


def test_much_work_is_compiled_if_there_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(compilation.SWITCH, raising=False)
    monkeypatch.setitem(compilation._state, "compiled", False)
    monkeypatch.setattr(compilation, "is_warm", lambda *_: False)
    monkeypatch.setitem(compilation._state, "due", math.inf)
    with compilation.answering_within(compilation.PARAMS.compiling_seconds - 1):
        assert compilation.expect(compilation.PARAMS.paying_steps)  # it would pay
        assert not compilation.is_compiled()
    # The limit of one call is not that of the next.
    assert compilation.expect(compilation.PARAMS.paying_steps)
    assert compilation.is_compiled()


def test_kernels_of_the_cache_are_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compilation.SWITCH, raising=False)
    monkeypatch.setitem(compilation._state, "compiled", False)
    monkeypatch.setattr(compilation, "is_warm", lambda *_: True)
    monkeypatch.setitem(compilation._state, "due", time.monotonic() + 1.0)
    compilation.expect(compilation.PARAMS.paying_steps)
    assert compilation.is_compiled()


def test_never_means_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compilation.SWITCH, "never")
    monkeypatch.setitem(compilation._state, "compiled", False)
    compilation.expect(1e12)
    assert not compilation.is_compiled()


def test_an_unknown_way_to_run_kernels_is_one_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(compilation.SWITCH, "sometimes")
    with pytest.raises(InputError, match=r"^PPSOLVE_COMPILE: 'sometimes' is none of"):
        compilation.expect(0)
    with pytest.raises(InputError), compilation.answering_within(math.inf):
        pass


@pytest.mark.parametrize("mode", ["", "always", "never", "checked"])
def test_each_known_way_to_run_kernels_is_taken(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(compilation.SWITCH, mode)
    with compilation.answering_within(0.0):
        assert compilation.is_time_to_compile() == (mode in ("always", "checked"))


def test_ppsolve_does_not_import_llvm() -> None:
    code = "import sys, ppsolve.solver.api.api; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_cold_kernel_runs_by_python_where_the_answer_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(compilation.SWITCH, raising=False)
    monkeypatch.setitem(compilation._state, "compiled", True)
    monkeypatch.setitem(compilation._state, "due", time.monotonic() + 1.0)
    looks = []
    monkeypatch.setattr(compilation, "is_stored", looks.append)
    cold = Kernel(running_sums.function)
    sums = np.zeros(3, dtype=np.int64)
    assert cold(Row(np.array([1, 2, 3]), 5), sums) == 60
    assert sums.tolist() == [10, 30, 60]
    assert cold._machine_code is None
    cold(Row(np.array([1, 2, 3]), 5), sums)
    assert looks == ["running_sums"]  # not at every call


def test_a_kernel_is_used_as_soon_as_another_process_has_made_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(compilation.SWITCH, raising=False)
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    hasty = compilation.CompilationParams(asking_seconds=0.0)
    monkeypatch.setattr(compilation, "PARAMS", hasty)
    monkeypatch.setitem(compilation._state, "compiled", True)
    monkeypatch.setitem(compilation._state, "due", time.monotonic() + 1.0)
    row, sums = Row(np.array([1, 2, 3]), 5), np.zeros(3, dtype=np.int64)
    waiting = Kernel(running_sums.function)
    # Something that this processor, or these arrays, cannot use: it is not compiled late for that.
    (tmp_path / "running_sums-other.o").touch()
    assert cache.is_stored("running_sums")
    assert waiting(row, sums) == 60
    assert waiting._machine_code is None
    with compilation.answering_within(math.inf):
        assert Kernel(running_sums.function)(row, sums) == 60
    assert waiting(row, sums) == 60
    assert waiting._machine_code is not None


def test_a_kernel_without_its_text_runs_by_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: dict[str, Any] = {}
    exec("def hidden(values):\n    values[0] = len(values)\n    return 7", names)
    monkeypatch.setitem(compilation._state, "compiled", True)
    monkeypatch.setitem(compilation._state, "due", math.inf)
    kernel, values = Kernel(names["hidden"]), np.zeros(3, dtype=np.int64)
    assert [kernel(values), kernel(values), values[0]] == [7, 7, 3]
