"""Tables of the releases that make room for an acquire, from the amounts of its lanes."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.structure.holds import whole_units

MAX_SMALLEST = 2**60
"""Units of the smallest amount up to which the fraction left over is exact: three of them stay
below 64 bits. Beyond, it is rounded up, which lets more fit and only weakens the heads."""


@dataclass(frozen=True)
class ReleaseAmounts:
    """Amounts that fix the choices of releases; equal on all devices of regular pipelines.

    Parameters
    ----------
    taken : tuple of Fraction
        Amount that each of the L lanes of a nest takes per row.
    shares : tuple of Fraction
        Largest amount that an op of the first, and of the second, releases gives back.
    available : Fraction
        Amount that is free before any op.
    members : int
        Number of rows m.
    """

    taken: tuple[Fraction, ...]
    shares: tuple[Fraction, ...]
    available: Fraction
    members: int
    _known: dict[int, tuple[IntArray, IntArray]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @cached_property
    def _whole(self) -> tuple[IntArray, IntArray, int]:
        """Taken amounts, shares and the available amount in whole units."""
        parts = (*self.taken, *self.shares, self.available)
        count = 2 * len(self.taken) * (self.members + 1)
        whole, _ = whole_units(parts, count)
        lanes = len(self.taken)
        return whole[:lanes], whole[lanes:-1], int(whole[-1])

    def shortage(self, rows: IntArray) -> IntArray:
        """Return the amount that releases must free before each acquire, in units."""
        taken, _, available = self._whole
        need: IntArray = (rows + 1).astype(taken.dtype) * taken.sum() - available
        return need

    def counts(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the numbers of first releases to try before each acquire.

        No series has more than j releases per lane.

        Parameters
        ----------
        rows : int64[r]
            Rows j of the acquires.

        Returns
        -------
        fewest, number : int64[r]
            The least number, and how many numbers from there on; 0 where the acquire fits at once.
        """
        taken, shares, _ = self._whole
        shortage = self.shortage(rows)
        fewest = -(-shortage // shares.sum())
        most = np.clip(-(-shortage // shares[0]), -1, rows * len(taken))
        fewest = np.clip(fewest, 0, most + 1)
        number = np.where(shortage > 0, np.maximum(most - fewest + 1, 0), 0)
        if len(shares) == 1:
            number = np.minimum(number, 1)
        return fewest.astype(np.int64), number.astype(np.int64)

    @cached_property
    def effort(self) -> int:
        """Number of sums that all choices of all acquires take, as an estimate."""
        rows = np.arange(self.members)
        return int((self.counts(rows)[1] * (rows + 1) * 3).sum())

    def choices(self, step: int) -> tuple[IntArray, IntArray]:
        """Return the choices of `_choices`, made once per step."""
        if step not in self._known:
            self._known[step] = self._choices(step)
        return self._known[step]

    def _choices(self, step: int) -> tuple[IntArray, IntArray]:
        """Return the least numbers of releases that make room for every `step`-th acquire.

        A second release follows a first one, so its number is no larger.

        Parameters
        ----------
        step : int
            Distance of the acquires, counted from the last one.

        Returns
        -------
        pointer : int64[m + 1]
            Choices by acquire.
        choices : int64[2 * c]
            Numbers of first and second releases, choice by choice.
        """
        rows = np.arange(self.members)
        fewest, number = self.counts(rows)
        number[(self.members - 1 - rows) % step > 0] = 0
        row = np.repeat(rows, number)
        first = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
        first += fewest[row]
        second = self._second(row, first)
        kept = second <= first
        pointer = np.concatenate(([0], np.cumsum(np.bincount(row[kept], minlength=len(rows)))))
        return pointer.astype(np.int64), np.stack((first[kept], second[kept]), axis=1).ravel()

    @cached_property
    def returns(self) -> IntArray:
        """All numbers of first releases before the last acquire, with the least of second ones.

        int64[2 * d]; none where it fits at once or never.
        """
        last = np.array([self.members - 1])
        fewest, number = self.counts(last)
        most = len(self.taken) * (self.members - 1) + 1 if number[0] > 0 else 0
        first = np.arange(int(fewest[0]), most)
        second = self._second(np.repeat(last, len(first)), first)
        kept = second <= first
        return np.stack((first[kept], second[kept]), axis=1).ravel()

    def _second(self, row: IntArray, first: IntArray) -> IntArray:
        _, shares, _ = self._whole
        if len(shares) == 1:
            return np.zeros_like(first)
        short = self.shortage(row) - first.astype(shares.dtype) * shares[0]
        least = np.maximum(-(-short // shares[1]), 0)
        second: IntArray = np.minimum(least, first + 1).astype(np.int64)
        return second

    @cached_property
    def fractions(self) -> tuple[int, int, int, IntArray, IntArray]:
        """The fields ``smallest`` to ``released_over`` of `LaneMemory`."""
        taken, shares, available = self._whole
        smallest = int(taken.min())
        number = np.arange(len(taken) * self.members + 1).astype(shares.dtype)
        parts = [number * share for share in shares]
        parts += [np.zeros_like(number)] * (2 - len(shares))
        whole = np.concatenate([np.array([available], dtype=number.dtype), *parts])
        times, over = whole // smallest, whole % smallest
        if smallest > MAX_SMALLEST:
            over, smallest = -(-over * MAX_SMALLEST // smallest), MAX_SMALLEST
        times = np.minimum(times, MAX_SMALLEST)  # more than all acquires together
        times, over = times.astype(np.int64), over.astype(np.int64)
        return smallest, int(times[0]), int(over[0]), times[1:], over[1:]
