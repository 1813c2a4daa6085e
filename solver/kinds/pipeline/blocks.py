"""Orders whose forwards and backwards are launched together, run as fused blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import read_json
from ppsolve.models.kinds.pipeline.fused import fused_problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.overlap_blocks import PROGRAMS
from ppsolve.solver.kinds.pipeline.actions import Chains, Order, resolved
from ppsolve.solver.kinds.pipeline.grammar import Overlap


def schedule_blocks(instance: PipelineInstance, orders: Sequence[Order]) -> Schedule:
    """Time the orders of all devices of a pipeline with `overlap`.

    A pair is one op where the pipeline has such a block, and F, then B where it has none. The
    gradient of a block leaves at its end, that of any other full backward after its W. Each op
    starts as early as its order allows, in the problem of these blocks. Errors are those of
    `schedule_actions`.
    """
    fused = fused_problem(instance)
    chains = resolved(fused.base, orders)
    assert instance.overlap is not None
    kinds = instance.overlap.kinds(is_split=instance.times.is_split)
    forward, *backward = (fused.base.grid(kind) for kind in kinds)
    number_of = {option.ops: number for number, option in enumerate(fused.options)}
    steps = (step for order in orders for step in order if isinstance(step, Overlap))
    pairs = [
        (forward[first[::2]], *(grid[second[::2]] for grid in backward))
        for first, second in steps
    ]
    choice = np.array(
        sorted(number_of[pair] for pair in pairs if pair in number_of), np.int64
    )
    problem, numbers = fused.problem(choice), fused.places(choice)
    covered = [op for number in choice.tolist() for op in fused.options[number].ops]
    apart = ~np.isin(chains.inputs, covered)
    rows = [numbers[ops] for ops in chains.ops]
    ops = [row[np.diff(row, prepend=-1) != 0] for row in rows]
    halves = numbers[chains.inputs[apart]], numbers[chains.weights[apart]]
    return Chains(ops, *halves).timed(problem)


def program_violations(instance: PipelineInstance, document: Any) -> list[Violation]:
    """Check the programs of blocks in the orders that a result of the pipeline gives them."""
    from ppsolve.solver.kinds.overlap.kind import OVERLAP

    programs = {} if instance.overlap is None else instance.overlap.programs
    results = document.get(PROGRAMS) if isinstance(document, dict) else None
    return [
        Violation(PROGRAMS, f"{name}: {broken}", broken.ops)
        for name, program in programs.items()
        if results is not None
        for broken in OVERLAP.check(program, results[name])
    ]


def with_program_files(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Read the programs of blocks that an instance names as files of its own folder."""
    blocks = data["overlap"]
    programs = blocks.get(PROGRAMS) if isinstance(blocks, dict) else None
    if not isinstance(blocks, dict) or not isinstance(programs, dict):
        return data
    read = {}
    for name, program in programs.items():
        if isinstance(program, str) and Path(program).name != program:
            text = "expected a program, or the name of a file in the same folder"
            raise InputError(
                text, field=f"overlap.{PROGRAMS}.{name}", code=ErrorCode.TYPE
            )
        read[name] = (
            read_json(folder / program) if isinstance(program, str) else program
        )
    return {**data, "overlap": {**blocks, PROGRAMS: read}}
