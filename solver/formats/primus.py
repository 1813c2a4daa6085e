"""Tables of nodes for Primus, run strictly in order by ``examples/primus_adapter.py``.

Read in Primus main (2026-08-22): nodes F, B (input gradient), W, BW (whole backward), their sends
and receives, also between neighbouring stages on one rank, and for the first chunk of a V placement
O, which waits until an activation is on the host, and R, which begins to bring it back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from ppsolve.models.kinds.pipeline.labels import OFFLOAD_KIND, RELOAD_KIND
from ppsolve.models.kinds.pipeline.modes import OFFLOAD
from ppsolve.solver.formats.layers import decoders_of
from ppsolve.solver.formats.program import RuntimeProgram, Settings, cannot_say
from ppsolve.solver.kinds.pipeline import grammar
from ppsolve.solver.kinds.pipeline.grammar import (
    FORWARD,
    Action,
    Communication,
    Overlap,
    Step,
)
from ppsolve.solver.kinds.pipeline.programs.communications import with_communications
from ppsolve.solver.kinds.pipeline.runtimes.families import PRIMUS
from ppsolve.solver.kinds.pipeline.runtimes.placement import is_folded

TYPES = {
    FORWARD: "F",
    grammar.BACKWARD: "BW",
    grammar.BACKWARD_INPUT: "B",
    grammar.BACKWARD_WEIGHT: "W",
    grammar.SEND_F: "SF",
    grammar.RECV_F: "RF",
    grammar.SEND_B: "SB",
    grammar.RECV_B: "RB",
    OFFLOAD_KIND: "O",
    RELOAD_KIND: "R",
}


def primus_table(program: RuntimeProgram, settings: Settings) -> str:
    """Write a program as a table of nodes, one list per rank.

    Raises `InputError` where the placement, the order on the first stage, the layers recomputed or
    what is offloaded cannot be said. The first stage must run micro-batches in order too: Primus
    takes them from the data in the order of forwards.

    The JSON has ``pp_algorithm`` (the entry that the adapter replaces), ``pp_size``, ``vpp_size``,
    ``micro_batches``, ``stages`` (of each rank, by chunk) and ``table``. Where layers are
    recomputed it also has the settings ``recompute_granularity``, ``recompute_method`` and
    ``recompute_layer_ids``, where activations are offloaded ``offload``.
    """
    PRIMUS.order_of(program.rows, program.shape)
    is_v, chunks = is_folded(program.shape), program.shape.chunks
    algorithm = (
        "zbv-formatted"
        if is_v
        else "zero-bubble"
        if chunks == 1
        else "1f1b-interleaved"
    )
    _refuse_offloading(program, is_v=is_v)
    rows = with_communications(program.rows, program.ends, local=True)
    table = _Table(program.stage_to_rank, program.copies)
    document: dict[str, Any] = {
        "pp_algorithm": algorithm,
        "pp_size": len(rows),
        "vpp_size": chunks,
        "micro_batches": program.num_microbatches,
        "stages": table.stages(len(rows)),
        "table": [[node for step in row for node in table.nodes(step)] for row in rows],
    }
    offload = {"offload": True} if program.copies else {}
    return json.dumps(document | _recomputation(program, settings) | offload) + "\n"


def _recomputation(program: RuntimeProgram, settings: Settings) -> dict[str, Any]:
    if settings.recomputed is None:
        is_selective = (
            program.plan is not None and program.plan.recompute == "selective"
        )
        return {"recompute_granularity": "selective"} if is_selective else {}
    decoders = decoders_of(program, settings)
    pairs = zip(accumulate(decoders, initial=0), settings.recomputed, strict=False)
    ids = [str(begin + layer) for begin, count in pairs for layer in range(count)]
    if not ids:
        return {}
    return {
        "recompute_granularity": "full",
        "recompute_method": None,
        "recompute_layer_ids": ",".join(ids),
    }


def _refuse_offloading(program: RuntimeProgram, *, is_v: bool) -> None:
    stages = [stage for stage, row in enumerate(program.modes) if OFFLOAD in row]
    if not stages:
        return
    if not is_v or stages[-1] >= len(program.rows):
        stage = stages[-1] if is_v else stages[0]
        raise cannot_say(
            f"modes: {PRIMUS.title} offloads the first chunk of each rank of a V placement "
            f"(vshape) only, this is stage {stage}"
        )
    if not program.copies:
        raise cannot_say("modes: expected a schedule with copies (O, L), it has none")
    pair = next(
        (s for row in program.rows for s in row if isinstance(s, Overlap)), None
    )
    if pair is not None:
        raise cannot_say(
            f"modes: {PRIMUS.title} offloads nothing beside combined groups such as {pair}"
        )


class _Table:
    """Writes steps as nodes; chunks are counted on each rank."""

    def __init__(
        self, stage_to_rank: tuple[int, ...], copies: Mapping[Action, Sequence[Action]]
    ) -> None:
        self.ranks, self.copies = stage_to_rank, copies
        self.offloaded = {
            copy._replace(kind=FORWARD) for group in copies.values() for copy in group
        }
        self.chunk = [
            stage_to_rank[:s].count(rank) for s, rank in enumerate(stage_to_rank)
        ]

    def stages(self, num_ranks: int) -> list[list[int]]:
        """Return the stages of each rank, by chunk."""
        return [
            [s for s, r in enumerate(self.ranks) if r == rank]
            for rank in range(num_ranks)
        ]

    def nodes(self, step: Step) -> list[dict[str, Any]]:
        """Return the nodes of a step; none for reductions, which Megatron-LM does itself."""
        if isinstance(step, Overlap):
            pair = [self._node(action) for action in step]
            group = [f"({n['func_type']}|{n['mini_batch']}|{n['chunk']})" for n in pair]
            return [{**node, "args": {"combined_group": group}} for node in pair]
        if step.kind == grammar.REDUCE_GRAD:
            return []
        copies = self.copies.get(step, ()) if isinstance(step, Action) else ()
        return [self._node(action) for action in (*copies, step)]

    def _node(self, step: Action | Communication) -> dict[str, Any]:
        return {
            "func_type": TYPES[step.kind],
            "mini_batch": step.microbatch,
            "chunk": self.chunk[step.stage],
            "args": self._args(step),
        }

    def _args(self, step: Action | Communication) -> dict[str, Any] | None:
        if isinstance(step, Communication):
            return self._transfer(step)
        return {"should_offload": True} if step in self.offloaded else None

    def _transfer(self, step: Communication) -> dict[str, int]:
        goes_up = step.kind in {grammar.SEND_F, grammar.RECV_B}
        neighbour = step.stage + (1 if goes_up else -1)
        rank, peer = self.ranks[step.stage], self.ranks[neighbour]
        if step.kind in {grammar.SEND_F, grammar.SEND_B}:
            return {
                "from_pp_rank": rank,
                "to_pp_rank": peer,
                "send_to_chunk": self.chunk[neighbour],
            }
        return {
            "from_pp_rank": peer,
            "to_pp_rank": rank,
            "recv_from_chunk": self.chunk[neighbour],
        }
