"""Results that claim that a runtime runs them: their orders, and what is false."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import numpy as np

from ppsolve.models.core.problem import FREE
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import DeadlockError, ErrorCode, InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import CHOSEN_LAYERS
from ppsolve.models.kinds.pipeline.modes import CHOSEN_MODES, modes_of
from ppsolve.solver.kinds.pipeline.actions import orders_of
from ppsolve.solver.kinds.pipeline.claimed import CHUNKS, RULE, claims_runtime
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    COMPUTE_KINDS,
    FORWARD,
    Action,
    ComputeStep,
)
from ppsolve.solver.kinds.pipeline.programs.shape import shape_of
from ppsolve.solver.kinds.pipeline.programs.waited import Programs, run_by
from ppsolve.solver.kinds.pipeline.runtimes.families import family_of
from ppsolve.solver.kinds.pipeline.runtimes.family import RuntimeFamily
from ppsolve.solver.kinds.pipeline.runtimes.timing import RuntimeSettings, settings_of

TIMINGS = 20
"""Times that a schedule is run until receives stand where its data are sent."""


def rows_of(schedule: Schedule) -> list[list[ComputeStep]] | None:
    """Return the actions of each device, or None where one runs in pieces with others between.

    Blocks without the weight gradient of their backward are pieces too.
    """
    if schedule.problem.kind_mask("F+I").any():
        return None
    rows: list[list[ComputeStep]] = []
    for order in orders_of(schedule):
        row = [action for action, _ in groupby(order)]
        if len(set(row)) < len(row):
            return None
        rows.append(row)
    return rows


def as_waited(
    schedule: Schedule, family: RuntimeFamily, instance: PipelineInstance
) -> Schedule:
    """Return a schedule of a runtime of free orders as its ranks wait for transfers.

    An `InputError` says that receives that stand where data are sent change when they are sent, so
    that no place is right.
    """
    rows = rows_of(schedule) if instance.p2p.is_waited_for else None
    if rows is None:
        return schedule
    if family.row_programs is not None:
        return run_by(family.row_programs(rows), schedule, instance).normalised()
    if family.timed_programs is None:
        return schedule
    programs: Programs | None = None
    for _ in range(TIMINGS):
        placed = family.timed_programs(rows, ends_of(schedule))
        if placed == programs:
            return schedule
        schedule = run_by(placed, schedule, instance).normalised()
        programs = placed
    raise InputError(f"{family.title} would receive in other places each time")


def ends_of(schedule: Schedule) -> dict[Action, int]:
    """Return when actions end, of an op in pieces the last one, of halves the whole backward."""
    problem, ends = schedule.problem, dict[Action, int]()
    keys = problem.op_keys(np.arange(problem.num_ops))
    for op, end in enumerate(schedule.end.tolist()):
        for key in problem.joined[op].keys if op in problem.joined else (keys[op],):
            if key.kind in COMPUTE_KINDS and key.microbatch != FREE:
                kinds = (key.kind, BACKWARD) if key.kind != FORWARD else (FORWARD,)
                for kind in kinds:
                    action = Action(key.stage, kind, key.microbatch)
                    ends[action] = max(end, ends.get(action, end))
    return ends


def claimed_runtime(instance: PipelineInstance, document: Any) -> RuntimeFamily | None:
    """Return the runtime that a document claims, None where it claims none.

    `document`: a result or a schedule.
    Raises `InputError`: the runtime is none, or it runs no schedule of such a pipeline.
    """
    if not claims_runtime(document):
        return None
    claim = document[RULE]
    if not isinstance(claim, dict) or not isinstance(claim.get("name"), str):
        raise InputError(
            f"expected a runtime with its name, got {describe(claim)}",
            field=RULE,
            code=ErrorCode.TYPE,
        )
    family = family_of(claim["name"])
    obstacle = family.obstacle(instance)
    if obstacle is not None:
        raise InputError(obstacle, field=RULE, code=ErrorCode.UNSUPPORTED)
    return family


def claimed_settings(
    instance: PipelineInstance, document: Any
) -> RuntimeSettings | None:
    """Return the settings that a document claims, None where it claims no runtime of few orders.

    Raises `InputError`: as of `claimed_runtime`, or the runtime has no such settings.
    """
    family = claimed_runtime(instance, document)
    if family is None or not family.is_finite:
        return None
    named = document[RULE].get("settings")
    chunks = {}
    if instance.layers is not None and isinstance(named, dict) and CHUNKS in named:
        chunks = {CHUNKS: shape_of(instance).chunks}
    for each in settings_of(family, instance):
        if each.named | chunks == named:
            return each
    shown = json.dumps(named)[:60]
    raise InputError(f"{family.title} has no settings {shown} for it", field=RULE)


def runtime_violations(
    instance: PipelineInstance, document: Any, schedule: Schedule | None
) -> list[Violation]:
    """Return why the runtime that a document claims does not run its schedule.

    `document`: a result or a schedule.
    `schedule`: its schedule, as far as it could be read.
    Returns: at most one, of the rule ``runtime``.
    """
    if schedule is None:
        return []
    instance = instance.by_rank()
    try:
        family = claimed_runtime(instance, document)
        if family is None:
            return []
        settings = claimed_settings(instance, document)
        if settings is not None:
            return _other_starts(instance, schedule, family, settings)
        modes, rows = modes_of(instance), rows_of(schedule)
        if rows is None:
            raise InputError(
                "an op runs in pieces, with others between them", code=ErrorCode.RANGE
            )
        wrong = (
            None
            if modes is None
            else family.refused_modes(modes, schedule.problem.chosen(CHOSEN_MODES))
        )
        if instance.layers is not None:
            counts = schedule.problem.chosen(CHOSEN_LAYERS)
            wrong = family.refused_layers(instance.layers, counts)
        if wrong is not None:
            raise InputError(wrong, code=ErrorCode.UNSUPPORTED)
        family.order_of(rows, shape_of(instance))
        wanted = as_waited(schedule.normalised(), family, instance)
        return other_starts(schedule, wanted, family.title)
    except (InputError, DeadlockError) as error:
        return [Violation(RULE, str(error), ())]


def _other_starts(
    instance: PipelineInstance,
    found: Schedule,
    family: RuntimeFamily,
    settings: RuntimeSettings,
) -> list[Violation]:
    refused = settings.refused(found.problem.choices)
    if refused is not None:
        text = f"{family.title} runs {settings.words}, {refused}"
        return [Violation(RULE, text, ())]
    wanted = settings.timed(instance, found.problem)
    return other_starts(found, wanted, f"{family.title} with {settings.words}")


def other_starts(schedule: Schedule, wanted: Schedule, runner: str) -> list[Violation]:
    """Return the first op that a runtime starts at another time, at most one.

    `wanted`: the schedule that it runs, normalised.
    `runner`: the runtime, in words.
    """
    problem, starts = schedule.problem, schedule.normalised().start
    wrong = np.flatnonzero(starts != wanted.start)
    if not len(wrong):
        return []
    op = int(wrong[np.argmin(np.minimum(starts, wanted.start)[wrong])])
    name, time = problem.op_names([op])[0], problem.scale.time
    text = (
        f"{name} starts at {time(int(starts[op]))}; {runner} starts it at "
        f"{time(int(wanted.start[op]))}"
    )
    return [Violation(RULE, text, (name,))]
