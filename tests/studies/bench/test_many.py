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
from ppsolve.models.studies.bench.file import BenchFile
from ppsolve.solver.api.kinds import load_instance
from ppsolve.solver.kernels.compilation import is_compiled
from ppsolve.solver.studies.bench.fork_server import STOPPED, send_news
from ppsolve.solver.studies.bench.machine import group_memory
from ppsolve.solver.studies.bench.pool import CallLink, Limits, LocalEngine
from ppsolve.solver.studies.bench.suite import BenchItem, Suite
from tests.paths import ROOT
from tests.service.cases import OPEN

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


def slow_pipeline() -> PipelineInstance:
    """Return a pipeline whose optimum takes far longer to prove than a test may."""
    return PipelineInstance.parse(OPEN)


def test_who_stops_gets_the_best_so_far_of_what_runs_and_no_more() -> None:
    stop = threading.Event()

    def instances() -> Iterator[PipelineInstance]:
        yield slow_pipeline()
        # Asked for once the first one has begun.
        threading.Timer(1.0, stop.set).start()
        yield slow_pipeline()
        yield slow_pipeline()

    answers = list(
        ppsolve.optimize_many(instances(), processes=2, time_limit=600, stop=stop)
    )
    assert sorted(answer.index for answer in answers) == [0, 1]
    for answer in answers:
        assert answer.result is not None
        assert answer.result.stop_reason == "cancelled"
        assert answer.result.schedule is None or not ppsolve.check(
            slow_pipeline(), answer.result
        )


def test_a_benchmark_that_is_stopped_keeps_what_has_ended_and_can_go_on(
    tmp_path: Path,
) -> None:
    options = {"time_limit": 600, "workers": 1}
    items = [
        BenchItem(one, "x", None, options) for one in (instance(1), slow_pipeline())
    ]
    stop = threading.Event()
    with BenchFile(tmp_path / "x.jsonl") as file:
        suite = Suite(items, file)
        suite.run(LocalEngine(), Limits(), lambda record: stop.set(), stop)
        assert [record.key for record in suite.records] == [items[0].key]
        assert Suite(items, file).waiting == items[1:]


def count_aloud(last: int) -> str:
    """Tell numbers, then wait until the caller stops."""
    for number in range(last):
        send_news(number)
    while not STOPPED.is_set():
        time.sleep(0.01)
    return "stopped"


def test_news_come_in_order_and_end_with_the_answer() -> None:
    told: list[tuple[int, int]] = []
    stop = threading.Event()

    def listen(index: int, number: int) -> None:
        told.append((index, number))
        if len(told) == 6000:
            stop.set()

    link = CallLink(stop, listen)
    found = list(LocalEngine(2).map(count_aloud, [3000, 3000], Limits(), link))
    assert [one.value for one in found] == ["stopped"] * 2
    for index in range(2):
        assert [number for i, number in told if i == index] == list(range(3000))


def forget_the_first_signal(_: int) -> bool:
    """Wait twice until the caller stops: the first signal is lost, as one before a fork ends."""
    is_told = STOPPED.wait(30)
    STOPPED.clear()
    return STOPPED.wait(30) and is_told


def test_a_process_that_forgets_a_signal_is_told_again() -> None:
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    engine, link = LocalEngine(1), CallLink(stop)
    (answer,) = engine.map(forget_the_first_signal, [0], Limits(), link)
    assert answer.value is True


def test_news_of_whoever_has_no_caller_go_nowhere() -> None:
    send_news("nobody listens")
