"""A portfolio of list rules: those that do best on pipelines, then a fixed random sequence."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.solver.heuristics.lane_order import RuleLane, Share, lane_edges, lanes_of
from ppsolve.solver.heuristics.parallel import Rule
from ppsolve.solver.heuristics.priorities import (
    backward_first,
    favoured_backwards,
    fillers,
    kind_class,
    longest_tail,
    ranked,
    tails,
)

_PATIENCE = (0.0, 0.5, 1.0, 3.0)
"""Patience of random rules: never wait, wait for less idle time than the delay, as much, more.

On 29 instances (12 random ones, ``memory_scan``, ``virtual_stages``) the mean gap of the sweep is
0.810 %, the largest 5.28 %; with 0 alone 0.811 % and 3.91 %.
"""

_CEILING = 0.999
"""Offset that rounds a limit up instead of down."""

TAIL, BACKWARD, BALANCED, EAGER = "tail", "backward", "balanced", "eager"
"""Ranks under limits: longest tail; backwards first; in between; weight gradients at once."""

_LIMITED = (
    # Share of memory, rank, patience of ops, patience of fillers.
    (Share(), TAIL, 0.0, 0.0),
    (Share(), TAIL, 1.0, 1.0),
    (Share(offset=0.5), EAGER, 0.5, 0.0),
    (Share(), EAGER, 0.0, 0.0),
    (Share(offset=0.5), TAIL, 1.0, 1.0),
    (Share(1.1), TAIL, 0.0, 0.0),
    (Share(wait_for_last=True), BACKWARD, 0.0, 0.0),
    (Share(everywhere=False), TAIL, 1.0, 1.0),
    (Share(1.1, _CEILING), TAIL, 1.0, 1.0),
    (Share(offset=0.5), BACKWARD, 0.5, 0.5),
    (Share(1.1, -1.0), TAIL, 0.0, 0.0),
    (Share(everywhere=False), BALANCED, 0.5, 0.5),
    (Share(everywhere=False, wait_for_last=True), TAIL, 0.0, 0.0),
)
"""First rules with limits. Without them the mean gap of the sweep rises from 0.810 % to 0.825 % on
29 instances (12 random ones, ``memory_scan`` and ``virtual_stages`` with memory), although random
rules with limits then come sooner."""


def rule_portfolio(problem: Problem) -> Iterator[tuple[Rule, Edges]]:
    """Yield rules without end, each with precedences that limit the micro-batches in flight.

    Rules without such limits, which rely on memory alone, and rules with limits take turns.
    """
    lanes, rng = lanes_of(problem), random.Random(0)
    none = np.zeros(0, dtype=np.int64)
    free = (none, none, none)
    limited = (_limited(problem, lanes, *row) for row in (_LIMITED if lanes else ()))
    for with_limits, plain in zip_longest(limited, _plain(problem)):
        if with_limits is not None:
            yield with_limits
        if plain is not None:
            yield plain, free
    tail = tails(problem)
    while True:
        yield _random(problem, tail, rng), free
        if lanes:
            yield _random_limited(problem, lanes, rng)


def _plain(problem: Problem) -> Iterator[Rule]:
    """Yield the first rules without limits; without them the gap of 0.810 % rises to 0.838 %."""
    tail, filler = tails(problem), fillers(problem)
    one_op, none = float(problem.duration.mean()), np.zeros(problem.num_ops)
    balanced = favoured_backwards(problem, tail, one_op, none)
    backward, longest = backward_first(problem), longest_tail(problem)
    for rank, patience, filler_patience in (
        (balanced, 1.0, 0.0),
        (balanced, 1.0, 3.0),
        (longest, 1.0, 1.0),
        (backward, 0.5, 0.5),
        (backward, 0.0, 0.0),
        (longest, 0.0, 0.0),
        (balanced, 1.0, 0.5),
    ):
        yield Rule(rank, filler, patience, filler_patience, frees_memory=True)
    yield Rule(backward, filler)
    yield Rule(balanced, filler, 1.0, 1.0, frees_memory=True, reserve=False)


def _random(problem: Problem, tail: IntArray, rng: random.Random) -> Rule:
    return Rule(
        _noisy_tails(problem, tail, rng),
        fillers(problem),
        rng.choice(_PATIENCE),
        rng.choice(_PATIENCE),
        frees_memory=rng.random() < 0.6,
        reserve=rng.random() < 0.7,
    )


def _noisy_tails(problem: Problem, tail: IntArray, rng: random.Random) -> IntArray:
    """Return longest-tail ranks with backwards favoured and noise per (stage, kind): int64[n]."""
    mean = float(problem.duration.mean())
    favour = rng.choice((0.0, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 1e6)) * mean
    groups = problem.stage * len(problem.kinds) + problem.kind
    groups = groups - groups.min()
    strength = rng.choice((0.0, 1.0)) * mean
    noise = np.array([rng.gauss(0.0, strength) for _ in range(int(groups.max()) + 1)])
    return favoured_backwards(problem, tail, favour, noise[groups])


def _limited(
    problem: Problem,
    lanes: Sequence[RuleLane],
    share: Share,
    preference: str,
    patience: float,
    filler_patience: float,
) -> tuple[Rule, Edges]:
    edges = lane_edges(problem, lanes, share)
    tail, filler = tails(problem, edges), fillers(problem)
    classes = kind_class(problem)
    if preference == EAGER:
        rank = ranked(np.where(classes == 1, 1, 0), -tail)
        filler = np.zeros_like(filler)
    elif preference == BACKWARD:
        rank = ranked(classes, -tail)
    else:
        favour = float(problem.duration.mean()) if preference == BALANCED else 0.0
        rank = favoured_backwards(problem, tail, favour, np.zeros(problem.num_ops))
    # The limits keep stages from starving one another; promises on top would only delay.
    rule = Rule(rank, filler, patience, filler_patience, frees_memory=True, promise=False)
    return rule, edges


def _random_limited(
    problem: Problem, lanes: Sequence[RuleLane], rng: random.Random
) -> tuple[Rule, Edges]:
    share = Share(
        rng.choice((0.9, 1.0, 1.0, 1.1, 1.25)),
        rng.choice((-1.0, 0.0, 0.0, 0.5, _CEILING)),
        everywhere=rng.random() < 0.6,
        wait_for_last=rng.random() < 0.4,
    )
    preference = rng.choice((TAIL, TAIL, BACKWARD, BALANCED, EAGER))
    patience = rng.choice(_PATIENCE[:3])
    return _limited(problem, lanes, share, preference, patience, rng.choice(_PATIENCE))
