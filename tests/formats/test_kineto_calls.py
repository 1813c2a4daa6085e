"""Profiler traces of Megatron-LM: stages and micro-batches of calls by their order."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.trace.table import Trace
from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.formats.kineto.calls import schedule_of
from ppsolve.solver.studies.traces.replay import Recorded
from tests.studies.traces import cases
from tests.studies.traces.cases import annotation, profile

Op = tuple[str, int, int]
"""Kind, stage, micro-batch."""

F, B = 10, 20
FRAMES = {
    "F": "megatron/core/pipeline_parallel/schedules.py(403): forward_step",
    "B": "megatron/core/pipeline_parallel/schedules.py(540): backward_step",
}


def table(microbatches: int, chunks: int, group: int) -> list[tuple[int, int]]:
    """Return (micro-batch, chunk), as ``get_schedule_table`` of Megatron-LM does."""
    found = []
    for first in range(0, microbatches, group):
        last = min(first + group, microbatches)
        found += [
            (number, chunk) for chunk in range(chunks) for number in range(first, last)
        ]
    return found


def order(
    rank: int, ranks: int, chunks: int, microbatches: int, group: int
) -> list[Op]:
    """Return the ops of a rank: its warm-up forwards, then 1F1B, then the other backwards."""
    numbers = table(microbatches, chunks, group if chunks > 1 else microbatches)
    warmup = ranks - rank - 1
    if chunks > 1:
        warmup = 2 * warmup + (chunks - 1) * group
    warmup = min(warmup, len(numbers))
    forwards = [("F", chunk * ranks + rank, number) for number, chunk in numbers]
    last = chunks - 1
    backwards = [
        ("B", (last - chunk) * ranks + rank, number) for number, chunk in numbers
    ]
    steady = [
        op for pair in zip(forwards[warmup:], backwards, strict=False) for op in pair
    ]
    return forwards[:warmup] + steady + backwards[len(numbers) - warmup :]


def starts(orders: list[list[Op]], stages: int) -> dict[Op, int]:
    """Return when each op starts, as early as possible; transfers are free."""
    ends: dict[Op, int] = {}
    free, done = [0] * len(orders), [0] * len(orders)
    while len(ends) < sum(map(len, orders)):
        for rank, ops in enumerate(orders):
            for kind, stage, number in ops[done[rank] :]:
                needed = (
                    ("F", stage - 1, number)
                    if kind == "F"
                    else ("B", stage + 1, number)
                )
                if kind == "B" and stage == stages - 1:
                    needed = ("F", stage, number)
                if needed[1] >= 0 and needed not in ends:
                    break
                free[rank] = max(free[rank], ends.get(needed, 0)) + (
                    F if kind == "F" else B
                )
                ends[kind, stage, number] = free[rank]
                done[rank] += 1
    return {op: end - (F if op[0] == "F" else B) for op, end in ends.items()}


def events(
    ops: list[Op], begun: dict[Op, int], form: str, first: int = 0
) -> list[dict[str, Any]]:
    """Return what the profiler sees of a rank, whose CPU runs 5 us ahead of its GPU."""
    found: list[dict[str, Any]] = []
    gpu = {"pid": 0, "cat": "kernel"}
    for number, op in enumerate(ops, first):
        way, length = op[0], F if op[0] == "F" else B
        name = "forward_step" if way == "F" else "backward_step"
        at = begun[op]
        kernel = {**gpu, "tid": 7, "args": {"correlation": number}}
        sent = {**gpu, "tid": 9, "args": {"correlation": 10_000 + number}}
        if form == "frames":
            # The model's own function of the same name runs inside that of the schedule.
            found.append(annotation(FRAMES[way], at - 5, 8, cat="python_function"))
            if way == "F":
                inner = "pretrain_gpt.py(120): forward_step"
                found.append(annotation(inner, at - 4, 1, cat="python_function"))
        elif form == "gpu":
            on = {"cat": "gpu_user_annotation", "pid": 0}
            found.append(annotation(name, at, length, **on, tid=7))
            found.append(annotation(name, at + length, 40, **on, tid=9))
        else:
            found.append(annotation(name, at - 5, 8, cat=form))
        if form != "gpu":
            launched = {"cat": "cuda_runtime", "tid": 2, "args": kernel["args"]}
            found.append(annotation("cudaLaunchKernel", at - 1, 1, **launched))
        found.append(annotation("gemm", at, length, **kernel))
        found.append(annotation("ncclDevKernel_SendRecv", at + length, 40, **sent))
    return found


def run(
    folder: Path, ranks: int, chunks: int, microbatches: int, *, form: str = "user_annotation",
    group: int | None = None, replicas: int = 1, steps: int = 1,
) -> tuple[list[Path], dict[str, tuple[int, int]]]:  # fmt: skip
    """Write the files of a run; return them and the moments of its ops."""
    orders = [
        order(rank, ranks, chunks, microbatches, group or ranks)
        for rank in range(ranks)
    ]
    begun = starts(orders, ranks * chunks)
    whole = max(begun.values()) + B + 100
    files = []
    for rank, copy in itertools.product(range(ranks), range(replicas)):
        seen = []
        for step in range(steps):
            later = {op: at + 100 + step * whole for op, at in begun.items()}
            mark = annotation(f"ProfilerStep#{step}", step * whole + 90, whole)
            seen += [
                *([mark] if steps > 1 else []),
                *events(orders[rank], later, form, 1000 * step),
            ]
        number = rank * replicas + copy
        files.append(profile(folder / f"rank-{number}.json", number, seen))
    expected = {
        f"{kind}{stage}.{mb}": (at, at + (F if kind == "F" else B))
        for (kind, stage, mb), at in begun.items()
    }
    return files, expected


def moments(trace: Trace) -> dict[str, tuple[int, int]]:
    zero = int(trace.start.min())
    return {
        trace.op(row): (
            (trace.start[row] - zero) // 1000,
            (trace.end[row] - zero) // 1000,
        )
        for row in range(len(trace))
    }


@pytest.mark.parametrize("form", ["user_annotation", "frames", "gpu", "nvtx"])
@pytest.mark.parametrize(
    ("ranks", "chunks", "microbatches"),
    [(1, 1, 3), (2, 1, 2), (4, 1, 8), (4, 1, 2), (4, 2, 8), (2, 3, 4)],
)
def test_calls_are_the_ops_of_the_schedule(tmp_path, form, ranks, chunks, microbatches):
    files, expected = run(tmp_path, ranks, chunks, microbatches, form=form)
    trace = read_trace(files, chunks=chunks)
    assert moments(trace) == expected
    assert trace.device.tolist() == (trace.stage % ranks).tolist()
    (text,) = trace.notes.warnings[:1]
    assert "k-th call of a rank is taken for the k-th op" in text
    assert f"of {ranks} ranks" in text
    assert (f"{chunks} chunks each, {microbatches} micro-batches" in text) == (
        chunks > 1
    )
    ((_, _, part),) = trace.parts()
    assert Recorded.of(part).replayed == 1000 * (
        max(end for _, end in expected.values())
    )


def test_any_size_that_megatron_runs_is_told_from_its_calls(tmp_path):
    sizes = [
        (p, v, p * k + more)
        for p in (2, 3)
        for v in (1, 2, 3)
        for k in (1, 2)
        for more in (0, 1)
    ]
    for number, (ranks, chunks, microbatches) in enumerate(sizes):
        if chunks > 1 and microbatches % ranks:
            continue  # Megatron refuses it
        (tmp_path / str(number)).mkdir()
        files, expected = run(tmp_path / str(number), ranks, chunks, microbatches)
        assert moments(read_trace(files, chunks=chunks)) == expected


def test_all_schedules_that_fit_are_named_and_none_is_taken(tmp_path):
    """2 chunks and 6 micro-batches in groups of 4 are called as 3 and 4 in groups of 2 are."""
    files, expected = run(tmp_path, 2, 2, 6, group=4)
    with pytest.raises(InputError) as error:
        read_trace(files)
    text = str(error.value)
    assert "2 chunks each, 6 micro-batches in groups of 4; interleaved" in text
    assert (
        "3 chunks each, 4 micro-batches in groups of 2: say the stages of each rank (--chunks)"
        in text
    )
    assert moments(read_trace(files, chunks=2)) == expected
    assert max(read_trace(files, chunks=3).stage) == 5
    with pytest.raises(
        InputError, match=r"say the stages of each rank \(--chunks\): 2 or 3"
    ):
        read_trace(files, chunks=4)


def test_stages_of_ranks_are_said_of_profiles_alone(tmp_path):
    cases.megatron(tmp_path / "m")
    with pytest.raises(InputError, match="files of the format megatron say the stages"):
        read_trace([tmp_path / "m"], chunks=2)


def test_groups_may_be_larger_than_the_pipeline(tmp_path):
    files, expected = run(tmp_path, 2, 2, 8, group=4)
    trace = read_trace(files)
    assert moments(trace) == expected
    assert "in groups of 4" in trace.notes.warnings[0]


def test_ranks_with_the_same_calls_are_replicas_and_steps_are_the_profilers(tmp_path):
    files, expected = run(tmp_path, 2, 2, 4, replicas=3, steps=2)
    trace = read_trace(files[::-1])
    assert sorted(set(trace.replica.tolist())) == [0, 1, 2]
    for step in (0, 1):
        assert (
            moments(trace.where((trace.step == step) & (trace.replica == 2)))
            == expected
        )
    assert trace.sources[0].endswith("rank-0.json")


def test_names_with_ids_win(tmp_path):
    """Of a hook's range and the frame inside it the range counts."""
    named = [annotation("PP:0F1", 0, 10), annotation("PP:0B1", 10, 20)]
    named += [annotation("PP:0F0", 30, 10), annotation("PP:0B0", 40, 20)]
    frames = [annotation(FRAMES[one["name"][4]], one["ts"] + 1, 5) for one in named]
    trace = read_trace([profile(tmp_path / "r.json", 0, [*named, *frames])])
    assert moments(trace) == {
        "F0.1": (0, 10),
        "B0.1": (10, 30),
        "F0.0": (30, 40),
        "B0.0": (40, 60),
    }
    assert not any("k-th" in text for text in trace.notes.warnings)


