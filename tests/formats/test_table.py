"""Our own table of ops: what its columns mean, and that writing and reading agree."""

from __future__ import annotations

import numpy as np
import pytest

from ppsolve.models.core.problem import FREE
from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.trace.table import COLUMNS, OPTIONAL
from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.formats.table import read_table, write_table
from tests.studies.traces import cases


def same(one, other):
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in (*COLUMNS, *OPTIONAL)
    )


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize("is_aligned", [True, False])
def test_what_is_written_is_read_again(tmp_path, suffix, is_aligned):
    given = cases.trace(length=[5, 7, 5, 5, 7, 7, 5, 7])
    given = type(given)(**{**vars(given), "is_aligned": is_aligned})
    path = tmp_path / f"trace{suffix}"
    path.write_text(write_table(given, suffix))
    found = read_trace([path])
    assert same(found, given)
    assert found.is_aligned == is_aligned
    assert found.unit == "us"


def test_only_five_columns_are_needed(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "stage,kind,microbatch,start_ms,end_ms\n0,F,0,0,1\n0,B,0,1.0000005,2.5\n"
    )
    found = read_table([path])
    assert (
        found.device.tolist() == found.chunk.tolist() == found.step.tolist() == [0, 0]
    )
    assert found.start.tolist() == [0, 1_000_000]
    assert found.end.tolist() == [1_000_000, 2_500_000]
    assert found.length.tolist() == [FREE, FREE]


def test_chunks_count_the_stages_of_a_device(tmp_path):
    path = tmp_path / "t.csv"
    text = "stage,kind,microbatch,start_ns,end_ns,device\n"
    path.write_text(
        text + "".join(f"{s},F,0,{s},{s + 1},{s % 2}\n" for s in (3, 0, 2, 1))
    )
    assert read_table([path]).chunk.tolist() == [1, 0, 1, 0]


def test_two_files_are_one_run(tmp_path):
    rows = cases.rows()
    files = [cases.table(tmp_path / f"{i}.jsonl", rows[i::2]) for i in (0, 1)]
    assert len(read_trace(files)) == len(rows)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no row"),
        ("stage,kind,microbatch,start_us,end_ms\n0,F,0,0,1\n", "one unit"),
        ("stage,kind,microbatch\n0,F,0\n", "there is none"),
        ("stage,stage,kind,microbatch,start_us,end_us\n0,0,F,0,0,1\n", "appears twice"),
        (
            "stage,kind,microbatch,start_us,end_us\n0,F,0,0\n",
            "line 2: expected 5 cells",
        ),
        ("stage,kind,microbatch,start_us,end_us\n0,F,,0,1\n", "line 2.microbatch"),
        ("stage,kind,microbatch,start_us,end_us\n0,X,0,0,1\n", "line 2.kind"),
        ("stage,kind,microbatch,start_us,end_us\n0.5,F,0,0,1\n", "line 2.stage"),
        ("stage,kind,microbatch,start_us,end_us\n0,F,0,nan,1\n", "line 2.start_us"),
        (
            "stage,kind,microbatch,start_us,end_us,colour\n0,F,0,0,1,red\n",
            "line 2.colour",
        ),
        ('stage,kind,microbatch,start_us,end_us\n0,F,0,"0,1\n', "not valid CSV"),
    ],
)
def test_errors_name_line_and_column(tmp_path, text, says):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=says) as caught:
        read_table([path])
    assert str(path) in str(caught.value)
