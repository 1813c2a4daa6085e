"""What a document claims of a program order, beside the schedule that it holds."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from pydantic import BaseModel

from ppsolve.models.core.claims import figure, refuted, wrong
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.base import did_you_mean
from ppsolve.models.documents.errors import InputError
from ppsolve.models.overlap.instance import NodeKind, OverlapInstance
from ppsolve.models.overlap.lowering import LoweredOverlap
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.overlap.realise import crowded_group, run_order
from ppsolve.solver.overlap.replay import is_valid_order
from ppsolve.solver.overlap.report import ProgramReport

FIGURES = ("exposed_wait", "max_in_flight", "peak_live_bytes", "estimate", "estimate_seed")

_CLOSE = Fraction(1, 10**9)
"""Figures may be off by this share."""


def check_order(
    instance: OverlapInstance, problem: Problem, given: Any, schedule: Schedule | None
) -> list[Violation]:
    """Check the program order of a document, where it has one.

    Parameters
    ----------
    instance : OverlapInstance
        The program.
    problem : Problem
        What it lowers to.
    given : pydantic model or dict
        The document.
    schedule : Schedule or None
        The schedule that was read from it.

    Returns
    -------
    list of Violation
        Broken rules of programs, and claims that the order does not keep.

    Raises
    ------
    InputError
        The order is not a list of the names of nodes.
    """
    data = given.model_dump(mode="json") if isinstance(given, BaseModel) else given
    names = data.get("order") if isinstance(data, dict) else None
    if names is None:
        return []
    order = _positions(instance, names)
    found = list(_wrong(instance, problem, order, schedule))
    return found or list(_claims(data, ProgramReport(instance, problem, order).figures()))


def _claims(data: dict[str, Any], actual: dict[str, Any]) -> Iterator[Violation]:
    """Yield the figures of a program that a document gives and its order does not have."""
    figures = {field: actual[field] for field in FIGURES}
    yield from refuted(data, figures, slack=_CLOSE, owner="the order")
    least, peak = figure(data, "least_peak_bytes"), actual["peak_live_bytes"]
    if least is not None and least > Fraction(peak) * (1 + _CLOSE):
        text = f"least_peak_bytes is given as {data['least_peak_bytes']}, the order holds {peak}"
        yield wrong(text)


def _positions(instance: OverlapInstance, names: Any) -> list[int]:
    if not isinstance(names, list | tuple):
        raise InputError("expected a list with the name of every node", field="order")
    found = []
    for place, name in enumerate(names):
        if not isinstance(name, str) or name not in instance.index_of:
            shown = name[:60] if isinstance(name, str) else ""
            raise InputError(
                f'unknown node "{shown}"' + did_you_mean(shown, instance.index_of),
                field=f"order[{place}]",
            )
        found.append(instance.index_of[name])
    return found


def _moved(instance: OverlapInstance, again: Schedule, schedule: Schedule) -> Iterator[Violation]:
    """Yield the first kernel or collective that starts elsewhere than as the order runs."""
    ops = np.sort([*instance.of_kind(NodeKind.COMPUTE), *instance.of_kind(NodeKind.COMM)])
    moved = ops[again.start[ops] != schedule.start[ops]]
    if len(moved):
        first = moved[np.argmin(again.start[moved])]
        time, unit = again.problem.scale.time, again.problem.scale.unit
        name = instance.nodes[first].name
        run, given = time(int(again.start[first])), time(int(schedule.start[first]))
        text = f"{name} starts at {given} {unit}, as the order runs at {run} {unit}"
        yield Violation("order", text, (name,))


def _wrong(
    instance: OverlapInstance, problem: Problem, order: list[int], schedule: Schedule | None
) -> Iterator[Violation]:
    if len(order) != len(instance.nodes) or not is_valid_order(instance, order):
        yield Violation(
            "order",
            "the order does not hold every node once, after what it depends on and, where it is "
            "frozen, after the collectives before it",
            (),
        )
        return
    again, timed = run_order(instance, LoweredOverlap.of(instance, problem), order)
    if crowded := crowded_group(instance, timed):
        yield Violation("order", crowded, ())
    if schedule is not None and again.makespan != schedule.makespan:
        time, unit = problem.scale.time, problem.scale.unit
        yield Violation(
            "order",
            f"the order runs in {time(again.makespan)} {unit}, the schedule takes "
            f"{time(schedule.makespan)} {unit}",
            (),
        )
    elif schedule is not None:
        yield from _moved(instance, again, schedule)
    if schedule is not None and not check_schedule(problem, schedule):
        for violation in check_schedule(problem, again):
            yield Violation("order", f"as the order runs, {violation.message}", violation.ops)
