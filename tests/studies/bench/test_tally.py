"""Progress of a run: rate, time left, what came out; live on a terminal, lines elsewhere."""

from __future__ import annotations

import io

from ppsolve.solver.views.progress import TallyProgress, tally
from tests.studies.bench.records import record

PROVED, OPEN = record("a"), record("b", status="FEASIBLE", value=95)
CRASHED = record("c", status="UNKNOWN", value=None, failure="crash", error="SIGABRT")


def test_tally() -> None:
    assert tally([]) == "none"
    assert tally([PROVED, CRASHED, OPEN, PROVED]) == "2 proved, 1 feasible, 1 failed (crash)"


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
