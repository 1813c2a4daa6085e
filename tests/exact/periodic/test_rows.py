"""Problems seen as rows of alike micro-batches, and the problem of fewer of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.solver.exact.periodic.steady_state import first_rows, rows_of
from tests.exact.periodic.cases import pipeline
from tests.small import op, small


def test_columns_are_the_ops_of_one_micro_batch() -> None:
    problem = pipeline(2, 3)
    rows = rows_of(problem)
    assert rows.ops.shape == (3, 6)
    assert problem.op_names(rows.ops[1]) == [
        name.replace(".0", ".1") for name in problem.op_names(rows.ops[0])
    ]
    edges = [rows.problem.op_names(rows.ops[0][ends]) for ends in (rows.before, rows.after)]
    assert sorted(zip(*edges, strict=True)) == [
        *(("F0.0", "F1.0"), ("F0.0", "I0.0"), ("F1.0", "I1.0")),
        *(("I0.0", "W0.0"), ("I1.0", "I0.0"), ("I1.0", "W1.0")),
    ]
    assert rows.least_period == 3 + 4 + 2
    assert sorted(rows.resource.tolist()) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"placement": "vshape", "capacity": 5},
        {"p2p": {"latency": 2}, "capacity": 2},
        {"objective": "device_span"},
    ],
)
def test_fewer_rows_are_the_problem_of_fewer_micro_batches(fields: dict[str, Any]) -> None:
    part = first_rows(rows_of(pipeline(3, 7, **fields)), 4)
    whole = pipeline(3, 4, **fields)
    for label in ("duration", "resource_ptr", "resource_idx", "stage", "device", "microbatch"):
        assert getattr(part, label).tolist() == getattr(whole, label).tolist()
    assert part.op_names(range(part.num_ops)) == whole.op_names(range(whole.num_ops))
    edges = [set(zip(p.before, p.after, p.lag, strict=True)) for p in (part, whole)]
    assert edges[0] == edges[1]
    assert part.families[0].tolist() == whole.families[0].tolist()
    for mine, other in zip(part.pools, whole.pools, strict=True):
        assert mine.acquire_op.tolist() == other.acquire_op.tolist()
        assert mine.release_op.tolist() == other.release_op.tolist()
        assert (mine.capacity, mine.initial) == (other.capacity, other.initial)


def test_starts_are_in_index_order() -> None:
    rows = rows_of(pipeline(1, 2))
    backwards = np.arange(rows.problem.num_ops)[::-1].copy()
    found = rows.starts(Schedule(rows.problem, backwards))
    assert (np.diff(found, axis=0) > 0).all()


def test_others_are_told_why_not() -> None:
    alone = small([op("a", 1, "r")])
    with pytest.raises(NotApplicableError, match="all alike, and nothing else"):
        rows_of(alone)
    problem = pipeline(1, 2)
    with pytest.raises(NotApplicableError, match="no given starts"):
        rows_of(replace(problem, release=problem.release + 1))
    both = replace(
        problem,
        resource_ptr=np.arange(problem.num_ops + 1) + (np.arange(problem.num_ops + 1) > 1),
        resource_idx=np.array([0, *problem.resource_idx]),
    )
    with pytest.raises(NotApplicableError, match="one resource each"):
        rows_of(both)
    first, last = problem.families[0][0][0], problem.families[0][1][-1]
    one = replace(
        problem,
        before=np.append(problem.before, first),
        after=np.append(problem.after, last),
        lag=np.append(problem.lag, 0),
    )
    with pytest.raises(NotApplicableError, match="precedences within"):
        rows_of(one)
    linked = replace(problem, before=problem.before[:1] * 0, after=problem.after[:1] * 0 + 1)
    linked = replace(linked, lag=problem.lag[:1])
    with pytest.raises(NotApplicableError, match="precedences within"):
        rows_of(linked)
