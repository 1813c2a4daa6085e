"""ColossalAI's scheduler nodes: a V placement with split backwards.

Read in ColossalAI main (2026-11), ``HybridParallelPlugin(pp_style="zbv", scheduler_nodes=...)``.
The runtime reads the type and the chunk of a node and takes micro-batches from queues.
"""

from __future__ import annotations

import json
from typing import Any

from ppsolve.solver.formats.program import RuntimeProgram, Settings
from ppsolve.solver.kinds.pipeline import grammar
from ppsolve.solver.kinds.pipeline.programs.communications import with_communications
from ppsolve.solver.kinds.pipeline.runtimes.families import COLOSSALAI

TYPES = {
    grammar.FORWARD: "F",
    grammar.BACKWARD_INPUT: "B",
    grammar.BACKWARD_WEIGHT: "W",
    grammar.SEND_F: "SEND_FORWARD",
    grammar.RECV_F: "RECV_FORWARD",
    grammar.SEND_B: "SEND_BACKWARD",
    grammar.RECV_B: "RECV_BACKWARD",
}


def colossalai_nodes(program: RuntimeProgram, settings: Settings) -> str:
    """Write a program on a V placement as lists of nodes, one list per rank.

    Raises `InputError` where the placement, an op or the order of micro-batches cannot be said.

    The JSON has the arguments ``pp_size``, ``num_model_chunks``, ``num_microbatches`` and
    ``scheduler_nodes`` of the plugin; nodes are the fields of ``ScheduledNode``.
    """
    COLOSSALAI.order_of(program.rows, program.shape)
    ranks, count = len(program.rows), program.num_microbatches
    rows: Any = with_communications(program.rows, program.ends)
    nodes = [
        [
            {
                "type": TYPES[step.kind],
                "chunk": int(step.stage >= ranks),
                "stage": rank,
                "minibatch": step.microbatch,
            }
            for step in row
            if step.kind in TYPES
        ]
        for rank, row in enumerate(rows)
    ]
    arguments: dict[str, Any] = {
        "pp_size": ranks,
        "pp_style": "zbv",
        "num_model_chunks": 2,
    }
    return (
        json.dumps(arguments | {"num_microbatches": count, "scheduler_nodes": nodes})
        + "\n"
    )
