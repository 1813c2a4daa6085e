"""Cases of Megatron-LM's schedules with times of transfers, run by the programs of its ranks."""

from __future__ import annotations

import random
from typing import Any

from ppsolve.models.kinds.pipeline.modes import group_sizes
from ppsolve.solver.kinds.pipeline.grammar import ComputeStep, Overlap
from ppsolve.solver.kinds.pipeline.interleaved import interleaved_1f1b
from ppsolve.solver.kinds.pipeline.one_stage import one_forward_one_backward
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape
from ppsolve.solver.kinds.pipeline.programs.waits import (
    Network,
    ProgramRun,
    ProgramStep,
    run_programs,
)
from ppsolve.solver.kinds.pipeline.runtimes.megatron_waits import (
    TransferOverlap,
    interleaved_program,
    one_f_one_b_program,
)


def simulated(case: dict[str, Any]) -> ProgramRun:
    ranks, count = case["p"], case["m"]
    shape = PipelineShape(count, tuple(s % ranks for s in range(ranks * case["v"])))

    def duration(step: ComputeStep) -> int:
        if isinstance(step, Overlap):
            return int(case["block"])
        entry = case[step.kind][step.stage]
        return int(entry[step.microbatch] if isinstance(entry, list) else entry)

    network = Network(
        shape.stage_to_rank, lambda *_: int(case["latency"]), case["rendezvous"]
    )
    return run_programs(programs_of(case, shape), duration, network)


def programs_of(case: dict[str, Any], shape: PipelineShape) -> list[list[ProgramStep]]:
    ranks, count = shape.num_ranks, shape.num_microbatches
    if shape.chunks == 1:
        plain = one_forward_one_backward(ranks, count)
        return [one_f_one_b_program(shape, r, order) for r, order in enumerate(plain)]
    size, combined = case["group"], case["combined"]
    orders = interleaved_1f1b(ranks, shape.chunks, count, size, combined=combined)
    overlap = TransferOverlap[case["overlap"].upper()]
    return [
        interleaved_program(shape, r, order, size, overlap, is_combined=combined)
        for r, order in enumerate(orders)
    ]


def drawn_cases(seed: int) -> list[dict[str, Any]]:
    """Return a random pipeline with every legal group, flag, kind of send and two latencies."""
    rng = random.Random(seed)
    ranks, chunks = rng.choice([2, 3, 4, 5]), rng.choice([1, 2, 2, 3])
    count = rng.randint(ranks, 11)
    is_unequal = rng.random() < 0.3

    def times(longest: int) -> list[Any]:
        rows = [
            [rng.randint(1, longest) for _ in range(count)]
            for _ in range(ranks * chunks)
        ]
        return rows if is_unequal else [row[0] for row in rows]

    shape = {"p": ranks, "v": chunks, "m": count, "F": times(15), "B": times(30)}
    shape["block"] = rng.randint(10, 40)
    settings: list[dict[str, Any]] = [{"overlap": "steady"}]
    if chunks > 1:
        settings = [
            {"group": size, "combined": combined, "overlap": overlap}
            for size in group_sizes(ranks, count)
            for combined in (False, True)
            for overlap in ("steady", "all", *(["none"] if ranks > 2 else []))
        ]
    return [
        {**shape, **setting, "rendezvous": rendezvous, "latency": latency}
        for setting in settings
        for rendezvous in (False, True)
        for latency in (0, 3)
    ]
