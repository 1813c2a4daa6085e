"""Questions about one instance to several searches: heuristics, workers, compiled code, `quick`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random

import numpy as np

import ppsolve
from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.solver.kernels import compilation
from tests.agreement import changes, draws
from tests.agreement.claims import Claim, claim, claim_of, exact, reached
from tests.agreement.draws import Document
from tests.agreement.question import LIMITS, Question, solved

GREEDY = "list-tail"
"""A heuristic of every kind."""


def _from_own_schedule(document: Document) -> Claim:
    instance = ppsolve.parse_instance(document)
    first = ppsolve.optimize(instance, **LIMITS, heuristics=[])
    start = first if first.schedule is not None else None
    return claim_of(ppsolve.optimize(instance, **LIMITS, start=start))


def _best_heuristic(document: Document) -> Claim:
    instance = ppsolve.parse_instance(document)
    entries = ppsolve.optimize(instance, **(LIMITS | {"time_limit": 0})).heuristics
    feasible = [entry for entry in entries if entry.status is HeuristicStatus.FEASIBLE]
    return reached(min((exact(entry.value) for entry in feasible), default=None))


def _in_a_process(document: Document) -> Claim:
    (answer,) = ppsolve.optimize_many([ppsolve.parse_instance(document)], **LIMITS)
    return claim_of(answer.result)


@contextmanager
def _kernels(*, compiled: bool) -> Iterator[None]:
    """Run kernels compiled, or by Python."""
    state, asked = dict(compilation._state), os.environ.get(compilation.SWITCH)
    os.environ[compilation.SWITCH] = "always" if compiled else "never"
    compilation._state["compiled"] = compiled
    try:
        yield
    finally:
        compilation._state.update(state)
        del os.environ[compilation.SWITCH]
        if asked is not None:
            os.environ[compilation.SWITCH] = asked


def _with_kernels(document: Document, *, compiled: bool) -> Claim:
    with _kernels(compiled=compiled):
        return solved(document, deterministic=True)


def _quick_case(draw: Random) -> Document:
    document = draws.pipeline(draw, most_ops=60, most_microbatches=7)
    if "memory" in document and draw.random() < 0.1:
        tiny, room = draw.choice([1e-7, 1e-3]), document["memory"]["capacity"]
        document["memory"]["capacity"] = (
            min(room) * tiny if isinstance(room, list) else room * tiny
        )
    return changes.times_scaled(document, draw.choice([1, 1, 0.7, 1.3]))


def _between(bound: float, value: float | None) -> Claim:
    if value is None or np.isnan(value):
        return claim(Status.UNKNOWN, None, bound)
    return claim(Status.FEASIBLE, value, bound)


def _quick(document: Document) -> Claim:
    answer = ppsolve.quick(ppsolve.parse_instance(document))
    return _between(answer.bound, answer.value)


def _quick_arrays(document: Document, *, rows: int) -> Claim:
    forward = [draws.by_stage(document, document["times"]["forward"])] * rows
    answers = ppsolve.quick(ppsolve.parse_instance(document), forward=forward)
    claims = {
        _between(bound, value)
        for bound, value in zip(answers.bound, answers.value, strict=True)
    }
    assert len(claims) == 1
    return claims.pop()


SEARCHES = (
    Question(
        "heuristics",
        draws.with_a_part,
        {
            "all": solved,
            "one": partial(solved, heuristics=[GREEDY]),
            "none": partial(solved, heuristics=[]),
            "from a schedule": _from_own_schedule,
            "best heuristic": _best_heuristic,
        },
        count=30,
    ),
    Question(
        "workers",
        draws.with_a_part,
        {
            "one": solved,
            "two": partial(solved, workers=2),
            "eight": partial(solved, workers=8),
        },
        count=16,
    ),
    Question(
        "process",  # each begins a server of processes, which takes a second
        draws.with_a_part,
        {"here": solved, "in a process": _in_a_process},
        count=3,
    ),
    Question(
        "compiled",
        draws.with_a_part,
        {
            "Python": partial(_with_kernels, compiled=False),
            "compiled": partial(_with_kernels, compiled=True),
        },
        count=16,
        is_same=True,
    ),
    Question(
        "quick",
        _quick_case,
        {
            "one": _quick,
            "no time": partial(solved, time_limit=0),
            "solved": partial(solved, time_limit=1),
        },
        count=20,
    ),
    Question(
        "quick arrays",
        _quick_case,
        {
            "one": _quick,
            "an array of one": partial(_quick_arrays, rows=1),
            "an array of three": partial(_quick_arrays, rows=3),
        },
        count=40,
        is_same=True,
    ),
)
