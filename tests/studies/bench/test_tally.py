"""Progress of a run: rate, time left, what came out; live on a terminal, lines elsewhere."""

from __future__ import annotations

import io

from ppsolve.models.studies.bench.file import BenchRecord
from ppsolve.solver.views.progress import TallyProgress, own_failures, tally
from tests.studies.bench.records import record

PROVED, OPEN = record("a"), record("b", status="FEASIBLE", value=95)
CRASHED = record("c", status="UNKNOWN", value=None, failure="crash", error="SIGABRT")


def test_tally() -> None:
    assert tally([]) == "none"
    assert (
        tally([PROVED, CRASHED, OPEN, PROVED])
        == "2 proved, 1 feasible, 1 failed (crash)"
    )


def own(
    reason: str | None, status: str = "failed", name: str = "a.py:f"
) -> BenchRecord:
    entry = {"name": name, "status": status, "reason": reason}
    return record("o", heuristics=[entry], settings={"code": {"a.py:f": "0"}})


def test_failures_of_users_heuristics_are_told_once_for_each_place() -> None:
    long = f"ValueError: no (8) of {'x' * 5000} (a.py:3)"
    records = [
        own(long), own(long), own("KeyError: 1 (a.py:9)"), own("KeyError: 2 (a.py:9)"),
        own(None, "feasible"), own("memory: too much", "infeasible"), own(None), PROVED,
        own("deadlock: it waits", name="gpipe"),
    ]  # fmt: skip
    assert list(own_failures(records)) == [
        f"a.py:f failed on 2 of 7 instances: {long}",
        "a.py:f failed on 2 of 7 instances, for example: KeyError: 1 (a.py:9)",
        "a.py:f failed on 1 of 7 instances: no reason given",
    ]
    assert list(own_failures([own("E: \x1b[2J (a.py:1)")])) == [
        r"a.py:f failed on 1 of 1 instance: E: \x1b[2J (a.py:1)"
    ]


def test_failures_of_users_bounds_are_told_too() -> None:
    failed = {"name": "b.py:g", "status": "failed", "reason": "TypeError: no (b.py:5)"}
    other = {"name": "b.py:g", "status": "not_refuted", "value": 3}
    records = [record("o", own_bounds=[entry]) for entry in (failed, other)]
    assert list(own_failures(records)) == [
        "b.py:g failed on 1 of 2 instances: TypeError: no (b.py:5)"
    ]


def test_lines_come_at_times_and_for_failures() -> None:
    stream, moments = io.StringIO(), iter([0.0, 2.0, 12.0, 12.0, 13.0, 14.0])
    shown = TallyProgress(stream, 10, 4, clock=lambda: next(moments))
    shown(PROVED)
    shown(OPEN)
    shown(CRASHED)
    assert stream.getvalue().splitlines() == [
        "[6/10] 10 items/min, 24.0 s left: 1 proved, 1 feasible",
        "[7/10] name-c: failed (crash): SIGABRT",
    ]


def test_every_item_where_asked() -> None:
    stream = io.StringIO()
    shown = TallyProgress(stream, 2, everything=True, clock=lambda: 0.0)
    shown(PROVED)
    shown(OPEN)
    assert stream.getvalue().splitlines() == [
        "[1/2] name-a: OPTIMAL 90 us after 0.50 s",
        "[2/2] name-b: FEASIBLE 95 us after 0.50 s",
    ]
