"""Programs of pipelines whose stages recompute or offload, and what is exported of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.formats.activations import notes_on_modes, with_recomputed
from ppsolve.solver.formats.program import RuntimeProgram, read_program
from ppsolve.solver.formats.targets import chosen

SPLIT = {"forward": 2, "backward_input": 2, "backward_weight": 2}
FUSED = {"forward": 1, "backward": 2}
FULL = {"name": "full", "time": 1, "held": 0}
OFFLOAD = {"amount": 1, "out": 1, "back": 1}
V = {"placement": "vshape", "times": SPLIT, "heuristic": "zbv"}


def pipeline(
    memory: dict[str, Any], devices: int = 2, microbatches: int = 4, **fields: Any
) -> Any:
    shape = {"num_devices": devices, "num_microbatches": microbatches, "times": FUSED}
    return ppsolve.PipelineInstance.parse(
        {**shape, "memory": {"activation": 1, "capacity": 9, **memory}, **fields}
    )


def simulated(
    heuristic: str, instance: Any, layers: tuple[int, ...] | None = None
) -> RuntimeProgram:
    entry = ppsolve.simulate(instance, heuristic).model_dump(mode="json")
    program = read_program(entry, instance)
    return program if layers is None else replace(program, layers=layers)


def recomputing(
    *modes: str,
    layers: tuple[int, ...] | None = None,
    heuristic: str = "1f1b",
    **fields: Any,
) -> RuntimeProgram:
    names = sorted(set(modes) - {"keep"}) or ["full"]
    given = {"modes": [{**FULL, "name": name} for name in names], "decide": modes}
    return simulated(heuristic, pipeline({"recompute": given}, **fields), layers)


def offloading(*modes: str, heuristic: str = "1f1b", **fields: Any) -> RuntimeProgram:
    return simulated(
        heuristic, pipeline({"offload": {**OFFLOAD, "decide": modes}}, **fields)
    )


def exported(to: str, program: RuntimeProgram, **options: Any) -> tuple[str, list[str]]:
    """Return the text and the notes of an export."""
    target = chosen(to)
    settings = replace(target.settings(), **options)
    settings = with_recomputed(program, settings, to)
    notes = list(notes_on_modes(program, settings, to))
    return target.files(program, settings, Path("out"))[Path("out")], notes


def refused(to: str, program: RuntimeProgram, message: str, **options: Any) -> None:
    with pytest.raises(InputError, match=message):
        exported(to, program, **options)
