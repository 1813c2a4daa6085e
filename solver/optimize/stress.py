"""How schedules of a result hold when ops do not take what was planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from ppsolve.models.core.result import HeuristicStatus, Result
from ppsolve.models.instances import Instance
from ppsolve.models.stress.report import StressReport
from ppsolve.solver.optimize.kinds import kind_of, schedule_in
from ppsolve.solver.stress.jitter import ALL_KINDS, Jitter
from ppsolve.solver.stress.replay import FixedOrders
from ppsolve.solver.stress.spread import stressed

RUNS = 10_000
"""Runs by default: the 99th percentile then rests on 100 of them."""


def stress(
    result: Result | Mapping[str, Any],
    jitter: float | Mapping[str, float],
    *,
    slow: Mapping[int, float] | None = None,
    runs: int = RUNS,
    seed: int = 0,
    instance: Instance | None = None,
    source: str | None = None,
) -> StressReport:
    """Replay the best schedule of a result and its heuristics with random durations.

    Orders stay, and every op starts as early as they allow, as a runtime does that executes lists
    of ops. All schedules get the same durations.

    Parameters
    ----------
    result : Result or dict
        A result, or parsed JSON of one.
    jitter : float or mapping of str to float
        Coefficient of variation of all ops, or by kind (``F``, ``I``, ``P2P``, …; ``*`` for all
        others).
    slow : mapping of int to float, optional
        Factor on all compute ops of a device.
    runs, seed : int
        Number of runs, and seed of their durations.
    instance : Instance, optional
        The instance of a result that carries none.
    source : str, optional
        How errors name the result.

    Returns
    -------
    StressReport
        The best schedule first, then each feasible heuristic; times in the instance's unit.

    Raises
    ------
    InputError
        The result has no schedule or no instance, ops are pinned, or an option is out of range.
    """
    data = result.model_dump(mode="json") if isinstance(result, BaseModel) else dict(result)
    by_kind = jitter if isinstance(jitter, Mapping) else {ALL_KINDS: jitter}
    return stressed(_contenders(data, source, instance), Jitter(by_kind, slow or {}), runs, seed)


def _contenders(
    data: dict[str, Any], source: str | None, otherwise: Instance | None
) -> dict[str, FixedOrders]:
    """Return the orders of the best schedule and of every feasible heuristic."""
    instance, schedule = schedule_in(data, source, otherwise=otherwise)
    found = Result.model_validate(data)
    contenders = {found.best_by or "best": FixedOrders.of(schedule)}
    for entry in found.heuristics:
        is_new = entry.status is HeuristicStatus.FEASIBLE and entry.name not in contenders
        if is_new and entry.orders is not None:
            followed = kind_of(instance).follow(instance, schedule.problem, entry.orders)
            contenders[entry.name] = FixedOrders.of(followed.schedule)
    return contenders
