"""Overlaps all over a run are the error of its clocks; one that stands out is a fault."""

import numpy as np
import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.trace.table import KINDS, Trace, noise_of
from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.studies.traces.replay import recorded_step
from tests.paths import DATA
from tests.studies.traces import cases

OP = 100_000
"""Microseconds of every op: 2 % of it are 2 ms."""


def step_of(number, overlaps):
    """Return a step of one device: each second op starts early by one of the overlaps."""
    half = len(overlaps)
    names = [("F", mb) for mb in range(half)] + [("B", mb) for mb in range(half)]
    starts = np.arange(2 * half) * OP
    starts[1::2] -= overlaps
    return [
        {
            **{"step": number, "stage": 0, "kind": kind, "microbatch": mb},
            "start_us": int(start),
            "end_us": int(start) + OP,
        }
        for (kind, mb), start in zip(names, starts, strict=True)
    ]


def noisy(steps=4, most=300):
    """Return steps with 20 overlaps each, evenly spread up to some microseconds."""
    return [
        step_of(number, np.linspace(0, most, 21)[1:].astype(int))
        for number in range(steps)
    ]


def read(tmp_path, steps):
    rows = [row for step in steps for row in step]
    return read_trace([cases.table(tmp_path / "t.jsonl", rows)])


def flat(overlaps_of_steps):
    """Return a trace of one device, nanoseconds, with these overlaps of ops of 0.1 ms."""
    columns = {name: [] for name in ("step", "microbatch", "start", "end")}
    for step, overlaps in enumerate(overlaps_of_steps):
        end = 0
        for mb, overlap in enumerate([0, *overlaps]):
            columns["step"].append(step)
            columns["microbatch"].append(mb)
            columns["start"].append(end - overlap)
            end = end - overlap + 100_000
            columns["end"].append(end)
    zeros = [0] * len(columns["step"])
    columns |= dict.fromkeys(("replica", "stage", "chunk", "device"), zeros)
    columns["kind"] = [KINDS.index("F")] * len(zeros)
    return Trace.of(columns, unit="us", sources=("made",), format="table")


@pytest.mark.parametrize(
    ("overlaps", "noise"),
    [
        ([[10, 20, 30, 40, 50]] * 4, 50),
        ([[10, 20, 30, 40, 50]] * 3 + [[10, 20, 30, 40, 99]], 99),
        ([[10, 20, 30, 40, 50]] * 3 + [[10, 20, 30, 40, 101]], 50),
        ([[10, 20, 30, 40, 50]] * 3 + [[10, 20, 30, 90, 180]], 180),
        ([[1, 20, 30, 40, 50]] * 4, 50),
        ([[10, 20, 30, 40, 50]] * 3 + [[10, 20, 30, 40]], 0),
        ([[1500] * 20] + [[]] * 3, 0),
        ([[1500] * 20] + [[30] * 2] * 3, 30),
        ([[1500] * 20] * 4, 1500),
        ([[2001] * 20] * 4, 0),
    ],
    ids=[
        "none-stands-out",
        "below-twice-the-others",
        "above-twice-the-others",
        "no-gap-to-a-longer-one",
        "gaps-below-the-median-do-not-count",
        "too-few",
        "one-step-alone",
        "one-step-has-most",
        "all-steps",
        "above-two-percent-of-an-op",
    ],
)
def test_noise_reaches_from_the_median_to_the_first_gap(overlaps, noise):
    assert noise_of(flat(overlaps)) == noise


def test_steps_with_the_noise_of_the_run_are_read_with_a_warning(tmp_path):
    """300 us are three times what clocks are forgiven without more evidence."""
    trace = read(tmp_path, noisy())
    assert np.unique(trace.step).tolist() == [0, 1, 2, 3]
    (warning,) = trace.notes.warnings
    assert "overlap by up to 300 us all over the run" in warning


def test_an_overlap_that_stands_out_is_left_out(tmp_path):
    steps = noisy()
    steps[3][7]["start_us"] -= 700
    trace = read(tmp_path, steps)
    assert np.unique(trace.step).tolist() == [0, 1, 2]
    fault = next(
        text for text in trace.notes.warnings if text.startswith("step 3 is left out: ")
    )
    assert (
        "step 3, replica 0: F0.7: starts " in fault
        and "before F0.6 ends on device 0" in fault
    )


def test_a_step_is_no_noise_of_a_run_whose_other_steps_have_none(tmp_path):
    trace = read(
        tmp_path, [*noisy(1), *(step_of(number, [0] * 20) for number in (1, 2, 3))]
    )
    assert np.unique(trace.step).tolist() == [1, 2, 3]


def test_ops_that_overlap_by_more_than_two_percent_are_never_noise(tmp_path):
    with pytest.raises(
        InputError, match=r"step 0, .*starts .* us before .* ends on device 0"
    ):
        read(tmp_path, noisy(most=4000))


def test_steps_of_a_published_run_are_read_and_replayed():
    """Of its 44 steps 16 have overlaps of 102 to 120 us, a third of a thousandth of an op."""
    trace = read_trace([DATA / "traces" / "AR.parquet"])
    assert np.unique(trace.step).tolist() == [16, 404, 408]
    assert 104_755 <= trace.noise <= 120_311
    for _, _, part in trace.parts():
        assert recorded_step(part).shift <= trace.noise
