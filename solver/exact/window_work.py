"""Work that fits between the pinned ops of a resource, which no-overlap alone does not add up."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.exact.params import MODEL
from ppsolve.solver.exact.variables import Variables


def add_window_work(variables: Variables, hint: Schedule | None = None) -> None:
    """Choose one window for every op, and keep the work in every hole within its length.

    A hole is an interval of time that the windows of ops on one resource connect. The rule is
    redundant; its linear relaxation detects at once that the holes are too small in total.

    Parameters
    ----------
    variables : Variables
    hint : Schedule, optional
        Schedule whose windows are hinted.
    """
    problem = variables.problem
    choices = _choices(variables)
    if sum(len(windows) for windows in choices.values()) > MODEL.window_literals:
        return
    literals = {op: _literals(variables, op, windows) for op, windows in choices.items()}
    if hint is not None:
        _hint(variables, choices, literals, hint)
    for ops in problem.ops_by_resource:
        own = [op for op in ops.tolist() if op in choices]
        if own:
            _limit_work(variables, own, choices, literals)


def _choices(variables: Variables) -> dict[int, IntArray]:
    problem = variables.problem
    return {
        op: np.array(flat, dtype=np.int64).reshape(-1, 2)
        for op, flat in enumerate(variables.windows.starts(problem))
        if op in problem.windows and problem.duration[op] > 0
    }


def _literals(variables: Variables, op: int, windows: IntArray) -> list[cp_model.IntVar]:
    model, start = variables.model, variables.start[op]
    found = []
    for low, high in windows.tolist():
        literal = model.new_bool_var("")
        model.add(start >= low).only_enforce_if(literal)
        model.add(start <= high).only_enforce_if(literal)
        found.append(literal)
    model.add_exactly_one(found)
    return found


def _hint(
    variables: Variables,
    choices: dict[int, IntArray],
    literals: dict[int, list[cp_model.IntVar]],
    schedule: Schedule,
) -> None:
    for op, windows in choices.items():
        start = schedule.start[op]
        inside = (windows[:, 0] <= start) & (start <= windows[:, 1])
        for literal, chosen in zip(literals[op], inside.tolist(), strict=True):
            variables.model.add_hint(literal, chosen)


def _limit_work(
    variables: Variables,
    ops: list[int],
    choices: dict[int, IntArray],
    literals: dict[int, list[cp_model.IntVar]],
) -> None:
    starts, ends = holes_of(variables.problem, ops, choices)
    terms: dict[int, list[cp_model.LinearExprT]] = defaultdict(list)
    for op in ops:
        length = int(variables.problem.duration[op])
        places = np.searchsorted(starts, choices[op][:, 0], side="right") - 1
        for literal, hole in zip(literals[op], places.tolist(), strict=True):
            terms[hole].append(length * literal)
    for hole, work in terms.items():
        variables.model.add(sum(work) <= int(ends[hole] - starts[hole]))


def holes_of(
    problem: Problem, ops: list[int], choices: dict[int, IntArray]
) -> tuple[IntArray, IntArray]:
    """Return the holes that the windows of ops connect, in order.

    Parameters
    ----------
    problem : Problem
        n ops.
    ops : list of int
        Ops of one resource.
    choices : dict of int to int64[w, 2]
        Closed windows of starts of each op, in ticks.

    Returns
    -------
    starts, ends : int64[holes]
        Ticks; disjoint and ascending.
    """
    reach = [choices[op] + [0, int(problem.duration[op])] for op in ops]
    intervals = np.concatenate(reach)
    intervals = intervals[np.argsort(intervals[:, 0], kind="stable")]
    latest = np.maximum.accumulate(intervals[:, 1])
    fresh = np.concatenate(([True], intervals[1:, 0] >= latest[:-1]))
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], len(intervals)) - 1
    return intervals[first, 0], latest[last]
