"""The recorded closed loop in docs/closed_loop: its figures are right, and it is close."""

from __future__ import annotations

import pytest

import ppsolve
from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.formats.torch.runtime import compare_run, steps_of
from tests.formats.torch.judging import judge
from tests.paths import ROOT

DOCS = ROOT / "docs" / "closed_loop"
MOST_BYTES = 300_000


@pytest.fixture(scope="module")
def result() -> ppsolve.Result:
    return ppsolve.Result.model_validate_json((DOCS / "result.json").read_text())


def test_figures_are_those_of_the_trace(result: ppsolve.Result) -> None:
    run = steps_of(read_trace([DOCS / "run.csv"]), 1, 2)
    wanted = [
        f"{row.name:15}{row.predicted:9.0f} us{row.measured:9.0f} us{row.error:8.1%}"
        for row in compare_run(result, run)
    ]
    assert (DOCS / "figures.txt").read_text().splitlines()[2:] == wanted


def test_the_schedule_is_valid(result: ppsolve.Result) -> None:
    assert result.instance_document is not None
    instance = ppsolve.parse_instance(result.instance_document)
    assert ppsolve.check(instance, result) == []


def test_the_step_took_the_predicted_time(result: ppsolve.Result) -> None:
    judge(result, *(read_trace([DOCS / f"{name}.csv"]) for name in ("first", "run")))


def test_the_record_is_small() -> None:
    assert sum(file.stat().st_size for file in DOCS.iterdir()) <= MOST_BYTES
