"""ColossalAI's scheduler nodes: a V placement with split backwards.

Read in ColossalAI main (2026-11), ``HybridParallelPlugin(pp_style="zbv", scheduler_nodes=...)``.
The runtime reads the type and the chunk of a node and takes micro-batches from queues.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.formats.placement import folded, refuse_elsewhere
from ppsolve.solver.formats.program import RuntimeProgram, Settings
from ppsolve.solver.pipeline.grammar import (
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    RECV_B,
    RECV_F,
    SEND_B,
    SEND_F,
    Action,
    Communication,
)
from ppsolve.solver.pipeline.programs.communications import with_communications

NAME = "ColossalAI"
TYPES = {
    FORWARD: "F",
    BACKWARD_INPUT: "B",
    BACKWARD_WEIGHT: "W",
    SEND_F: "SEND_FORWARD",
    RECV_F: "RECV_FORWARD",
    SEND_B: "SEND_BACKWARD",
    RECV_B: "RECV_BACKWARD",
}


def colossalai_nodes(program: RuntimeProgram, settings: Settings) -> str:
    """Write a program as lists of nodes, one list per rank.

    Parameters
    ----------
    program : RuntimeProgram
        The program, on a V placement, each kind of op in index order per stage.
    settings : Settings
        Not used.

    Returns
    -------
    str
        JSON with the arguments ``pp_size``, ``num_model_chunks``, ``num_microbatches`` and
        ``scheduler_nodes`` of the plugin; nodes are the fields of ``ScheduledNode``.

    Raises
    ------
    InputError
        The placement, an op or the order of micro-batches cannot be said.
    """
    ranks = len(program.rows)
    refuse_elsewhere(program, folded(ranks), f"{NAME} puts stages s and 2p - 1 - s on rank s")
    _refuse_steps(program)
    if program.num_microbatches % ranks:
        raise InputError(
            f"{NAME} needs a multiple of {ranks} micro-batches, got {program.num_microbatches}",
            field="schedule",
        )
    rows = with_communications(program.rows, program.ends)
    nodes = [
        [_node(step, rank, ranks) for step in row if step.kind in TYPES]  # type: ignore[union-attr]
        for rank, row in enumerate(rows)
    ]
    found: dict[str, Any] = {"pp_size": ranks, "pp_style": "zbv", "num_model_chunks": 2}
    found["num_microbatches"] = program.num_microbatches
    return json.dumps(found | {"scheduler_nodes": nodes}) + "\n"


def _refuse_steps(program: RuntimeProgram) -> None:
    """Refuse whole backwards, pairs, and ops that do not go by the index of their micro-batch."""
    counts: Counter[tuple[int, str]] = Counter()
    for row in program.rows:
        for step in row:
            if not isinstance(step, Action) or step.kind not in TYPES:
                raise InputError(
                    f"op: {NAME} runs I and W apart, it has no {step}", field="schedule"
                )
            key = step.stage, step.kind
            if step.microbatch != counts[key]:
                raise InputError(
                    f"order: {NAME} runs the {step.kind} of each stage in the order of "
                    f"micro-batches, {step} comes before {step._replace(microbatch=counts[key])}",
                    field="schedule",
                )
            counts[key] += 1


def _node(step: Any, rank: int, ranks: int) -> dict[str, Any]:
    found: Action | Communication = step
    return {
        "type": TYPES[found.kind],
        "chunk": int(found.stage >= ranks),
        "stage": rank,
        "minibatch": found.microbatch,
    }
