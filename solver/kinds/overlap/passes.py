"""PyTorch Inductor's overlap passes, as published and with ties broken by program order."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.labels import NodeKind
from ppsolve.solver.kinds.overlap.nodes import OverlapProgram
from ppsolve.solver.kinds.overlap.overlap_scheduler import overlap_scheduler
from ppsolve.solver.kinds.overlap.peak_passes import (
    reorder_communication,
    simple_overlap,
    sink_waits_iterative,
)
from ppsolve.solver.kinds.overlap.replay import broken_dependency

RAISE_FAILURE = "AssertionError in raise_comms: assert len(cur_comms) <= 1"
"""Error of raise_comms where more than one collective could come first."""

MOVING = ("sink-waits-iterative", "reorder-communication", "inductor-recommended")
"""Recipes of passes that move nodes within a budget of memory."""

STABLE = "-stable"
"""Suffix of the variants that do not depend on names."""


@dataclass(frozen=True)
class PassResult:
    """Outcome of one pass, or of several in a row."""

    order: list[int] | None  # places in the program; None where a pass failed
    error: str | None  # the failing pass's own words
    completed: tuple[str, ...]  # names of the passes that ran through


class PassError(Exception):
    """A pass cannot handle a program; the text is the pass's own."""


Pass = Callable[[OverlapProgram], list[int]]


def sink_waits(program: OverlapProgram) -> list[int]:
    """Hold every wait back until a node that is no wait uses it directly."""
    held: set[int] = set()
    order: list[int] = []
    for node in range(program.size):
        if program.kind[node] is NodeKind.WAIT:
            held.add(node)
            continue
        used = held.intersection(program.deps[node])
        held -= used
        order += [*sorted(used, key=program.rank.__getitem__), node]
    return order + sorted(held, key=program.rank.__getitem__)


def raise_comms(program: OverlapProgram) -> list[int]:
    """Move collectives up to their last direct dependency, in their order.

    A `PassError` says that more than one is left to come first.
    """
    held: deque[int] = deque()
    backwards: list[int] = []
    for node in range(program.size - 1, -1, -1):
        if program.kind[node] is NodeKind.COMM:
            held.append(node)
            continue
        # The queue holds descending places, all below those of collectives that left it.
        users = (
            user for user in program.users[node] if program.kind[user] is NodeKind.COMM
        )
        first = min(users, default=program.size)
        while held and held[0] >= first:
            backwards.append(held.popleft())
        backwards.append(node)
    if len(held) > 1:
        raise PassError(RAISE_FAILURE)
    return [*held, *reversed(backwards)]


def reorder_compute_for_overlap(program: OverlapProgram) -> list[int]:
    """Fill the time of each collective with compute; keep a program without collectives."""
    if not program.comms:
        return list(range(program.size))
    return _Reordering(program).run()


