"""All program orders of a small program, depth first: exact where caps count along the order."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from ppsolve.models.core.problem import most_in_use
from ppsolve.models.core.result import StopReason
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.labels import NodeKind
from ppsolve.models.kinds.overlap.lowering import LoweredOverlap
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.overlap.contention import (
    ContendedStreams,
    Slowdown,
    lengths_alone,
)
from ppsolve.solver.kinds.overlap.nodes import as_integers, users_of
from ppsolve.solver.kinds.overlap.realise import run_order, valid_run
from ppsolve.solver.kinds.overlap.replay import last_uses
from ppsolve.solver.run.step import Outcome, Stop, Turn
from ppsolve.solver.run.steps import has_time_to_search

PROGRAM_ORDERS = "program orders"
MOVES = "moves"

State = tuple[int, ...]
"""End of the compute stream, of each group, and of the nodes whose users are still to come."""


def has_few_nodes(turn: Turn) -> bool:
    """Apply to small programs whose schedules may be no orders: with caps, or under contention."""
    instance = turn.task.instance
    is_small = len(instance.nodes) <= turn.params.programs.order_nodes
    is_capped = (
        instance.max_live_bytes is not None or instance.max_in_flight is not None
    )
    return (
        is_small
        and (is_capped or bool(instance.contention))
        and has_time_to_search(turn)
    )


def search_orders(turn: Turn) -> Outcome:
    """Try every program order that may be better; raise the bound where all were tried."""
    task, board = turn.task, turn.board
    limit = turn.params.programs.orders
    kind = ContendedEnumeration if task.instance.contention else OrderEnumeration
    enumeration = kind(task.instance, task.lowered, turn.clock, limit)
    if board.value is not None:
        enumeration.best = board.value
    is_complete = enumeration.run()
    if enumeration.order is not None:
        run = run_order(task.instance, task.lowered, enumeration.order)[0]
        # Under contention an order may be better by less than a tick.
        board.propose(run, PROGRAM_ORDERS, order=enumeration.order, ties=True)
    if is_complete and board.value is not None:
        board.raise_bound(board.value, PROGRAM_ORDERS)
    elif is_complete:
        return Stop(
            StopReason.INFEASIBLE, "no program order keeps every cap (all were tried)"
        )
    return None


@dataclass
class PlainStreams:
    """Streams on which nothing slows anything down, run node by node in program order."""

    search: OrderEnumeration
    free: list[int]  # ends of compute and of each group
    start: dict[int, int] = field(default_factory=dict)  # of each node passed
    end: dict[int, int] = field(default_factory=dict)

    def copy(self) -> PlainStreams:
        """Return a copy that runs on by itself."""
        return PlainStreams(self.search, [*self.free], dict(self.start), dict(self.end))

    def least_end(self, node: int) -> int:
        """Return when a node ends if it is the next one."""
        release = max(
            (self.end[dep] for dep in self.search.instance.deps[node]), default=0
        )
        stream = self.search.group[node] + 1
        return max(self.free[0], release, self.free[stream]) + self.search.length[node]

    def run(self, node: int) -> None:
        """Let the compute stream pass a node."""
        self.end[node] = self.free[self.search.group[node] + 1] = self.least_end(node)
        self.start[node] = self.end[node] - self.search.length[node]

    def makespan(self) -> int:
        """Return when all streams have ended."""
        return max(self.free)

    def state(self) -> tuple[object, ...]:
        """Return all that the rest of a run depends on, its bytes over time too.

        What was before the end of the compute stream is over: nothing more can start there.
        """
        clock = self.free[0]
        times = (
            (node, max(self.start[node], clock), max(end, clock))
            for node, end in self.end.items()
        )
        ahead = sorted(time for time in times if max(time[1:]) > clock)
        return clock, tuple(max(end, clock) for end in self.free[1:]), tuple(ahead)


Streams = PlainStreams | ContendedStreams


@dataclass
class OrderEnumeration:
    """Depth-first search over program orders, each node in turn as its stream allows.

    A beginning of an order is given up where it cannot end below the best makespan, where it breaks
    a cap, or where another one of the same nodes leaves every stream and every result no later.
    Where bytes are held over time, later may be better: there only equal states are one.
    """

    instance: OverlapInstance
    lowered: LoweredOverlap
    clock: Clock
    most: int  # beginnings to look at
    best: float | Fraction = math.inf  # ticks
    order: list[int] | None = None
    soonest_first: ClassVar[bool] = True
    seen: dict[Any, list[State]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        """Collect what comes before what, and what each node allocates and frees."""
        instance = self.instance
        count = len(instance.nodes)
        self.length = self._lengths()
        self.group = [
            instance.groups.index(instance.group_of(node))
            if kind is NodeKind.COMM
            else -1
            for node, kind in enumerate(entry.kind for entry in instance.nodes)
        ]
        before = [set(deps) for deps in instance.deps]
        for first, second in instance.orders:
            before[second].add(first)
        if instance.collective_order == "frozen":
            for node, previous in instance.previous_in_group.items():
                before[node].add(previous)
        self.before = [sum(1 << node for node in earlier) for earlier in before]
        self.users = users_of(instance.deps)
        self.tail = [0] * count
        for node in range(count - 1, -1, -1):
            behind = max((self.tail[user] for user in self.users[node]), default=0)
            self.tail[node] = self.length[node] + behind
        self._count_bytes()
        self._count_outputs()
        self.flights = {
            comm: (instance.cap_of(instance.group_of(comm)), self._flights_beside(comm))
            for comm in instance.of_kind(NodeKind.COMM)
        }

    def _lengths(self) -> list[Any]:
        """Return the length of each node in ticks."""
        lengths: list[int] = self.lowered.problem.duration[
            : len(self.instance.nodes)
        ].tolist()
        return lengths

    def _flights_beside(self, comm: int) -> list[tuple[int, int]]:
        """Return the collectives of the group and their waits, as bits of `done`."""
        group = self.instance.group_of(comm)
        return [
            (1 << neighbour, 1 << wait)
            for neighbour, wait in self.instance.wait_of.items()
            if self.instance.group_of(neighbour) == group
        ]

    def _count_outputs(self) -> None:
        """Collect what outputs hold over time, where a cap counts them so."""
        instance = self.instance
        self.counts_outputs = (
            instance.max_live_bytes is not None and instance.buffers is None
        )
        amounts, factor = as_integers(node.bytes for node in instance.nodes)
        cap = instance.max_live_bytes
        self.output_cap = (
            math.inf if cap is None else float(most_in_use(Fraction(cap)) * factor)
        )
        uses = last_uses(instance)
        self.outputs = [
            (node, uses[node], amount) for node, amount in enumerate(amounts) if amount
        ]

    def _count_bytes(self) -> None:
        instance, index_of = self.instance, self.instance.index_of
        buffers = instance.buffers or ()
        cap = instance.max_live_bytes if buffers else None
        amounts, factor = as_integers(buffer.bytes for buffer in buffers)
        self.cap = (
            math.inf if cap is None else float(most_in_use(Fraction(cap)) * factor)
        )
        self.initial = 0
        self.made = [0] * len(instance.nodes)
        self.freed: list[list[tuple[int, int]]] = [[] for _ in instance.nodes]
        for buffer, amount in zip(buffers, amounts, strict=True):
            producer = -1 if buffer.producer is None else index_of[buffer.producer]
            self.initial += amount if producer < 0 else 0
            if producer >= 0:
                self.made[producer] += amount
            users = {index_of[name] for name in buffer.users} or {producer} - {-1}
            if not buffer.kept:
                mask = sum(1 << user for user in users)
                for user in users:
                    self.freed[user].append((mask, amount))

    def run(self) -> bool:
        """Search; return True if every order that may be better was tried."""
        groups = range(-1, len(self.instance.groups))
        self.left = [
            sum(t for t, g in zip(self.length, self.group, strict=True) if g == which)
            for which in groups
        ]
        self.looked = 0
        return self.initial > self.cap or self._extend(
            [], 0, self.initial, self._streams()
        )

    def _streams(self) -> Streams:
        return PlainStreams(self, [0] * (len(self.instance.groups) + 1))

    def _extend(self, order: list[int], done: int, held: int, streams: Streams) -> bool:
        """Try all orders that begin so."""
        self.looked += 1
        if self.looked > self.most or self.clock.is_over:
            return False
        if len(order) == len(self.length):
            makespan = streams.makespan()
            if (
                makespan < self.best
                and valid_run(self.instance, self.lowered, order) is not None
            ):
                self.best, self.order = makespan, list(order)
            return True
        if not self._outputs_fit(streams) or self._is_known(done, streams):
            return True
        candidates = [
            (streams.least_end(node), node)
            for node, before in enumerate(self.before)
            if not done >> node & 1 and before & done == before
        ]
        for end, node in sorted(candidates) if self.soonest_first else candidates:
            after, peak = done | 1 << node, held + self.made[node]
            if (
                self._flies_too_many(node, after)
                or peak > self.cap
                or end - self.length[node] + self.tail[node] >= self.best
            ):
                continue
            freed = sum(
                amount for mask, amount in self.freed[node] if mask & after == mask
            )
            following = streams.copy()
            following.run(node)
            self.left[self.group[node] + 1] -= self.length[node]
            is_late = any(
                end + remaining >= self.best
                for end, remaining in zip(following.free, self.left, strict=False)
            )
            is_complete = is_late or self._extend(
                [*order, node], after, peak - freed, following
            )
            self.left[self.group[node] + 1] += self.length[node]
            if not is_complete:
                return False
        return True

    def _flies_too_many(self, node: int, after: int) -> bool:
        """Whether a node is a collective with too many others between their launch and wait."""
        cap, flights = self.flights.get(node, (None, []))
        if cap is None:
            return False
        return (
            sum(after & launch > 0 and not after & wait for launch, wait in flights)
            > cap
        )

    def _outputs_fit(self, streams: Streams) -> bool:
        """Whether outputs keep their cap at all times before the end of the compute stream.

        Whatever comes later starts behind that and ends behind that, so these times are over.
        """
        if not self.counts_outputs:
            return True
        clock, start, end = streams.free[0], streams.start, streams.end
        held = [
            (start[node], max(end.get(use, clock) for use in uses), amount)
            for node, uses, amount in self.outputs
            if start.get(node, clock) < clock
        ]
        return all(
            sum(amount for begin, until, amount in held if begin <= time < until)
            <= self.output_cap
            for time, _, _ in held
        )

    def _is_known(self, done: int, streams: Any) -> bool:
        if self.counts_outputs:
            return self._is_repeated(done, streams)
        open_ends = [
            streams.end[node]
            for node in range(len(self.length))
            if done >> node & 1
            and any(not done >> user & 1 for user in self.users[node])
        ]
        state = (*streams.free, *open_ends)
        states = self.seen[done]
        if any(
            all(a <= b for a, b in zip(earlier, state, strict=True))
            for earlier in states
        ):
            return True
        states[:] = [
            o for o in states if not all(a <= b for a, b in zip(state, o, strict=True))
        ]
        states.append(state)
        return False

    def _is_repeated(self, done: int, streams: Streams) -> bool:
        key = done, streams.state()
        is_known = key in self.seen
        self.seen[key] = []
        return is_known


class ContendedEnumeration(OrderEnumeration):
    """The same where kernels and collectives slow each other down: only equal states are one."""

    soonest_first: ClassVar[bool] = False

    def _lengths(self) -> list[Any]:
        return [*lengths_alone(self.instance, self.lowered.problem.scale)]

    def _streams(self) -> ContendedStreams:
        return ContendedStreams(Slowdown(self.instance), self.length)

    def _is_known(self, done: int, streams: Any) -> bool:
        return self._is_repeated(done, streams)


def move_nodes(turn: Turn) -> Outcome:
    """Move single nodes of the best order to other places, as long as the makespan falls."""
    task, board = turn.task, turn.board
    best = board.incumbent
    if best is None or best.order is None:
        return None
    rng, lowered = np.random.default_rng(turn.options.seed), task.lowered
    search = OrderEnumeration(task.instance, lowered, turn.clock, 0)
    order, value = list(best.order), best.value
    for _ in range(turn.params.programs.moves):
        if turn.clock.is_over or board.is_good_enough:
            break
        tried = _moved(order, search.before, rng)
        run = valid_run(task.instance, lowered, tried)
        if run is not None and run.makespan <= value:
            order, value = tried, run.makespan
            board.propose(run, MOVES, order=order)
    return None


def _moved(order: list[int], before: list[int], rng: np.random.Generator) -> list[int]:
    """Return an order with one node somewhere between what it needs and what needs it."""
    turn = int(rng.integers(len(order)))
    node = order[turn]
    first = next((k for k in range(turn, 0, -1) if before[node] >> order[k - 1] & 1), 0)
    users = (k for k in range(turn + 1, len(order)) if before[order[k]] >> node & 1)
    last = next(users, len(order)) - 1
    tried = order[:turn] + order[turn + 1 :]
    tried.insert(int(rng.integers(first, last + 1)), node)
    return tried