def damaged(folder: Path, change: Any) -> list[Path]:
    files, _ = run(folder, 2, 1, 4)
    begun = starts([order(rank, 2, 1, 4, 2) for rank in (0, 1)], 2)
    seen = change(events(order(1, 2, 1, 4, 2), begun, "user_annotation"))
    return [files[0], profile(folder / "rank-1.json", 1, seen)]


def without(name: str, count: int) -> Any:
    """Return a function that leaves out the last calls of a name."""

    def change(seen: list[dict[str, Any]]) -> list[dict[str, Any]]:
        mine = [at for at, one in enumerate(seen) if one["name"] == name][-count:]
        return [one for at, one in enumerate(seen) if at not in mine]

    return change


def test_ranges_on_the_gpu_count_where_no_kernel_tells_its_launch(tmp_path):
    begun = starts([order(0, 1, 1, 3, 1)], 1)
    on_cpu = events(order(0, 1, 1, 3, 1), begun, "user_annotation")
    on_gpu = [
        one for one in events(order(0, 1, 1, 3, 1), begun, "gpu") if one["tid"] == 7
    ]
    calls = [one for one in on_cpu if one["cat"] == "user_annotation"]
    trace = read_trace([profile(tmp_path / "a.json", 0, [*calls, *on_gpu])])
    expected = moments(read_trace([profile(tmp_path / "b.json", 0, on_gpu)]))
    assert moments(trace) == expected
    # One is missing, so that the others are of no known call; kernels say it all.
    late = [one for one in on_gpu if one["cat"] != "kernel"][1:]
    trace = read_trace([profile(tmp_path / "c.json", 0, [*on_cpu, *late])])
    assert moments(trace) == expected


