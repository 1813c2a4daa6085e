"""List scheduling as named heuristics: one rule each, and a sweep over many."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from ppsolve.models.errors import MemoryDeadlockError, NotApplicableError
from ppsolve.models.problem import FREE, IntArray, Objective, Problem
from ppsolve.models.schedule import Schedule
from ppsolve.solver.heuristics.parallel import Rule, generate_parallel
from ppsolve.solver.heuristics.priorities import (
    backward_first,
    favoured_backwards,
    fillers,
    index_order,
    longest_tail,
    most_work,
    tails,
)
from ppsolve.solver.heuristics.serial import generate_serial
from ppsolve.solver.heuristics.spans import compact_spans, right_shift

_MOST_OPS_SERIAL = 50_000
_SWEEP_EFFORT = 150_000
_MOST_RULES = 128
_PATIENCE = (0.0, 0.5, 1.0, 3.0)


def list_tail(problem: Problem) -> Schedule:
    """Longest tail (critical path) first; weight gradients fill idle time or free memory."""
    rank = longest_tail(problem)
    return _parallel(problem, Rule(rank, fillers(problem), 1.0, 1.0, frees_memory=True))


def list_work(problem: Problem) -> Schedule:
    """Most work left in the micro-batch first; weight gradients fill idle time."""
    return _parallel(problem, Rule(most_work(problem), fillers(problem)))


def list_backward_first(problem: Problem) -> Schedule:
    """Backwards before forwards; weight gradients fill idle time."""
    return _parallel(problem, Rule(backward_first(problem), fillers(problem)))


def list_serial(problem: Problem) -> Schedule:
    """Place ops serially, longest tail first: weight gradients go into the gaps of the others.

    Raises
    ------
    NotApplicableError
        The problem has too many ops.
    """
    if problem.num_ops > _MOST_OPS_SERIAL:
        raise NotApplicableError(
            f"needs at most {_MOST_OPS_SERIAL} ops (serial generation), got {problem.num_ops}"
        )
    return _finished(generate_serial(problem, longest_tail(problem), index_order(problem)))


def list_sweep(problem: Problem) -> Schedule:
    """Best of up to 128 rules: patience and preferences varied, a fixed random sequence."""
    count = max(2, min(_MOST_RULES, _SWEEP_EFFORT // max(problem.num_ops, 1)))
    edges, score = index_order(problem), _score(problem)
    found: list[tuple[tuple[int, int], int, Schedule]] = []
    stuck: MemoryDeadlockError | None = None
    for number, rule in enumerate(islice(_rules(problem), count)):
        try:
            schedule = generate_parallel(problem, rule, edges)
        except MemoryDeadlockError as error:
            stuck = error
        else:
            found = [min([*found, (score(schedule), number, schedule)])]
    if stuck is not None and not found:
        raise stuck
    return _finished(found[0][2])


def _parallel(problem: Problem, rule: Rule) -> Schedule:
    return _finished(generate_parallel(problem, rule, index_order(problem)))


def _finished(schedule: Schedule) -> Schedule:
    spans_count = schedule.problem.objective is Objective.DEVICE_SPAN
    return compact_spans(schedule) if spans_count else schedule


def _score(problem: Problem) -> Callable[[Schedule], tuple[int, int]]:
    """Return what the sweep minimises: pinned starts missed, then the objective."""
    pinned = np.flatnonzero(problem.pinned != FREE)
    spans_count = problem.objective is Objective.DEVICE_SPAN

    def score(schedule: Schedule) -> tuple[int, int]:
        missed = int(np.count_nonzero(schedule.start[pinned] != problem.pinned[pinned]))
        reached = right_shift(schedule).device_span if spans_count else schedule.makespan
        return missed, reached

    return score


def _rules(problem: Problem) -> Iterator[Rule]:
    """Yield rules: those that do best on regular pipelines, then a reproducible random sequence."""
    tail, filler = tails(problem), fillers(problem)
    one_op, none = float(problem.duration.mean()), np.zeros(problem.num_ops)
    balanced = favoured_backwards(problem, tail, one_op, none)
    backward, longest = backward_first(problem), longest_tail(problem)
    for rank, patience, filler_patience in (
        (balanced, 1.0, 3.0),
        (balanced, 1.0, 0.0),
        (longest, 1.0, 1.0),
        (backward, 0.5, 0.5),
        (backward, 0.0, 0.0),
        (longest, 0.0, 0.0),
        (balanced, 1.0, 0.5),
    ):
        yield Rule(rank, filler, patience, filler_patience, frees_memory=True)
    yield Rule(backward, filler)
    yield Rule(balanced, filler, 1.0, 1.0, frees_memory=True, reserve=False)
    chance = random.Random(0)
    while True:
        yield Rule(
            _varied(problem, tail, chance),
            filler,
            chance.choice(_PATIENCE),
            chance.choice(_PATIENCE),
            frees_memory=chance.random() < 0.6,
            reserve=chance.random() < 0.7,
        )


def _varied(problem: Problem, tail: IntArray, chance: random.Random) -> IntArray:
    """Return the longest-tail ranks with backwards favoured, and every (stage, kind) shaken."""
    mean = float(problem.duration.mean())
    favour = chance.choice((0.0, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 1e6)) * mean
    groups = problem.stage * len(problem.kinds) + problem.kind
    groups = groups - groups.min()
    strength = chance.choice((0.0, 1.0)) * mean
    noise = np.array([chance.gauss(0.0, strength) for _ in range(int(groups.max()) + 1)])
    return favoured_backwards(problem, tail, favour, noise[groups])
