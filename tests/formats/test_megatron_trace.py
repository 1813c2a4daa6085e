"""Megatron's per-rank lists: calls in execution order, clocks without a common zero."""

from __future__ import annotations

import json

import numpy as np

from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.formats.megatron import interleaved_calls
from ppsolve.solver.studies.traces.fits import aligned, boundaries_of, recorded_span
from ppsolve.solver.studies.traces.replay import Recorded, recorded_step
from tests.studies.traces import cases


def test_calls_without_virtual_stages_are_micro_batches():
    assert list(interleaved_calls(4, 1, 6)) == [(0, number) for number in range(6)]


def test_groups_of_micro_batches_pass_chunk_after_chunk():
    """Narayanan et al. 2021, figure 4: two devices, two chunks, four micro-batches."""
    assert list(interleaved_calls(2, 2, 4)) == [
        *((0, 0), (0, 1), (1, 0), (1, 1)),
        *((0, 2), (0, 3), (1, 2), (1, 3)),
    ]


def test_the_last_group_may_be_smaller():
    assert list(interleaved_calls(2, 2, 3))[4:] == [(0, 2), (1, 2)]


def test_backwards_of_virtual_stages_begin_with_the_last_chunk(tmp_path):
    """One device with two chunks and one micro-batch: F0 F1 B1 B0."""
    lists = {
        "total": 10,
        "fwd_start": [0, 1],
        "fwd_end": [1, 2],
        "bwd_start": [2, 4],
        "bwd_end": [4, 6],
    }
    (tmp_path / "pp_rank_0.json").write_text(json.dumps({"1": lists}))
    (tmp_path / "config.json").write_text(
        json.dumps({"pp_size": 1, "vp_size": 2, "num_mbs": 1})
    )
    trace = read_trace([tmp_path])
    assert [trace.op(row) for row in range(4)] == ["F0.0", "F1.0", "B1.0", "B0.0"]
    assert trace.chunk.tolist() == [0, 1, 1, 0]
    assert trace.notes.unexplained == {"rank 0": 0.4}


def test_clocks_are_set_by_the_fastest_transfers(tmp_path):
    """Clock 1 is 1000 us behind; transfers of the plan take no time, so that it is found exactly.

    From rank 0 to 1: F0 ends at 10 and F1.0 starts at 10; back: B1.1 ends and B0.1 starts at 70.
    """
    cases.megatron(tmp_path / "m")
    ((_, _, part),) = read_trace([tmp_path / "m"]).parts()
    (boundary,) = boundaries_of(part)
    assert (boundary.offset, boundary.round_trip) == (1_000_000, 0)
    one = aligned(part)
    assert np.array_equal(np.sort(one.start), np.sort(cases.trace().start))
    assert recorded_span(part) == 90_000
    assert Recorded.of(part).replayed == 90_000
    assert recorded_step(part).result.makespan == 0.09


def test_transfers_are_as_long_in_either_direction(tmp_path):
    """All of rank 1 is 3 us later and B0 5 us later than it could: 3 + 2 = 5 us there and back."""
    late = [
        (kind, stage, mb, at + (3 if stage else 5 if kind == "B" else 0))
        for kind, stage, mb, at in cases.PLAN
    ]
    cases.megatron(tmp_path / "m", late)
    ((_, _, part),) = read_trace([tmp_path / "m"]).parts()
    (boundary,) = boundaries_of(part)
    assert (boundary.offset, boundary.round_trip) == (999_500, 5_000)
