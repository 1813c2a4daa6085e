"""Schedules of ranks that wait for transfers: orders of ops, run by programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from ppsolve.models.core.keys import OpKey
from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.entries import entry_at
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.labels import RECOMPUTE_KIND
from ppsolve.solver.kinds.pipeline.actions import gradient_after_weight
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    BACKWARD_INPUT,
    COMPUTE_KINDS,
    FORWARD,
    Action,
    Communication,
    ComputeStep,
    actions_of,
)
from ppsolve.solver.kinds.pipeline.programs.waits import (
    Network,
    ProgramStep,
    Wait,
    run_programs,
)
from ppsolve.solver.structure.points import in_sequence

Programs = Sequence[Sequence[ProgramStep]]
"""The program of each rank."""


def run_by(
    programs: Programs, schedule: Schedule, instance: PipelineInstance
) -> Schedule:
    """Return the schedule of ranks that run programs, which have the order of a schedule.

    Ops of a step, such as the halves of a backward, follow each other at once. What is in no
    program runs behind those of its rank, as soon as it can. Errors are those of `run_programs`.
    """
    problem = schedule.problem
    rows = _steps_of_ops(programs, schedule)
    duration: dict[ComputeStep, int] = {}
    for op, step in rows:
        duration[step] = duration.get(step, 0) + int(problem.duration[op])
    run = run_programs(programs, duration.__getitem__, _network(instance, problem))
    start, release = schedule.start + run.makespan, problem.release.copy()
    clock = dict(run.start)
    for op, step in rows:
        start[op] = release[op] = clock[step]
        clock[step] += int(problem.duration[op])
    released = Schedule(replace(problem, release=release), start, schedule.waits)
    timed = in_sequence(released, problem.span_resources)
    return Schedule(problem, timed.start, schedule.waits)


def waits_of(schedule: Schedule, *, is_whole: bool) -> dict[str, list[int]]:
    """Return for how long each rank waits before its ops, for work and for transfers.

    It waits for work until other ranks have made what its next op needs, then for transfers.

    `is_whole`: whether backwards in halves run as one, and gradients leave behind both.
    """
    problem = schedule.problem
    made = np.zeros(problem.num_ops, dtype=np.int64)
    edges = [(problem.before, problem.after)]
    if is_whole:
        halves = [problem.grid(kind).ravel() for kind in ("I", "W")]
        has_both = (halves[0] != FREE) & (halves[1] != FREE)
        fused = gradient_after_weight(problem, *(ops[has_both] for ops in halves))
        edges.append(fused[:2])
    for before, after in edges:
        is_other = problem.device[before] != problem.device[after]
        np.maximum.at(made, after[is_other], schedule.end[before[is_other]])
    again = np.flatnonzero(problem.kind_mask(RECOMPUTE_KIND))
    for kind in ("I", "B"):
        # What recomputes waits for the gradient of its backward.
        backward = problem.grid(kind)[problem.stage[again], problem.microbatch[again]]
        has = backward != FREE
        np.maximum.at(made, again[has], made[backward[has]])
    waits: dict[str, list[int]] = {"work": [], "transfers": []}
    for resource in problem.span_resources.tolist():
        ops = problem.ops_by_resource[resource]
        ops = ops[np.lexsort((schedule.end[ops], schedule.start[ops]))]
        start = schedule.start[ops]
        free = np.maximum.accumulate(np.append(0, schedule.end[ops]))[:-1]
        begun = np.clip(made[ops], free, np.maximum(free, start))
        waits["work"].append(int((begun - free).sum()))
        waits["transfers"].append(int((np.maximum(start, free) - begun).sum()))
    return waits


def _network(instance: PipelineInstance, problem: Problem) -> Network:
    @cache
    def latency(source: int, target: int) -> int:
        return problem.scale.ticks(entry_at(instance.p2p.latency, source, target))

    is_rendezvous = instance.p2p.mode == "rendezvous"
    return Network(instance.stage_to_device, latency, is_rendezvous)


def _steps_of_ops(
    programs: Programs, schedule: Schedule
) -> list[tuple[int, ComputeStep]]:
    """Return the ops of programs in the order of their starts, each with its step."""
    problem = schedule.problem
    keys = problem.op_keys(np.arange(problem.num_ops))
    # A block is known by its forward.
    for op, joined in problem.joined.items():
        keys[op] = joined.keys[0]
    step_of = {
        action: step
        for program in programs
        for step in program
        if not isinstance(step, Communication | Wait)
        for action in actions_of(step)
    }
    rows = []
    for op in np.lexsort((schedule.end, schedule.start)).tolist():
        for action in _actions_with(keys[op]):
            if action in step_of:
                rows.append((op, step_of[action]))
                break
    return rows


def _actions_with(key: OpKey) -> Iterator[Action]:
    """Yield the actions that an op may belong to; recomputing belongs to the backward."""
    if key.kind not in {*COMPUTE_KINDS, RECOMPUTE_KIND} or key.microbatch == FREE:
        return
    kind = BACKWARD_INPUT if key.kind == RECOMPUTE_KIND else key.kind
    yield Action(key.stage, kind, key.microbatch)
    if kind != FORWARD:
        yield Action(key.stage, BACKWARD, key.microbatch)
