"""Profiler traces: steps, devices, clocks, kernels by correlation, waits, streaming."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api import api
from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.formats.kineto.events import read_events
from ppsolve.solver.studies.traces.replay import Recorded, recorded_step
from tests.paths import DATA
from tests.studies.traces import cases
from tests.studies.traces.cases import annotation, profile


def moments(trace):
    """Return start and end in microseconds by op."""
    return {
        trace.op(row): (trace.start[row] / 1000, trace.end[row] / 1000)
        for row in range(len(trace))
    }


@pytest.mark.parametrize("name", ["r{}.json", "r{}.json.gz"])
def test_ranges_become_ops(tmp_path, name):
    given = [
        profile(tmp_path / name.format(rank), rank, cases.rank_events(rank))
        for rank in (0, 1)
    ]
    trace = read_trace(given)
    assert trace.format == "kineto"
    assert moments(trace) == moments(cases.trace())
    ((_, _, part),) = trace.parts()
    assert Recorded.of(part).replayed == cases.SPAN * 1000


def test_a_bare_list_of_events_is_a_trace(tmp_path):
    path = tmp_path / "one.json"
    path.write_text(
        json.dumps([annotation("PP:0F0", 0, 10), annotation("PP:0B0", 10, 20)])
    )
    assert moments(read_trace([path])) == {"F0.0": (0, 10), "B0.0": (10, 30)}


def test_clocks_are_aligned_by_base_times(tmp_path):
    given = [
        profile(
            tmp_path / f"r{rank}.json",
            rank,
            cases.rank_events(rank, offset=5000 * rank),
            baseTimeNanoseconds=10**18 + 5_000_000 * rank,
        )
        for rank in (0, 1)
    ]
    assert moments(read_trace(given)) == moments(cases.trace())


def test_steps_are_those_of_the_profiler(tmp_path):
    events = [
        annotation(name, 100 * number + at, length)
        for number in (0, 1)
        for name, at, length in (
            (f"ProfilerStep#{number + 5}", 0, 90),
            ("PP:0F0", 10, 10),
            ("PP:0B0", 20, 20),
        )
    ]
    events.append(annotation("PP:0F0", -50, 10))
    trace = read_trace([profile(tmp_path / "r.json", 0, events)])
    assert trace.step.tolist() == [5, 5, 6, 6]
    assert "1 ranges lie outside" in trace.notes.warnings[0]


def test_occurrences_count_steps_where_the_profiler_marks_none(tmp_path):
    events = [
        annotation(name, at, 10) for at, name in enumerate(["PP:0F0", "PP:0B0"] * 3)
    ]
    for at, event in enumerate(events):
        event["ts"] = 10 * at
    assert read_trace([profile(tmp_path / "r.json", 0, events)]).step.tolist() == [
        0,
        0,
        1,
        1,
        2,
        2,
    ]


def test_ranks_with_the_same_stages_are_replicas(tmp_path):
    given = [
        profile(tmp_path / f"r{rank}.json", rank, cases.rank_events(rank // 2))
        for rank in range(4)
    ]
    trace = read_trace(given)
    assert sorted(
        set(zip(trace.replica.tolist(), trace.device.tolist(), strict=True))
    ) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]


def kernel(name, start, length, number, stream=7):
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "ts": start,
        "dur": length,
        "pid": 0,
        "tid": stream,
        "args": {"correlation": number},
    }


def launch(at, number, thread):
    args = {"correlation": number}
    event = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "ts": at,
        "dur": 1,
    }
    return {**event, "pid": 1, "tid": thread, "args": args}


def test_backwards_launched_by_another_thread_are_rebuilt_from_kernels(tmp_path):
    events = [
        annotation("PP:0F0", 0, 5),
        annotation("PP:0F0", 20, 12, cat="gpu_user_annotation", pid=0, tid=7),
        annotation("PP:0B0", 5, 10),
        launch(7, 1, thread=2),
        launch(8, 2, thread=2),
        launch(9, 3, thread=2),
        kernel("gemm", 40, 10, 1),
        kernel("gemm", 55, 6, 2),
        kernel("ncclDevKernel_SendRecv", 70, 100, 3, stream=9),
        launch(50, 4, thread=1),
        kernel("adam", 200, 4, 4),
    ]
    trace = read_trace([profile(tmp_path / "r.json", 0, events)])
    assert moments(trace) == {"F0.0": (0, 12), "B0.0": (20, 41)}
    assert trace.notes.unexplained == {"rank 0": pytest.approx(4 / 20)}


def test_kernels_of_cuda_graphs_name_their_op(tmp_path):
    """A graph is replayed in two steps; torch writes the marks of its kernels into arguments."""

    def marked(name, start, length, op, stream=7):
        event = kernel(name, start, length, start // 100, stream)
        return {**event, "args": event["args"] | {"name": op, "graph node id": 5}}

    events = []
    for step, at in ((3, 0), (4, 100)):
        step_range = annotation(f"ProfilerStep#{step}", at, 95, pid=0, tid=7)
        events += [
            {**step_range, "cat": "gpu_user_annotation"},
            marked("gemm", at + 16, 4, "PP:0F0"),
            marked("gemm", at + 10, 5, "PP:0F0"),
            marked("norm", at + 18, 8, "PP:0F0", stream=8),
            marked("gemm", at + 30, 20 + step, "PP:0B0"),
            marked("ncclDevKernel_SendRecv", at + 60, 20, "PP:0B0"),
            marked("fill", at + 85, 2, "zeros"),
        ]
    trace = read_trace([profile(tmp_path / "r.json", 0, events)])
    parts = {step: moments(part) for step, _, part in trace.parts()}
    assert parts == {
        3: {"F0.0": (0, 16), "B0.0": (20, 43)},
        4: {"F0.0": (0, 16), "B0.0": (20, 44)},
    }


def test_streams_of_communication_do_not_lengthen_an_op(tmp_path):
    gpu = {"cat": "gpu_user_annotation", "pid": 0}
    events = [
        annotation("PP:0F0", 0, 5),
        annotation("PP:0B0", 5, 5),
        annotation("PP:0F0", 10, 10, **gpu, tid=7),
        annotation("PP:0F0", 10, 80, **gpu, tid=9),
        annotation("PP:0B0", 20, 10, **gpu, tid=7),
        launch(1, 1, thread=1),
        kernel("gemm", 11, 5, 1),
        kernel("ncclDevKernel_SendRecv", 12, 70, 2, stream=9),
    ]
    trace = read_trace([profile(tmp_path / "r.json", 0, events)])
    assert moments(trace) == {"F0.0": (0, 10), "B0.0": (10, 20)}


def test_ranges_on_the_gpu_alone_are_enough(tmp_path):
    gpu = {"cat": "gpu_user_annotation", "pid": 0}
    events = [
        annotation("PP:0F0", 10, 10, **gpu, tid=7),
        annotation("PP:0F0", 12, 80, **gpu, tid=9),
        annotation("PP:0F0", 15, 7, **gpu, tid=8),
        annotation("PP:0B0", 30, 10, **gpu, tid=7),
        kernel("ncclDevKernel_SendRecv", 12, 70, 2, stream=9),
    ]
    trace = read_trace([profile(tmp_path / "r.json", 0, events)])
    assert moments(trace) == {"F0.0": (0, 12), "B0.0": (20, 30)}


def test_a_wait_inside_a_range_does_not_count(tmp_path):
    """Rank 1 opens the range of F0 at 0, gets its input at 10 and computes from 12."""
    late = [event for event in cases.rank_events(1) if event["name"] != "PP:1F0"]
    late += [annotation("PP:1F0", 0, 20), annotation("aten::mm", 12, 8, cat="cpu_op")]
    late += [annotation("c10d::recv_", 1, 2, cat="cpu_op")]
    given = [
        profile(tmp_path / "r0.json", 0, cases.rank_events(0)),
        profile(tmp_path / "r1.json", 1, late),
    ]
    trace = read_trace(given)
    assert moments(trace)["F1.0"] == (12, 20)
    assert any("1 of 8 ops waited" in text for text in trace.notes.warnings)


def test_memory_does_not_grow_with_the_file(tmp_path):
    """8 MB of events with a window of 64 KB: the peak is far below the file."""
    path = tmp_path / "large.json"
    event = json.dumps(
        {"ph": "X", "cat": "python_function", "name": "f" * 900, "ts": 1, "dur": 1}
    )
    with path.open("w") as file:
        file.write('{"traceEvents": [' + event)
        for _ in range(8_000):
            file.write("," + event)
        file.write('], "baseTimeNanoseconds": 5}')
    seen = []
    tracemalloc.start()
    header = read_events(path, lambda one: seen.append(one["ts"]), window=2**16)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert header == {"baseTimeNanoseconds": 5}
    assert len(seen) == 8_001
    assert path.stat().st_size > 7_000_000
    assert peak < 1_500_000


@pytest.mark.parametrize("window", [1, 2, 3, 7, 64])
def test_values_may_lie_across_windows(tmp_path, window):
    path = tmp_path / "t.json"
    path.write_text(
        '{ "a": -12.5e2, "traceEvents" : [ {"x": "ü]}"}, 3, {"y": [1, 22]} ] , "b": 77}'
    )
    seen: list = []
    assert read_events(path, seen.append, window) == {"a": -1250.0, "b": 77}
    assert seen == [{"x": "ü]}"}, {"y": [1, 22]}]


def test_overlapped_ranges_are_refused(tmp_path):
    events = [*cases.rank_events(0), annotation("PP:(0F4;7B0)OVERLAP_F_B", 0, 1)]
    with pytest.raises(InputError, match="overlapped"):
        read_trace([profile(tmp_path / "r.json", 0, events)])


@pytest.mark.parametrize(("name", "stages"), [("1f1b", 4), ("interleaved", 8)])
def test_real_runs_of_torch(name, stages):
    """Four processes: whole, replayed within 3 %, and valid as recorded."""
    folder = DATA / "traces" / "torch"
    trace = read_trace(sorted(folder.glob(f"{name}_rank*.json.gz")))
    assert set(trace.stage.tolist()) == set(range(stages))
    assert trace.device.tolist() == (trace.stage % 4).tolist()
    assert set(trace.notes.unexplained) == {f"rank {rank}" for rank in range(4)}
    assert all(0 < share < 0.06 for share in trace.notes.unexplained.values())
    ((_, _, part),) = trace.parts()
    recorded = Recorded.of(part)
    assert recorded.replayed / recorded.span == pytest.approx(1, abs=0.03)
    step = recorded_step(part)
    assert api.check(step.instance, step.result) == []
