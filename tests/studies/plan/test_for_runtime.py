"""Plans for a runtime: only what it runs, each with its best order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.plan.request import PlanRequest
from ppsolve.solver.cli.main import build
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.targets import chosen
from tests.kinds.pipeline.runtimes import megatron
from tests.paths import ROOT

REQUEST = ROOT / "instances" / "plans" / "small-12x4.plan.json"


def request(**search: Any) -> PlanRequest:
    data = json.loads(REQUEST.read_text())
    data["search"] |= search
    return PlanRequest.parse(data)


def test_the_winner_takes_as_long_in_the_schedule_of_megatron() -> None:
    plan = ppsolve.plan(request(), runtime="megatron", time_limit=20)
    assert plan.status is Status.OPTIMAL
    assert {row.configuration.placement for row in plan.table} == {
        "linear",
        "interleaved",
    }
    data = json.loads(plan.model_dump_json())
    target = chosen("megatron")
    text = target.files(read_program(data), target.settings(), Path("flags"))[
        Path("flags")
    ]
    # Stages per rank are said by the layout of the layers.
    flags = [line for line in text.splitlines() if "layout" not in line]
    chunks = plan.winner.configuration.virtual_stages
    flags.append(f"--num-virtual-stages-per-pipeline-rank {chunks}")
    compute = megatron.makespan("\n".join(flags), data["instance"])
    # What follows the pipeline (all-reduces, optimizer) is no part of that schedule.
    ops = [
        op for op in data["result"]["schedule"]["ops"] if op["microbatch"] is not None
    ]
    assert float(compute) == pytest.approx(max(op["end"] for op in ops), rel=1e-12)
    assert ppsolve.check(plan.instance, plan.result) == []


def test_1f1b_is_all_that_deepspeed_runs() -> None:
    own = ppsolve.plan(request(), runtime="deepspeed", time_limit=20)
    named = request(placements=["linear"], schedules=["1f1b"])
    other = ppsolve.plan(named, time_limit=20)
    assert own.winner.configuration == other.winner.configuration
    assert own.result.makespan == other.result.makespan


def test_what_a_runtime_of_any_order_runs() -> None:
    plan = ppsolve.plan(request(), runtime="colossalai", time_limit=4)
    shapes = {
        (each.placement, each.backward, each.microbatches % each.pipeline_depth)
        for each in (row.configuration for row in plan.table)
    }
    assert shapes == {("vshape", "split", 0)}


def test_refusals() -> None:
    with pytest.raises(
        InputError, match=r"search: expected at least one configuration: .*V place"
    ):
        ppsolve.plan(
            request(placements=["vshape"], pipeline_depths=[2]), runtime="megatron"
        )
    with pytest.raises(
        InputError, match=r"search\.schedules: expected none with a runtime"
    ):
        ppsolve.plan(request(schedules=["1f1b"]), runtime="megatron")
    done = CliRunner().invoke(build(), ["plan", str(REQUEST), "--for", "megatorn"])
    assert done.exit_code == 2
    assert '--for: unknown runtime "megatorn"; did you mean "megatron"?' in done.stderr
