"""Published traces: spans, replays, bounds and orders computed independently are met."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest

from ppsolve.models.studies.trace.table import Trace
from ppsolve.solver.api import api
from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.studies.traces.fits import fit, recorded_span
from ppsolve.solver.studies.traces.replay import (
    Recorded,
    least_span,
    median_instance,
    recorded_step,
)
from tests.paths import DATA
from tests.studies.traces import cases

TRACES = DATA / "traces"
RELATIVE = 1e-6


@cache
def read(name: str) -> Trace:
    return read_trace([TRACES / name])


def expected(name: str) -> list[dict]:
    return json.loads((TRACES / f"{name}.expected.json").read_text())["rows"]


@pytest.mark.parametrize("name", ["ST", "SE"])
def test_straggler_study(name):
    found = {}
    for step, replica, part in read(f"{name}.parquet").parts():
        one = Recorded.of(part)
        found[step, replica] = (
            (one.span, one.replayed, least_span(part)),
            cases.order_of(one),
        )
    rows = expected(name)
    assert len(found) == len(rows)
    for row in rows:
        figures, order = found[row["step"], row["dp_rank"]]
        names = ("recorded_s", "replay_s", "head_load_tail_bound_s")
        assert [time / 1e9 for time in figures] == pytest.approx(
            [row[name] for name in names], rel=RELATIVE
        )
        assert order == row["order"]


@pytest.mark.parametrize("name", ["ST.parquet", "SE.parquet", "primus_pp8"])
def test_replay_meets_recorded_spans(name):
    parts = [Recorded.of(part) for _, _, part in read(name).parts()]
    assert 0.985 < np.median([one.replayed / one.span for one in parts]) < 1.015


def test_primus():
    rows = {row["iteration"]: row for row in expected("primus_pp8")}
    seen = set()
    for step, _, part in read("primus_pp8").parts():
        one, row = Recorded.of(part), rows[step]
        assert one.span / 1e6 == pytest.approx(row["span_of_rank_0"], rel=RELATIVE)
        assert one.replayed / 1e6 == pytest.approx(
            row["replay_1f1b_recorded"], rel=RELATIVE
        )
        seen.add(step)
    assert seen == rows.keys()


def test_primus_medians():
    """1F1B of the medians of each iteration, without the time held and with free transfers."""
    rows = {row["iteration"]: row for row in expected("primus_pp8")}
    for step, _, part in read("primus_pp8").parts():
        own = fit(part)
        bare = replace(
            own,
            stage_times=tuple(replace(one, held=0.0) for one in own.stage_times),
            latency=None,
        )
        span = api.simulate(median_instance(part, bare), "1f1b").makespan
        assert float(span) == pytest.approx(
            rows[step]["replay_1f1b_medians"], rel=RELATIVE
        )


def test_primus_says_that_clocks_are_not_aligned():
    trace = read("primus_pp8")
    assert not trace.is_aligned
    assert any("no common zero" in text for text in trace.notes.warnings)


def test_warm_up_and_stalls_are_named_with_op_and_rank():
    found = [
        (one.step, one.reason, one.op, one.device)
        for one in fit(read("primus_pp8")).unusual
    ]
    assert found == [
        (1, "warm-up", "F0.0", 0),
        (16, "stall", "F2.8", 2),
        (18, "stall", "F3.10", 3),
    ]


def test_fitted_1f1b_meets_ordinary_iterations():
    """One fit for all; and each iteration's own fit."""
    trace = read("primus_pp8")
    unusual = {one.step for one in fit(trace).unusual}
    whole = api.simulate(median_instance(trace, fit(trace)), "1f1b").makespan
    for step, _, part in trace.parts():
        if step in unusual:
            continue
        span = recorded_span(part) / 1e6
        own = api.simulate(median_instance(part, fit(part)), "1f1b").makespan
        assert [whole, own] == pytest.approx([span, span], rel=0.015)


@pytest.mark.parametrize("name", ["ST.parquet", "SE.parquet", "primus_pp8"])
def test_recorded_schedules_pass_the_checker(name):
    for step in (recorded_step(part) for _, _, part in islice(read(name).parts(), 12)):
        assert api.check(step.instance, step.result.model_dump(mode="json")) == []
        assert step.shift <= 30_000
