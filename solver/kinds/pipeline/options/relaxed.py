"""Problems whose bounds hold for every choice of an open problem."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ppsolve.models.core.compose import columns_of
from ppsolve.models.core.options import OpenProblem
from ppsolve.models.core.problem import BoolArray, IntArray, Problem

REST_KIND = "rest"


def keeps_index_order(problem: OpenProblem) -> BoolArray:
    """Return true for the ops that run in index order though options are chosen, bool[n].

    Alike micro-batches are numbered as their forwards and backwards run. A further op of an option,
    such as a weight gradient, is that of the backward, in whatever order both run by themselves.
    """
    mask = np.ones(problem.base.num_ops, dtype=np.bool_)
    mask[[op for option in problem.options for op in option.ops[2:]]] = False
    return mask


def at_their_fastest(problem: OpenProblem) -> Problem:
    """Return the base with the least time of each op, whose heads and tails hold for all choices.

    Its families have the columns that keep index order; ops that may run together need not wait for
    each other's ends.
    """
    base, keeps = problem.base, keeps_index_order(problem)
    lag = np.where(_is_inside(problem), -problem.fastest[base.before], base.lag)
    families = tuple(rows[:, keeps[rows].all(axis=0)] for rows in base.families)
    return replace(base, duration=problem.fastest, lag=lag, families=families)


def _is_inside(problem: OpenProblem) -> BoolArray:
    # Precedences between two ops of one option, bool[k].
    base = problem.base
    inside = {
        pair
        for each in problem.options
        for pair in zip(each.ops, each.ops[1:], strict=False)
    }
    edges = zip(base.before.tolist(), base.after.tolist(), strict=True)
    return np.array([edge in inside for edge in edges], dtype=np.bool_)


def relaxed(problem: OpenProblem, *, favours_firsts: bool = False) -> Problem:
    """Return a plain problem of which every schedule of every choice gives one no longer.

    Each op works on its device for a time that is no longer than its own, and those of an option
    together take no longer than the option: the dual of the best matching of ops. In the time of an
    option its ops work one after the other, and what waits for one of them waits as long after its
    work as it surely does after its start. Ops that no option covers work for longer than others of
    their family: the rest of their time is an op of its own.

    `favours_firsts`: whether the first op of an option has as much of its time as may
        be, else as little.
    Returns: the ops of the base, then the rests.
    """
    base = problem.base
    work = _work(problem, favours_firsts)
    for rows in base.families:
        work[rows] = work[rows].min(axis=0)
    waits = base.duration - work
    for option in problem.options:
        left = option.duration
        for op in option.ops:
            left -= int(work[op])
            waits[op] = min(waits[op], left)
    for rows in base.families:
        waits[rows] = waits[rows].min(axis=0)
    alone = np.ones(base.num_ops, dtype=np.bool_)
    alone[list(problem.covering)] = False
    rests = np.flatnonzero(alone & keeps_index_order(problem) & (base.duration > work))
    lag = base.lag + np.where(_is_inside(problem), 0, waits[base.before])
    return _with_rests(base, work, lag, rests)


def _work(problem: OpenProblem, favours_firsts: bool) -> IntArray:
    work = problem.base.duration.copy()
    own = work.tolist()
    most, least = work.copy(), np.zeros_like(work)
    for option in problem.options:
        first, *others = option.ops
        most[first] = min(most[first], option.duration)
        least[first] = max(
            least[first], option.duration - sum(own[op] for op in others)
        )
    firsts = sorted({option.ops[0] for option in problem.options})
    work[firsts] = (most if favours_firsts else np.minimum(least, most))[firsts]
    for option in problem.options:
        first, *others = option.ops
        left = option.duration - int(work[first])
        for op in reversed(others):
            work[op] = min(work[op], left)
            left -= int(work[op])
    return work


def _with_rests(
    base: Problem, work: IntArray, lag: IntArray, rests: IntArray
) -> Problem:
    count, number = len(rests), np.full(base.num_ops, -1)
    number[rests] = base.num_ops + np.arange(count)
    follow = np.flatnonzero(number[base.before] >= 0)
    columns: dict[str, Any] = columns_of(
        base, np.append(np.arange(base.num_ops), rests)
    )
    columns["duration"] = np.concatenate((work, (base.duration - work)[rests]))
    columns["kind"][base.num_ops :] = len(base.kinds)
    return replace(
        base,
        **columns,
        before=np.concatenate((base.before, rests, number[base.before[follow]])),
        after=np.concatenate((base.after, number[rests], base.after[follow])),
        lag=np.concatenate((lag, np.zeros(count, np.int64), base.lag[follow])),
        kinds=(*base.kinds, REST_KIND),
    )