class _Reordering:
    # Fillers are chosen right after collective k-1 and nodes that do not descend from it, so a
    # ready node descends from it only as a direct user. Descendants inside a set are found by one
    # pass over it in program order.

    def __init__(self, program: OverlapProgram) -> None:
        self.program = program
        self.first = program.first_collective()
        self.missing = [len(deps) for deps in program.deps]
        self.emitted = [False] * program.size
        self.order: list[int] = []
        self.fillers: list[tuple[int, int, int]] = []
        for node in range(program.size):
            self._note_if_ready(node)

    def run(self) -> list[int]:
        comms = self.program.comms
        self._sweep([*self._ancestors(comms[0]), comms[0]])
        rolled_over = 0
        for previous, comm in pairwise(comms):
            rolled_over = self._round(previous, comm, rolled_over)
        self._sweep(node for node, done in enumerate(self.emitted) if not done)
        return self.order

    def _round(self, previous: int, comm: int, rolled_over: int) -> int:
        duration = self.program.duration
        needed = self._ancestors(comm)
        below = self._descendants(previous, needed)
        free = [node for node in needed if node not in below]
        self._sweep(free)
        cost = rolled_over + sum(duration[node] for node in free)
        filled = self._fill(previous, cost)
        remaining = [node for node in needed if not self.emitted[node]]
        self._sweep(remaining)
        self._emit(comm)
        return 0 if remaining else filled

    def _ancestors(self, node: int) -> list[int]:
        ancestors: set[int] = set()
        stack = [node]
        while stack:
            for dep in self.program.deps[stack.pop()]:
                if not self.emitted[dep] and dep not in ancestors:
                    ancestors.add(dep)
                    stack.append(dep)
        return sorted(ancestors)

    def _descendants(self, node: int, within: list[int]) -> set[int]:
        descendants = {node}
        for candidate in within:
            if not descendants.isdisjoint(self.program.deps[candidate]):
                descendants.add(candidate)
        return descendants

    def _fill(self, previous: int, cost: int) -> int:
        """Emit ready nodes into the time of `previous` that `cost` leaves; return their time."""
        time, before = self.program.duration[previous], cost
        for _, _, node in list(self.fillers):
            length = self.program.duration[node]
            if cost >= time:
                break
            if 2 * (time - cost) <= length or previous in self.program.deps[node]:
                continue
            self._emit(node)
            cost += length
        return cost - before

    def _sweep(self, nodes: Iterable[int]) -> None:
        """Emit a set by sweeps in the order of ties, each node when it is reached and ready."""
        rank, inside = self.program.rank, set(nodes)
        heap = [(0, rank[node], node) for node in inside if not self.missing[node]]
        heapq.heapify(heap)
        while heap:
            sweep, tie, node = heapq.heappop(heap)
            for user in self._emit(node):
                if user in inside:
                    later = sweep + (rank[user] < tie)
                    heapq.heappush(heap, (later, rank[user], user))

    def _emit(self, node: int) -> list[int]:
        self.order.append(node)
        self.emitted[node] = True
        if self.program.kind[node] is not NodeKind.COMM:
            del self.fillers[bisect_left(self.fillers, self._key(node))]
        for user in self.program.users[node]:
            self.missing[user] -= 1
            self._note_if_ready(user)
        return [user for user in self.program.users[node] if not self.missing[user]]

    def _note_if_ready(self, node: int) -> None:
        if not self.missing[node] and self.program.kind[node] is not NodeKind.COMM:
            insort(self.fillers, self._key(node))

    def _key(self, node: int) -> tuple[int, int, int]:
        return self.first[node], self.program.rank[node], node


def list_sink(program: OverlapProgram) -> list[int]:
    """Return the list order that puts waits last among ready nodes."""
    return _Listing(program, sinks=True).run()


def list_raise(program: OverlapProgram) -> list[int]:
    """Return the list order that puts ancestors of the next collective first among ready nodes."""
    return _Listing(program, raises=True).run()


def list_reorder(program: OverlapProgram) -> list[int]:
    """Return the list order of both rules, with compute placed under each collective."""
    return _Listing(program, sinks=True, raises=True).run(fills=True)


_ListKey = tuple[int, int, int]
"""First collective (raise), 1 for waits (sink), and place in the program; the smallest first."""


class _Listing:
    def __init__(
        self, program: OverlapProgram, *, sinks: bool = False, raises: bool = False
    ) -> None:
        self.program = program
        first = program.first_collective() if raises else [0] * program.size
        is_wait = [kind is NodeKind.WAIT for kind in program.kind]
        self.keys = [
            (first[i], int(sinks and is_wait[i]), i) for i in range(program.size)
        ]
        self.missing = [len(deps) for deps in program.deps]
        self.compute: list[_ListKey] = []
        self.others: list[_ListKey] = []
        self.order: list[int] = []
        for node, count in enumerate(self.missing):
            if not count:
                self._push(node)

    def _push(self, node: int) -> None:
        is_compute = self.program.kind[node] is NodeKind.COMPUTE
        heapq.heappush(self.compute if is_compute else self.others, self.keys[node])

    def run(self, *, fills: bool = False) -> list[int]:
        while heaps := [heap for heap in (self.compute, self.others) if heap]:
            node = self._emit(min(heaps))
            if fills and self.program.kind[node] is NodeKind.COMM:
                self._fill(self.program.duration[node])
        return self.order

    def _emit(self, heap: list[_ListKey]) -> int:
        node = heapq.heappop(heap)[2]
        self.order.append(node)
        for user in self.program.users[node]:
            self.missing[user] -= 1
            if not self.missing[user]:
                self._push(user)
        return node

    def _fill(self, time: int) -> None:
        while time > 0 and self.compute:
            time -= self.program.duration[self._emit(self.compute)]


