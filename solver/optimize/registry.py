"""Every heuristic of every kind by name, in the order in which they are run and reported."""

from __future__ import annotations

from collections.abc import Iterable

from ppsolve.models.core.problem import Problem
from ppsolve.models.documents.base import did_you_mean
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.heuristics.generic import GENERIC
from ppsolve.solver.heuristics.heuristic import Heuristic, HeuristicOutcome
from ppsolve.solver.optimize.kinds import KINDS, kind_of


def all_heuristics() -> dict[str, Heuristic]:
    """Return every heuristic by name: those of each kind, then those for every kind."""
    owned = [heuristic for kind in KINDS.values() for heuristic in kind.heuristics]
    return {heuristic.name: heuristic for heuristic in (*owned, *GENERIC)}


def find_heuristic(name: str) -> Heuristic:
    """Return the heuristic called `name`.

    Raises
    ------
    InputError
        There is none; names the nearest.
    """
    known = all_heuristics()
    if name not in known:
        raise InputError(f'unknown heuristic "{name}"' + did_you_mean(name, known))
    return known[name]


def chosen_heuristics(instance: Instance, names: Iterable[str] | None) -> tuple[Heuristic, ...]:
    """Return the heuristics to run on an instance, in the order of reports.

    Parameters
    ----------
    instance : Instance
        The instance.
    names : iterable of str, optional
        What was asked for; all that its kind runs by default.

    Returns
    -------
    tuple of Heuristic
        Each once; of other kinds too where they are named.

    Raises
    ------
    InputError
        An unknown name.
    """
    if names is None:
        return kind_of(instance).heuristics_of(instance)
    wanted = {find_heuristic(name).name for name in names}
    return tuple(h for name, h in all_heuristics().items() if name in wanted)


def heuristics_for(instance: Instance) -> list[str]:
    """Return the names of the heuristics that are run on an instance."""
    return [heuristic.name for heuristic in chosen_heuristics(instance, None)]


def quick_heuristics(instance: Instance) -> list[str]:
    """Return the names of those of `heuristics_for` that do not search."""
    return [h.name for h in chosen_heuristics(instance, None) if not h.is_search]


def run_heuristic(
    name: str, instance: Instance, problem: Problem, group_size: int | None = None
) -> HeuristicOutcome:
    """Run a heuristic by its name and check its schedule.

    Parameters
    ----------
    name : str
        Name of the heuristic.
    instance : Instance
        A validated instance.
    problem : Problem
        The problem of the instance.
    group_size : int, optional
        Micro-batches per group of ``interleaved-1f1b``; PyTorch's choice by default.

    Returns
    -------
    HeuristicOutcome
        As from `Kind.run_heuristic`.

    Raises
    ------
    InputError
        No heuristic has this name, or a group size below 1.
    """
    heuristic = find_heuristic(name)
    return kind_of(instance).run_heuristic(heuristic, instance, problem, group_size)
