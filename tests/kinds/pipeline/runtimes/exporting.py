"""Random pipelines with all parts for every runtime: what is found can be exported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.formats.activations import notes_on_modes, with_recomputed
from ppsolve.solver.formats.data_order import in_data_order
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.targets import chosen
from tests.kinds.pipeline.open import drawn as parts

NAMES = ("full", "full", "selective", "mlp", "mla_up_proj mlp", "moe", "core_atn")
"""Modes; the last one is a module that there is not."""

DRAWN = (
    "",
    "recompute",
    "layers",
    "offload",
    "alltoall",
    "blocks",
    "blocks recompute",
    "window",
)
"""Parts of random pipelines, two of three times one of these."""


def drawn(seed: int) -> tuple[PipelineInstance, str]:
    """Return a random pipeline with named modes, and a runtime."""
    draw = Random(seed)
    names = DRAWN if draw.random() < 0.7 else (*parts.PARTS, *parts.PAIRS)
    data = parts.drawn(draw.choice(names), seed)
    if draw.random() < 0.5:
        data.pop("objective", None)
        data.get("memory", {})["capacity"] = 100
    owners = [data.get("layers", {}), data.get("memory", {}).get("recompute", {})]
    for owner in owners:
        modes = owner.get("modes", owner.get("recompute", ()))
        names = dict(
            zip((m["name"] for m in modes), draw.sample(NAMES[1:], 2), strict=False)
        )
        for mode in modes:
            mode["name"] = names[mode["name"]]
        if isinstance(owner.get("decide"), list):
            owner["decide"] = [names.get(name, name) for name in owner["decide"]]
    runtime = draw.choice(["torch", "torchtitan", "megatron", "megatron", "colossalai"])
    runtime = draw.choice([runtime, "primus", "deepspeed", "megatron"])
    return PipelineInstance.parse(
        {"kind": "pipeline", "name": f"d{seed}", **data}
    ), runtime


def outcome(instance: PipelineInstance, runtime: str) -> str:
    """Return the file that a runtime reads, or why there is none.

    Raises `InputError` where a schedule that was found for the runtime cannot be exported.
    """
    try:
        result = ppsolve.optimize(
            instance, runtime=runtime, time_limit=0, params={"steps.any_order_share": 0}
        )
    except InputError as error:
        assert error.field == "runtime", error
        return error.message
    if result.value is None:
        assert result.reason or result.status is Status.UNKNOWN
        return result.reason or "nothing found"
    program = read_program(json.loads(result.model_dump_json()))
    program = in_data_order(program, may_permute=True)
    if instance.layers is None:
        # What no pipeline of stages says, and the command asks for.
        program = replace(program, layers=(2,) * program.num_stages)
    target = chosen(runtime)
    settings = with_recomputed(program, target.settings(), runtime)
    list(notes_on_modes(program, settings, runtime))
    files: dict[Path, Any] = target.files(program, settings, Path("out"))
    return files[Path("out")]
