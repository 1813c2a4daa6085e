"""Many instances from Python, and what all engines have in common."""

from __future__ import annotations

import operator
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import load_instance
from ppsolve.solver.kernels.compilation import is_compiled
from ppsolve.solver.studies.bench.machine import group_memory
from ppsolve.solver.studies.bench.pool import Limits, LocalEngine
from tests.paths import ROOT

pytestmark = pytest.mark.processes


def instance(forward: int) -> PipelineInstance:
    times = {"forward": forward, "backward": 20}
    return PipelineInstance.parse(
        {"num_devices": 2, "num_microbatches": 2, "times": times}
    )


def test_results_are_those_of_optimize() -> None:
    kinds = [
        instance(10),
        load_instance(ROOT / "instances" / "overlap" / "zero-tail-8l.json"),
        load_instance(
            next(iter((ROOT / "instances" / "kfac" / "pinned").glob("*.json")))
        ),
    ]
    options = {"time_limit": 0.0, "workers": 1, "heuristics": ["1f1b", "list-tail"]}
    answers = list(ppsolve.optimize_many(kinds, **options))  # type: ignore[arg-type]
    assert [answer.failure for answer in answers] == [None] * 3
    for answer, given in zip(answers, kinds, strict=True):
        expected = ppsolve.optimize(given, **options)  # type: ignore[arg-type]
        assert answer.result is not None
        assert type(answer.result) is type(expected)
        same = {"wall_seconds", "steps"}
        assert answer.result.model_dump(exclude=same) == expected.model_dump(
            exclude=same
        )


def test_instances_are_taken_as_they_are_needed() -> None:
    taken = []

    def given() -> Iterator[PipelineInstance]:
        for number in range(1, 100):
            taken.append(number)
            yield instance(number)

    answers = ppsolve.optimize_many(
        given(), processes=2, time_limit=0, heuristics=["gpipe"]
    )
    found = [next(answers) for _ in range(3)]
    answers.close()  # type: ignore[attr-defined]
    assert len(taken) <= 5
    assert {answer.index for answer in found} <= set(range(5))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"processes": 0}, "processes: expected at least 1"),
        ({"engine": "cloud"}, 'engine: expected local, dask or an engine, got "cloud"'),
        ({"on_progress": print}, "on_progress: expected none for many instances"),
        ({"time_limt": 3}, 'unknown option "time_limt"; did you mean "time_limit"'),
        ({"seed": -1}, "seed: expected 0 to"),
    ],
)
def test_wrong_options_are_refused_at_once(
    options: dict[str, object], error: str
) -> None:
    with pytest.raises(InputError, match=error):
        ppsolve.optimize_many([instance(1)], **options)  # type: ignore[arg-type]


def test_dask_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(
        InputError, match=r"--engine: dask is not installed; install ppsolve\[dask"
    ):
        ppsolve.optimize_many([instance(1)], engine="dask")


def test_the_engine_answers_each_item() -> None:
    found = list(LocalEngine(2).map(operator.inv, [5, None, 7], Limits()))
    by_index = {one.index: (one.value, one.failure) for one in found}
    assert by_index == {0: (-6, None), 1: (None, "error"), 2: (-8, None)}
    (error,) = (one.error for one in found if one.failure)
    assert str(error).startswith("TypeError: bad operand type for unary ~")


def test_large_items_and_answers_arrive_whole() -> None:
    data = bytes(range(256)) * 40_000
    (found,) = LocalEngine().map(bytes.swapcase, [data], Limits())
    assert found.value == data.swapcase()


def test_what_cannot_be_sent_is_an_error() -> None:
    first, second = LocalEngine().map(iter, [[1], Path], Limits())
    assert (first.failure, second.failure) == (None, "error")
    (found,) = LocalEngine().map(time.sleep, [(one for one in ())], Limits())
    assert (found.failure, str(found.error).partition(":")[0]) == (
        "error",
        "the item cannot be sent",
    )


def loaded(_: int) -> tuple[bool, bool, list[str]]:
    """Return whether LLVM is there and kernels run compiled from the first op on, and threads."""
    threads = [thread.name for thread in threading.enumerate()]
    return "llvmlite" in sys.modules, is_compiled(), threads


def test_llvm_and_kernels_are_loaded_once_for_all_processes() -> None:
    found = [one.value for one in LocalEngine().map(loaded, range(2), Limits())]
    assert found == [(True, True, ["MainThread"])] * 2


def test_the_next_process_begins_before_an_answer_is_taken() -> None:
    taken = []

    def given() -> Iterator[int]:
        for number in range(3):
            taken.append(number)
            yield number

    answers = LocalEngine().map(operator.inv, given(), Limits())
    assert [next(answers).value, list(taken)] == [-1, [0, 1]]


def test_memory_of_groups_is_known() -> None:
    assert max(group_memory().values()) > 2**20
