"""Problems made of other problems: some of their ops, and several side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import (
    COLUMNS,
    FREE,
    BoolArray,
    IntArray,
    Pool,
    Problem,
)

T = TypeVar("T")


def columns_of(problem: Problem, ops: IntArray) -> dict[str, IntArray]:
    """Return the columns of some ops and the resources that they occupy, as fields of a problem.

    An op may be there twice. Columns that the problem does not have are absent.
    """
    columns = {name: getattr(problem, name) for name in COLUMNS}
    fields = {name: column[ops] for name, column in columns.items() if len(column)}
    sizes = np.diff(problem.resource_ptr)[ops]
    pointer = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    seats = np.repeat(problem.resource_ptr[ops] - pointer[:-1], sizes) + np.arange(
        pointer[-1]
    )
    return fields | {
        "resource_ptr": pointer,
        "resource_idx": problem.resource_idx[seats],
    }


def without_resources(problem: Problem, ops: BoolArray) -> Problem:
    """Return a problem in which some ops, bool[n], occupy no resource."""
    counts = np.diff(problem.resource_ptr)
    stays = np.repeat(~ops, counts)
    return replace(
        problem,
        resource_ptr=np.concatenate([[0], np.cumsum(np.where(ops, 0, counts))]),
        resource_idx=problem.resource_idx[stays],
    )


def moved(problem: Problem, by: int) -> Problem:
    """Return the same problem on devices whose numbers are larger by `by`."""
    return replace(
        problem,
        resources=tuple(key.moved(by) for key in problem.resources),
        pools=tuple(replace(pool, key=pool.key.moved(by)) for pool in problem.pools),
        device=np.where(problem.device == FREE, FREE, problem.device + by),
    )


def joined(problems: Sequence[Problem]) -> Problem:
    """Put problems side by side: resources and pools of one key are one.

    A shared pool has the least capacity, and holds before any op what all of them do. All problems
    have the same tick and objective, and no windows. Their ops follow each other; names that no
    label gives are kept.
    """
    resources, resource_numbers = _numbered([problem.resources for problem in problems])
    kinds, kind_numbers = _numbered([problem.kinds for problem in problems])
    first = np.cumsum([0, *(problem.num_ops for problem in problems)]).tolist()
    rows = np.cumsum([0, *(len(problem.resource_idx) for problem in problems)])
    shifted = list(zip(first, problems, strict=False))
    pointers = [
        problem.resource_ptr[:-1] + row
        for row, problem in zip(rows, problems, strict=False)
    ]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(problem, name) for problem in problems])
        for name in (*COLUMNS, "lag")
    }
    for name in ("before", "after", "points"):
        columns[name] = np.concatenate([getattr(p, name) + by for by, p in shifted])
    spans = _renumbered(resource_numbers, [p.span_resources for p in problems])
    return replace(
        problems[0],
        **columns | {"kind": _renumbered(kind_numbers, [p.kind for p in problems])},
        resources=resources,
        resource_ptr=np.concatenate([*pointers, rows[-1:]]),
        resource_idx=_renumbered(resource_numbers, [p.resource_idx for p in problems]),
        pools=_joined_pools(shifted),
        families=tuple(
            rows + by for by, problem in shifted for rows in problem.families
        ),
        span_resources=np.array(list(dict.fromkeys(spans.tolist())), dtype=np.int64),
        kinds=kinds,
        explicit_names={
            op + by: name
            for by, problem in shifted
            for op, name in problem.explicit_names.items()
        },
        joined={
            op + by: ops
            for by, problem in shifted
            for op, ops in problem.joined.items()
        },
    )


def _numbered(rows: Sequence[tuple[T, ...]]) -> tuple[tuple[T, ...], list[IntArray]]:
    """Return the different keys of all rows, and the number of each key of each row."""
    number = {key: index for index, key in enumerate(dict.fromkeys(chain(*rows)))}
    return tuple(number), [
        np.array([number[key] for key in row], dtype=np.int64) for row in rows
    ]


def _joined_pools(shifted: Sequence[tuple[int, Problem]]) -> tuple[Pool, ...]:
    groups: dict[DeviceName, list[tuple[int, Pool]]] = defaultdict(list)
    for by, problem in shifted:
        for pool in problem.pools:
            groups[pool.key].append((by, pool))
    pools = []
    for members in groups.values():
        amounts, tables = _numbered([pool.amounts for _, pool in members])
        pools.append(
            replace(
                members[0][1],
                capacity=min(pool.capacity for _, pool in members),
                initial=sum((pool.initial for _, pool in members), Fraction(0)),
                amounts=amounts,
                acquire_op=np.concatenate(
                    [pool.acquire_op + by for by, pool in members]
                ),
                acquire_amount=_renumbered(
                    tables, [p.acquire_amount for _, p in members]
                ),
                release_op=np.concatenate(
                    [pool.release_op + by for by, pool in members]
                ),
                release_amount=_renumbered(
                    tables, [p.release_amount for _, p in members]
                ),
            )
        )
    return tuple(pools)


def _renumbered(tables: Sequence[IntArray], columns: Sequence[IntArray]) -> IntArray:
    return np.concatenate(
        [table[column] for table, column in zip(tables, columns, strict=True)]
    )
