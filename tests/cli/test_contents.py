"""A file that a command cannot read is named for what it is, with the command that reads it."""

from __future__ import annotations

import gzip
import json
import pickle
import re
from typing import Any

import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve.models.documents import contents
from ppsolve.solver.cli.main import build

TINY = {
    "kind": "pipeline",
    "name": "tiny",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 1, "backward": 2},
}
TRACE = {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": []}
CONFIG = {
    "num_stages": 1,
    "num_batches": 1,
    "forward_times": [1],
    "backward_times": [1],
}
RECORD = {
    "schema": 1,
    "key": "k",
    "instance": "tiny",
    "family": "f",
    "status": "OPTIMAL",
}
FILES: dict[str, tuple[str | bytes, str]] = {
    "yaml": (
        "# a config\nnum_stages: 4\nnum_batches: 8\n",
        "ppsolve convert visualizer",
    ),
    "yaml document": ("---\nnum_stages: 4\n", "ppsolve convert visualizer"),
    "svg": (
        '<?xml version="1.0"?>\n<!DOCTYPE svg>\n<svg width="1">\n',
        "ppsolve show RESULT --svg",
    ),
    "png": (b"\x89PNG\r\n\x1a\n\xff", "ppsolve show RESULT"),
    "html": ("<!doctype html>\n<title>x</title>\n", "ppsolve report RESULT"),
    "pickle": (pickle.dumps({"a": [1]}), "ppsolve convert pipefisher --allow-pickle"),
    "old pickle": (
        pickle.dumps({"a": [1]}, 0),
        "ppsolve convert pipefisher --allow-pickle",
    ),
    "kineto": (json.dumps(TRACE), "ppsolve convert kineto-overlap FILE"),
    "kineto.gz": (
        gzip.compress(json.dumps(TRACE).encode()),
        "ppsolve convert trace FILE",
    ),
    "perfetto": (
        '{"displayTimeUnit":"ns","traceEvents":[\n\n]}\n',
        "ppsolve convert trace FILE",
    ),
    "config": (json.dumps(CONFIG), "ppsolve convert visualizer FILE"),
    "torch csv": ("0F0,0F1,,0B0,0B1\n", "ppsolve convert torch-csv"),
    "table": ("step,stage,start_us,end_us\n0,0,0,1\n", "ppsolve convert trace"),
    "observations": ("num_nodes,num_replicas\n1,1\n", "ppsolve goodput fit"),
    "records": (2 * (json.dumps(RECORD) + "\n"), "ppsolve bench report FILE"),
    "record": (json.dumps(RECORD), "ppsolve bench report FILE"),
    "plan": ('{"kind": "plan"}', "ppsolve plan"),
    "curve": ('{"kind": "curve"}', "ppsolve show"),
}


def run(*words: Any) -> tuple[int, str]:
    done = CliRunner().invoke(build(), list(map(str, words)))
    return done.exit_code, done.stderr


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    instance = ppsolve.parse_instance(TINY)
    (tmp_path / "result.json").write_text(ppsolve.optimize(instance).model_dump_json())
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_where_an_instance_is_expected(here, name):
    content, command = FILES[name]
    (here / "file").write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    for words in (
        ("optimize", "file"),
        ("compare", "file"),
        ("check", "file", "result.json"),
    ):
        code, said = run(*words)
        assert code == 2
        assert re.match("error: file: .*this (is|looks like) ", said), said
        assert f"`{command}" in said


@pytest.mark.parametrize(
    "name", ["yaml", "svg", "pickle", "kineto", "torch csv", "record"]
)
def test_where_a_result_is_expected(here, name):
    content, command = FILES[name]
    (here / "file").write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    for words in (
        ("check", "tiny.json", "file"),
        ("show", "file", "--svg", "a.svg"),
        ("report", "file", "-o", "a.html"),
        ("export", "file", "--to", "perfetto", "-o", "a.json"),
        ("stress", "file", "--jitter", "0.1"),
    ):
        code, said = run(*words)
        assert (code, f"`{command}" in said) == (2, True), said


@pytest.mark.parametrize(
    "name", sorted(FILES.keys() - {"records", "record"} | {"report"})
)
def test_where_results_of_a_benchmark_are_expected(here, name):
    report = ('{\n "kind": "bench-report"\n}\n', "ppsolve bench report RESULTS")
    content, command = {**FILES, "report": report}[name]
    (here / "file").write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    for words in (
        ("report", "file"),
        ("merge", "file", "-o", "o"),
        ("tiny.json", "-o", "file"),
    ):
        code, said = run("bench", *words)
        assert code == 2
        assert re.match(
            "error: file: expected results of a benchmark, this (is|looks like)", said
        )
        assert f"`{command}" in said


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("end", ["", "\n"])
def test_documents_where_results_of_a_benchmark_are_expected(here, indent, end):
    told = {"tiny.json": contents.INSTANCE, "result.json": contents.RESULT}
    for file, what in told.items():
        data = json.loads((here / file).read_text())
        (here / "file").write_text(json.dumps(data, indent=indent) + end)
        said = run("bench", "report", "file")
        assert said == (2, f"error: file: expected results of a benchmark, {what}\n")


def test_lines_that_are_no_records_are_told_by_their_number(here):
    (here / "file").write_text('{"a": 1}\n{"a": 2}\n')
    assert run("bench", "report", "file")[1].startswith("error: file: line 1: ")


@pytest.mark.parametrize(
    "words",
    [
        ("check", "tiny.json", "tiny.json"),
        ("report", "tiny.json", "-o", "a.html"),
        ("export", "tiny.json", "--to", "torch", "-o", "a.csv"),
        ("diagnose", "tiny.json"),
        ("convert", "trace", "tiny.json", "-o", "folder"),
    ],
)
def test_an_instance_in_place_of_another_file(here, words):
    code, said = run(*words)
    assert code == 2
    assert said.startswith("error: tiny.json: ")
    assert contents.INSTANCE in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("optimize", "result.json"), contents.RESULT),
        (("diagnose", "result.json"), contents.RESULT),
        (("plan", "result.json"), f"expected a request for a plan, {contents.RESULT}"),
        (("plan", "tiny.json"), f"expected a request for a plan, {contents.INSTANCE}"),
    ],
)
def test_a_result_in_place_of_another_file(here, words, told):
    code, said = run(*words)
    assert (code, told in said) == (2, True), said


