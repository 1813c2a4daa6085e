"""Problems made of other problems: some of their ops, and several side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

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
    resources = tuple(
        dict.fromkeys(key for problem in problems for key in problem.resources)
    )
    kinds = tuple(dict.fromkeys(kind for problem in problems for kind in problem.kinds))
    number_of = {key: number for number, key in enumerate(resources)}
    kind_of = {kind: number for number, kind in enumerate(kinds)}
    renumbered = [
        np.array([number_of[key] for key in problem.resources]) for problem in problems
    ]
    rekinded = [
        np.array([kind_of[kind] for kind in problem.kinds]) for problem in problems
    ]
    first = np.cumsum([0, *(problem.num_ops for problem in problems)]).tolist()
    rows = np.cumsum([0, *(len(problem.resource_idx) for problem in problems)])
    shifted = list(zip(first, problems, strict=False))
    spans = np.concatenate(
        [
            table[problem.span_resources]
            for table, problem in zip(renumbered, problems, strict=True)
        ]
    )
    pointers = [
        problem.resource_ptr[:-1] + row
        for row, problem in zip(rows, problems, strict=False)
    ]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(problem, name) for problem in problems])
        for name in COLUMNS
    }
    columns["kind"] = np.concatenate(
        [table[problem.kind] for table, problem in zip(rekinded, problems, strict=True)]
    )
    return replace(
        problems[0],
        **columns,
        resources=resources,
        resource_ptr=np.concatenate([*pointers, rows[-1:]]),
        resource_idx=np.concatenate(
            [
                table[problem.resource_idx]
                for table, problem in zip(renumbered, problems, strict=True)
            ]
        ),
        before=np.concatenate([problem.before + by for by, problem in shifted]),
        after=np.concatenate([problem.after + by for by, problem in shifted]),
        lag=np.concatenate([problem.lag for problem in problems]),
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
        points=np.concatenate([problem.points + by for by, problem in shifted]),
        joined={
            op + by: ops
            for by, problem in shifted
            for op, ops in problem.joined.items()
        },
    )


def _joined_pools(shifted: Sequence[tuple[int, Problem]]) -> tuple[Pool, ...]:
    groups: dict[DeviceName, list[tuple[int, Pool]]] = defaultdict(list)
    for by, problem in shifted:
        for pool in problem.pools:
            groups[pool.key].append((by, pool))
    pools = []
    for members in groups.values():
        amounts: dict[Fraction, int] = {}
        tables = [
            np.array(
                [amounts.setdefault(amount, len(amounts)) for amount in pool.amounts],
                np.int64,
            )
            for _, pool in members
        ]
        pools.append(
            replace(
                members[0][1],
                capacity=min(pool.capacity for _, pool in members),
                initial=sum((pool.initial for _, pool in members), Fraction(0)),
                amounts=tuple(amounts),
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
