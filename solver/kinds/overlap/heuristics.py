"""The heuristics of programs: Inductor's passes, and list scheduling on both streams.

List scheduling builds a program order along its own replay.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import HeuristicFailedError, InputError
from ppsolve.models.kinds.overlap.instance import NodeKind, OverlapInstance
from ppsolve.models.kinds.overlap.lowering import LoweredOverlap
from ppsolve.solver.heuristics.heuristic import OURS, Heuristic, Proposal, Request
from ppsolve.solver.kinds.overlap.nodes import OverlapProgram, as_integers, users_of
from ppsolve.solver.kinds.overlap.passes import PASSES, STABLE, run_passes
from ppsolve.solver.kinds.overlap.realise import crowded_group, realised, run_order
from ppsolve.solver.kinds.overlap.replay import is_valid_order, last_uses, replay

Urgency = Callable[[OverlapProgram], list[tuple[int, ...]]]
"""From a program to the key of each node; the smallest is the most urgent."""


def _by_tail(program: OverlapProgram) -> list[tuple[int, ...]]:
    return [(-tail,) for tail in program.longest_path(program.duration)]


def _by_communication(program: OverlapProgram) -> list[tuple[int, ...]]:
    lengths = [
        length if kind is NodeKind.COMM else 0
        for kind, length in zip(program.kind, program.duration, strict=True)
    ]
    below, tails = program.longest_path(lengths), program.longest_path(program.duration)
    return [(-comm, -tail) for comm, tail in zip(below, tails, strict=True)]


def _by_next_collective(program: OverlapProgram) -> list[tuple[int, ...]]:
    first, tails = program.first_collective(), program.longest_path(program.duration)
    return [(number, -tail) for number, tail in zip(first, tails, strict=True)]


def _by_place(program: OverlapProgram) -> list[tuple[int, ...]]:
    return [()] * program.size


URGENCIES: dict[str, tuple[str, Urgency]] = {
    "tail": ("longest path below first", _by_tail),
    "communication": ("most communication on a path below first", _by_communication),
    "next-collective": ("what the earliest collective needs first", _by_next_collective),
    "program": ("program order first", _by_place),
}
"""Summary and keys of each rule."""

FIT = "-fit"
"""Suffix of the rules that prefer compute that fits behind a collective.

