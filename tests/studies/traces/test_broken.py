"""Broken traces: one line that names file and event, exit code 2, and nothing written."""

from __future__ import annotations

import builtins

import pytest
from typer.testing import CliRunner

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.cli.main import build
from ppsolve.solver.formats.detect import read_trace
from tests.paths import DATA
from tests.studies.traces.broken import CASES


def test_there_are_sixty_kinds():
    assert len(CASES) >= 60


@pytest.mark.parametrize("name", CASES)
def test_broken_trace(tmp_path, name):
    maker, words = CASES[name]
    files = [str(path) for path in maker(tmp_path)]
    done = CliRunner().invoke(
        build(), ["convert", "trace", *files, "-o", str(tmp_path / "out")]
    )
    assert done.exit_code == 2, done.output
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert [word for word in words if word not in lines[0]] == [], lines[0]
    assert not (tmp_path / "out").exists()


def test_parquet_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"ppsolve\[traces\]"):
        read_trace([DATA / "traces" / "ST.parquet"])
