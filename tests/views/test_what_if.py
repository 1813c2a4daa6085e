"""The sentence of a what-if: what gains, and what may still gain where nothing is proved."""

from __future__ import annotations

from typing import Any

import pytest

from ppsolve.models.studies.what_if import WhatIf
from ppsolve.solver.views.what_if import what_if_line


def row(change: str, value: Any, bound: Any, microbatches: int = 4) -> dict[str, Any]:
    gap = None if value is None else (value - bound) / value
    return {
        "status": "UNKNOWN" if value is None else "FEASIBLE",
        "value": value,
        "bound": bound,
        "gap": gap,
        "changes": {"placements": change} if change else {},
        "microbatches": microbatches,
        "gain": None if value is None else 1 - value / microbatches / 25,
    }


def line(*rows: dict[str, Any]) -> str:
    study = WhatIf(instance="two", objective="makespan", time_unit="us", rows=rows)
    return what_if_line(study).plain


@pytest.mark.parametrize(
    ("rows", "end"),
    [
        ([("", 100, 100), ("vshape", 110, 100)], "No change gains anything."),
        ([("", 100, 90), ("vshape", 110, 100)], "No change gains anything."),
        (
            [("", 100, 90), ("vshape", 110, 93.7), ("wave", 120, 98)],
            "No change gains anything in the schedules found so far. Not proved: "
            "vshape could still gain 6.30 %; 1 more open.",
        ),
        (
            [("", 100, 100), ("vshape", 90, 90), ("wave", 95, 85)],
            "Best: vshape, 10.00 % less. Not proved: wave could still gain 15.00 %.",
        ),
        (
            [("", 100, 100), ("vshape", 90, 90), ("wave", 95, 95)],
            "Best: vshape, 10.00 % less.",
        ),
        (
            [("", 100, 100), ("vshape", None, None)],
            "No change gains anything in the schedules found so far. Not proved: "
            "vshape has no schedule and no bound yet.",
        ),
        ([("", None, 90), ("vshape", None, 80)], "0 proved."),
    ],
)
def test_what_is_open_is_said(rows: list[tuple[Any, ...]], end: str) -> None:
    assert line(*(row(*entries) for entries in rows)).endswith(end)


def test_open_gains_are_per_micro_batch() -> None:
    text = line(row("", 100, 100), row("vshape", 210, 180, 8))
    assert text.endswith("vshape could still gain 10.00 % per micro-batch.")