While a more urgent node waits for a collective, they prefer compute that ends before it does, and
wait for it rather than run compute of which half or more would stick out, as Inductor's
reorder_compute_for_overlap does.
"""

LIST_RULES = tuple(name + suffix for suffix in ("", FIT) for name in URGENCIES)


def list_overlap(
    instance: OverlapInstance, durations: Sequence[int], rule: str = "tail"
) -> list[int]:
    """Return a program order by list scheduling on the compute and comm streams.

    Collectives are launched as soon as they are ready, unless that breaks a cap; waits come once
    they cost nothing, or where there is no compute to run. The order is always valid; it keeps caps
    only where something is left to run.

    Parameters
    ----------
    instance, durations
        As in `replay`; the caps and the order of collectives count.
    rule : str
        A name in `LIST_RULES`.

    Returns
    -------
    list of int
        Places in the program, in the new order.
    """
    program = OverlapProgram.of(instance, durations, chained=instance.collective_order == "frozen")
    keys = URGENCIES[rule.removesuffix(FIT)][1](program)
    by_rank = sorted(range(program.size), key=lambda node: (keys[node], node))
    return _OrderBuilder(instance, program, by_rank, fits=rule.endswith(FIT)).run()


class _OrderBuilder:
    def __init__(
        self, instance: OverlapInstance, program: OverlapProgram, by_rank: list[int], *, fits: bool
    ) -> None:
        self.instance, self.program, self.by_rank, self.fits = instance, program, by_rank, fits
        self.rank = {node: rank for rank, node in enumerate(by_rank)}
        self.missing = [len(deps) for deps in program.deps]
        self.end = [0] * program.size
        self.clock = 0
        self.free: Counter[str] = Counter()
        self.caps = _CapTracker(instance)
        self.order: list[int] = []
        self.compute: list[int] = []
        self.comms: list[int] = []
        self.waits: list[tuple[int, int]] = []
        for node, count in enumerate(self.missing):
            if not count:
                self._note(node)

    def run(self) -> list[int]:
        while len(self.order) < len(self.end):
            if self.waits and self.waits[0][0] <= self.clock:
                self._place(heapq.heappop(self.waits)[1])
            elif not self._launch() and not self._run_compute():
                self._force()
        return self.order

    def _note(self, node: int) -> None:
        kind = self.program.kind[node]
        if kind is NodeKind.WAIT:
            heapq.heappush(self.waits, (self._ready(node), node))
        else:
            insort(self.comms if kind is NodeKind.COMM else self.compute, self.rank[node])

    def _ready(self, node: int) -> int:
        return max((self.end[dep] for dep in self.program.deps[node]), default=0)

    def _launch(self) -> bool:
        for index, rank in enumerate(self.comms):
            if self.caps.admits(self.by_rank[rank]):
                self._place(self.by_rank[self.comms.pop(index)])
                return True
        return False

    def _run_compute(self) -> bool:
        allowed = (
            index for index, rank in enumerate(self.compute) if self.caps.admits(self.by_rank[rank])
        )
        index = self._fitting(allowed) if self._holds_back() else next(allowed, None)
        if index is None:
            return False
        self._place(self.by_rank[self.compute.pop(index)])
        return True

    def _holds_back(self) -> bool:
        """Return True if a node behind a collective is more urgent than all ready compute."""
        if not (self.fits and self.waits and self.compute):
            return False
        return self.rank[self.waits[0][1]] < self.compute[0]

    def _fitting(self, allowed: Iterator[int]) -> int | None:
        left = self.waits[0][0] - self.clock
        sticking_out = None
        for index in allowed:
            length = self.program.duration[self.by_rank[self.compute[index]]]
            if length <= left:
                return index
            if sticking_out is None and 2 * left > length:
                sticking_out = index
        return sticking_out

    def _force(self) -> None:
        if self.waits:
            self._place(heapq.heappop(self.waits)[1])
        else:
            self._place(self.by_rank[(self.compute or self.comms).pop(0)])

    def _place(self, node: int) -> None:
        self.order.append(node)
        self.caps.place(node)
        ready = max(self.clock, self._ready(node))
        if self.program.kind[node] is NodeKind.COMM:
            group = self.instance.group_of(node)
            self.end[node] = max(ready, self.free[group]) + self.program.duration[node]
            self.free[group] = self.end[node]
        else:
            self.clock = self.end[node] = ready + self.program.duration[node]
        for user in self.program.users[node]:
            self.missing[user] -= 1
            if not self.missing[user]:
                self._note(user)


class _CapTracker:
    # Bytes count from a node's place in the order until its last use is placed; a collective uses
    # its inputs until its wait is placed. That is never less than the replay holds.

    def __init__(self, instance: OverlapInstance) -> None:
        self.instance = instance
        self.flying: Counter[str] = Counter()
        self.bytes, factor = as_integers(node.bytes for node in instance.nodes)
        cap = instance.max_live_bytes
        self.bytes_left = None if cap is None else int(Fraction(cap) * factor)
        self.uses = [] if cap is None else self._uses()
        self.uses_left = [len(used) for used in users_of(self.uses)]

    def _uses(self) -> list[list[int]]:
        """Return for every node the outputs that are held until it is placed."""
        found: list[list[int]] = [[] for _ in self.instance.nodes]
        for node, uses in enumerate(last_uses(self.instance)):
            if self.bytes[node]:
                for use in {self.instance.wait_of.get(use, use) for use in uses}:
                    found[use].append(node)
        return found

    def admits(self, node: int) -> bool:
        if self.bytes_left is not None and self.bytes[node] > max(self.bytes_left, 0):
            return False
        if self.instance.nodes[node].kind is not NodeKind.COMM:
            return True
        group = self.instance.group_of(node)
        cap = self.instance.cap_of(group)
        return cap is None or self.flying[group] < cap

    def place(self, node: int) -> None:
        kind = self.instance.nodes[node].kind
        if kind is NodeKind.COMM:
            self.flying[self.instance.group_of(node)] += 1
        elif kind is NodeKind.WAIT:
            collective = self.instance.collective_of[node]
            self.flying[self.instance.group_of(collective)] -= 1
        if self.bytes_left is not None:
            self.bytes_left -= self.bytes[node]
            for output in self.uses[node]:
                self.uses_left[output] -= 1
                if not self.uses_left[output]:
                    self.bytes_left += self.bytes[output]


def latest_safe_launch(
    instance: OverlapInstance, durations: Sequence[int], order: Sequence[int]
) -> list[int]:
    """Launch every collective as late as the makespan of an order allows.

    Compute and waits keep their order, and so do the collectives of each group; no collective moves
    forward. Going through the order from its end, a collective is put after the first compute or
    wait that ends early enough for it. The makespan and the number in flight stay the same or fall;
    outputs of collectives are made later, but their inputs may be held longer.

    Parameters
    ----------
    instance, durations, order
        As in `replay`.

    Returns
    -------
    list of int
        Places in the program, in the new order.
    """
    return _Delaying(instance, durations, order).run(order)


class _Delaying:
    # The new order is built from its end. For every node, start in the replayed order + tail in the
    # new one is at most the makespan: a new launch is allowed only where it keeps this, and all
    # other edges are those of the replayed order.

    def __init__(
        self, instance: OverlapInstance, durations: Sequence[int], order: Sequence[int]
    ) -> None:
        self.kind = [node.kind for node in instance.nodes]
        self.durations = durations
        replayed = replay(instance, order, durations)
        self.end: list[int] = replayed.end.tolist()
        self.makespan = replayed.makespan
        self.deps = [list(own) for own in instance.deps]
        for comm, previous in instance.previous_along(order).items():
            if previous not in self.deps[comm]:
                self.deps[comm].append(previous)
        self.users = users_of(self.deps)
        self.users_left = [len(users) for users in self.users]
        self.tail = [0] * len(self.deps)
        self.launches = 0
        self.reversed_order: list[int] = []
        self.held: list[tuple[int, int]] = []

    def run(self, order: Sequence[int]) -> list[int]:
        for node in reversed(order):
            if self.kind[node] is not NodeKind.COMM:
                self._launch(self.end[node])
                length = 0 if self.kind[node] is NodeKind.WAIT else self.durations[node]
                self._put(node, max(self.launches, self._below(node)) + length)
                self.launches = self.tail[node]
        self._launch(0)
        return self.reversed_order[::-1]

    def _below(self, node: int) -> int:
        return max((self.tail[user] for user in self.users[node]), default=0)

    def _launch(self, time: int) -> None:
        """Put the collectives that may start at `time` before all nodes put so far."""
        while self.held and -self.held[0][0] >= time:
            comm = heapq.heappop(self.held)[1]
            self._put(comm, self._below(comm) + self.durations[comm])
            self.launches = max(self.launches, self.tail[comm])

    def _put(self, node: int, tail: int) -> None:
        self.tail[node] = tail
        self.reversed_order.append(node)
        for dep in self.deps[node]:
            self.users_left[dep] -= 1
            if not self.users_left[dep] and self.kind[dep] is NodeKind.COMM:
                latest = self.makespan - self._below(dep) - self.durations[dep]
                heapq.heappush(self.held, (-latest, dep))


A_PROGRAM = "a program of kernels and collectives (kind overlap)"
INDUCTOR = "PyTorch Inductor: torch/_inductor/comms.py"
TWO_STREAM = "two-stream-"


def _propose(make: Callable[[Request], list[int]], request: Request) -> Proposal:
    lowered = LoweredOverlap.of(request.instance, request.problem)
    return _run(request.instance, lowered, make(request))


def _passed(name: str, request: Request) -> list[int]:
    result = run_passes(request.instance, name)
    if result.order is None:
        done = f" (completed: {', '.join(result.completed)})" if result.completed else ""
        raise HeuristicFailedError(f"{result.error}{done}")
    return result.order


def _durations(request: Request) -> list[int]:
    durations: list[int] = request.problem.duration[: len(request.instance.nodes)].tolist()
    return durations


def _listed(rule: str, request: Request) -> list[int]:
    return list_overlap(request.instance, _durations(request), rule)


def _launched_late(request: Request) -> list[int]:
    instance, durations = request.instance, _durations(request)
    orders = [list_overlap(instance, durations, rule) for rule in LIST_RULES]
    best = min(orders, key=lambda order: replay(instance, order, durations).makespan)
    return latest_safe_launch(instance, durations, best)


OVERLAP_HEURISTICS = (
    *(
        Heuristic(
            name + suffix,
            summary + note,
            partial(_propose, partial(_passed, name + suffix)),
            A_PROGRAM,
            source=OURS if name == "original" else INDUCTOR,
        )
        for suffix, note in (("", ""), (STABLE, "; ties by program order"))
        for name, (summary, _) in PASSES.items()
        if (name, suffix) != ("original", STABLE)
    ),
    *(
        Heuristic(
            TWO_STREAM + name + suffix,
            f"list scheduling on both streams, {summary}{note}",
            partial(_propose, partial(_listed, name + suffix)),
            A_PROGRAM,
        )
        for suffix, note in (("", ""), (FIT, "; kernels that fit behind a collective"))
        for name, (summary, _) in URGENCIES.items()
    ),
    Heuristic(
        "latest-launch",
        "the best two-stream list, each collective launched as late as it stays hidden",
        partial(_propose, _launched_late),
        A_PROGRAM,
    ),
)
"""In the order of reports."""


def plan_of_order(instance: OverlapInstance, problem: Problem, order: list[int]) -> Proposal:
    """Run a program order.

    Parameters
    ----------
    instance, problem
        The program and its problem.
    order : list of int
        Place in the program of every node; an `InputError` says that one comes before what it
        needs.

    Returns
    -------
    Proposal
        The order and its schedule.
    """
    if not is_valid_order(instance, order):
        raise InputError(
            "expected every node after what it depends on and, where collectives are frozen, after "
            "those before it"
        )
    return _run(instance, LoweredOverlap.of(instance, problem), order)


def _run(instance: OverlapInstance, lowered: LoweredOverlap, order: list[int]) -> Proposal:
    schedule, timed = run_order(instance, lowered, order)
    return Proposal(schedule, order=order, broken=crowded_group(instance, timed))


def plan_of_schedule(instance: OverlapInstance, schedule: Schedule) -> Proposal:
    """Turn a schedule into a program order and the schedule of that order.

    A `HeuristicFailedError` says that no program order that was tried keeps the caps.

    Parameters
    ----------
    instance, schedule
        The program, and a schedule of its problem.

    Returns
    -------
    Proposal
        The order and its schedule.
    """
    found = realised(instance, LoweredOverlap.of(instance, schedule.problem), schedule)
    if found is None:
        raise HeuristicFailedError("no program order of its schedule keeps the caps")
    return Proposal(found[1], order=found[0])
