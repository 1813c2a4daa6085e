"""Our own form of a program, for runtimes that have none of the others."""

from __future__ import annotations

import json

from ppsolve.solver.export.program import RuntimeProgram
from ppsolve.solver.export.settings import Settings
from ppsolve.solver.export.split import counts_of
from ppsolve.solver.pipeline.programs.communications import with_communications


def neutral_json(program: RuntimeProgram, settings: Settings) -> str:
    """Write a program with and without communications, its placement, split and data order.

    Parameters
    ----------
    program : RuntimeProgram
        The program.
    settings : Settings
        Says whether parameters are gathered and dropped.

    Returns
    -------
    str
        JSON; ``data_order`` lists the micro-batch of the result that stands at each index.
    """
    comms = with_communications(program.rows, program.ends, shards=settings.shards)
    found = {
        "schema": 1,
        "kind": "pipeline-program",
        "name": program.name,
        "num_ranks": len(program.rows),
        "num_stages": program.num_stages,
        "num_microbatches": program.num_microbatches,
        "stage_to_rank": program.stage_to_rank,
        "layers_per_stage": counts_of(program),
        "data_order": program.microbatches,
        "compute_only": [[str(step) for step in row] for row in program.rows],
        "compute_comms": [[str(step) for step in row] for row in comms],
    }
    return json.dumps(found) + "\n"
