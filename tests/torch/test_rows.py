"""The actions of every rank, without torch."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicEntry, ScheduleDocument
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.torch import version
from ppsolve.solver.torch.rows import rows_of
from ppsolve.solver.torch.version import require_tested_torch


def entry(*ops: dict[str, Any]) -> HeuristicEntry:
    """A result whose ops are given by device, kind, stage, micro-batch and start."""
    rows = [{"id": "op", "device": 0, "stage": 0, "end": op["start"] + 1, **op} for op in ops]
    document = ScheduleDocument.model_validate({"time_unit": "us", "ops": rows})
    return HeuristicEntry(name="made", status="feasible", schedule=document)


def test_rows_of_a_published_schedule() -> None:
    instance = ppsolve.PipelineInstance(
        num_devices=2, num_microbatches=2, times={"forward": 1, "backward": 2}
    )
    rows, order = rows_of(ppsolve.simulate(instance, "1f1b"))
    assert [" ".join(map(str, row)) for row in rows] == ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]
    assert order == [0, 1]


def test_microbatches_are_numbered_by_the_forward_of_the_last_stage() -> None:
    rows, order = rows_of(
        entry(
            {"kind": "F", "microbatch": 1, "start": 0},
            {"kind": "F", "microbatch": 0, "start": 1},
            {"kind": "B", "microbatch": 0, "start": 2},
            {"kind": "B", "microbatch": 1, "start": 3},
        )
    )
    assert [str(action) for action in rows[0]] == ["0F0", "0F1", "0B1", "0B0"]
    assert order == [1, 0]


def test_ops_without_length_come_before_those_that_start_with_them() -> None:
    rows, _ = rows_of(
        entry(
            {"kind": "F", "microbatch": 0, "start": 0},
            {"kind": "W", "microbatch": 0, "start": 1},
            {"kind": "I", "microbatch": 0, "start": 1, "end": 1},
        )
    )
    assert [str(action) for action in rows[0]] == ["0F0", "0I0", "0W0"]


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        ([], "of a pipeline"),
        ([{"kind": "F", "microbatch": 0, "start": 0}] * 2, "in one piece"),
        (
            [
                {"kind": "F", "microbatch": 0, "start": 0},
                {"kind": "B", "microbatch": 0, "device": 1, "start": 1},
            ],
            "stage 0 on one rank, it is on 0 and 1",
        ),
        ([{"kind": "F", "microbatch": 0, "replica": 1, "start": 0}], "one replica"),
    ],
)
def test_schedules_that_the_runtime_cannot_run(ops: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        rows_of(entry(*ops))


def test_a_result_without_a_schedule() -> None:
    with pytest.raises(InputError, match="with a schedule"):
        rows_of(HeuristicEntry(name="made", status="infeasible"))


@pytest.mark.parametrize("found", ["2.14.0", "2.1.0", "3.0"])
def test_other_versions_are_refused(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "version", lambda _: found)
    with pytest.raises(InputError, match=rf"expected torch 2\.13\.\*, .* got {found}"):
        require_tested_torch()


@pytest.mark.parametrize("found", ["2.13.0", "2.13.1+cpu", "2.13.0a0"])
def test_tested_versions_pass(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "version", lambda _: found)
    require_tested_torch()


def test_torch_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise version.PackageNotFoundError(name)

    monkeypatch.setattr(version, "version", missing)
    with pytest.raises(InputError, match=r"pip install 'ppsolve\[torch\]'"):
        require_tested_torch()


@pytest.mark.parametrize("name", ["ppsolve", "ppsolve.torch"])
def test_imports_do_not_load_torch(name: str) -> None:
    code = f"import sys, {name}; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
