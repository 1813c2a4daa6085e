"""A schedule as columns of plain numbers, which the page's script reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.result import SHOWN_TRANSFER, TRANSFER_KINDS
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.printable import printable
from ppsolve.solver.structure.dag import critical_path, slack
from ppsolve.solver.structure.owners import owners
from ppsolve.solver.views.chart import AmountCurve, lanes_of
from ppsolve.solver.views.colours import KERNEL_KIND, look_of
from ppsolve.solver.views.page.idle import OpCauses

Columns = dict[str, Any]

# Words for the kinds of transfers, the letter first.
TRANSFERS = {"TF": "> transfer forward", "TB": "< transfer backward"}


def columns_of(
    schedule: Schedule, causes: OpCauses, curves: Iterable[AmountCurve], kinds: Sequence[str]
) -> Columns:
    """Return a schedule as columns.

    Ops are numbered by their first lane, then by their start, so that neighbours are drawn
    together and the text is short.

    Parameters
    ----------
    schedule : Schedule
        n ops, starts in ticks.
    causes : OpCauses
    curves : iterable of AmountCurve
    kinds : sequence of str
        Kind as which each op is drawn, n names.

    Returns
    -------
    dict
        Columns of n numbers (``start``, ``duration``, ``kind``, ``stage``, ``microbatch``,
        ``slack``, ``cause``, ``why``), lanes, precedences by op, strips, kinds.
    """
    problem = schedule.problem
    order = _drawn_order(schedule)
    place = np.empty_like(order)
    place[order] = np.arange(problem.num_ops)
    number = {name: index for index, name in enumerate(dict.fromkeys(kinds))}
    is_named = problem.explicit_names or problem.slices > 1
    names = list(map(printable, problem.op_names(order))) if is_named else None
    return {
        "makespan": schedule.makespan,
        "kinds": [_kind(name) for name in number],
        "start": schedule.start[order].tolist(),
        "duration": problem.duration[order].tolist(),
        "kind": [number[kinds[op]] for op in order.tolist()],
        "stage": problem.stage[order].tolist(),
        "microbatch": problem.numbers["microbatch"][order].tolist(),
        **{
            name: problem.numbers[name][order].tolist() if name in problem.numbers else None
            for name in ("slice", "replica")
        },
        "slack": slack(schedule)[order].tolist(),
        "cause": np.where(causes.cause == FREE, FREE, place[causes.cause])[order].tolist(),
        "why": causes.why[order].tolist(),
        "names": names,
        "lanes": _lanes(schedule, place),
        "needs": _needs(problem, place),
        "path": place[np.array(critical_path(schedule), dtype=np.int64)].tolist(),
        "strips": [_strip(curve) for curve in curves],
    }


def _drawn_order(schedule: Schedule) -> IntArray:
    problem = schedule.problem
    first = np.full(problem.num_ops, problem.num_resources, dtype=np.int64)
    held = np.flatnonzero(np.diff(problem.resource_ptr) > 0)
    first[held] = problem.resource_idx[problem.resource_ptr[held]]
    return np.lexsort((schedule.start, first)).astype(np.int64)


def _kind(name: str) -> Columns:
    shown = SHOWN_TRANSFER if name in TRANSFER_KINDS else name
    look = look_of(shown)
    words = TRANSFERS.get(name) or look.words or shown
    words = "K kernel" if name == KERNEL_KIND else words
    return {
        "name": printable(name),
        "letter": printable(words[:1]),
        "words": printable(words),
        "colour": look.colour,
        "hatched": look.is_hatched,
    }


def _lanes(schedule: Schedule, place: IntArray) -> list[Columns]:
    problem, owner = schedule.problem, owners(schedule.problem)
    compute = set(problem.span_resources.tolist())
    resources = sorted(range(problem.num_resources), key=lambda r: (owner[r], r not in compute, r))
    lanes, orders = [], schedule.resource_orders()
    for resource in resources:
        ops = problem.ops_by_resource[resource]
        points = ops[problem.duration[ops] == 0]
        if len(ops):
            lanes.append(
                {
                    "name": printable(problem.resource_names[resource]),
                    "device": owner[resource],
                    "compute": resource in compute,
                    "ops": place[orders[resource]].tolist(),
                    "points": place[points].tolist(),
                }
            )
    return [*lanes, *_free_lanes(schedule, place)]


def _free_lanes(schedule: Schedule, place: IntArray) -> list[Columns]:
    problem = schedule.problem
    free = (np.diff(problem.resource_ptr) == 0) & (problem.duration > 0)
    order = np.flatnonzero(free)[np.argsort(schedule.start[free], kind="stable")]
    start, end = schedule.start[order].tolist(), schedule.end[order].tolist()
    spans = zip(start, end, place[order].tolist(), strict=True)
    return [
        {"name": "no resource", "device": FREE, "compute": False, "ops": ops, "points": []}
        for ops in lanes_of(spans)
    ]


def _needs(problem: Problem, place: IntArray) -> Columns:
    after = place[problem.after]
    order = np.argsort(after, kind="stable")
    pointer = np.searchsorted(after[order], np.arange(problem.num_ops + 1))
    lags = problem.lag[order]
    return {
        "pointer": pointer.tolist(),
        "op": place[problem.before[order]].tolist(),
        "lag": lags.tolist() if lags.any() else None,
    }


def _strip(curve: AmountCurve) -> Columns:
    return {
        "name": printable(curve.name),
        "device": curve.device,
        "cap": curve.cap,
        "time": [time for time, _ in curve.points],
        "amount": [amount for _, amount in curve.points],
    }
