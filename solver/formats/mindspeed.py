"""MindSpeed's pipeline planner: the orders and layers of a policy file, as a schedule.

Read in Ascend/MindSpeed, ``core/performance/auto_pipeline_perf``. The file (JSON) lists models
(`model_configs`), each with its answers (`optimpipeline_policy`): sizes, layers of each stage
(`optimal_layers`) and the order of each stage (`pp_schedule_list`), ``{"stage0": ["F0", "B0"]}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ppsolve.models.core.result import HeuristicEntry
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import (
    ErrorCode,
    InputError,
    errors_about,
    errors_in,
)
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import KEPT
from ppsolve.solver.kinds.pipeline.grammar import Action
from ppsolve.solver.kinds.pipeline.programs import rules
from ppsolve.solver.kinds.pipeline.programs.shape import shape_of

POLICIES = "optimpipeline_policy"
ORDER = "pp_schedule_list"

_OP = re.compile(r"([FB])([0-9]{1,7})")


def convert_mindspeed(path: str | Path, instance: PipelineInstance) -> HeuristicEntry:
    """Return the schedule of the answer for a pipeline, each op as early as its order allows.

    Of a file of several answers the one of as many stages and micro-batches counts. Where the
    layers of the pipeline are open, those of the answer are taken. Raises `InputError` where no
    answer, or more than one, is for this pipeline, or its order breaks a rule.
    """
    source = source_name(path)
    document = read_json(path)
    with errors_in(source):
        answers = [*_answers(document, instance)]
        if len(answers) != 1:
            text = f"expected one answer with an order of {instance.num_devices} stages and "
            text += f"{instance.num_microbatches} micro-batches, got {len(answers)}"
            raise InputError(text, field=POLICIES)
        ((field, answer, rows),) = answers
        broken = next(rules.broken_rules(rows, shape_of(instance)), None)
        if broken is not None:
            raise InputError(
                str(broken), field=f"{field}.{ORDER}", code=ErrorCode.SCHEDULE
            )
        claims = _claims(answer, instance, f"{field}.optimal_layers")
    return rules.simulated_entry(rows, instance, "mindspeed", claims)[0]


def _answers(
    document: Any, instance: PipelineInstance
) -> Iterator[tuple[str, Mapping[str, Any], list[list[Action]]]]:
    models = document if isinstance(document, list) else [document]
    for index, model in enumerate(models):
        answers = model.get(POLICIES) if isinstance(model, dict) else None
        if not isinstance(answers, list):
            text = f"expected a list of answers, got {describe(answers)}"
            raise InputError(text, field=f"[{index}].{POLICIES}", code=ErrorCode.TYPE)
        for number, answer in enumerate(answers):
            field = f"[{index}].{POLICIES}[{number}]"
            stages = answer.get(ORDER) if isinstance(answer, dict) else None
            if not isinstance(stages, dict) or len(stages) != instance.num_devices:
                continue
            rows = []
            for rank in range(len(stages)):
                with errors_about(f"{field}.{ORDER}.stage{rank}"):
                    rows.append(_row(stages, rank))
            length = 2 * instance.num_microbatches
            if all(len(row) == length for row in rows):
                yield field, answer, rows


def _row(stages: Mapping[str, Any], rank: int) -> list[Action]:
    ops = stages.get(f"stage{rank}")
    if not isinstance(ops, list):
        raise InputError("expected a list of ops", code=ErrorCode.TYPE)
    row = []
    for op in ops:
        match = _OP.fullmatch(op) if isinstance(op, str) else None
        if match is None:
            text = f'expected ops such as "F0" and "B0", got {describe(op)}'
            raise InputError(text)
        row.append(Action(rank, match[1], int(match[2])))
    return row


def _claims(
    answer: Mapping[str, Any], instance: PipelineInstance, field: str
) -> dict[str, Any] | None:
    layers = instance.layers
    if layers is None:
        return None
    counts = answer.get("optimal_layers")
    if (
        not isinstance(counts, list)
        or len(counts) != instance.num_stages
        or any(type(count) is not int or count < 1 for count in counts)
        or sum(counts) != layers.body.count
    ):
        text = f"expected {layers.body.count} layers on {instance.num_stages} stages"
        raise InputError(f"{text}, got {describe(counts)}", field=field)
    return {"layers": [{KEPT: count} for count in counts]}
