"""torchtitan: PyTorch's file, and the settings that go with it.

Read in torchtitan main (2026-08-21) and v0.2.2, the last tag with TOML. The name of the schedule
says which stage is on which rank, whatever the file says.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.solver.formats.layers import EMBEDDING, LOSS, MTP, letters_of
from ppsolve.solver.formats.program import RuntimeProgram, Settings
from ppsolve.solver.formats.torch_csv import torch_csv
from ppsolve.solver.kinds.pipeline.runtimes.families import TORCHTITAN
from ppsolve.solver.kinds.pipeline.runtimes.placement import is_folded


def torchtitan_files(
    program: RuntimeProgram, settings: Settings, path: Path
) -> dict[Path, str]:
    """Write a program as PyTorch's file, a snippet of Python and a TOML file, by their paths.

    Raises `InputError` where the placement cannot be said, or the files would go to stdout.

    `program`: the program, on a looped or a V placement.
    `path`: where the snippet goes; the others have the endings ``.csv`` and ``.toml``. With a path
        that ends so the snippet ends in ``.py``.
    """
    if str(path) == "-":
        raise InputError(
            "expected a file: there are three of them",
            field="--output",
            code=ErrorCode.FILE,
        )
    table = path.with_suffix(".csv")
    snippet = path.with_suffix(".py") if path.suffix in {".csv", ".toml"} else path
    TORCHTITAN.order_of(program.rows, program.shape)
    schedule = "ZBVZeroBubble" if is_folded(program.shape) else "PipelineScheduleMulti"
    keys: dict[str, Any] = {
        "pipeline_parallel_degree": len(program.rows),
        "pipeline_parallel_schedule": schedule,
        "pipeline_parallel_schedule_csv": table.name,
    }
    if program.plan is not None and program.plan.tensor_parallel > 1:
        keys["tensor_parallel_degree"] = program.plan.tensor_parallel
    modules = _modules(program, settings.model)
    return {
        snippet: _python(keys, program, modules),
        table: torch_csv(program),
        path.with_suffix(".toml"): _toml(keys, program, modules),
    }


def _modules(program: RuntimeProgram, model: str | None) -> list[list[str]] | None:
    letters = letters_of(program, model)
    if letters is None:
        return None
    if any(MTP in stage for stage in letters):
        raise InputError(
            "split: torchtitan has no layer m",
            field="--model",
            code=ErrorCode.UNSUPPORTED,
        )
    layer = count()
    names = {EMBEDDING: ["tok_embeddings"], LOSS: ["norm", "lm_head"]}
    return [
        [
            name
            for letter in stage
            for name in names.get(letter) or [f"layers.{next(layer)}"]
        ]
        for stage in letters
    ]


def _listed(name: str, modules: list[list[str]]) -> str:
    rows = "".join(f"    {json.dumps(row)},\n" for row in modules)
    return f"{name} = [\n{rows}]"


def _python(
    keys: dict[str, Any], program: RuntimeProgram, modules: list[list[str]] | None
) -> str:
    lines = [
        f"config.parallelism.{name} = {json.dumps(value)}"
        for name, value in keys.items()
    ]
    lines.insert(
        1, f"config.parallelism.num_pp_microbatches = {program.num_microbatches}"
    )
    if modules is not None:
        lines.append(_listed("config.parallelism.module_fqns_per_model_part", modules))
    return "\n".join(lines) + "\n"


def _toml(
    keys: dict[str, Any], program: RuntimeProgram, modules: list[list[str]] | None
) -> str:
    # The last linear layer had another name up to v0.2.2.
    size = program.plan.microbatch_size if program.plan is not None else 1
    lines = ["[training]", f"local_batch_size = {size * program.num_microbatches}", ""]
    lines += [
        "[parallelism]",
        *(f"{name} = {json.dumps(value)}" for name, value in keys.items()),
    ]
    lines.append(f"pipeline_parallel_microbatch_size = {size}")
    if modules is not None:
        rows = [
            ["output" if name == "lm_head" else name for name in row] for row in modules
        ]
        lines.append(_listed("module_fqns_per_model_part", rows))
    return "\n".join(lines) + "\n"
