"""Sixty kinds of broken traces: the files of each, and the words that its error must have."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from tests.studies.traces import cases
from tests.studies.traces.cases import (
    annotation,
    megatron,
    profile,
    rank_events,
    rows,
    table,
)

Maker = Callable[[Path], list[Path]]
CASES: dict[str, tuple[Maker, tuple[str, ...]]] = {}


def case(*words: str) -> Callable[[Maker], Maker]:
    """Register a maker of broken files; the error must have these words."""

    def register(maker: Maker) -> Maker:
        CASES[maker.__name__] = (maker, words)
        return maker

    return register


# Tables: one row is spoilt.
def spoilt(
    name: str, words: tuple[str, ...], *changes: tuple[int, dict[str, Any]]
) -> None:
    def maker(folder: Path) -> list[Path]:
        given = rows()
        for at, change in changes:
            given[at] |= change
        return [table(folder / "t.jsonl", given)]

    CASES[name] = (maker, ("t.jsonl", *words))


spoilt("negative_duration", ("F1.0", "before its start"), (2, {"end_us": 5}))
spoilt("negative_stage", ("expected a stage from 0",), (2, {"stage": -1}))
spoilt("huge_stage", ("expected a stage from 0",), (2, {"stage": 10**9}))
spoilt(
    "negative_microbatch", ("expected a microbatch from 0",), (2, {"microbatch": -3})
)
spoilt("negative_replica", ("expected a replica from 0",), (2, {"replica": -1}))
spoilt("nan_in_a_table", ("line 3.start_us", "finite"), (2, {"start_us": float("nan")}))
spoilt(
    "infinity_in_a_table", ("line 3.end_us", "finite"), (2, {"end_us": float("inf")})
)
spoilt(
    "text_for_a_time", ("line 3.end_us", "expected a number"), (2, {"end_us": "soon"})
)
spoilt("fraction_of_a_stage", ("line 3.stage", "whole number"), (2, {"stage": 0.5}))
spoilt("time_out_of_range", ("line 3.end_us",), (2, {"end_us": 1e18}))
spoilt("unknown_kind", ("line 3.kind", "expected one of F"), (2, {"kind": "FORWARD"}))
spoilt("unknown_column", ("line 3.color", "unknown column"), (2, {"color": 1}))
spoilt("no_stage", ("line 3.stage", "required"), (2, {"stage": None}))
spoilt("two_units", ("line 3.start_ms", "unknown column"), (2, {"start_ms": 1}))
spoilt("duplicated_microbatch", ("F0.0", "twice"), (1, {"microbatch": 0}))
spoilt(
    "overlapping_ops", ("F0.1", "one op at a time"), (1, {"start_us": 5, "end_us": 15})
)
spoilt(
    "clock_jump",
    ("F1.0", "before F0.0 ends"),
    *((at, {"start_us": start, "end_us": end}) for at, start, end in ((2, -90, -80),)),
)
spoilt("backward_before_forward", ("B0.1",), (7, {"start_us": -40, "end_us": -20}))
spoilt(
    "split_and_fused",
    ("B1.0", "expected one form"),
    (6, {"kind": "I"}),
    (7, {"kind": "W"}),
)
spoilt("stage_on_two_devices", ("one device per stage",), (2, {"device": 0}))
spoilt(
    "a_device_without_ops",
    ("device 1 has no op",),
    *((i, {"device": 2}) for i in (2, 3, 4, 5)),
)
spoilt("op_of_centuries", ("longer than 31 years",), (7, {"end_us": 2e15}))


@case("t.jsonl", "B0.1", "missing")
def missing_op(folder: Path) -> list[Path]:
    return [table(folder / "t.jsonl", rows()[:-1])]


@case("t.jsonl", "step 1", "is missing")
def last_step_cut_off(folder: Path) -> list[Path]:
    return [table(folder / "t.jsonl", [*rows(), *rows(step=1)[:-1]])]


@case("t.jsonl", "replica 1", "is missing")
def replica_cut_off(folder: Path) -> list[Path]:
    return [table(folder / "t.jsonl", [*rows(), *rows(replica=1)[:-1]])]


@case("t.jsonl", "step 3", "TF0.0", "without compute ops")
def transfer_alone(folder: Path) -> list[Path]:
    return [table(folder / "t.jsonl", [*rows(), *rows([("TF", 0, 0, 0)], step=3)])]


@case("t.jsonl", "stage 0 has no op", "missing")
def missing_stage(folder: Path) -> list[Path]:
    return [table(folder / "t.jsonl", [row for row in rows() if row["stage"] == 1])]


@case("t.jsonl", "micro-batch 0 has no op")
def missing_microbatch(folder: Path) -> list[Path]:
    return [
        table(folder / "t.jsonl", [row for row in rows() if row["microbatch"] == 1])
    ]


@case("t.jsonl", "expected ops of a pipeline")
def only_transfers(folder: Path) -> list[Path]:
    return [table(folder / "t.jsonl", rows([("TF", 0, 0, 0)]))]


@case("t.jsonl", "step 1", "two runs mixed")
def runs_with_other_stages(folder: Path) -> list[Path]:
    other = [("F", 0, 0, 0), ("B", 0, 0, 10)]
    return [table(folder / "t.jsonl", [*rows(), *rows(other, step=1)])]


@case("b.jsonl", "twice", "a.jsonl")
def one_run_in_two_files(folder: Path) -> list[Path]:
    return [table(folder / name, rows()) for name in ("a.jsonl", "b.jsonl")]


@case("t.jsonl", "line 3", "not valid JSON")
def line_cut_off(folder: Path) -> list[Path]:
    text = table(folder / "t.jsonl", rows()).read_text().splitlines()
    (folder / "t.jsonl").write_text("\n".join([*text[:2], text[2][:40]]))
    return [folder / "t.jsonl"]


@case("t.jsonl", "line 2", "expected an object")
def line_of_a_list(folder: Path) -> list[Path]:
    text = json.dumps(rows()[0])
    (folder / "t.jsonl").write_text(f"{text}\n[1]\n")
    return [folder / "t.jsonl"]


@case("t.csv", "UTF-8")
def not_utf8(folder: Path) -> list[Path]:
    (folder / "t.csv").write_bytes(
        b"stage,kind,microbatch,start_us,end_us\n0,F,0,\xff,1\n"
    )
    return [folder / "t.csv"]


@case("t.csv", "line 2", "expected 5 cells")
def cells_missing(folder: Path) -> list[Path]:
    (folder / "t.csv").write_text("stage,kind,microbatch,start_us,end_us\n0,F\n")
    return [folder / "t.csv"]


@case("t.txt", "looks like none of")
def no_known_format(folder: Path) -> list[Path]:
    (folder / "t.txt").write_text("hello\n")
    return [folder / "t.txt"]


@case("t.json", "the file is empty")
def empty_file(folder: Path) -> list[Path]:
    (folder / "t.json").write_text("")
    return [folder / "t.json"]


@case("t.csv", "such as start_us and end_us")
def no_unit(folder: Path) -> list[Path]:
    (folder / "t.csv").write_text("stage,kind,microbatch,start,end\n0,F,0,0,1\n")
    return [folder / "t.csv"]


@case("no.json", "no such file")
def no_file(folder: Path) -> list[Path]:
    return [folder / "no.json"]


@case("empty", "expected files that end in")
def empty_folder(folder: Path) -> list[Path]:
    (folder / "empty").mkdir()
    return [folder / "empty"]


@case("t.jsonl", "given twice")
def same_file_twice(folder: Path) -> list[Path]:
    return [table(folder / "t.jsonl", rows())] * 2


@case("expected files of one run")
def formats_mixed(folder: Path) -> list[Path]:
    return [
        table(folder / "t.jsonl", rows()),
        profile(folder / "r.json", 0, rank_events(0)),
    ]


# Profiler traces.
def profiles(folder: Path, *events: list[dict[str, Any]], **header: Any) -> list[Path]:
    return [
        profile(folder / f"r{n}.json", n, one, **header) for n, one in enumerate(events)
    ]


@case("r0.json.gz", "cut off")
def truncated_gzip(folder: Path) -> list[Path]:
    path = profile(folder / "r0.json.gz", 0, rank_events(0) * 2000)
    path.write_bytes(path.read_bytes()[:-200])
    return [path]


@case("r0.json.gz", "cut off")
def gzip_of_a_few_bytes(folder: Path) -> list[Path]:
    (folder / "r0.json.gz").write_bytes(gzip.compress(b"{}")[:12])
    return [folder / "r0.json.gz"]


@case("r0.json.gz", "damaged")
def damaged_gzip(folder: Path) -> list[Path]:
    path = profile(
        folder / "r0.json.gz", 0, [annotation(f"x{n}", n, n) for n in range(20_000)]
    )
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = bytes(40)
    path.write_bytes(bytes(data))
    return [path]


@case("r0.json", "after event 3", "cut off")
def json_cut_off(folder: Path) -> list[Path]:
    path = profile(folder / "r0.json", 0, rank_events(0))
    path.write_text(path.read_text()[:-40])
    return [path]


@case("r1.json", "missing", "stage 0")
def first_rank_missing(folder: Path) -> list[Path]:
    return [profile(folder / "r1.json", 1, rank_events(1))]


@case("r0.json", "PP:0SEND_F0", "stage 1", "missing")
def last_rank_missing(folder: Path) -> list[Path]:
    events = [*rank_events(0), annotation("PP:0SEND_F0", 10, 1)]
    return profiles(folder, events, distributedInfo={"rank": 0, "world_size": 4})


@case("r0.json", "3 ranks, 2 files")
def one_of_three_ranks_missing(folder: Path) -> list[Path]:
    info = {"world_size": 3}
    return [
        profile(
            folder / f"r{n}.json",
            n,
            rank_events(n),
            distributedInfo={"rank": n, **info},
        )
        for n in (0, 1)
    ]


@case("r1.json", "rank 0 is also in", "two runs mixed")
def rank_twice(folder: Path) -> list[Path]:
    return [profile(folder / f"r{n}.json", 0, rank_events(n)) for n in (0, 1)]


@case("r1.json", "distributedInfo.rank")
def rank_unknown(folder: Path) -> list[Path]:
    profile(folder / "r1.json", 1, rank_events(1), distributedInfo=None)
    return [profile(folder / "r0.json", 0, rank_events(0)), folder / "r1.json"]


@case("r1.json", "baseTimeNanoseconds")
def base_time_in_one_file(folder: Path) -> list[Path]:
    profile(folder / "r1.json", 1, rank_events(1), baseTimeNanoseconds=None)
    return [profile(folder / "r0.json", 0, rank_events(0)), folder / "r1.json"]


@case("r0.json", "baseTimeNanoseconds", "whole number")
def base_time_of_text(folder: Path) -> list[Path]:
    return profiles(folder, rank_events(0), baseTimeNanoseconds="now")


@case("r0.json", "B0.", "before B1.", "clocks")
def ranks_of_other_days(folder: Path) -> list[Path]:
    profile(folder / "r1.json", 1, rank_events(1), baseTimeNanoseconds=10**15)
    return [profile(folder / "r0.json", 0, rank_events(0)), folder / "r1.json"]


@case("r0.json", "PP:0F0", "3 times")
def one_op_too_often(folder: Path) -> list[Path]:
    events = [*rank_events(0), *rank_events(0)[:1] * 2]
    return profiles(folder, events, rank_events(1))


@case("r0.json", "PP:0F0", "2 times in step 4")
def op_twice_in_a_step(folder: Path) -> list[Path]:
    events = [annotation("ProfilerStep#4", 0, 500), *rank_events(0), rank_events(0)[0]]
    return profiles(folder, events)


@case("r0.json", "profiled steps", "none is")
def ops_outside_all_steps(folder: Path) -> list[Path]:
    return profiles(folder, [annotation("ProfilerStep#4", 5000, 500), *rank_events(0)])


@case("r0.json", "expected ranges", "run ScheduleInterleaved1F1B", "record_function")
def no_ranges(folder: Path) -> list[Path]:
    return profiles(folder, [annotation("aten::mm", 0, 1, cat="cpu_op")])


@case("r0.json", "PP:0F0.dur", "from 0")
def negative_length(folder: Path) -> list[Path]:
    return profiles(folder, [annotation("PP:0F0", 0, -1)])


@case("r0.json", "PP:0F0.ts", "microseconds")
def no_start(folder: Path) -> list[Path]:
    return profiles(folder, [annotation("PP:0F0", None, 1)])


@case("r0.json", "after event 1", "NaN")
def nan_in_a_profile(folder: Path) -> list[Path]:
    return profiles(
        folder, [annotation("a", 0, 1), annotation("PP:0F0", float("nan"), 1)]
    )


@case("r0.json", "overlapped")
def overlapped_range(folder: Path) -> list[Path]:
    return profiles(folder, [annotation("PP:(0F4;7B0)OVERLAP_F_B", 0, 1)])


@case("r0.json", "twice")
def two_lists_of_events(folder: Path) -> list[Path]:
    (folder / "r0.json").write_text('{"traceEvents": [], "traceEvents": []}')
    return [folder / "r0.json"]


# Megatron.
def changed(folder: Path, rank: int, **change: Any) -> list[Path]:
    data = megatron(folder / "m")[rank]
    for key, value in change.items():
        data["7"][key] = value
    (folder / "m" / f"pp_rank_{rank}.json").write_text(json.dumps(data))
    return [folder / "m"]


@case("config.json", "pp_rank_1.json is missing")
def missing_rank_file(folder: Path) -> list[Path]:
    megatron(folder / "m")
    (folder / "m" / "pp_rank_1.json").unlink()
    return [folder / "m"]


@case("config.json", "no such file")
def missing_config(folder: Path) -> list[Path]:
    megatron(folder / "m")
    (folder / "m" / "config.json").unlink()
    return [folder / "m"]


@case("config.json", "num_mbs", "whole number")
def no_number_of_microbatches(folder: Path) -> list[Path]:
    megatron(folder / "m", num_mbs=None)
    return [folder / "m"]


@case("pp_rank_1.json", "iteration 7.fwd_end", "expected 2 calls")
def a_call_is_missing(folder: Path) -> list[Path]:
    return changed(folder, 1, fwd_end=[1])


@case("pp_rank_0.json", "iteration 7.bwd_start[1]", "finite")
def nan_in_a_list(folder: Path) -> list[Path]:
    return changed(folder, 0, bwd_start=[0.04, float("nan")])


@case("pp_rank_0.json", "iteration 7.total", "expected a number")
def no_total(folder: Path) -> list[Path]:
    return changed(folder, 0, total=None)


@case("pp_rank_1.json", "iteration 8", "two runs mixed")
def other_iterations(folder: Path) -> list[Path]:
    data = megatron(folder / "m")[1]
    (folder / "m" / "pp_rank_1.json").write_text(json.dumps({**data, "8": data["7"]}))
    return [folder / "m"]


@case("pp_rank_0.json", "B0.0", "before its start")
def backward_ends_early(folder: Path) -> list[Path]:
    return changed(folder, 0, bwd_end=[0.01, 0.09])


@case("one folder", "two runs mixed")
def ranks_of_two_folders(folder: Path) -> list[Path]:
    for name in "mn":
        megatron(folder / name)
    return [folder / "m" / "pp_rank_0.json", folder / "n" / "pp_rank_1.json"]


@case("pp_rank_0.json", 'expected the number of an iteration, got "last"')
def iteration_by_name(folder: Path) -> list[Path]:
    data = megatron(folder / "m")[0]
    (folder / "m" / "pp_rank_0.json").write_text(json.dumps({"last": data["7"]}))
    return [folder / "m"]


# The straggler study.
def straggler(folder: Path, **change: Any) -> list[Path]:
    plan = cases.PLAN
    names = {"F": "forward-compute", "B": "backward-compute"}
    columns: dict[str, Any] = {
        "dp_rank": np.zeros(len(plan), np.int8),
        "stage": np.array([row[1] for row in plan], np.int8),
        "step": np.full(len(plan), 3),
        "optype": [names[row[0]] for row in plan],
        "start_ts": np.array([row[3] for row in plan], np.float32),
        "duration": np.array(
            [cases.F if row[0] == "F" else cases.B for row in plan], np.float32
        ),
        "mb_id": np.array([row[2] for row in plan], np.int8),
        "mc": np.zeros(len(plan), np.int8),
    }
    for name, value in change.items():
        if value is None:
            del columns[name]
        elif isinstance(value, dict):
            for at, one in value.items():
                columns[name][at] = one
        else:
            columns[name] = value
    parquet.write_table(pa.table(columns), folder / "s.parquet")
    return [folder / "s.parquet"]


@case("s.parquet", "mb_id")
def no_microbatches(folder: Path) -> list[Path]:
    return straggler(folder, mb_id=None)


@case("s.parquet", "start_ts", "finite")
def nan_in_parquet(folder: Path) -> list[Path]:
    return straggler(folder, start_ts={2: np.nan})


@case("s.parquet", "F1.0.duration", "from 0")
def negative_duration_in_parquet(folder: Path) -> list[Path]:
    return straggler(folder, duration={2: -1.0})


@case("s.parquet", "row 2.mb_id", "whole number")
def unfilled_microbatch(folder: Path) -> list[Path]:
    return straggler(folder, mb_id={2: -1})


@case("s.parquet", "optype", "there is none")
def no_compute(folder: Path) -> list[Path]:
    return straggler(folder, optype=["gc"] * len(cases.PLAN))


@case("s.parquet", "row 7", "stage 1 sends forward")
def last_stage_missing(folder: Path) -> list[Path]:
    names = {"F": "forward-compute", "B": "backward-compute"}
    kinds = [names[row[0]] for row in cases.PLAN]
    return straggler(folder, optype=[*kinds[:7], "forward-send"], stage={7: 1})


@case("s.parquet", "not valid Parquet")
def parquet_cut_off(folder: Path) -> list[Path]:
    (path,) = straggler(folder)
    path.write_bytes(path.read_bytes()[:300])
    return [path]


@case("s.parquet", "step 3", "F0.0", "twice")
def two_microbatches_of_one_number(folder: Path) -> list[Path]:
    return straggler(folder, mb_id={1: 0})
