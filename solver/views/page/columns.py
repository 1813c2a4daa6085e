"""A schedule as columns of plain numbers, which the page's script reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ppsolve.models.core.result import SHOWN_TRANSFER, TRANSFER_KINDS
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.printable import printable
from ppsolve.solver.structure.dag import critical_path, order_graph, slack
from ppsolve.solver.structure.owners import owners
from ppsolve.solver.views.chart import AmountCurve
from ppsolve.solver.views.colours import KERNEL_KIND, look_of
from ppsolve.solver.views.page.idle import OpCauses

Columns = dict[str, Any]

# Words for the kinds of transfers, the letter first.
TRANSFERS = {"TF": "> transfer forward", "TB": "< transfer backward"}


def columns_of(
    schedule: Schedule,
    causes: OpCauses,
    curves: Iterable[AmountCurve],
    kinds: Sequence[str],
) -> Columns:
    """Return a schedule as columns; `kinds` says as what each op is drawn.

    There are columns of a number per op (``start``, ``duration``, ``kind``, ``stage``,
    ``microbatch``, ``slack``, ``cause``, ``why``), lanes with their ops, precedences, strips and
    kinds.
    """
    problem, owner = schedule.problem, owners(schedule.problem)
    number = {name: index for index, name in enumerate(dict.fromkeys(kinds))}
    is_named = problem.explicit_names or problem.slices > 1
    names = problem.op_names(range(problem.num_ops)) if is_named else []
    graph = order_graph(schedule)
    compute = set(problem.span_resources.tolist())
    labels = ("stage", "microbatch", "slice", "replica")
    return {
        "makespan": schedule.makespan,
        "kinds": [_kind(name) for name in number],
        "start": schedule.start.tolist(),
        "duration": problem.duration.tolist(),
        "kind": [number[kind] for kind in kinds],
        **{
            name: problem.numbers[name].tolist()
            for name in labels
            if name in problem.numbers
        },
        "slack": slack(schedule, graph).tolist(),
        "cause": causes.cause.tolist(),
        "why": causes.why.tolist(),
        "names": list(map(printable, names)) if names else None,
        "lanes": [
            {
                "name": printable(name),
                "device": owner[resource],
                "compute": resource in compute,
                "ops": problem.ops_by_resource[resource].tolist(),
            }
            for resource, name in enumerate(problem.resource_names)
        ],
        "before": problem.before.tolist(),
        "after": problem.after.tolist(),
        "lag": problem.lag.tolist() if problem.lag.any() else None,
        "path": critical_path(schedule, graph),
        "strips": [_strip(curve) for curve in curves],
    }


def _kind(name: str) -> Columns:
    kind = SHOWN_TRANSFER if name in TRANSFER_KINDS else name
    look = look_of(kind)
    words = TRANSFERS.get(name) or look.words or kind
    words = printable("K kernel" if name == KERNEL_KIND else words)
    drawn = {"colour": look.colour, "hatched": look.is_hatched}
    return {"name": printable(name), "letter": words[:1], "words": words, **drawn}


def _strip(curve: AmountCurve) -> Columns:
    return {
        "name": printable(curve.name),
        "device": curve.device,
        "cap": curve.cap,
        "time": [time for time, _ in curve.points],
        "amount": [amount for _, amount in curve.points],
    }
