"""Times in single precision are mended, and only steps that are impossible are left out."""

from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.trace.table import KINDS, Trace, resolution_of, tolerance_of
from ppsolve.solver.api import api
from ppsolve.solver.cli.main import build
from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.studies.traces.replay import recorded_step
from tests.studies.traces import cases

STEP_OF_SINGLES = 2**-10
"""Seconds between two single precision numbers from 2**13 to 2**14, about 0.98 ms."""


def rows_in_singles(first=10_000.0, microbatches=16, forward=0.1337, **fields):
    """Return a step of one device, no idle time between its ops, in single precision seconds."""
    names = [("F", mb) for mb in range(microbatches)] + [
        ("B", mb) for mb in range(microbatches)
    ]
    lengths = [forward if kind == "F" else 2 * forward for kind, _ in names]
    starts = first + np.cumsum([0, *lengths[:-1]])
    return [
        {
            **{"step": 0, "stage": 0, "kind": kind, "microbatch": mb, **fields},
            "start_s": float(np.float32(start)),
            "end_s": float(np.float32(start)) + float(np.float32(length)),
        }
        for (kind, mb), start, length in zip(names, starts, lengths, strict=True)
    ]


def overlaps(rows):
    return [a["end_s"] - b["start_s"] for a, b in pairwise(rows)]


def convert(path, out):
    return CliRunner().invoke(build(), ["convert", "trace", str(path), "-o", str(out)])


def test_single_precision_is_read_with_a_warning_and_mended(tmp_path):
    rows = rows_in_singles()
    largest = max(overlaps(rows))
    assert 0.0002 < largest < STEP_OF_SINGLES
    path = cases.table(tmp_path / "t.jsonl", rows)
    trace = read_trace([path])
    (warning,) = trace.notes.warnings
    assert f"overlap by up to {largest:.6f}"[:-1] in warning
    assert "0.000976562 s that the numbers cannot tell apart" in warning
    step = recorded_step(trace)
    assert 0 < step.shift < STEP_OF_SINGLES * 1e9
    assert api.check(step.instance, step.result) == []
    done = convert(path, tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert f"warning: {warning}" in done.stderr


def test_a_step_with_a_real_overlap_is_left_out_and_the_others_are_read(tmp_path):
    wrong = rows_in_singles(step=1)
    wrong[3]["start_s"] -= 4 * STEP_OF_SINGLES
    path = cases.table(
        tmp_path / "t.jsonl",
        [*rows_in_singles(), *wrong, *rows_in_singles(step=2, first=12_000.0)],
    )
    trace = read_trace([path])
    assert np.unique(trace.step).tolist() == [0, 2]
    left_out = [
        text for text in trace.notes.warnings if text.startswith("step 1 is left out: ")
    ]
    (text,) = left_out
    assert "step 1, replica 0: F0.3: starts 0.00" in text and "before F0.2 ends" in text
    done = convert(path, tmp_path / "out")
    assert done.exit_code == 0 and f"warning: {text}" in done.stderr
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        f"step{step}-replica0{end}"
        for step in (0, 2)
        for end in (".json", ".recorded.json")
    ]
    told = CliRunner().invoke(build(), ["diagnose", str(path), "--time-limit", "1"])
    assert told.exit_code == 0 and f"warning: {text}" in told.stderr


def test_all_replicas_of_a_step_are_left_out_together(tmp_path):
    wrong = rows_in_singles(step=1)
    wrong[3]["start_s"] -= 1
    rows = [*rows_in_singles(), *rows_in_singles(replica=1)]
    rows += [*wrong, *rows_in_singles(step=1, replica=1)]
    trace = read_trace([cases.table(tmp_path / "t.jsonl", rows)])
    assert [(step, replica) for step, replica, _ in trace.parts()] == [(0, 0), (0, 1)]


def test_where_no_step_is_left_the_first_one_says_why(tmp_path):
    rows = []
    for step in (3, 4):
        rows += rows_in_singles(step=step)
        rows[-20]["start_s"] -= 1
    with pytest.raises(
        InputError, match=r"step 3, replica 0: F0\.12: starts .* before F0\.4 ends"
    ):
        read_trace([cases.table(tmp_path / "t.jsonl", rows)])


def test_a_step_that_would_be_moved_too_far_is_left_out_of_the_schedules(tmp_path):
    """Each op of device 1 starts 0.29 us early, below 2 % of the median of 15; both add up."""
    late = [
        (k, s, m, at - 0.29 * (s == 1) * (1 + (k == "B"))) for k, s, m, at in cases.PLAN
    ]
    rows = [*cases.rows(), *cases.rows(late, step=1)]
    path = cases.table(tmp_path / "t.jsonl", rows)
    assert np.unique(read_trace([path]).step).tolist() == [0, 1]
    done = convert(path, tmp_path / "out")
    assert done.exit_code == 0
    assert "warning: step 1 is left out: " in done.stderr
    assert len(list((tmp_path / "out").iterdir())) == 2


def a_trace(starts, length, unit="us", name="kineto"):
    """Return forwards of one micro-batch each, nanoseconds."""
    count = len(starts)
    columns = dict.fromkeys(
        ("step", "replica", "stage", "chunk", "device"), [0] * count
    )
    columns |= {"kind": [KINDS.index("F")] * count, "microbatch": list(range(count))}
    columns |= {"start": starts, "end": [start + length for start in starts]}
    return Trace.of(columns, unit=unit, sources=("made",), format=name)


def test_the_tolerance_follows_from_numbers_and_durations():
    # Whole microseconds of a profile, a start and a duration each; too many for singles.
    whole = a_trace([10**15 + 7_001_000, 10**15 + 7_101_000], 33_333_000)
    assert resolution_of(whole) == 1000
    assert tolerance_of(whole) == 100_000 + 1000
    # The ends of a table are rounded as the starts behind them are.
    assert resolution_of(a_trace(whole.start.tolist(), 33_333_000, name="table")) == 0
    assert resolution_of(a_trace([10**15 + 1, 10**15 + 2], 33_333_001)) == 0
    # Singles of seconds near 1000 are 2**-14 apart.
    singles = a_trace([1000_250_000_000, 1000_500_000_000], 125_000_000, unit="s")
    assert resolution_of(singles) == pytest.approx(1e9 * 2**-14)
    assert tolerance_of(singles) == 100_000 + 61_035
    # Ops of 0.25 us: 2 % of that, and numbers that tell nothing apart count up to half of one.
    assert tolerance_of(a_trace([10**15 + 7_001_000] * 2, 1000)) == 20 + 500
