"""An exact optimum of tiny problems by exhaustive search; shares no code with the solver.

Makespan (any objective that never falls when an op ends later)
    The search walks through instants in time order. At an instant it chooses a set of ops to
    start, checks what is in use once the set is complete, and goes on to the next instant. Two
    facts, both about an optimal schedule S whose sum of starts is least, keep it finite:

    (1) Every instant t at which an op of S starts is 0, a release time or pin, or
        end(v) (+ the lag of a precedence out of v) of an op v that starts before t. Otherwise let
        A be all ops that start at t and start them one tick earlier. No precedence or resource
        into A from outside is tight (it would give t one of these forms); inside A nothing moves
        relatively. Memory at t - 1 becomes usage(t - 1) + acquires of A - releases of A's
        zero-length ops, which is usage(t) of S, since no op outside A ends at t; later usage can
        only fall. So the sum was not least. Hence all instants are known from what started before.
    (2) An op j without a pin that starts at t does so because t is 0, its release time, the end of
        a predecessor + lag, the end of an op on one of its resources, or the end of an op that
        gives back memory of a pool that j takes from. Otherwise j alone could start a tick earlier
        (ending earlier never uses more memory). A zero-length op that gives back may start at t
        itself, so where such an op exists, any instant is allowed.

    Ops of one instant are chosen in topological order, so every set is met once, chains of
    zero-length ops included. Amounts are exact integers over their common denominator.

Device span
    The span of a device is (last end) - (first start). For fixed numbers f_d, one per device,
    taken as release times of all ops of device d, the objective max(last end_d - f_d) never falls
    when an op ends later, and the least such value over all f is the least device span (take f_d =
    first start in an optimal schedule; for any other f, f_d <= first start). It remains to bound
    f: in an optimal schedule with the least sum of starts, no suffix (all ops from some instant
    on) can be moved a tick to the left, as that lengthens no span; so some op of the suffix is
    held by a release time or pin, or by an op v before the suffix (precedence, resource, or memory
    that v gives back), and the suffix begins no later than the greatest release time or pin, or
    than end(v) + the greatest lag out of v. By induction no op starts after (greatest release time
    or pin) + sum over ops of (duration + greatest lag out of it). Nor is f_d ever less than the
    earliest start that precedences leave to device d: raising it to that is never worse.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from ppsolve.models.core.problem import FREE, Problem

NEVER = 2**60


def brute_force(problem: Problem) -> int | None:
    """Return the least objective value in ticks, or None if no schedule is valid."""
    data = _Data(problem)
    if any(room < 0 for room in data.rooms):
        return None
    if problem.objective.value == "makespan":
        return _Search(data, data.release, [0] * data.n).run(NEVER)
    return _least_span(data)


def _least_span(data: _Data) -> int | None:
    groups = [data.users[r] for r in data.span_resources if data.users[r]]
    lower_bound = max((sum(data.duration[j] for j in ops) for ops in groups), default=0)
    head = _heads(data, data.release)
    choices = [
        range(min(head[j] for j in ops), data.latest_start + 1) for ops in groups
    ]
    anchored = max(*data.release, *data.pinned, 0) > 0
    floating = not anchored and all(data.resources)
    best: int | None = None
    for firsts in itertools.product(*choices):
        # Moving everything changes no span, so the first op of all may be taken to start at 0.
        if floating and min(firsts) > 0:
            continue
        release, discount = data.release.copy(), [NEVER] * data.n
        for first, ops in zip(firsts, groups, strict=True):
            for j in ops:
                release[j] = max(release[j], first)
                discount[j] = min(discount[j], first)
        head = _heads(data, release)
        least = max(
            h + d - c for h, d, c in zip(head, data.duration, discount, strict=True)
        )
        if best is not None and least >= best:
            continue
        value = _Search(data, release, discount).run(NEVER if best is None else best)
        best = value if value is not None else best
        if best == lower_bound:
            break
    return best


def _heads(data: _Data, release: list[int]) -> list[int]:
    """Earliest start of every op by precedences and `release` alone."""
    head = release.copy()
    for j in range(data.n):
        for k, lag in data.before[j]:
            head[j] = max(head[j], head[k] + data.duration[k] + lag)
    return head


class _Data:
    """The problem in plain lists, ops renumbered so that every op comes after its predecessors."""

    def __init__(self, problem: Problem) -> None:
        self.n = problem.num_ops
        order = list(_topological(problem))
        number = {op: j for j, op in enumerate(order)}
        self.duration = [int(problem.duration[op]) for op in order]
        self.release = [int(problem.release[op]) for op in order]
        self.pinned = [int(problem.pinned[op]) for op in order]
        self.resources = [problem.resources_of(op).tolist() for op in order]
        self.users: list[list[int]] = [[] for _ in problem.resource_names]
        for j, resources in enumerate(self.resources):
            for r in resources:
                self.users[r].append(j)
        self.span_resources = [int(r) for r in problem.span_resources]
        self.before: list[list[tuple[int, int]]] = [[] for _ in order]
        self.after: list[list[tuple[int, int]]] = [[] for _ in order]
        edges = (problem.before.tolist(), problem.after.tolist(), problem.lag.tolist())
        for a, b, lag in zip(*edges, strict=True):
            self.before[number[b]].append((number[a], lag))
            self.after[number[a]].append((number[b], lag))
        self.latest_start = max(*self.release, *self.pinned) + sum(
            length + max((lag for _, lag in edges), default=0)
            for length, edges in zip(self.duration, self.after, strict=True)
        )
        self._read_pools(problem, number)

    def _read_pools(self, problem: Problem, number: dict[int, int]) -> None:
        self.rooms: list[int] = []
        self.acquire: list[list[int]] = []
        self.give_back: list[list[int]] = []
        for pool in problem.pools:
            limit = pool.capacity * (1 + 10**9) / 10**9 - pool.initial
            unit = math.lcm(*(amount.denominator for amount in pool.amounts))
            self.rooms.append(math.floor(limit * unit))
            acquire, give_back = [0] * self.n, [0] * self.n
            for column, ops, amounts in (
                (acquire, pool.acquire_op, pool.acquire_amount),
                (give_back, pool.release_op, pool.release_amount),
            ):
                for op, index in zip(ops.tolist(), amounts.tolist(), strict=True):
                    column[number[op]] += int(pool.amounts[index] * unit)
            self.acquire.append(acquire)
            self.give_back.append(give_back)
        self.frees_at_once = [
            any(
                give and not length
                for give, length in zip(column, self.duration, strict=True)
            )
            for column in self.give_back
        ]


def _topological(problem: Problem) -> Iterator[int]:
    waiting = [set[int]() for _ in range(problem.num_ops)]
    for a, b in zip(problem.before.tolist(), problem.after.tolist(), strict=True):
        waiting[b].add(a)
    left = list(range(problem.num_ops))
    while left:
        ready = next(op for op in left if not waiting[op])
        yield ready
        left.remove(ready)
        for others in waiting:
            others.discard(ready)


class _Search:
    """Depth-first search for the least max over ops of (end - discount)."""

    def __init__(self, data: _Data, release: list[int], discount: list[int]) -> None:
        self.data, self.release, self.discount = data, release, discount
        self.start: list[int | None] = [None] * data.n
        self.fixed_instants = {
            0,
            *release,
            *(pin for pin in data.pinned if pin != FREE),
        }
        self.tail = self._tails()
        self.free = [0] * len(data.users)
        self.found = False

    def _tails(self) -> list[list[tuple[int, int]]]:
        """Longest path from each start to the end of each op that follows, per discount."""
        tails: list[dict[int, int]] = [{} for _ in range(self.data.n)]
        for j in reversed(range(self.data.n)):
            length = self.data.duration[j]
            mine = {self.discount[j]: length}
            for k, lag in self.data.after[j]:
                for discount, tail in tails[k].items():
                    mine[discount] = max(mine.get(discount, 0), length + lag + tail)
            tails[j] = mine
        return [list(tail.items()) for tail in tails]

    def run(self, best: int) -> int | None:
        """Return the least value below `best`, or None."""
        self.best = best
        self._choose(0, 0, [])
        return self.best if self.found else None

    def _choose(self, t: int, first: int, chosen: list[int]) -> None:
        """Start any set of ops numbered `first` or more at `t`, then go on to the next instant."""
        for j in range(first, self.data.n):
            if self.start[j] is None and self._may_start(j, t):
                self.start[j] = t
                saved = self._occupy(j, t)
                self._choose(t, j + 1, [*chosen, j])
                for r, end in saved:
                    self.free[r] = end
                self.start[j] = None
        if self._fits(t, chosen):
            self._advance(t)

    def _occupy(self, j: int, t: int) -> list[tuple[int, int]]:
        if not self.data.duration[j]:
            return []
        saved = [(r, self.free[r]) for r in self.data.resources[j]]
        for r, _ in saved:
            self.free[r] = t + self.data.duration[j]
        return saved

    def _may_start(self, j: int, t: int) -> bool:
        data = self.data
        if data.pinned[j] not in (FREE, t) or t < self.release[j]:
            return False
        if any(t + tail - discount >= self.best for discount, tail in self.tail[j]):
            return False
        tight = t in (0, self.release[j], data.pinned[j])
        for k, lag in data.before[j]:
            s = self.start[k]
            if s is None or s + data.duration[k] + lag > t:
                return False
            tight |= s + data.duration[k] + lag == t
        if data.duration[j]:
            for r in data.resources[j]:
                if self.free[r] > t:
                    return False
                tight |= self.free[r] == t
        return tight or self._memory_may_hold(j, t)

    def _memory_may_hold(self, j: int, t: int) -> bool:
        for acquire, give, at_once in zip(
            self.data.acquire, self.data.give_back, self.data.frees_at_once, strict=True
        ):
            if acquire[j] and (at_once or any(give[k] for k in self._ending(t))):
                return True
        return False

    def _ending(self, t: int) -> Iterator[int]:
        for k, s in enumerate(self.start):
            if s is not None and s + self.data.duration[k] == t:
                yield k

    def _fits(self, t: int, chosen: list[int]) -> bool:
        data = self.data
        for room, acquire, give in zip(
            data.rooms, data.acquire, data.give_back, strict=True
        ):
            if not any(acquire[j] for j in chosen):
                continue
            used = 0
            for j, s in enumerate(self.start):
                if s is not None:
                    used += acquire[j]
                    used -= give[j] if s + data.duration[j] <= t else 0
            if used > room:
                return False
        return True

    def _advance(self, t: int) -> None:
        data = self.data
        left = [j for j in range(data.n) if self.start[j] is None]
        if not left:
            value = max(
                (
                    s + data.duration[j] - self.discount[j]
                    for j, s in enumerate(self.start)
                    if s is not None
                ),
                default=0,
            )
            value = max(value, 0)
            if value < self.best:
                self.best, self.found = value, True
            return
        instants = {x for x in self.fixed_instants if x > t}
        for j, s in enumerate(self.start):
            if s is not None:
                end = s + data.duration[j]
                instants.update(
                    x for x in (end, *(end + lag for _, lag in data.after[j])) if x > t
                )
        later = min(instants, default=None)
        if later is not None and self._hopeful(later, left):
            self._choose(later, 0, [])

    def _hopeful(self, t: int, left: list[int]) -> bool:
        """Whether ops that start at `t` or later can still be better than the best."""
        data = self.data
        for j in left:
            if data.pinned[j] != FREE and data.pinned[j] < t:
                return False
            if any(
                max(t, self.release[j]) + tail - discount >= self.best
                for discount, tail in self.tail[j]
            ):
                return False
        for r, ops in enumerate(data.users):
            mine = [j for j in ops if self.start[j] is None]
            if mine:
                work = sum(data.duration[j] for j in mine)
                worst = max(self.discount[j] for j in mine)
                if max(t, self.free[r]) + work - worst >= self.best:
                    return False
        return True
