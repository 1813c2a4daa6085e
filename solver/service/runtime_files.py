"""Files of training runtimes, made of a schedule that a question names or holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.api import simulate
from ppsolve.solver.formats.activations import notes_on_modes, with_recomputed
from ppsolve.solver.formats.data_order import in_data_order
from ppsolve.solver.formats.layers import counts_of
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.formats.targets import NOT_TESTED, chosen
from ppsolve.solver.service.pictures import quick_heuristic

NAMES = {
    "torch": "order.csv",
    "torchtitan": "run.py",
    "megatron": "flags.txt",
    "colossalai": "nodes.json",
    "primus": "table.json",
    "deepspeed": "parts.json",
    "mindformers": "lists.json",
    "json": "program.json",
}
"""What the first file of each runtime is called."""


def runtime_files(
    instance: PipelineInstance, schedule: str | dict[str, Any], runtime: str
) -> dict[str, Any]:
    """Return the files of a runtime by name, and what their reader has to know.

    `schedule`: the name of a heuristic, or a document that holds a schedule of the instance.
    """
    document: Any = schedule
    if isinstance(schedule, str):
        name = quick_heuristic(schedule).name
        document = simulate(instance, name).model_dump(mode="json")
    target = chosen(runtime[:40])
    program = in_data_order(read_program(document, instance), may_permute=False)
    counts_of(program)
    settings = with_recomputed(program, target.settings(), target.name)
    notes = [*notes_on_modes(program, settings, target.name), *target.unsaid(program)]
    if not target.is_tested:
        notes.append(f"{target.name}: {NOT_TESTED}")
    files = target.files(program, settings, Path(NAMES[target.name]))
    return {"files": {path.name: text for path, text in files.items()}, "notes": notes}
