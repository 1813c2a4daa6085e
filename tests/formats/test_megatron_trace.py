"""Megatron's per-rank lists: calls in execution order, clocks without a common zero."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.trace.table import KINDS
from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.formats.megatron import NAMES, interleaved_calls
from ppsolve.solver.kinds.pipeline.grammar import actions_of
from ppsolve.solver.kinds.pipeline.interleaved import interleaved_1f1b
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


def dump(folder, group, *, chunks=2, microbatches=6, named=False):
    """Write the lists of two ranks that run groups of a size; return the moments of ops."""
    ranks = 2
    orders = interleaved_1f1b(ranks, chunks, microbatches, group)
    moments = {}
    for rank, order in enumerate(orders):
        lists = {
            f"{side}_{end}": [] for side in ("fwd", "bwd") for end in ("start", "end")
        }
        names = {f"{side}_{name}": [] for side in ("fwd", "bwd") for name in NAMES}
        now = 0
        for step in order:
            for action in actions_of(step):
                side, length = ("fwd", 30) if action.kind == "F" else ("bwd", 60)
                lists[f"{side}_start"].append(now)
                lists[f"{side}_end"].append(now + length)
                names[f"{side}_minibatch"].append(action.microbatch)
                names[f"{side}_chunk"].append(action.stage // ranks)
                moments[str(action)] = now * 10**6
                now += length
        data = {"1": {**lists, **(names if named else {}), "total": now}}
        (folder / f"pp_rank_{rank}.json").write_text(json.dumps(data))
    return moments


def configure(folder, **numbers):
    numbers = {"pp_size": 2, "vp_size": 2, "num_mbs": 6, **numbers}
    (folder / "config.json").write_text(json.dumps(numbers))


def moments_of(trace):
    return {
        f"{trace.stage[row]}{KINDS[trace.kind[row]]}{trace.microbatch[row]}": trace.start[
            row
        ]
        for row in range(len(trace))
    }


@pytest.mark.parametrize("group", [2, 4, 6])
def test_groups_of_any_size_are_told_from_the_order(tmp_path, group):
    expected = dump(tmp_path, group)
    configure(tmp_path)
    trace = read_trace([tmp_path])
    assert moments_of(trace) == expected
    noted = any(f"in groups of {group} micro" in text for text in trace.notes.warnings)
    assert noted == (group != 2)


def test_orders_in_no_groups_are_refused_by_name(tmp_path):
    dump(tmp_path, 2)
    lists = json.loads((tmp_path / "pp_rank_1.json").read_text())
    lists["1"]["bwd_start"][0] = lists["1"]["fwd_start"][-1] + 1
    (tmp_path / "pp_rank_1.json").write_text(json.dumps(lists))
    configure(tmp_path)
    with pytest.raises(InputError, match="got calls in no groups; lists fwd_minibatch"):
        read_trace([tmp_path])


def test_lists_that_say_micro_batches_and_chunks_win(tmp_path):
    """So do the names of numbers that Primus' simulator has."""
    expected = dump(tmp_path, 4, named=True)
    (tmp_path / "config.json").write_text(
        json.dumps({"pp_size": 2, "vpp_size": 2, "micro_batches": 6})
    )
    assert moments_of(read_trace([tmp_path])) == expected


def test_halves_of_backwards_have_lists_of_their_own(tmp_path):
    lists = {
        "total": 6, "fwd_start": [0], "fwd_end": [1], "bwd_start": [1], "bwd_end": [3],
        "wgrad_start": [4], "wgrad_end": [6],
    }  # fmt: skip
    names = {
        f"{side}_{name}": [0] for side in ("fwd", "bwd", "wgrad") for name in NAMES
    }
    (tmp_path / "pp_rank_0.json").write_text(json.dumps({"1": {**lists, **names}}))
    configure(tmp_path, pp_size=1, vp_size=1, num_mbs=1)
    trace = read_trace([tmp_path])
    assert [trace.op(row) for row in range(3)] == ["F0.0", "I0.0", "W0.0"]


@pytest.mark.parametrize("heuristic", ["zbv", "list-tail"])
@pytest.mark.parametrize("placement", ["vshape", "interleaved"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_chunks_of_a_v_placement_are_told_by_their_times(
    tmp_path, ranks, placement, heuristic
):
    """The clock of each rank begins with its first op, so times of several ranks are no hint."""
    if (heuristic, placement) == ("zbv", "interleaved"):
        heuristic = "interleaved-1f1b"
    times = {"forward": 30, "backward_input": 25, "backward_weight": 20}
    shape = {"num_devices": ranks, "num_microbatches": 6, "stages_per_device": 2}
    instance = ppsolve.PipelineInstance.parse(
        {**shape, "placement": placement, "times": times}
    )
    entry = ppsolve.simulate(instance, heuristic)
    sides = {"F": "fwd", "I": "bwd", "W": "wgrad"}
    expected = {}
    for rank in range(ranks):
        ops = [op for op in entry.schedule.ops if op.device == rank]
        zero = min(op.start for op in ops)
        lists = {"total": int(max(op.end for op in ops) - zero)}
        for op in sorted(ops, key=lambda op: op.start):
            row = {
                "start": int(op.start - zero),
                "end": int(op.end - zero),
                "minibatch": op.microbatch,
                "chunk": op.stage // ranks,
            }
            for name, value in row.items():
                lists.setdefault(f"{sides[op.kind]}_{name}", []).append(value)
            expected[f"{op.stage}{op.kind}{op.microbatch}"] = row["start"] * 10**6
        (tmp_path / f"pp_rank_{rank}.json").write_text(json.dumps({"1": lists}))
    configure(tmp_path, pp_size=ranks)
    trace = read_trace([tmp_path])
    assert moments_of(trace) == expected
    noted = any("on a V placement" in text for text in trace.notes.warnings)
    assert noted == (placement == "vshape")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fwd_chunk": [0, 2] * 6}, "expected whole numbers below 2, got 2"),
        ({"bwd_minibatch": [0]}, "expected the minibatch of each of 12 calls"),
        ({"bwd_chunk": [0] * 12}, "a micro-batch passes a chunk twice"),
    ],
)
def test_names_of_calls_that_are_wrong(tmp_path, change, words):
    dump(tmp_path, 2, named=True)
    lists = json.loads((tmp_path / "pp_rank_0.json").read_text())
    lists["1"].update(change)
    (tmp_path / "pp_rank_0.json").write_text(json.dumps(lists))
    configure(tmp_path)
    with pytest.raises(InputError, match=words):
        read_trace([tmp_path])
