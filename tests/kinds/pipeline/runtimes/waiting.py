"""Cases of Megatron-LM's schedules with times of transfers, run by the programs of its ranks."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
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
from ppsolve.solver.kinds.pipeline.runtimes.family import FixedOrder
from ppsolve.solver.kinds.pipeline.runtimes.megatron_waits import (
    P2P_OVERLAP,
    megatron_waits,
)
from tests.kinds.pipeline.runtimes.cases import LOOPED, pipeline


def simulated(
    case: dict[str, Any], programs: Sequence[Sequence[ProgramStep]] | None = None
) -> ProgramRun:
    """Run the programs of a case, by default those of Megatron-LM."""
    ranks, count = case["p"], case["m"]
    stages = range(ranks * case.get("v", 1))
    shape = PipelineShape(count, tuple(stage % ranks for stage in stages))

    def duration(step: ComputeStep) -> int:
        if isinstance(step, Overlap):
            return int(case["block"])
        entry = case[step.kind][step.stage]
        return int(entry[step.microbatch] if isinstance(entry, list) else entry)

    network = Network(
        shape.stage_to_rank, lambda *_: int(case["latency"]), case["rendezvous"]
    )
    return run_programs(programs or programs_of(case, shape), duration, network)


def instance_of(case: dict[str, Any]) -> PipelineInstance:
    """Return the pipeline of a case, with blocks where forwards may be combined."""
    placed = LOOPED if case["v"] > 1 else {}
    blocks = {"overlap": {"time": case["block"]}} if "combined" in case else {}
    return pipeline(
        case["p"],
        case["m"],
        **{**placed, "stages_per_device": case["v"]},
        times={"forward": case["F"], "backward": case["B"]},
        p2p={
            "mode": "rendezvous" if case["rendezvous"] else "buffered",
            "latency": case["latency"],
        },
        **blocks,
    )


def has_settings(case: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Whether a case runs with the settings of a result."""
    overlap = settings.get(P2P_OVERLAP, "steady")
    wanted = settings.get("group_size"), settings.get("combined", False), overlap
    return wanted == (case.get("group"), case.get("combined", False), case["overlap"])


def alike(cases: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the cases of each pipeline, latency and kind of send."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        fields = [case[name] for name in ("p", "v", "m", "F", "B", "latency")]
        groups.setdefault(json.dumps([fields, case["rendezvous"]]), []).append(case)
    return [*groups.values()]


def ops_of(run: ProgramRun) -> set[tuple[Any, ...]]:
    """Return kind, stage, micro-batch, start and end of the ops; blocks are two at once."""
    ops = set()
    for step, start in run.start.items():
        for stage, kind, microbatch in step if isinstance(step, Overlap) else (step,):
            ops.add((kind, stage, microbatch, start, run.end[step]))
    return ops


def judged(program: Path, cases: Any) -> Any:
    """Return what a program makes of cases, which runs the scheduler of a trainer."""
    # -P: the folder of the program has a module that is called megatron, too.
    judge = subprocess.run(
        [sys.executable, "-P", str(program)],
        input=json.dumps(cases),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(judge.stdout)


def programs_of(
    case: dict[str, Any], shape: PipelineShape
) -> Sequence[Sequence[ProgramStep]]:
    ranks, count = shape.num_ranks, shape.num_microbatches
    if shape.chunks == 1:
        order = FixedOrder("1F1B", one_forward_one_backward(ranks, count))
        return megatron_waits(shape)[0].programs(shape, order)
    size, is_combined = case["group"], case["combined"]
    orders = interleaved_1f1b(ranks, shape.chunks, count, size, combined=is_combined)
    order = FixedOrder("interleaved", orders, size, is_combined=is_combined)
    overlaps = {rule.named.get(P2P_OVERLAP): rule for rule in megatron_waits(shape)}
    overlap = None if case["overlap"] == "steady" else case["overlap"]
    return overlaps[overlap].programs(shape, order)


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
