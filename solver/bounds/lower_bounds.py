"""Analytic lower bounds: paths, work, one-machine relaxations, memory round trips."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.solver.board import Bound
from ppsolve.solver.bounds.first_return import RETURN_MOMENTS, acquiring, return_bound
from ppsolve.solver.bounds.joint_spans import joint_spans
from ppsolve.solver.bounds.one_machine import preemptive_bound
from ppsolve.solver.bounds.reason import Reason, largest
from ppsolve.solver.bounds.relaxations import Relaxations, end_tails, start_heads
from ppsolve.solver.bounds.spans import busy_ops, in_time
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.implied import ImpliedOrder


@dataclass(frozen=True)
class BoundRule:
    """A lower bound with a name.

    Parameters
    ----------
    name : str
        Name in reports.
    makespan, device_span : callable or None
        Returns the bound on this objective and what it is about; None: it has none.
    needs_memory : bool
        It says something only of problems with memory pools.
    is_cheap : bool
        It is found even when no time is left.
    """

    name: str
    makespan: Callable[[Relaxations], Reason] | None = None
    device_span: Callable[[Relaxations], Reason] | None = None
    needs_memory: bool = False
    is_cheap: bool = False


RULES = (
    # Longest chain of precedences.
    BoundRule(
        "critical-path",
        lambda known: Reason(int((known.plain_heads + known.plain_tails).max(initial=0))),
        lambda known: known.plain_spans.longest_path(),
        is_cheap=True,
    ),
    # Per resource: least head + load + least tail.
    BoundRule(
        "work",
        lambda known: largest(_works(known.problem, known.plain_heads, known.plain_tails)),
        lambda known: known.ordered_spans.work(),
        is_cheap=True,
    ),
    # Per resource: preemptive relaxation under index order.
    BoundRule(
        "one-machine",
        lambda known: _one_machine(known, known.ordered_heads, known.ordered_tails),
        lambda known: known.ordered_spans.own(),
    ),
    # The same for another resource that lies between ops of the device.
    BoundRule("chain", None, lambda known: known.full_spans.through_others()),
    # Longest chain once a cap makes acquires wait for releases.
    BoundRule(
        "memory-cycle",
        lambda known: Reason(int((known.full_heads + known.full_tails).max(initial=0))),
        lambda known: known.full_spans.longest_path(),
        needs_memory=True,
    ),
    # One-machine with those waits: before the first release only what fits can run.
    BoundRule(
        "first-return",
        lambda known: _with_returns(known, known.full_heads, 1),
        lambda known: largest(
            (known.full_spans.own(), known.full_spans.returns(known.implied.pools))
        ),
        needs_memory=True,
    ),
    # One-machine with heads that also count the work which frees memory for each acquire, and
    # first-return at many moments.
    BoundRule(
        "memory-work",
        lambda known: _with_returns(known, known.strong_heads, RETURN_MOMENTS),
        lambda known: known.full_spans.strongest(
            known.implied.pools, known.memory_work.raise_heads
        ),
        needs_memory=True,
    ),
    # The spans of all devices together.
    BoundRule("joint-spans", None, lambda known: joint_spans(known.full_spans, known.clock)),
)
"""Every lower bound, the simpler one first: a new one is a module and one more rule here."""


def lower_bounds(
    implied: ImpliedOrder, clock: Clock | None = None, *, enough: float = math.inf
) -> list[Bound]:
    """Return every applicable bound of `RULES`, strongest first; ties keep the simpler rule first.

    Parameters
    ----------
    implied : ImpliedOrder
        The problem with its implied order.
    clock : Clock, optional
        Once it is over, only cheap rules are still begun, and others keep what they have found.
    enough : float
        Ticks; no rule is begun once one has proved as much.

    Returns
    -------
    list of Bound
        All of them valid, however little time there was.

    Raises
    ------
    MemoryInfeasible
        No schedule keeps the capacity of a pool; not found out where simpler rules prove enough.
    """
    known = Relaxations(implied, clock)
    expect(_steps(implied))
    if enough == math.inf:
        _ = implied.full
    on_span = implied.problem.objective is Objective.DEVICE_SPAN
    found: list[Bound] = []
    for rule in RULES:
        value_of = rule.device_span if on_span else rule.makespan
        if value_of is None or (rule.needs_memory and not implied.problem.pools):
            continue
        if rule.is_cheap or not known.clock.is_over:
            found.append(Bound(rule.name, *value_of(known)))
            if found[-1].value >= enough:
                break
    return sorted(found, key=lambda bound: -bound.value)


def _steps(implied: ImpliedOrder) -> int:
    """Return about how many edges the longest paths of all rules pass."""
    problem = implied.problem
    edges = len(problem.before) + problem.num_ops
    on_span = problem.objective is Objective.DEVICE_SPAN
    return 8 * edges * (max(1, len(problem.span_resources)) if on_span else 1)


def best_bound(bounds: Iterable[Bound]) -> Bound:
    """Return the strongest bound, or the trivial bound 0 if there is none."""
    return max(bounds, key=lambda bound: bound.value, default=Bound("trivial", 0))


def work_bound(problem: Problem, graph: Dag | None = None) -> int:
    """Return the bound ``work`` on the makespan: per resource least head + load + least tail.

    It is the cheapest bound that counts the fill and drain of a pipeline.

    Parameters
    ----------
    problem : Problem
        n ops.
    graph : Dag, optional
        Precedences to count; those of the problem by default.

    Returns
    -------
    int
        Lower bound on the makespan in ticks.
    """
    return largest(work_by_resource(problem, Dag.of(problem) if graph is None else graph)).value


def work_by_resource(problem: Problem, graph: Dag) -> Iterator[Reason]:
    """Yield the bound ``work`` of each resource that is ever busy.

    Parameters
    ----------
    problem : Problem
        n ops.
    graph : Dag
        Precedences to count.

    Yields
    ------
    Reason
        Least head + load + least tail of a resource in ticks.
    """
    yield from _works(problem, start_heads(problem, graph), end_tails(problem, graph))


def _works(problem: Problem, heads: IntArray, tails: IntArray) -> Iterator[Reason]:
    ends = tails - problem.duration
    for resource, ops in _busy_ops(problem):
        work = int(problem.duration[ops].sum())
        yield Reason(int(heads[ops].min()) + work + int(ends[ops].min()), resource)


def _one_machine(known: Relaxations, heads: IntArray, tails: IntArray) -> Reason:
    key = id(heads), id(tails)
    if key not in known.one_machine:
        duration = known.problem.duration
        ends = tails - duration
        known.one_machine[key] = largest(
            Reason(preemptive_bound(heads[ops], duration[ops], ends[ops]), resource)
            for resource, ops in in_time(_busy_ops(known.problem), known.clock)
        )
    return known.one_machine[key]


def _with_returns(known: Relaxations, heads: IntArray, moments: int) -> Reason:
    return largest(
        (
            _one_machine(known, heads, known.full_tails),
            _returns(known, heads, known.full_tails - known.problem.duration, moments),
        )
    )


def _returns(known: Relaxations, heads: IntArray, tails: IntArray, moments: int) -> Reason:
    problem = known.problem
    busy = busy_ops(problem)
    return largest(
        Reason(return_bound(problem, order, busy[resource], heads, tails, moments), resource)
        for order in in_time(known.implied.pools, known.clock)
        for resource in acquiring(problem, order)
    )


def _busy_ops(problem: Problem) -> list[tuple[int, IntArray]]:
    """Return the resources that are ever busy, with their ops of positive length."""
    return [(resource, ops) for resource, ops in enumerate(busy_ops(problem)) if len(ops)]
