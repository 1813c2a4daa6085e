"""What is refused before torch runs anything, without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicEntry, ScheduleDocument
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.torch import runtime
from ppsolve.solver.formats.torch.runtime import (
    _check_stages,
    feeding_order,
    require_tested_torch,
)


class Stage:
    """Stand-in for a stage of torch, of which only these numbers are read."""

    def __init__(
        self, index: int, *, rank: int, stages: int = 2, ranks: int = 2
    ) -> None:
        self.stage_index, self.num_stages = index, stages
        self.group_rank, self.group_size = rank, ranks


def result() -> HeuristicEntry:
    instance = ppsolve.PipelineInstance(
        num_devices=2, num_microbatches=2, times={"forward": 1, "backward": 2}
    )
    return ppsolve.simulate(instance, "1f1b")


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ([], "expected the stages of this rank, got none"),
        ([Stage(0, rank=0, ranks=3)], "expected 2 ranks, as in the schedule, got 3"),
        ([Stage(0, rank=0, stages=4)], "expected 2 stages, as in the schedule, got 4"),
        ([Stage(1, rank=0)], r"expected stages \[0\] on rank 0, got \[1\]"),
        (
            [Stage(0, rank=0), Stage(1, rank=0)],
            r"expected stages \[0\] on rank 0, got \[0, 1\]",
        ),
    ],
)
def test_stages_of_another_rank_are_refused(stages: list[Stage], words: str) -> None:
    program = read_program(result().model_dump(mode="json"))
    with pytest.raises(InputError, match=words):
        _check_stages(program, stages)


def test_microbatches_are_fed_in_the_order_of_the_last_stage() -> None:
    ops = [("F", 1), ("F", 0), ("B", 0), ("B", 1)]
    rows = [
        {"id": f"{kind}0.{number}", "kind": kind, "stage": 0, "device": 0}
        | {"microbatch": number, "start": start, "end": start + 1}
        for start, (kind, number) in enumerate(ops)
    ]
    document = ScheduleDocument.model_validate({"time_unit": "us", "ops": rows})
    made = HeuristicEntry(name="made", status="feasible", schedule=document)
    assert feeding_order(made) == (1, 0)
    assert feeding_order(result()) == (0, 1)


@pytest.mark.parametrize("found", ["2.15.0", "2.1.0", "3.0"])
def test_other_versions_are_refused(
    found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "version", lambda _: found)
    with pytest.raises(
        InputError, match=rf"torch 2\.13\.\* or 2\.14\.\*, .* got {found}"
    ):
        require_tested_torch()


def test_another_version_is_tried_where_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime, "version", lambda _: "2.15.0")
    monkeypatch.setenv("PPSOLVE_TORCH", "any")
    require_tested_torch()


@pytest.mark.parametrize("found", ["2.13.0", "2.13.1+cpu", "2.13.0a0", "2.14.1+cu130"])
def test_tested_versions_pass(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "version", lambda _: found)
    require_tested_torch()


def test_torch_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise runtime.PackageNotFoundError(name)

    monkeypatch.setattr(runtime, "version", missing)
    with pytest.raises(InputError, match=r"pip install 'ppsolve\[torch\]'"):
        require_tested_torch()


@pytest.mark.parametrize("name", ["ppsolve", "ppsolve.torch"])
def test_imports_do_not_load_torch(name: str) -> None:
    code = f"import sys, {name}; print('torch' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"