def test_records_and_long_results_in_place_of_a_trace(here):
    (here / "records.jsonl").write_text(str(FILES["records"][0]))
    result = {
        "schema": 1,
        "schedule": {"time_unit": "us", "ops": 9_000 * [{"id": "F0.0"}]},
    }
    (here / "long.json").write_text(json.dumps(result))
    for words in (("diagnose",), ("convert", "trace", "-o", "folder")):
        for name, told in (
            ("records.jsonl", "this is a bench file"),
            ("long.json", contents.RESULT),
        ):
            code, said = run(*words, name)
            assert (code, told in said) == (2, True), said


def test_a_plan_of_a_trace_or_a_config(here):
    for name in ("kineto", "config"):
        (here / "file").write_text(str(FILES[name][0]))
        code, said = run("plan", "file")
        assert code == 2
        assert said.startswith("error: file: expected a request for a plan, this is a ")
        assert f"`{FILES[name][1]}" in said


def test_a_trace_that_is_none(here):
    for name in ("yaml", "svg", "pickle"):
        content, command = FILES[name]
        (here / "file").write_bytes(
            content if isinstance(content, bytes) else content.encode()
        )
        code, said = run("diagnose", "file")
        assert (code, f"`{command}" in said) == (2, True)


@pytest.mark.parametrize(
    "text", ["{'kind': 1}", '{"kind": "pipeline"\n "a": 1}', "[1, 2", "", "x"]
)
def test_what_is_nearly_json_is_not_taken_for_something_else(text):
    assert contents.describe_text(text, contents.TEXTS) is None


def test_long_beginnings_are_read_at_once():
    for text in (
        " " * 65_000,
        "," * 65_000 + "{",
        "a" * 65_000,
        "<!" * 30_000,
        "#\n" * 30_000,
    ):
        contents.describe_text(text, contents.TEXTS)


@pytest.mark.parametrize("kind", [[], {"a": 1}, 3])
@pytest.mark.parametrize(
    "words",
    [
        ("show", "file"),
        ("show", "tiny.json", "file"),
        ("show", "file", "--svg", "out"),
        ("check", "tiny.json", "file"),
        ("report", "file", "-o", "out"),
        ("optimize", "file"),
        ("export", "file", "--to", "perfetto", "-o", "out"),
    ],
)
def test_a_kind_that_is_no_text_is_looked_up_nowhere(here, words, kind):
    # Lists and objects have no hash, so they cannot be asked for in a set or a table.
    result = json.loads((here / "result.json").read_text())
    for document in ({"kind": kind}, TINY | {"kind": kind}, result | {"kind": kind}):
        (here / "file").write_text(json.dumps(document))
        code, said = run(*words)
        assert code in (0, 2), said
        assert "internal error" not in said
        assert said.startswith("error: ") or code == 0
