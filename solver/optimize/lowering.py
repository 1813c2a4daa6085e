"""From any instance to its problem, those whose pipeline a heuristic pins included."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ppsolve.models.core.problem import Problem
from ppsolve.models.instances import Instance, lower, lower_by
from ppsolve.models.kfac.instance import FREE_PIPELINE, KfacInstance
from ppsolve.solver.kfac.pattern import is_refresh, pattern_of


def lower_instance(
    instance: Instance, *, round_up: bool = False, iterations: Sequence[int] | None = None
) -> Problem:
    """Lower any instance to the problem that solvers and the checker work on.

    Parameters
    ----------
    instance : Instance
        A validated instance.
    round_up : bool
        Round times up where they have no common tick.
    iterations : sequence of int, optional
        Of K-FAC work around a pinned pipeline: the iterations of each device (1 by default).

    Raises
    ------
    InputError
        The times have no common tick and `round_up` is false, or are too long in all, or the
        instance's pattern cannot be used.
    """
    if is_refresh(instance):
        return lower_by(partial(_refresh, round_up=round_up, iterations=iterations), instance)
    if isinstance(instance, KfacInstance) and instance.pattern != FREE_PIPELINE:
        return lower_by(partial(_pinned, round_up=round_up), instance)
    return lower(instance, round_up=round_up)


def _refresh(
    instance: KfacInstance, *, round_up: bool, iterations: Sequence[int] | None
) -> Problem:
    from ppsolve.models.kfac.unrolling import lower_refresh

    pattern = pattern_of(instance, round_up=round_up)
    return lower_refresh(pattern, iterations or [1] * len(pattern.devices)).problem


def _pinned(instance: KfacInstance, *, round_up: bool) -> Problem:
    from ppsolve.models.kfac.cycle import lower_cycle
    from ppsolve.solver.kfac.pinned import pinned_cycle

    cycle = lower_cycle(instance, round_up=round_up)
    return pinned_cycle(instance, cycle, instance.pattern)
