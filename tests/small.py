"""Tiny hand-made problems, ops given by name: what tests of single rules are stated on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.api.kinds import lower, parse_instance


def op(name: str, duration: float, *resources: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "duration": duration, "resources": list(resources), **fields}


def holding(name: str, duration: float, amount: Any, *resources: str) -> dict[str, Any]:
    """Return an op that holds `amount` of the pool ``m`` while it runs."""
    return op(
        name, duration, *resources, acquire={"m": amount}, release_at_end={"m": amount}
    )


def small(
    ops: Sequence[dict[str, Any]],
    edges: Iterable[tuple[Any, ...]] = (),
    *,
    capacity: Any = None,
    initial: Any = 0,
    families: Iterable[Sequence[Sequence[str]]] = (),
    windows: Mapping[str, list[list[int]]] | None = None,
    points: Iterable[str] = (),
    weight: Mapping[str, int] | None = None,
    **fields: Any,
) -> Problem:
    """Return the problem of some ops and (before, after[, lag]) edges.

    `capacity` and `initial` are those of the one pool ``m``. Families (rows of names), windows,
    points and weights of the ends are what no graph file can say.
    """
    names = [each["id"] for each in ops]
    data = {
        "kind": "graph",
        "resources": sorted({name for each in ops for name in each["resources"]}),
        "ops": list(ops),
        "precedences": [
            dict(zip(("before", "after", "lag"), e, strict=False)) for e in edges
        ],
        "pools": [{"name": "m", "capacity": capacity, "initial": initial}]
        if capacity is not None
        else [],
        **fields,
    }
    problem = replace(
        lower(parse_instance(data)),
        families=tuple(
            np.array([[names.index(n) for n in row] for row in f]) for f in families
        ),
        windows={
            names.index(n): np.array(w, np.int64) for n, w in (windows or {}).items()
        },
        points=np.array([names.index(name) for name in points], dtype=np.int64),
    )
    if weight is None:
        return problem
    ends = np.array([weight.get(name, 0) for name in names], dtype=np.int64)
    return replace(problem, objective=Objective.COMPLETION, weight=ends)


def number(problem: Problem, name: str) -> int:
    return problem.op_names(range(problem.num_ops)).index(name)


def at(problem: Problem, *starts: int) -> Schedule:
    return Schedule(problem, np.array(starts, dtype=np.int64))


def named_edges(problem: Problem, before: Any, after: Any) -> set[tuple[str, str]]:
    """Return (before, after) op arrays as pairs of names."""
    return set(zip(problem.op_names(before), problem.op_names(after), strict=True))
