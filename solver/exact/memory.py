"""Memory for CP-SAT: amounts as small integers, and levels that follow from the order of ops."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, pairwise, product

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.solver.exact.params import AMOUNTS
from ppsolve.solver.exact.question import Rounding
from ppsolve.solver.exact.variables import Variables
from ppsolve.solver.structure.dag import Dag, reachable_sets
from ppsolve.solver.structure.holds import ALWAYS, Holds


@dataclass(frozen=True)
class Demands:
    """Integer demands of the holds of one pool."""

    demand: tuple[int, ...]  # demand of each hold
    capacity: int  # most that may be in use
    is_exact: (
        bool  # the integers allow exactly the sets of holds that the fractions allow
    )


def integer_demands(
    holds: Holds, limit: Fraction, rounding: Rounding, horizon: int
) -> Demands:
    """Scale the amounts of `holds` into small integers, exactly where that is possible.

    Where no small exact scale is found, rounding up keeps every schedule within the limit, which
    includes the allowed excess; rounding down keeps every allowed schedule. The shorter the
    horizon, the finer the integers may be.
    """
    largest = _largest_capacity(len(holds.amount), horizon)
    available = limit - holds.base
    if available <= 0:
        return Demands((1,) * len(holds.amount), 0, is_exact=True)
    counts = Counter(holds.amount)
    scale = _kept if len(counts) <= AMOUNTS.few_amounts else _scaled
    scaled = scale(tuple(sorted(counts.items())), available, largest, rounding)
    integers = dict(zip(sorted(counts), scaled.demand, strict=True))
    return replace(scaled, demand=tuple(integers[amount] for amount in holds.amount))


def _scaled(
    counts: tuple[tuple[Fraction, int], ...],
    available: Fraction,
    largest: int,
    rounding: Rounding,
) -> Demands:
    number = dict(counts)
    for scale in _candidate_scales(list(number), available):
        integers = {amount: math.ceil(amount * scale) for amount in number}
        capacity = math.floor(available * scale)
        if capacity <= largest and _same_sets(number, integers, available, capacity):
            return Demands(tuple(integers.values()), capacity, is_exact=True)
    scale = Fraction(largest) / available
    round_amount = math.ceil if rounding == "up" else math.floor
    demand = tuple(round_amount(amount * scale) for amount in number)
    return Demands(demand, largest, is_exact=False)


_kept = lru_cache(maxsize=AMOUNTS.kept_scales)(_scaled)


def _largest_capacity(num_holds: int, horizon: int) -> int:
    bits = 61 - max(1, num_holds).bit_length() - max(1, horizon).bit_length()
    return max(AMOUNTS.coarsest, min(AMOUNTS.finest, 1 << max(0, bits)))


def _candidate_scales(
    amounts: list[Fraction], available: Fraction
) -> Iterator[Fraction]:
    if not amounts or available <= 0:
        return
    smallest = min(amounts)
    # Small amounts as 1 to 64, then capacities of 2**6 to 2**20; the test of a scale is cheap.
    yield from (k / smallest for k in range(1, 65))
    yield from (2**k / available for k in range(6, 21))
    yield Fraction(math.lcm(*(amount.denominator for amount in amounts)))


def _same_sets(
    counts: dict[Fraction, int],
    integers: dict[Fraction, int],
    available: Fraction,
    capacity: int,
) -> bool:
    amounts = sorted(counts, reverse=True)
    fitting = [min(counts[a], available // a) for a in amounts]
    if math.prod(n + 1 for n in fitting[:-1]) > AMOUNTS.combinations:
        return False
    unit = math.lcm(available.denominator, *(a.denominator for a in amounts))
    exact = int(available * unit)
    # Products with `exact_left` are at most `exact`, or one amount where none of it fits.
    largest = max(
        exact,
        int(amounts[0] * unit),
        capacity + max(integers.values()) * (1 + max(fitting)),
    )
    number = np.int64 if largest < 2**62 else object
    exact_left = np.array([exact], dtype=number)
    whole_left = np.array([capacity], dtype=number)
    for amount, count in zip(amounts[:-1], fitting[:-1], strict=True):
        used = np.arange(count + 1, dtype=number)
        exact_left = (exact_left[:, None] - used * int(amount * unit)).ravel()
        whole_left = (whole_left[:, None] - used * integers[amount]).ravel()
        if np.any((exact_left < 0) != (whole_left < 0)):
            return False
        keep = exact_left >= 0
        exact_left, whole_left = exact_left[keep], whole_left[keep]
    last, top = amounts[-1], counts[amounts[-1]]
    exact_count = np.minimum(exact_left // int(last * unit), top)
    whole_count = np.minimum(whole_left // integers[last], top)
    return bool(np.all(exact_count == whole_count))


class OrderLiterals:
    """The order of two ops of one resource: known from precedences or windows, or a literal."""

    def __init__(self, variables: Variables, graph: Dag) -> None:
        self._variables, self._problem = variables, variables.problem
        self._follows = reachable_sets(graph)
        self._earliest = variables.windows.earliest.tolist()
        self._latest = variables.windows.latest.tolist()

    def before(self, first: int, second: int) -> cp_model.LiteralT:
        """Return the literal for an op ending before another one of its resource starts.

        Both take time. The literal is the same one for both questions of a pair.
        """
        fixed = self.known(first, second)
        if fixed is not None:
            return fixed
        literal = self._variables.order(min(first, second), max(first, second))
        return literal if first < second else ~literal

    def known(self, first: int, second: int) -> bool | None:
        """Whether an op must end before another one starts, None where that is open."""
        if first == second or self._is_known(second, first):
            return False
        return True if self._is_known(first, second) else None

    def count(self, pools: Iterable[Holds]) -> int:
        """Return the number of literals that the levels of pools need."""
        pairs: set[tuple[int, int]] = set()
        for holds in pools:
            acquires = set(holds.acquire.tolist()) - {ALWAYS}
            ops = acquires | set(holds.release.tolist()) - {ALWAYS}
            candidates = product(ops, acquires)
            pairs |= {
                (min(pair), max(pair))
                for pair in candidates
                if self.known(*pair) is None
            }
        return len(pairs)

    def shares_resource(self, holds: Holds) -> bool:
        """Whether all ops of a pool's holds take time and run one at a time."""
        problem, ops = (
            self._problem,
            np.unique(np.concatenate((holds.acquire, holds.release))),
        )
        ops = ops[ops != ALWAYS]
        if not problem.holds_place[ops].all() or not problem.duration[ops].all():
            return False
        return problem.share_resource(ops)

    def open_pairs(self) -> set[tuple[int, int]]:
        """Return the pairs of ops of each resource whose order is open, smaller numbers first."""
        problem = self._problem
        held = (
            ops[problem.holds_place[ops]].tolist() for ops in problem.ops_by_resource
        )
        pairs = (pair for ops in held for pair in combinations(sorted(ops), 2))
        return {pair for pair in pairs if self.known(*pair) is None}

    def add_levels(self, holds: Holds, demands: Demands) -> None:
        """Keep the capacity at the start of every acquiring op, where alone use can rise.

        A hold is in use there if its acquiring op came first or is the op itself, and its releasing
        op comes later. All ops of the pool share a resource.
        """
        acquires, releases = holds.acquire.tolist(), holds.release.tolist()
        rows = list(zip(acquires, releases, demands.demand, strict=True))
        for op in sorted({first for first, _, _ in rows} - {ALWAYS}):
            present = [row for row in rows if self._may_be_held(op, row[0], row[1])]
            if sum(demand for _, _, demand in present) <= demands.capacity:
                continue
            level: list[cp_model.LinearExprT] = []
            for first, last, demand in present:
                begun = first in {ALWAYS, op} or self.before(first, op)
                ended = last != ALWAYS and self.before(last, op)
                level.append(demand * (begun - ended))
            self._variables.model.add(
                cp_model.LinearExpr.sum(level) <= demands.capacity
            )

    def _may_be_held(self, op: int, first: int, last: int) -> bool:
        begins = first in {ALWAYS, op} or self.known(first, op) is not False
        return begins and (last == ALWAYS or self.known(last, op) is not True)

    def _is_known(self, first: int, second: int) -> bool:
        if self._follows[first] >> second & 1:
            return True
        # The second one cannot end before the first one starts.
        end = self._earliest[second] + self._variables.duration[second]
        return bool(end > self._latest[first])


def add_monotony(variables: Variables) -> None:
    """Let a literal of two ops imply those of their neighbours in index order.

    What ends before an op starts ends before the next one of its column starts.
    """
    columns = [
        column.tolist() for family in variables.problem.families for column in family.T
    ]
    following = {a: b for column in columns for a, b in pairwise(column)}
    preceding = {b: a for a, b in following.items()}
    for (a, b), literal in variables.orders.items():
        for first, second, order in ((a, b, literal), (b, a, ~literal)):
            for x, y in (
                (preceding.get(first), second),
                (first, following.get(second)),
            ):
                if (
                    x is not None
                    and y is not None
                    and (min(x, y), max(x, y)) in variables.orders
                ):
                    consequence = variables.orders[min(x, y), max(x, y)]
                    variables.model.add_implication(
                        order, consequence if x < y else ~consequence
                    )
