"""Amounts over time below the lanes of a chart: memory in use, collectives in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ppsolve.models.core.metrics import usage
from ppsolve.models.core.problem import Pool
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.structure.owners import number_in, owners


@dataclass(frozen=True)
class Strip:
    """An amount over time that is drawn below the lanes of a device.

    Parameters
    ----------
    name : str
        What it is.
    device : int
        Below which device.
    steps : list of (number, number)
        Time in ticks, and the amount from there on.
    cap : number, optional
        The most that is allowed.
    """

    name: str
    device: int
    steps: Sequence[tuple[float, float]]
    cap: float | None = None


def pool_strips(schedule: Schedule) -> list[Strip]:
    """Return the use of every memory pool over time."""
    most = max(owners(schedule.problem), default=0)
    return [
        Strip(pool.name, number_in(pool.name, most), _steps(schedule, pool), float(pool.capacity))
        for pool in schedule.problem.pools
        if len(pool.acquire_op) + len(pool.release_op)
    ]


def _steps(schedule: Schedule, pool: Pool) -> list[tuple[float, float]]:
    return [(tick, _number(amount)) for tick, amount in usage(schedule, pool)]


def _number(amount: Fraction) -> float:
    return amount.numerator if amount.denominator == 1 else float(amount)
