"""PyTorch's own DualPipeV, parser and dry run, held to what is read and written here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.api import simulate
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.torch_csv import check_csv, convert_torch_csv, torch_csv

pytestmark = pytest.mark.torch


def pipeline(
    devices: int, microbatches: int, placement: str = "vshape"
) -> PipelineInstance:
    return PipelineInstance.parse(
        {
            "num_devices": devices,
            "num_microbatches": microbatches,
            "placement": placement,
            "stages_per_device": 2,
            "times": {"forward": 5, "backward_input": 6, "backward_weight": 3},
            "overlap": {"time": 8},
        }
    )


def torch_rows(devices: int, microbatches: int) -> list[list[str]]:
    """Return what torch's schedule makes of each rank, without stages of a model."""
    from torch.distributed.pipelining.schedules import ScheduleDualPipeV

    made: Any = object.__new__(ScheduleDualPipeV)
    made.pp_group_size, made._n_microbatches = devices, microbatches
    ranks = range(devices)
    return [
        list(map(str, made._calculate_single_rank_operations(rank))) for rank in ranks
    ]


def in_torch(text: str) -> dict[int, list[Any]]:
    """Return a file as torch parses it."""
    from torch.distributed.pipelining.schedules import _Action

    rows = [line.split(",") for line in text.splitlines()]
    return {
        rank: [_Action.from_str(cell) for cell in row] for rank, row in enumerate(rows)
    }


@pytest.mark.parametrize(
    ("devices", "microbatches"), [(1, 2), (2, 4), (3, 7), (4, 8), (8, 16)]
)
def test_dualpipe_v_is_torchs_file_both_ways(
    devices: int, microbatches: int, tmp_path: Path
) -> None:
    instance, rows = pipeline(devices, microbatches), torch_rows(devices, microbatches)
    entry = simulate(instance, "dualpipe-v")
    assert entry.orders == rows
    file = tmp_path / "torch.csv"
    file.write_text("".join(",".join(row) + "\n" for row in rows))
    assert check_csv(file, instance) == []
    found, _ = convert_torch_csv(file, instance)
    assert (found.value, found.schedule) == (entry.value, entry.schedule)
    program = read_program(json.loads(found.model_dump_json()), instance)
    assert torch_csv(program) == file.read_text()


@pytest.mark.parametrize("name", ["dualpipe-v", "combined-interleaved-1f1b"])
def test_torch_runs_dry_what_is_written(name: str) -> None:
    from torch.distributed.pipelining import schedules

    placement = "vshape" if name == "dualpipe-v" else "interleaved"
    instance = pipeline(4, 8, placement)
    program = read_program(
        json.loads(simulate(instance, name).model_dump_json()), instance
    )
    plain = in_torch(torch_csv(program))
    assert schedules._validate_schedule(plain, 4, 8, 8) == dict(
        enumerate(program.stage_to_rank)
    )
    text = torch_csv(program, "compute_comms")
    full = in_torch(text)
    assert "".join(",".join(map(str, full[rank])) + "\n" for rank in full) == text
    # Torch's dry run knows neither pairs, which it runs one after the other, nor reductions.
    ours = {
        rank: [
            one for a in row for one in a.sub_actions or (a,) if str(one)[-4:] != "GRAD"
        ]
        for rank, row in full.items()
    }
    schedules._simulate_comms_compute(
        ours, lambda stage: program.stage_to_rank[stage], 8
    )
