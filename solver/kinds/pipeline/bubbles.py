"""A published order first, fillers afterwards: the greedy baseline of pipelines with fillers.

The order is repeated in each step. Fillers are placed one after the other, in the order of their
releases, then of their deadlines, the longest first: PipeFisher's rule (Osawa et al. 2023), for any
work. Each piece runs in the first bubble that it fits into. Where there is none before its
deadline, it runs in the one that it fits best, and what follows is later. Of several devices it
takes the one on which it starts first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ppsolve.models.core.dag import CycleError, chain_edges
from ppsolve.models.core.keys import OpKey
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, NotApplicableError
from ppsolve.models.kinds.pipeline.filler_devices import FillerDevices, device_choices
from ppsolve.models.kinds.pipeline.labels import FILLER_KIND, STEP_KIND
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.solver.board import Board
from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.kinds.pipeline.adapters import Adapter
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.tables import rows_by
from ppsolve.solver.structure.timing import time_orders


def fill_order(heuristic: Heuristic, request: Request) -> Proposal:
    """Return the schedule of a heuristic, repeated in each step, with fillers in its bubbles."""
    instance = request.instance
    plain = instance.model_copy(update={"fillers": (), "steps": 1})
    problem = lower_pipeline(plain, scale=request.problem.scale)
    # What it finds on the way is a schedule of one step: none for the board of the run.
    effort = replace(request.effort, board=Board())
    step: Proposal = heuristic.propose(
        replace(request, instance=plain, problem=problem, effort=effort)
    )
    fillers = device_choices(instance, request.problem)
    schedule = fill_bubbles(fillers, step.schedule)
    return replace(step, schedule=schedule, orders=None)


WITH_FILLERS = Adapter("has_fillers_or_steps", fill_order)


def fill_bubbles(fillers: FillerDevices, step: Schedule) -> Schedule:
    """Return a schedule of all steps and fillers in the order of a schedule of one step.

    Each filler may run on some devices. The schedule of the step has no fillers, at the same scale.
    A `DeadlockError` says that a filler waits for an op that the order has behind one that waits
    for the filler.
    """
    problem = fillers.base
    if step.problem.joined:
        raise NotApplicableError("needs forwards and backwards by themselves")
    copies = _copies(problem, step.problem)
    chains, level = {}, Dag.of(step.problem).level
    for resource in step.problem.span_resources.tolist():
        # Level by level where ops take no time.
        ops = step.problem.ops_by_resource[resource]
        ops = ops[np.lexsort((ops, level[ops], step.end[ops], step.start[ops]))]
        chains[resource] = np.concatenate([op_of[ops] for op_of in copies])
    placement = _Placement(fillers, chains)
    try:
        placement.fill()
    except CycleError as error:
        raise DeadlockError(problem.op_names(error.nodes)) from None
    choice = np.array(sorted(placement.choice), dtype=np.int64)
    return time_orders(fillers.problem(choice), list(placement.chains.values()))


def _copies(problem: Problem, step: Problem) -> list[IntArray]:
    # The ops of each step of a problem, in the order of those of one step.
    ops = np.flatnonzero(~problem.kind_mask(FILLER_KIND, STEP_KIND))
    number = dict(zip(_keys(problem, ops), ops.tolist(), strict=True))
    keys, every = (
        _keys(step, np.arange(step.num_ops)),
        range(int(problem.step.max()) + 1),
    )
    return [
        np.array([number[*key[:2], k] for key in keys], dtype=np.int64) for k in every
    ]


def _keys(problem: Problem, ops: IntArray) -> list[tuple[OpKey, int, int]]:
    # With the piece and the step.
    absent = np.full(problem.num_ops, FREE)
    columns = (
        column if len(column) else absent for column in (problem.piece, problem.step)
    )
    rows = (column[ops].tolist() for column in columns)
    return list(zip(problem.op_keys(ops), *rows, strict=True))


class _Placement:
    def __init__(self, fillers: FillerDevices, chains: dict[int, IntArray]) -> None:
        self.problem, self.chains = fillers.base, chains
        self.fillers, self.choice, problem = fillers, set[int](), fillers.base
        self.is_filler = problem.kind_mask(FILLER_KIND)
        pointer, order = rows_by(problem.after, problem.num_ops)
        self.sources = np.split(problem.before[order], pointer[1:-1])
        pointer, order = rows_by(problem.before, problem.num_ops)
        self.users = np.split(problem.after[order], pointer[1:-1])

    def fill(self) -> None:
        """Give every piece its place in the order of its device."""
        self._time()
        ops = np.flatnonzero(self.is_filler)
        # A piece comes before those that follow it: it starts earlier, or else more is behind it.
        keys = ops, -self.rest[ops], self.latest[ops], self.start[ops]
        for op in ops[np.lexsort(keys)].tolist():
            self._place(op)

    def _time(self) -> None:
        """Time all ops; pieces without a place start as soon as they can, beside others."""
        duration = self.problem.duration
        dag = Dag.of(self.problem, chain_edges(self.chains.values()))
        self.start = dag.heads(self.problem.release)
        self.end = self.start + duration
        # Of each piece, when it has to end, and the time from its start to the end of those behind.
        self.latest = np.full(len(duration), NEVER, dtype=np.int64)
        self.rest = duration.copy()
        for op in np.flatnonzero(self.is_filler).tolist()[::-1]:
            for user in self.users[op].tolist():
                end = self.start[user]
                if self.is_filler[user]:
                    end = self.latest[user] - duration[user]
                    self.rest[op] = max(self.rest[op], duration[op] + self.rest[user])
                self.latest[op] = min(self.latest[op], end)

    def _place(self, op: int) -> None:
        release, deadline = int(self.problem.release[op]), int(self.latest[op])
        earliest = int(self.end[self.sources[op]].max(initial=release))
        length, start, lacks = int(self.problem.duration[op]), earliest, 0
        if self.problem.is_compute[op]:
            options = {int(self.problem.resources_of(op)[0]): FREE}
            for number in self.fillers.covering.get(op, ()):
                options[self.fillers.options[number].resources[0]] = number
            fits = [
                (*self._first_fit(r, length, earliest, deadline), r) for r in options
            ]
            lacks, start, index, resource = min(fits, key=lambda fit: fit[:2])
            self.chains[resource] = np.insert(self.chains[resource], index, op)
            self.choice |= {options[resource]} - {FREE}
        self.start[op], self.end[op] = start, start + length
        if lacks:
            self._time()

    def _first_fit(
        self, resource: int, length: int, earliest: int, deadline: int
    ) -> tuple[int, int, int]:
        # Returns what the best bubble lacks, the start there, and its place in the chain.
        chain = self.chains[resource]
        begin, end = np.append(0, self.end[chain]), np.append(self.start[chain], NEVER)
        # A bubble is open if what is before it ends in time and what is behind starts later.
        is_open = (begin <= deadline) & (end >= earliest)
        room = np.minimum(end, deadline) - np.maximum(begin, earliest)
        lacking = np.where(is_open, np.maximum(length - room, 0), NEVER)
        index = int(np.argmin(lacking))
        return int(lacking[index]), max(int(begin[index]), earliest), index
