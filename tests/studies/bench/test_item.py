"""Keys of items, the history of a run, and records."""

from __future__ import annotations

from typing import Any

import pytest

from ppsolve.models.core.result import Result
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.run.progress import Progress
from ppsolve.solver.studies.bench.machine import this_machine
from ppsolve.solver.studies.bench.pool import Finished, wall_cap
from ppsolve.solver.studies.bench.suite import (
    BenchItem,
    History,
    Shard,
    distinct,
    thinned,
)
from ppsolve.solver.views.figures import seconds


def item(name: str = "a", forward: int = 10, **options: Any) -> BenchItem:
    times = {"forward": forward, "backward": 20}
    document = {"name": name, "num_devices": 2, "num_microbatches": 2, "times": times}
    return BenchItem(
        PipelineInstance.parse(document), "tiny", None, {"time_limit": 1.0, **options}
    )


def test_keys_are_of_the_question() -> None:
    assert item().key == item("b").key
    others = [item(forward=11), item(seed=1), item(time_limit=2.0), item(workers=2)]
    assert len({one.key for one in (item(), *others)}) == 5


def test_contents_are_of_the_instance_alone() -> None:
    assert {one.content for one in (item(), item("b"), item(seed=1))} == {
        item().content
    }
    assert item(forward=11).content != item().content
    assert item().record(Finished(0)).content == item().content


def test_doubles_are_named() -> None:
    one, same, other = item(), item("b"), item(forward=11)
    assert distinct([one, same, other]) == ([one, other], [(same, one)])


def test_each_item_is_in_one_part() -> None:
    items = [item(forward=number) for number in range(1, 30)]
    parts = [
        [one for one in items if Shard(number, 4).has(one)] for number in (1, 2, 3, 4)
    ]
    assert sum(map(len, parts)) == len(items)
    assert all(parts)


def test_failures_are_records() -> None:
    failed = Finished(0, failure="timeout", error="no answer", seconds=1.5)  # type: ignore[arg-type]
    record = item().record(failed, attempts=2)
    assert (record.status, record.failure, record.seconds) == (
        "UNKNOWN",
        "timeout",
        1.5,
    )
    assert (record.attempts, record.error, record.value) == (3, "no answer", None)
    assert record.machine == this_machine()


def result(**changes: Any) -> Result:
    fields: dict[str, Any] = {
        "instance": "a", "status": "OPTIMAL", "objective": "makespan", "time_unit": "us",
        "value": 90, "bound": 90, "stop_reason": "proved", "wall_seconds": 4.0,
        "versions": {"ppsolve": "0", "python": "3"},
    }  # fmt: skip
    return Result.model_validate(fields | changes)


EVENTS = [
    Progress("bound", 0.5, "work", None, 80),
    Progress("incumbent", 0.75, "gpipe", 100, 80),
    Progress("heuristic", 0.75, "gpipe", 100, 80),
    Progress("phase", 1.0, "cp-sat", 100, 80),
    Progress("incumbent", 1.5, "list-sweep", 95, 80),
    Progress("heuristic", 2.0, "list-sweep", 95, 80),
    Progress("phase", 2.1, "cp-sat", 95, 80),
    Progress("incumbent", 2.5, "cp-sat", 90, 80),
    Progress("bound", 3.0, "cp-sat", 90, 90),
]


def test_history_of_a_run() -> None:
    history = History()
    for event in EVENTS:
        history(event)
    assert history.curve(result()) == [
        (0.5, None, 80), (0.75, 100, 80), (1.5, 95, 80), (2.5, 90, 80), (3.0, 90, 90),
    ]  # fmt: skip
    assert (history.time_to_best(result()), history.time_to_proof(result())) == (
        2.5,
        3.0,
    )
    assert history._seconds == {"gpipe": 0.25, "list-sweep": 1.0}


def test_what_no_event_told() -> None:
    history = History()
    assert history.curve(result()) == [(4.0, 90, 90)]
    assert (history.time_to_best(result()), history.time_to_proof(result())) == (
        4.0,
        4.0,
    )
    open_ = result(status="FEASIBLE", bound=80)
    assert history.time_to_proof(open_) is None
    impossible = result(status="INFEASIBLE", value=None, bound=None)
    assert (history.time_to_best(impossible), history.time_to_proof(impossible)) == (
        None,
        4.0,
    )


def test_long_curves_are_thinned() -> None:
    moments = [(float(number), number, None) for number in range(1000)]
    kept = thinned(moments, 5)
    assert [at for at, _, _ in kept] == [0, 250, 500, 749, 999]


@pytest.mark.parametrize(
    ("limit", "is_kept", "cap"),
    [(60.0, True, 73.0), (0.0, True, None), (60.0, False, None)],
)
def test_wall_caps(limit: float, is_kept: bool, cap: float | None) -> None:
    assert wall_cap(limit, is_kept=is_kept) == cap


def test_durations() -> None:
    assert [seconds(s) for s in (40.4, 720, 12_600)] == [
        "40.4 s",
        "12 min 00 s",
        "3.5 h",
    ]
