"""Questions about what a runtime runs: few orders timed, any order, files written and read."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import ppsolve
from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.formats.data_order import in_data_order
from ppsolve.solver.formats.program import Format, read_program
from ppsolve.solver.formats.torch_csv import convert_torch_csv, torch_csv
from tests.agreement import draws
from tests.agreement.claims import Claim, best_of, claim, claim_of
from tests.agreement.draws import Document
from tests.agreement.question import LIMITS, Question, solved


def _one_stage_a_rank(draw: Random) -> Document:
    document = draws.pipeline(draw, placements=("linear",))
    if draw.random() < 0.3:
        draws.endings(draw, document)
    return document


def _several_stages_a_rank(draw: Random) -> Document:
    while True:
        document = draws.pipeline(
            draw, placements=("interleaved",), split=False, most_ops=40
        )
        if 1 < document["num_devices"] <= document["num_microbatches"]:
            return document


def _all_recompute(draw: Random) -> Document:
    document = _one_stage_a_rank(draw)
    draws.modes(draw, document, decide="all", place="before_backward")
    return document


def _any_order(draw: Random) -> Document:
    """Draw a pipeline whose ranks run all that any schedule does: every op takes its time.

    Of no time it would wait for the op before it, as optimizers wait for all ops of their rank.
    """
    document = draws.pipeline(draw, zero=0)
    part = draw.choice([None, draws.blocks, "modes"])
    if part == "modes":
        draws.modes(draw, document, decide="stage", place="before_backward")
    elif part is not None:
        part(draw, document)
    return document


def _exported_case(draw: Random) -> Document:
    document = draws.pipeline(draw)
    part = draw.choice([None, draws.endings, draws.blocks, draws.unequal])
    if part is not None:
        part(draw, document)
    return document


def _with_whole_backwards(document: Document) -> Document:
    times = document["times"]
    if "backward" in times:
        return document
    parts = [
        draws.by_stage(document, times[f"backward_{part}"])
        for part in ("input", "weight")
    ]
    whole = {
        "forward": times["forward"],
        "backward": [i + w for i, w in zip(*parts, strict=True)],
    }
    return document | {"times": whole}


def _simulated(document: Document, name: str, **options: Any) -> Claim:
    instance = ppsolve.parse_instance(document)
    entry = ppsolve.simulate(instance, name, **options)
    if entry.status is not HeuristicStatus.FEASIBLE:
        return claim(Status.INFEASIBLE, None, None)
    return claim(Status.OPTIMAL, entry.value, None)


def _every_group(document: Document) -> Claim:
    ranks, count = document["num_devices"], document["num_microbatches"]
    sizes = [size for size in range(ranks, count + 1) if not 0 < count % size < ranks]
    return best_of(
        _simulated(document, "interleaved-1f1b", group_size=size) for size in sizes
    )


def _each_mode_for_all(document: Document) -> Claim:
    stages = draws.num_stages(document)
    lists = [[name] * stages for name in draws.mode_names(document)]
    return best_of(
        solved(draws.decided(document, modes), runtime="megatron", time_limit=0)
        for modes in lists
    )


def _replayed(
    document: Document, form: Format, runtime: str | None = "torch"
) -> Claim | None:
    """Return what the exported file of the best schedule takes; None where there is none."""
    instance = ppsolve.parse_instance(document)
    assert isinstance(instance, PipelineInstance)
    result = ppsolve.optimize(instance, **LIMITS, runtime=runtime)
    if result.schedule is None:
        return None
    assert ppsolve.check(instance, result) == []
    program = read_program(json.loads(result.model_dump_json()), instance)
    program = in_data_order(program, may_permute=True)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "order.csv"
        path.write_text(torch_csv(program, form))
        entry, _ = convert_torch_csv(path, instance, program.microbatches)
    assert ppsolve.check(instance, entry) == []
    return claim(Status.OPTIMAL, entry.value, None)


def _claimed(document: Document) -> Claim:
    instance = ppsolve.parse_instance(document)
    return claim_of(ppsolve.optimize(instance, **LIMITS, runtime="torch"))


RUNTIMES = (
    Question(
        "1F1B",
        _one_stage_a_rank,
        {
            "--for megatron": partial(solved, runtime="megatron", time_limit=0),
            "--for deepspeed": partial(solved, runtime="deepspeed", time_limit=0),
            "whole backwards": lambda d: solved(
                _with_whole_backwards(d), runtime="deepspeed", time_limit=0
            ),
            "simulated": lambda d: _simulated(_with_whole_backwards(d), "1f1b"),
        },
        count=40,
    ),
    Question(
        "interleaved 1F1B",
        _several_stages_a_rank,
        {
            "--for megatron": partial(solved, runtime="megatron", time_limit=0),
            "every group": _every_group,
        },
        count=40,
    ),
    Question(
        "1F1B that recomputes",
        _all_recompute,
        {
            "--for megatron": partial(solved, runtime="megatron", time_limit=0),
            "each mode": _each_mode_for_all,
        },
        count=30,
    ),
    Question(
        "any order",
        _any_order,
        {"--for torch": partial(solved, runtime="torch"), "any schedule": solved},
        count=16,
    ),
    Question(
        "exported",
        _exported_case,
        {
            "claimed": _claimed,
            "compute_only": partial(_replayed, form="compute_only"),
            "compute_comms": partial(_replayed, form="compute_comms"),
        },
        count=16,
    ),
)