@pytest.mark.parametrize("group", [2, 10])
def test_groups_that_megatron_refuses_are_refused(group):
    """Groups smaller than the pipeline of four, and larger than the eight micro-batches."""
    rows = {
        f"r{r}": "".join(op[0] for op in order(r, 4, 2, 8, group)) for r in range(4)
    }
    with pytest.raises(InputError, match="neither 1F1B nor interleaved"):
        schedule_of(rows)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            without("backward_step", 1),
            "rank-1.json: step 0: 4 calls of forward_step and 3 of back",
        ),
        (
            lambda seen: without("forward_step", 1)(without("backward_step", 1)(seen)),
            "expected 4",
        ),
        (
            lambda seen: [{**one, "dur": 30} for one in seen],
            "expected one call at a time",
        ),
        (
            lambda seen: [*seen, annotation("PP:1F0", 0, 5)],
            "expected named ranges as in",
        ),
    ],
)
def test_calls_that_are_no_step_are_refused(tmp_path, change, text):
    with pytest.raises(InputError, match=text):
        read_trace(damaged(tmp_path, change))


def test_other_orders_are_refused_with_what_was_seen(tmp_path):
    files, _ = run(tmp_path, 4, 1, 8)
    with pytest.raises(
        InputError, match=r"neither 1F1B .* \(4, 3, 2 forwards before"
    ) as error:
        read_trace(files[:3])
    assert "files of all pipeline ranks" in str(error.value)


def test_the_size_of_the_pipeline_is_read_where_it_is_said(tmp_path):
    """Two of four ranks look like a pipeline of two with larger groups."""
    files, _ = run(tmp_path, 4, 2, 8)
    group = {"pg_desc": "PIPELINE_MODEL_PARALLEL_GROUP", "pg_size": 4}
    for number, file in enumerate(files):
        data = json.loads(file.read_text())
        about = {
            "rank": number,
            "world_size": 4,
            "pg_config": [{"pg_desc": "other"}, group],
        }
        file.write_text(json.dumps({**data, "distributedInfo": about}))
    assert set(read_trace(files).stage.tolist()) == set(range(8))
    with pytest.raises(InputError, match="give the files of all 4 pipeline ranks"):
        read_trace(files[:2])


def test_one_rank_of_several_is_refused(tmp_path):
    files, _ = run(tmp_path, 4, 1, 8)
    with pytest.raises(InputError, match="files of all pipeline ranks"):
        read_trace(files[:1])


def test_several_steps_without_marks_are_refused(tmp_path):
    files = []
    for rank in (0, 1):
        ops = order(rank, 2, 1, 4, 2)
        begun = starts([order(one, 2, 1, 4, 2) for one in (0, 1)], 2)
        seen = events(ops, begun, "gpu")
        again = [{**one, "ts": one["ts"] + 1000} for one in seen]
        files.append(profile(tmp_path / f"rank-{rank}.json", rank, [*seen, *again]))
    with pytest.raises(InputError, match="ProfilerStep# around steps"):
        read_trace(files)


def test_sizes_that_calls_cannot_tell_are_refused(tmp_path):
    """12 forwards before the first backward, of 24: 2 chunks in groups of 12, or 3 of 6."""
    files, _ = run(tmp_path, 2, 2, 12, group=12)
    with pytest.raises(InputError, match=r"fit .*2 chunks.*; .*3 chunks"):
        read_trace(files)
