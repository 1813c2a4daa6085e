"""Times and memory of every layer of a model at one micro-batch size, in whole units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise


@dataclass(frozen=True)
class LayerFigures:
    """Figures of every layer at one micro-batch size.

    Times are rounded to a `tick`, so that those of stages and devices are sums without an error of
    their own. Memory is exact: a whole number of `grain` bytes.
    """

    tick: Fraction
    grain: Fraction

    forward: list[Fraction]
    backward: list[Fraction]
    backward_input: list[Fraction]
    backward_weight: list[Fraction]
    optimizer: list[Fraction]
    output: list[Fraction]
    parameters: list[Fraction]
    activation: list[Fraction]
    state: list[Fraction]
    _prefixes: dict[str, list[int]] = field(default_factory=dict, repr=False)

    @cached_property
    def total(self) -> Fraction:
        """Work of one micro-batch in all layers."""
        return sum(self.forward, Fraction(0)) + sum(self.backward, Fraction(0))

    @cached_property
    def held(self) -> list[Fraction]:
        """State and one activation of every layer: needed when the last one has a micro-batch."""
        return [s + a for s, a in zip(self.state, self.activation, strict=True)]

    @cached_property
    def work(self) -> tuple[int, ...]:
        """Ticks of one micro-batch in every layer, there and back."""
        pairs = zip(self.forward, self.backward, strict=True)
        return tuple(self.ticks(forward + backward) for forward, backward in pairs)

    def ticks(self, time: Fraction) -> int:
        """Return a time as the nearest number of ticks."""
        return round(time / self.tick)

    def grains(self, amount: Fraction) -> int:
        """Return the number of grains that fit into an amount of memory."""
        return math.floor(amount / self.grain)

    def decimals(self, ticks: Sequence[int]) -> list[Decimal]:
        """Return times in ticks as decimals of few digits."""
        tick = decimal_of(self.tick)
        return [Decimal(number) * tick for number in ticks]

    def sums(self, name: str, boundaries: Sequence[int]) -> list[int]:
        """Return a figure of every stage in whole ticks or grains, exact.

        `name`: a time, ``activation`` or ``state``.
        `boundaries`: S + 1 layer indices where stages begin and end.
        """
        prefix = self.prefix(name)
        return [prefix[last] - prefix[first] for first, last in pairwise(boundaries)]

    def prefix(self, name: str) -> list[int]:
        """Return a figure of the first 0, 1, ... layers in whole ticks or grains: n + 1 sums."""
        if name not in self._prefixes:
            self._prefixes[name] = [0, *accumulate(self.whole(name))]
        return self._prefixes[name]

    def whole(self, name: str) -> tuple[int, ...]:
        """Return a figure of every layer in whole ticks or grains."""
        convert = self.grains if name in {"activation", "state"} else self.ticks
        return tuple(map(convert, getattr(self, name)))


def grain_of(amounts: list[Fraction]) -> Fraction:
    """Return the largest amount that all are whole multiples of."""
    scale = math.lcm(*(amount.denominator for amount in amounts))
    return Fraction(math.gcd(*(int(amount * scale) for amount in amounts)) or 1, scale)


def decimal_of(amount: Fraction) -> Decimal:
    """Return an amount whose denominator divides a power of ten."""
    return Decimal(amount.numerator) / Decimal(amount.denominator)
