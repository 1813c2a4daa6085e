"""Balanced cuts: a sequence in slices of whole tokens of which the costliest costs least."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import isqrt, lcm


def squares(row: Sequence[int], tokens: int) -> int:
    """Return the sum of squares of the sequences that the first tokens of a micro-batch hold.

    Packed sequences, whose tokens are in the row, do not attend to each other: each is squared
    alone.
    """
    total = 0
    for length in row:
        total += min(length, tokens) ** 2
        tokens = max(0, tokens - length)
    return total


@dataclass(frozen=True)
class CausalCost:
    """What the first tokens of a micro-batch cost, in a unit that makes all costs whole."""

    row: Sequence[int]  # tokens of each sequence, packed one behind the other
    per_token: Fraction
    per_square: Fraction

    @cached_property
    def factors(self) -> tuple[int, int]:
        """Cost of a token and of a square."""
        unit = lcm(self.per_token.denominator, self.per_square.denominator)
        return int(self.per_token * unit), int(self.per_square * unit)

    @cached_property
    def starts(self) -> list[int]:
        """Tokens before each sequence, and all of them."""
        return [0, *accumulate(self.row)]

    @cached_property
    def starting_costs(self) -> list[int]:
        """Cost of the tokens before each sequence, and of all of them."""
        return [self.of(tokens) for tokens in self.starts]

    @property
    def costliest_token(self) -> int:
        """Cost of the last token of the longest sequence."""
        linear, square = self.factors
        return linear + square * (2 * max(self.row) - 1)

    def of(self, tokens: int) -> int:
        """Return the cost of the first tokens."""
        linear, square = self.factors
        return linear * tokens + square * squares(self.row, tokens)

    def most_tokens(self, cost: int) -> int:
        """Return the largest number of first tokens that cost no more."""
        sequence = bisect_right(self.starting_costs, cost) - 1
        if sequence == len(self.row):
            return self.starts[-1]
        linear, square = self.factors
        budget = cost - self.starting_costs[sequence]
        if square:
            # The largest n with square · n² + linear · n <= left.
            inside = (isqrt(linear**2 + 4 * square * budget) - linear) // (2 * square)
        else:
            inside = budget // linear
        return self.starts[sequence] + inside

    def fewest_tokens(self, cost: int) -> int:
        """Return the least number of first tokens that cost no less."""
        return self.most_tokens(cost - 1) + 1 if cost > 0 else 0


def balanced_bounds(cost: CausalCost, count: int) -> list[int]:
    """Return the tokens before each slice, and all: no other cut has a cheaper costliest slice.

    Of all such cuts the first bound is nearest to its equal share of the whole cost, then the
    second one, and so on; halfway the later token counts as nearer. There are no more slices than
    tokens.
    """
    total, tokens = cost.starting_costs[-1], cost.starts[-1]
    largest = _least_largest(cost, count)
    # From `earliest[k]` on, the slices from k on are enough for what is left.
    earliest = [tokens]
    for _ in range(1, count):
        earliest.append(cost.fewest_tokens(cost.of(earliest[-1]) - largest))
    earliest.reverse()
    bounds = [0]
    for index in range(1, count):
        first = max(bounds[-1] + 1, earliest[index - 1])
        last = min(
            cost.most_tokens(cost.of(bounds[-1]) + largest), tokens - count + index
        )
        nearest = _nearest(cost, Fraction(total * index, count))
        bounds.append(min(max(nearest, first), last))
    return [*bounds, tokens]


def _nearest(cost: CausalCost, share: Fraction) -> int:
    """Return the number of first tokens whose cost is nearest to a share of the whole."""
    tokens = cost.fewest_tokens(-(-share.numerator // share.denominator))
    if tokens and share - cost.of(tokens - 1) < cost.of(tokens) - share:
        return tokens - 1
    return tokens


def _least_largest(cost: CausalCost, count: int) -> int:
    """Return the least cost of the costliest slice, by bisection.

    A slice as long as a limit allows ends as late as any: so limits are enough or not. One equal
    share and the costliest token are enough: each such slice takes its share, or all that is left.
    """
    share = -(-cost.starting_costs[-1] // count)
    low, high = max(share, cost.costliest_token), share + cost.costliest_token
    while low < high:
        limit = (low + high) // 2
        if _are_enough(cost, count, limit):
            high = limit
        else:
            low = limit + 1
    return low


def _are_enough(cost: CausalCost, count: int, limit: int) -> bool:
    """Whether so many slices, each within a limit, take all tokens."""
    end = 0
    for _ in range(count):
        end = cost.most_tokens(cost.of(end) + limit)
        if end == cost.starts[-1]:
            return True
    return False
