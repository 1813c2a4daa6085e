"""Random durations: what the ops of a run take instead of what was planned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.core.result import SHOWN_TRANSFER, TRANSFER_KINDS
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.stress.limits import MOST_JITTER

FloatArray = NDArray[np.float64]

ALL_KINDS = "*"
"""Key of the jitter of every kind that has none of its own."""

BLOCK_NUMBERS = 2**22
"""Durations that are drawn at once, 32 MB. With 2**20 or 2**24 a pipeline of 16 x 48 takes as
long to within 5 %."""


@dataclass(frozen=True)
class Jitter:
    """How durations vary.

    Every op takes its planned duration times a factor of its own: log-normal of mean 1, so that
    none is negative and plans are right on average; an op of a slow device takes longer by the
    device's factor.

    Parameters
    ----------
    by_kind : mapping of str to float
        Coefficient of variation (standard deviation over mean) by kind of op; `ALL_KINDS` stands
        for every kind that is not named.
    slow : mapping of int to float
        Factor on the durations of all compute ops of a device.
    """

    by_kind: Mapping[str, float]
    slow: Mapping[int, float] = field(default_factory=dict)

    def check(self, problem: Problem) -> None:
        """Refuse what makes no sense for a problem.

        Raises
        ------
        InputError
            A variation is negative, not finite or above `MOST_JITTER`; a factor is not positive; a
            kind or a device does not exist.
        """
        known = [*dict.fromkeys(_shown(kind) for kind in problem.kinds)]
        for kind, variation in self.by_kind.items():
            if kind not in (*known, ALL_KINDS):
                listed = ", ".join(known)
                raise InputError(f'no op is of kind "{kind}", expected {listed}', field="--jitter")
            if not 0 <= variation <= MOST_JITTER:
                raise InputError(
                    f"expected a coefficient of variation from 0 to {MOST_JITTER:g}, "
                    f"got {variation:g}",
                    field="--jitter",
                )
        devices = set(problem.device[problem.is_compute].tolist()) - {FREE}
        for device, factor in self.slow.items():
            if device not in devices:
                raise InputError(
                    f"expected a device from 0 to {max(devices, default=0)}, got {device}",
                    field="--slow",
                )
            if not (math.isfinite(factor) and factor > 0):
                raise InputError(f"expected a factor above 0, got {factor:g}", field="--slow")

    def spread(self, problem: Problem) -> FloatArray:
        """Return the standard deviation of the logarithm of each op's factor, float64[n]."""
        general = self.by_kind.get(ALL_KINDS, 0.0)
        of_kind = [self.by_kind.get(_shown(kind), general) for kind in problem.kinds]
        variation = np.array([*of_kind, general])[problem.kind]
        spread: FloatArray = np.sqrt(np.log1p(variation**2))
        return spread

    def expected(self, problem: Problem) -> FloatArray:
        """Return the mean duration of each op in ticks, float64[n]."""
        factor = np.ones(problem.num_ops)
        for device, slower in self.slow.items():
            factor[(problem.device == device) & problem.is_compute] = slower
        return problem.duration * factor


def _shown(kind: str) -> str:
    return SHOWN_TRANSFER if kind in TRANSFER_KINDS else kind


def drawn(problem: Problem, jitter: Jitter, runs: int, seed: int) -> Iterator[FloatArray]:
    """Draw the durations of all runs, block by block.

    Parameters
    ----------
    problem : Problem
        n ops.
    jitter : Jitter
        How durations vary.
    runs : int
        Number of runs.
    seed : int
        The same seed draws the same durations.

    Yields
    ------
    float64[n, b]
        Durations in ticks of the next b runs.
    """
    spread, expected = jitter.spread(problem), jitter.expected(problem)
    middle = np.log(np.maximum(expected, 1e-300)) - spread**2 / 2
    random = np.random.default_rng(seed)
    block = max(1, min(runs, BLOCK_NUMBERS // max(1, problem.num_ops)))
    for first in range(0, runs, block):
        shape = (min(block, runs - first), problem.num_ops)
        factors = random.standard_normal(shape).T * spread[:, None]
        durations = np.where(expected[:, None] > 0, np.exp(factors + middle[:, None]), 0.0)
        yield np.ascontiguousarray(durations)
