"""Fits on traces whose numbers are known: what goes in comes out, and what cannot is said."""

from __future__ import annotations

import pytest

from ppsolve.models.studies.trace.table import KINDS, Trace, checked
from ppsolve.solver.studies.traces.fits import fit, unusual_steps
from ppsolve.solver.studies.traces.replay import median_instance
from tests.kinds.pipeline.runtimes.waiting import simulated
from tests.studies.traces import cases


def columns(plan, step=0):
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
    }


def trace_of(*parts):
    joined = {
        name: [value for part in parts for value in part[name]] for name in parts[0]
    }
    return checked(Trace.of(joined, unit="us", sources=("made",), format="table"))


def one_stage(durations, step=0, gap=0.0):
    """Return forwards then backwards of one stage, with a gap between ops."""
    plan, at = [], 0.0
    for kind, factor in (("F", 1), ("B", 2)):
        for microbatch, duration in enumerate(durations):
            plan.append((kind, 0, microbatch, at, factor * duration))
            at += factor * duration + gap
    return columns(plan, step)


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
    assert fits.latency == 0


def test_a_send_that_waits_for_a_slower_neighbour_is_not_held():
    """Stage 0 of 10 us sends F1 at 20; stage 1 of 30 takes it at 40, as it does F2 at 70."""
    plan = [
        *(("F", 0, 0, 0, 10), ("F", 0, 1, 10, 10), ("F", 0, 2, 40, 10)),
        *(("F", 1, 0, 10, 30), ("F", 1, 1, 40, 30), ("F", 1, 2, 70, 30)),
        *(("B", 1, 0, 100, 5), ("B", 1, 1, 105, 5), ("B", 1, 2, 110, 5)),
        *(("B", 0, 0, 105, 5), ("B", 0, 1, 110, 5), ("B", 0, 2, 115, 5)),
    ]
    fits = fit(trace_of(columns(plan)))
    assert {one.held for one in fits.stage_times} == {0.0}


def test_a_neighbour_that_waits_itself_is_no_end_of_the_wait():
    """Stages 0 and 1 of 2 us wait for stage 2 of 56, which takes a micro-batch at 60, 116, 172."""
    starts = [
        [0, 2, 4, 60, 116, 172],
        [2, 4, 60, 116, 172, 228],
        [4, 60, 116, 172, 228, 284],
    ]
    plan = [
        ("F", stage, number, start, 56 if stage == 2 else 2)
        for stage, row in enumerate(starts)
        for number, start in enumerate(row)
    ]
    plan += [
        ("B", stage, number, 340 + 5 * (number + 2 - stage), 5)
        for stage in (2, 1, 0)
        for number in range(6)
    ]
    fits = fit(trace_of(columns(plan)))
    assert {one.held for one in fits.stage_times} == {0.0}


@pytest.mark.parametrize("overlap", ["steady", "all", "none"])
def test_waits_of_megatron_lm_are_no_time_of_stages(overlap):
    """Its default waits in the warm-up before ops whose input is there."""
    times = {"F": [5, 9, 3, 8, 7, 2], "B": [12, 6, 19, 8, 10, 11]}
    shape = {"p": 3, "v": 2, "m": 7, "group": 4, "combined": False, **times}
    run = simulated({**shape, "overlap": overlap, "rendezvous": True, "latency": 0})
    plan = [
        (step.kind, step.stage, step.microbatch, start, run.end[step] - start)
        for step, start in run.start.items()
    ]
    trace = columns(plan)
    trace["device"] = [stage % 3 for stage in trace["stage"]]
    trace["chunk"] = [stage // 3 for stage in trace["stage"]]
    fits = fit(trace_of(trace))
    assert {one.held for one in fits.stage_times} == {0.0}


def test_latency_is_half_of_the_fastest_round_trip():
    """Every transfer takes 3 us: F1 3 us after F0, B0 3 us after B1."""
    plan = [
        ("F", 0, 0, 0, 10),
        ("F", 1, 0, 13, 10),
        ("B", 1, 0, 23, 20),
        ("B", 0, 0, 46, 20),
    ]
    assert fit(trace_of(columns(plan))).latency == 3000


def test_latency_is_the_median_of_recorded_transfers():
    """Forwards leave stage 0 for 3, 4 and 9 us, in a step each."""
    plan = [
        ("F", 0, 0, 0, 10),
        ("F", 1, 0, 10, 10),
        ("B", 1, 0, 20, 20),
        ("B", 0, 0, 40, 20),
    ]
    steps = [
        columns([*plan, ("TF", 0, 0, 0, time)], step)
        for step, time in enumerate((3, 9, 4))
    ]
    assert fit(trace_of(*steps)).latency == 4000


def test_long_sequences_are_no_stall():
    """Micro-batch 1 of step 2 is slow in all its ops: a long sequence. Step 3 has a slow op."""
    usual = [10, 10, 10]
    stalled = one_stage(usual, 3)
    rows = [row for row in range(6) if row > 1]
    for row in rows:
        stalled["start"][row] += 30_000
        stalled["end"][row] += 30_000
    stalled["end"][1] += 30_000
    parts = [
        one_stage(usual, 0),
        one_stage(usual, 1),
        one_stage([10, 40, 10], 2),
        stalled,
    ]
    found = list(unusual_steps(trace_of(*parts)))
    assert [(one.step, one.reason, one.op, one.device) for one in found] == [
        (3, "stall", "F0.1", 0)
    ]