PASSES: dict[str, tuple[str, tuple[Pass, ...]]] = {
    "original": ("the program as it is", ()),
    "sink-waits": (
        "Inductor's sink_waits: each wait down to its first user",
        (sink_waits,),
    ),
    "raise-comms": (
        "Inductor's raise_comms: each collective up to its last dependency",
        (raise_comms,),
    ),
    "reorder-compute": (
        "Inductor's reorder_compute_for_overlap: kernels behind collectives",
        (reorder_compute_for_overlap,),
    ),
    "inductor-default": (
        "reorder-compute, sink-waits, raise-comms",
        (reorder_compute_for_overlap, sink_waits, raise_comms),
    ),
    "inductor-tests": (
        "sink-waits, raise-comms, reorder-compute",
        (sink_waits, raise_comms, reorder_compute_for_overlap),
    ),
    "inductor-list-sink": ("Inductor's list scheduling, waits last", (list_sink,)),
    "inductor-list-raise": (
        "Inductor's list scheduling, collectives first",
        (list_raise,),
    ),
    "inductor-list-reorder": (
        "Inductor's list scheduling, both, kernels behind collectives",
        (list_reorder,),
    ),
    "sink-waits-iterative": (
        "Inductor's sink_waits_iterative: waits down within a budget of memory",
        (sink_waits_iterative,),
    ),
    "reorder-communication": (
        "Inductor's reorder_communication_preserving_peak_memory: collectives up within a budget",
        (reorder_communication,),
    ),
    "inductor-recommended": (
        "reorder-communication, sink-waits-iterative, reorder-communication",
        (reorder_communication, sink_waits_iterative, reorder_communication),
    ),
    "simple-overlap": (
        "Inductor's simple_overlap: collectives up, waits down, never above the peak",
        (simple_overlap,),
    ),
    "overlap-scheduler": (
        "Inductor's OverlapScheduler: collectives beside kernels that hide them",
        (overlap_scheduler,),
    ),
}
"""Summary and passes, which run one after another, by the name of the heuristic."""


def run_passes(instance: OverlapInstance, name: str) -> PassResult:
    """Run the passes of a heuristic one after another, each on the order of the one before.

    Before the first, each collective is made to depend on the previous one of its group. The name
    is one in `PASSES`: ties go by the string order of names, as published. With the suffix `STABLE`
    they go by program order. The result has the final order, or the first failure.
    """
    program = OverlapProgram.of(instance, by_name=not name.endswith(STABLE))
    order = list(range(program.size))
    completed: tuple[str, ...] = ()
    for step in PASSES[name.removesuffix(STABLE)][1]:
        try:
            moved = step(program)
        except PassError as error:
            return PassResult(None, str(error), completed)
        order = [order[index] for index in moved]
        wrong = broken_dependency(instance, order)
        if wrong is not None:
            node, dep = (instance.nodes[index].name for index in wrong)
            text = f'wrong order from {step.__name__}: "{node}" comes before "{dep}", which it '
            return PassResult(None, text + "depends on", completed)
        completed = (*completed, step.__name__)
        program = program.permuted(moved)
    return PassResult(order, None, completed)


def estimate(instance: OverlapInstance, order: Sequence[int]) -> tuple[Fraction, bool]:
    """Estimate the run time of an order as Inductor's passes do, often far from the true time.

    Along the order every collective adds its time; a compute node adds its own only where no
    collective came after the last wait. Times are in the instance's unit. The flag is true if two
    collectives have no wait between them: an older version of the passes fails on such an order.
    """
    total = Fraction(0)
    is_open = is_overlapping = False
    for index in order:
        node = instance.nodes[index]
        if node.kind is NodeKind.WAIT:
            is_open = False
            continue
        is_comm = node.kind is NodeKind.COMM
        is_overlapping |= is_comm and is_open
        if is_comm or not is_open:
            total += Fraction(node.duration)
        is_open |= is_comm
    return total, is_overlapping
