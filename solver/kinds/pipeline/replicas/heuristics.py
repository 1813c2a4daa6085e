"""Published schedules on pipelines with replicas: each replica runs one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.dag import Edges, chain_edges
from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.joint import lower_replicas, replica_of
from ppsolve.models.kinds.pipeline.replicas import Members
from ppsolve.solver.heuristics.heuristic import Effort, Heuristic, Proposal, Request
from ppsolve.solver.kinds.pipeline.adapters import Adapter
from ppsolve.solver.kinds.pipeline.collectives import orders_if_whole


@dataclass(frozen=True, eq=False)
class ReplicaProblem:
    """One replica alone."""

    instance: PipelineInstance  # the pipeline of its micro-batches, numbered from 0
    problem: Problem  # what it lowers to, with the tick of the joint problem
    ops: slice  # its ops in the joint problem


def members_of(problem: Problem) -> Members:
    """Return the micro-batches of each replica of a joint problem, in the order of its ops."""
    members = []
    for replica in range(int(problem.replica.max()) + 1):
        mine = problem.microbatch[
            (problem.replica == replica) & (problem.microbatch != FREE)
        ]
        members.append(tuple(dict.fromkeys((mine // problem.slices).tolist())))
    return tuple(members)


def parts_of(instance: PipelineInstance, members: Members) -> list[ReplicaProblem]:
    """Return the replicas of a pipeline, each alone."""
    instance = instance.in_numbers()
    problems = lower_replicas(instance, members)
    stops = np.cumsum([problem.num_ops for problem in problems]).tolist()
    return [
        ReplicaProblem(
            replica_of(instance, microbatches),
            problem,
            slice(stop - problem.num_ops, stop),
        )
        for microbatches, problem, stop in zip(members, problems, stops, strict=True)
    ]


def run_in_replicas(heuristic: Heuristic, request: Request) -> Proposal:
    """Return the schedule of a heuristic in every replica, each by itself."""
    schedules = []
    for asked in _requests(request):
        obstacle = heuristic.obstacle(asked.instance)
        if obstacle is not None:
            raise NotApplicableError(f"{obstacle} in every replica")
        schedules.append(heuristic.propose(asked).schedule)
    start = np.concatenate([schedule.start for schedule in schedules])
    schedule = Schedule(request.problem, start, waits=_waits(schedules))
    return Proposal(schedule, orders_if_whole(schedule))


IN_REPLICAS = Adapter("replicas", run_in_replicas)


def _requests(request: Request) -> Iterator[Request]:
    # Each replica has a fair part of the time that is left.
    replicas = parts_of(request.instance, members_of(request.problem))
    for number, replica in enumerate(replicas):
        clock = request.effort.clock.share(1 / (len(replicas) - number))
        effort = Effort(clock, uses_all=request.effort.uses_all)
        yield Request(replica.instance, replica.problem, request.group_size, effort)


def _waits(schedules: list[Schedule]) -> Edges:
    firsts = np.cumsum([0, *(len(schedule.start) for schedule in schedules)])
    waits = [schedule.waits or chain_edges([]) for schedule in schedules]
    before = [edges[0] + first for edges, first in zip(waits, firsts, strict=False)]
    after = [edges[1] + first for edges, first in zip(waits, firsts, strict=False)]
    return (
        np.concatenate(before),
        np.concatenate(after),
        np.concatenate([w[2] for w in waits]),
    )
