"""CP-SAT objectives: makespan, device span and weighted completion."""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.models.core.problem import BoolArray, Objective
from ppsolve.solver.cpsat.variables import Variables
from ppsolve.solver.structure.implied import ImpliedOrder


def add_objective(variables: Variables, implied: ImpliedOrder) -> None:
    """Tie the objective variable to the starts and minimise it.

    Parameters
    ----------
    variables : Variables
        The model's variables.
    implied : ImpliedOrder
        The problem and its implied order, which leaves few ops that can be first or last.
    """
    match implied.problem.objective:
        case Objective.DEVICE_SPAN:
            _device_span(variables, implied)
        case Objective.COMPLETION:
            _completion(variables, implied)
        case _:
            _makespan(variables, implied)
    variables.model.minimize(variables.objective)


def _completion(variables: Variables, implied: ImpliedOrder) -> None:
    weight = implied.problem.weight
    weighed = np.flatnonzero(weight).tolist()
    total = cp_model.LinearExpr.weighted_sum(
        [variables.end(op) for op in weighed], weight[weighed].tolist()
    )
    variables.model.add(variables.objective == total)


def _makespan(variables: Variables, implied: ImpliedOrder) -> None:
    last = np.ones(implied.problem.num_ops, dtype=np.bool_)
    # What comes before another op ends no later, in index order without a resource too: alike
    # ops have one length.
    last[implied.full.before] = False
    for op in np.flatnonzero(last).tolist():
        variables.model.add(variables.end(op) <= variables.objective)


def _device_span(variables: Variables, implied: ImpliedOrder) -> None:
    problem, model = implied.problem, variables.model
    first_rows, last_rows = _outer_rows(implied)
    for resource in problem.span_resources.tolist():
        ops = problem.ops_by_resource[resource]
        if not len(ops):
            continue
        begin = model.new_int_var(0, variables.windows.horizon, "")
        variables.span_start[resource] = begin
        firsts = [variables.start[op] for op in ops[first_rows[ops]].tolist()]
        model.add_min_equality(begin, firsts)
        for op in ops[last_rows[ops]].tolist():
            model.add(variables.end(op) <= begin + variables.objective)


def _outer_rows(implied: ImpliedOrder) -> tuple[BoolArray, BoolArray]:
    """Return masks of the ops that are first, or last, of their column: bool[n] each."""
    first = np.ones(implied.problem.num_ops, dtype=np.bool_)
    last = first.copy()
    for family in implied.problem.families:
        first[family[1:]] = False
        last[family[:-1]] = False
    return first, last
