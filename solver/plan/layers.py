"""Figures of the layers of a model, in whole ticks and grains."""

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
    _wholes: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False)

    @cached_property
    def total(self) -> Fraction:
        """Work of one micro-batch in all layers."""
        return sum(self.forward, Fraction(0)) + sum(self.backward, Fraction(0))

    @cached_property
    def held(self) -> list[Fraction]:
        """Bytes that every layer needs when the last one has a micro-batch: its state and one."""
        return [s + a for s, a in zip(self.state, self.activation, strict=True)]

    @cached_property
    def work(self) -> tuple[int, ...]:
        """Ticks of one micro-batch in every layer, there and back."""
        pairs = zip(self.forward, self.backward, strict=True)
        return tuple(self.ticks(forward + backward) for forward, backward in pairs)

    def ticks(self, time: Fraction) -> int:
        """Return a time as the nearest number of ticks."""
        return round(time / self.tick)

    def decimal(self, ticks: int) -> Decimal:
        """Return a time in ticks as a decimal of few digits."""
        return Decimal(ticks) * self._tick

    @cached_property
    def _tick(self) -> Decimal:
        return as_decimal(self.tick)

    def sums(self, field: str, boundaries: Sequence[int]) -> list[int]:
        """Return a figure of every stage in whole ticks or grains.

        Parameters
        ----------
        field, boundaries
            A time, ``activation`` or ``state``; S + 1 layer indices where stages begin and end.

        Returns
        -------
        list of int
            S sums, exact.
        """
        if field not in self._prefixes:
            self._prefixes[field] = [0, *accumulate(self.whole(field))]
        prefix = self._prefixes[field]
        return [prefix[last] - prefix[first] for first, last in pairwise(boundaries)]

    def whole(self, field: str) -> tuple[int, ...]:
        """Return a figure of every layer in whole ticks or grains."""
        if field not in self._wholes:
            convert = self.grains if field in {"activation", "state"} else self.ticks
            self._wholes[field] = tuple(map(convert, getattr(self, field)))
        return self._wholes[field]

    def grains(self, amount: Fraction) -> int:
        """Return the number of grains that fit into an amount of memory."""
        return math.floor(amount / self.grain)


def as_decimal(amount: Fraction | int) -> Decimal:
    """Return a fraction whose denominator divides a power of ten."""
    return Decimal(amount.numerator) / Decimal(amount.denominator)
