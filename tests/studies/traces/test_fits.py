"""Fits on traces whose numbers are known: what goes in comes out, and what cannot is said."""

from __future__ import annotations

import numpy as np
import pytest

from ppsolve.models.studies.trace.check import checked
from ppsolve.models.studies.trace.table import FREE, KINDS, Trace
from ppsolve.solver.studies.traces.fits import fit, unusual_steps
from ppsolve.solver.studies.traces.replay import median_instance
from tests.studies.traces import cases


def columns(plan, step=0, lengths=None):
    """Return rows (kind, stage, micro-batch, start, duration in us) as columns."""
    return {
        "step": [step] * len(plan),
        "replica": [0] * len(plan),
        "stage": [row[1] for row in plan],
        "chunk": [0] * len(plan),
        "kind": [KINDS.index(row[0]) for row in plan],
        "microbatch": [row[2] for row in plan],
        "start": [round(row[3] * 1000) for row in plan],
        "end": [round((row[3] + row[4]) * 1000) for row in plan],
        "device": [row[1] for row in plan],
        "length": [FREE if lengths is None else lengths[row[2]] for row in plan],
    }


def trace_of(*parts, **extra):
    joined = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    return checked(Trace.of({**joined, **extra}, unit="us", sources=("made",), format="table"))


def one_stage(durations, step=0, lengths=None, gap=0.0):
    """Return forwards then backwards of one stage, with a gap between ops."""
    plan, at = [], 0.0
    for kind, factor in (("F", 1), ("B", 2)):
        for microbatch, duration in enumerate(durations):
            plan.append((kind, 0, microbatch, at, factor * duration))
            at += factor * duration + gap
    return columns(plan, step, lengths)


def times_of(fits):
    return {f"{one.kind}{one.stage}": one for one in fits.stage_times}


def test_medians_and_jitter_ignore_a_stall():
    fits = fit(trace_of(one_stage([10, 10, 10, 12, 70])))
    assert times_of(fits)["F0"].median == 10_000
    assert fits.jitter == {"F": 0.0, "B": 0.0}


def test_jitter_is_a_coefficient_of_variation():
    """1,001 evenly spaced quantiles of a normal distribution with 5 % spread."""
    from statistics import NormalDist

    sample = [NormalDist(100, 5).inv_cdf((at + 0.5) / 1001) for at in range(1001)]
    fits = fit(trace_of(one_stage(sample)))
    assert fits.jitter["F"] == pytest.approx(0.05, rel=0.01)


def test_time_held_after_ops_is_part_of_the_median_instance():
    """A device that goes on 2 us after each op although nobody else is waited for."""
    trace = trace_of(one_stage([10, 10, 10], gap=2))
    fits = fit(trace)
    assert times_of(fits)["F0"].held == 2000
    instance = median_instance(trace, fits, "m")
    assert instance.times.forward == (12,)
    assert "held 2 us" in instance.description


def test_waiting_for_another_device_is_not_held():
    fits = fit(cases.trace())
    assert {one.held for one in fits.stage_times} == {0.0}
    assert fits.transfer.latency == 0


def test_latency_is_half_of_the_fastest_round_trip():
    """Every transfer takes 3 us: F1 3 us after F0, B0 3 us after B1."""
    plan = [("F", 0, 0, 0, 10), ("F", 1, 0, 13, 10), ("B", 1, 0, 23, 20), ("B", 0, 0, 46, 20)]
    fits = fit(trace_of(columns(plan)))
    assert (fits.transfer.latency, fits.transfer.bandwidth) == (3000, None)
    assert any("bandwidth cannot be fitted" in text for text in fits.warnings)


def transfers(sizes, seconds):
    plan = [("F", 0, 0, 0, 10), ("F", 1, 0, 10, 10), ("B", 1, 0, 20, 20), ("B", 0, 0, 40, 20)]
    base = columns(plan)
    for number, (_, time) in enumerate(zip(sizes, seconds, strict=True)):
        more = columns([("TF", 0, 0, 0, time)], step=number)
        steps = columns(plan, step=number)
        base = steps if number == 0 else {k: [*base[k], *steps[k]] for k in base}
        base = {key: [*base[key], *more[key]] for key in base}
    count = len(base["step"])
    size = np.full(count, FREE)
    size[np.array(base["kind"]) == KINDS.index("TF")] = sizes
    return trace_of(base, bytes=size)


def test_bandwidth_from_sizes_and_times():
    """2 us + bytes / (4 bytes per ns)."""
    sizes = [4_000, 8_000, 40_000]
    fits = fit(transfers(sizes, [2 + size / 4000 for size in sizes]))
    assert fits.transfer.latency == pytest.approx(2000)
    assert fits.transfer.bandwidth == pytest.approx(4)


@pytest.mark.parametrize(
    ("sizes", "times", "says"),
    [([4000, 4000], [3, 3], "one size"), ([4000, 8000], [5, 4], "take no longer")],
)
def test_bandwidth_that_cannot_be_fitted_is_said(sizes, times, says):
    fits = fit(transfers(sizes, times))
    assert fits.transfer.bandwidth is None
    assert any(says in text for text in fits.warnings)


def test_cost_over_lengths():
    """5 us + 0.01 L + 1e-6 L^2."""
    lengths = [100, 500, 1000, 2000, 4000, 8000]
    durations = [5 + 0.01 * length + 1e-6 * length**2 for length in lengths]
    cost = next(one for one in fit(trace_of(one_stage(durations, 0, lengths))).costs)
    found = (cost.constant, cost.per_token, cost.per_square)
    assert found == pytest.approx((5000, 10, 0.001), rel=1e-3)
    assert cost.error < 1e-4


def test_costs_are_never_negative():
    """Longer sequences take less time: the constant alone is left."""
    cost = fit(trace_of(one_stage([30, 20, 10], 0, [1, 2, 3]))).costs[0]
    assert min(cost.constant, cost.per_token, cost.per_square) >= 0
    assert cost.constant > 0


def test_without_lengths_it_is_said():
    assert any("no lengths" in text for text in fit(cases.trace()).warnings)


def test_long_sequences_are_no_stall():
    """Micro-batch 1 of step 2 is slow in all its ops: a long sequence. Step 3 has a slow op."""
    usual = [10, 10, 10]
    stalled = one_stage(usual, 3)
    rows = [row for row in range(6) if row > 1]
    for row in rows:
        stalled["start"][row] += 30_000
        stalled["end"][row] += 30_000
    stalled["end"][1] += 30_000
    parts = [one_stage(usual, 0), one_stage(usual, 1), one_stage([10, 40, 10], 2), stalled]
    found = list(unusual_steps(trace_of(*parts)))
    assert [(one.step, one.reason, one.op, one.device) for one in found] == [
        (3, "stall", "F0.1", 0)
    ]
