"""A problem as text, so that two ways to make it can be compared, and a digest kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from fractions import Fraction

from ppsolve.models.core.problem import Pool, Problem


def digest(problem: Problem) -> str:
    return hashlib.sha256("\n".join(lines(problem)).encode()).hexdigest()[:16]


def lines(problem: Problem) -> Iterator[str]:
    """Say all of a problem: ops in their order, precedences and amounts as sets."""
    names = problem.op_names(range(problem.num_ops))
    yield f"{problem.objective} {shown(problem.scale.tick)} {problem.span_resources.tolist()}"
    for op, name in enumerate(names):
        streams = sorted(
            problem.resource_names[r] for r in problem.resources_of(op).tolist()
        )
        labels = (problem.stage[op], problem.device[op], problem.microbatch[op])
        times = (problem.duration[op], problem.release[op], problem.pinned[op])
        windows = problem.windows[op].tolist() if op in problem.windows else None
        yield f"{name} {problem.kinds[problem.kind[op]]} {streams} {[*map(int, labels + times)]}"
        yield f"{windows} {problem.weight[op] if len(problem.weight) else 0}"
    edges = zip(
        problem.before.tolist(),
        problem.after.tolist(),
        problem.lag.tolist(),
        strict=True,
    )
    yield from sorted({f"{names[a]} -> {names[b]} {lag}" for a, b, lag in edges})
    for pool in problem.pools:
        yield from pool_lines(problem, pool)
    for family in problem.families:
        yield str([[names[op] for op in row] for row in family.tolist()])


def pool_lines(problem: Problem, pool: Pool) -> Iterator[str]:
    yield f"pool {pool.name} {shown(pool.limit)} {shown(pool.initial)}"
    columns = [
        (pool.acquire_op, pool.acquire_amount),
        (pool.release_op, pool.release_amount),
    ]
    for sign, (ops, amounts) in zip("+-", columns, strict=True):
        given = zip(problem.op_names(ops), amounts.tolist(), strict=True)
        yield from sorted(
            f"{sign}{op} {shown(pool.amounts[amount])}" for op, amount in given
        )


def shown(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"
