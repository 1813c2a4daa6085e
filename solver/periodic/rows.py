"""A problem that is one family of alike micro-batches, seen column by column."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ppsolve.models.core.problem import FREE, BoolArray, IntArray, Pool, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.solver.heuristics.spans import orders_decide_memory


@dataclass(frozen=True, eq=False)
class Rows:
    """A problem of m alike micro-batches, each of which passes the same L columns.

    Parameters
    ----------
    problem : Problem
        The problem, m * L ops.
    ops : int64[m, L]
        Its ops, a row for each micro-batch.
    before, after, lag : int64[k]
        Precedences of one row: numbers of columns, and ticks.
    resource : int64[L]
        Resource of each column, `FREE` where it has none.
    """

    problem: Problem
    ops: IntArray
    before: IntArray
    after: IntArray
    lag: IntArray
    resource: IntArray

    @property
    def length(self) -> IntArray:
        """Duration of each column in ticks, int64[L]."""
        found: IntArray = self.problem.duration[self.ops[0]]
        return found

    @property
    def least_period(self) -> int:
        """Ticks of work that a micro-batch is for the busiest resource."""
        used = self.resource != FREE
        work = np.zeros(self.problem.num_resources, dtype=np.int64)
        np.add.at(work, self.resource[used], self.length[used])
        return int(work.max(initial=0))

    def starts(self, schedule: Schedule) -> IntArray:
        """Return the starts of a schedule by row and column, each column in index order.

        Micro-batches are alike, so the k-th execution of every column may be micro-batch k: order
        statistics keep all rules (`ppsolve.solver.structure.implied`).

        Parameters
        ----------
        schedule : Schedule
            A feasible schedule of the problem.

        Returns
        -------
        int64[m, L]
            Ticks.
        """
        found: IntArray = np.sort(schedule.start[self.ops], axis=0)
        return found


def rows_of(problem: Problem) -> Rows:
    """Return a problem as rows.

    Parameters
    ----------
    problem : Problem
        The problem, n ops.

    Returns
    -------
    Rows
        The same problem.

    Raises
    ------
    NotApplicableError
        It is no single family of alike micro-batches, or orders on resources do not say how full
        pools are.
    """
    if len(problem.families) != 1 or problem.families[0].size != problem.num_ops:
        raise NotApplicableError("needs micro-batches that are all alike, and nothing else")
    if problem.is_anchored or len(problem.points) or len(problem.replica):
        raise NotApplicableError("needs one pipeline, whose ops have no given starts")
    count = np.diff(problem.resource_ptr)
    if count.max(initial=0) > 1:
        raise NotApplicableError("needs ops that occupy one resource each")
    if not orders_decide_memory(problem):
        raise NotApplicableError("needs pools whose ops all run on one resource")
    ops = problem.families[0]
    row, column = np.divmod(np.argsort(ops, axis=None), ops.shape[1])
    if np.any(row[problem.before] != row[problem.after]):
        raise NotApplicableError("needs precedences within micro-batches")
    first = row[problem.before] == 0
    resource = np.full(problem.num_ops, FREE, dtype=np.int64)
    resource[count > 0] = problem.resource_idx
    return Rows(
        problem,
        ops,
        column[problem.before[first]],
        column[problem.after[first]],
        problem.lag[first],
        resource[ops[0]],
    )


def first_rows(rows: Rows, count: int) -> Problem:
    """Return the problem of some of the micro-batches.

    Parameters
    ----------
    rows : Rows
        Micro-batches 0..m-1.
    count : int
        How many of them, at most m.

    Returns
    -------
    Problem
        The ops of micro-batches 0..count-1, in the order in which the problem has them.
    """
    problem = rows.problem
    kept = np.zeros(problem.num_ops, dtype=np.bool_)
    kept[rows.ops[:count]] = True
    number = np.cumsum(kept) - 1
    inside = kept[problem.before]
    uses = np.diff(problem.resource_ptr)
    labels = ("duration", "release", "pinned", "kind", "stage", "device", "microbatch")
    named = {int(number[op]): name for op, name in problem.explicit_names.items() if kept[op]}
    return replace(
        problem,
        **{label: getattr(problem, label)[kept] for label in labels},
        resource_ptr=np.concatenate(([0], np.cumsum(uses[kept]))).astype(np.int64),
        resource_idx=problem.resource_idx[np.repeat(kept, uses)],
        before=number[problem.before[inside]],
        after=number[problem.after[inside]],
        lag=problem.lag[inside],
        pools=tuple(_part_of(pool, kept, number) for pool in problem.pools),
        families=(number[rows.ops[:count]],),
        explicit_names=named,
    )


def _part_of(pool: Pool, kept: BoolArray, number: IntArray) -> Pool:
    takes, gives = kept[pool.acquire_op], kept[pool.release_op]
    return replace(
        pool,
        acquire_op=number[pool.acquire_op[takes]],
        acquire_amount=pool.acquire_amount[takes],
        release_op=number[pool.release_op[gives]],
        release_amount=pool.release_amount[gives],
    )
