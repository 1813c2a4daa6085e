"""Curves over capacities or numbers of micro-batches, and one pipeline under several changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from itertools import chain, product
from math import prod
from typing import Any

from ppsolve.models.core.result import Figure, HeuristicStatus, Result
from ppsolve.models.documents.base import as_json_number
from ppsolve.models.documents.errors import ErrorCode, InputError, NotApplicableError
from ppsolve.models.documents.text import fingerprint
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.studies.curve import Curve, CurvePoint, Over, PointHeuristic
from ppsolve.models.studies.what_if import WhatIf, WhatIfRow
from ppsolve.solver.api.api import optimize, simulate
from ppsolve.solver.api.registry import Named
from ppsolve.solver.studies.cases import TIME_LIMIT, CaseSearch, CaseState
from ppsolve.solver.studies.changes import (
    AXES,
    PipelineChange,
    changes_of,
    with_decision,
)
from ppsolve.solver.studies.generate.flags import PerDevice
from ppsolve.solver.studies.plan.placements import NamedPlacement, pipeline_of


@dataclass(frozen=True)
class CurveCase:
    """A point before it is solved: the varied amount, a capacity's multiple of p, the instance."""

    at: Figure
    multiple: Figure | None
    instance: PipelineInstance


def _case_of(change: PipelineChange, instance: PipelineInstance) -> CurveCase:
    changed = change(instance)
    if change.axis == Over.MICROBATCHES:
        return CurveCase(changed.num_microbatches, None, changed)
    assert changed.memory is not None
    assert isinstance(changed.memory.capacity, Decimal)
    factor = change.value.removesuffix("p")
    multiple = None if factor == change.value else as_json_number(Decimal(factor))
    return CurveCase(as_json_number(changed.memory.capacity), multiple, changed)


def _cases_of(
    instance: PipelineInstance, changes: Sequence[PipelineChange]
) -> list[CurveCase]:
    """Return the points of a curve, ascending, equal values once."""
    cases = sorted(
        (_case_of(change, instance) for change in changes), key=lambda case: case.at
    )
    return list({case.at: case for case in cases}.values())


def ends_first(count: int) -> list[int]:
    """Return 0 to count - 1 in an order of last, first, then middles of known neighbours."""
    order, waiting = [count - 1, 0][: max(0, count)], [(0, count - 1)]
    while waiting:
        first, last = waiting.pop(0)
        middle = (first + last) // 2
        if middle in (first, last):
            continue
        order.append(middle)
        waiting += [(first, middle), (middle, last)]
    return order


def curve(
    instance: Instance,
    over: Over | str,
    values: Sequence[Decimal | float | str | PerDevice],
    *,
    time_limit: float = TIME_LIMIT,
    on_point: Callable[[Curve], None] = lambda curve: None,
    compared: Sequence[Named] = (),
    rates: bool = False,
    **options: Any,
) -> Curve:
    """Find the best makespan and a bound at several capacities or numbers of micro-batches.

    Parameters
    ----------
    instance : PipelineInstance
        Gives all but the varied amount.
    over : str
        ``capacity`` or ``microbatches``.
    values : sequence of number, str or PerDevice
        The points; ``1.5p`` is a capacity in units of p, ``1p:2p:0.5p`` are three. With a unit of
        memory declared, capacities may be texts such as ``80GB``.
    time_limit : float
        Wall seconds for all points.
    on_point : callable
        Given the curve so far after each search.
    compared : sequence of str or callable
        Heuristics that are run at every point, whatever the search runs.
    rates : bool
        Whether tables and pictures show bubble ratios in place of values and bounds.
    **options
        Of `ppsolve.optimize`, but for `time_limit` and `start`.

    Returns
    -------
    Curve
        Ascending points.

    Raises
    ------
    InputError
        Not a pipeline, or a value that it cannot take.
    """
    varied, pipeline = _over(over), pipeline_of(instance)
    changes = changes_of(varied, values, pipeline.unit_of_memory)
    cases, count = _cases_of(pipeline, changes), 0
    order = ends_first(len(cases))
    if (
        varied is Over.CAPACITY
        and pipeline.memory is not None
        and pipeline.memory.has_modes
    ):
        count = len(cases)
        cases += _cases_of(with_decision(pipeline, "none"), changes)
        order += [count + index for index in order]

    beside = [_compared(case.instance, compared) for case in cases[: count or None]]
    beside += [()] * (len(cases) - len(beside))

    def told() -> Curve:
        points = [
            CurvePoint(
                at=case.at,
                multiple=case.multiple,
                heuristics=heuristics,
                **state.figures(),
                **_bubble_ratios(state),
            )
            for case, state, heuristics in zip(
                cases, search.states, beside, strict=True
            )
        ]
        return Curve(
            instance=instance.name,
            over=varied,
            objective=str(pipeline.objective),
            time_unit=instance.time_unit,
            runtime=options.get("runtime"),
            rates=rates,
            wall_seconds=search.wall_seconds,
            interrupted=search.interrupted,
            points=tuple(points[:count] if count else points),
            kept=tuple(points[count:]) if count else None,
        )

    instances = [case.instance for case in cases]
    search = CaseSearch(instances, time_limit, options, lambda: on_point(told()))
    search.run(order)
    return told()


def _compared(
    instance: PipelineInstance, heuristics: Sequence[Named]
) -> tuple[PointHeuristic, ...]:
    """Run heuristics on the instance of a point; only schedules that keep all rules count."""
    outcomes = []
    for heuristic in heuristics:
        try:
            entry = simulate(instance, heuristic)
        except NotApplicableError as error:
            name = error.heuristic or str(heuristic)
            status = HeuristicStatus.NOT_APPLICABLE
            outcomes.append(
                PointHeuristic(name=name, status=status, reason=error.reason)
            )
            continue
        is_feasible = entry.status is HeuristicStatus.FEASIBLE
        outcomes.append(
            PointHeuristic(
                name=entry.name,
                status=entry.status,
                value=entry.value if is_feasible else None,
                bubble_ratio=entry.bubble_ratio if is_feasible else None,
                reason=entry.reason,
            )
        )
    return tuple(outcomes)


def _bubble_ratios(state: CaseState) -> dict[str, Any]:
    """Return the bubble ratios of the schedule of a case, and of one as long as its bound."""
    ratio = None if state.result is None else state.result.bubble_ratio
    if ratio is None or state.value is None:
        return {}
    busy = (1 - ratio) * float(state.value)
    least = max(0.0, 1 - busy / float(state.bound)) if state.bound else None
    return {"bubble_ratio": ratio, "bound_bubble_ratio": least}


def _over(name: Over | str) -> Over:
    try:
        return Over(name)
    except ValueError:
        listed = ", ".join(Over)
        raise InputError(
            f'expected {listed}, got "{str(name)[:40]}"',
            field="over",
            code=ErrorCode.UNKNOWN_NAME,
        ) from None


MOST_ROWS = 100
"""More rows are taken for a mistake: several values of many options multiply."""


def what_if(
    instance: Instance,
    changes: Mapping[str, Any],
    *,
    time_limit: float = TIME_LIMIT,
    on_row: Callable[[WhatIf], None] = lambda answer: None,
    **options: Any,
) -> WhatIf:
    """Find how far changes of a pipeline shorten its step, one at a time and all together.

    Parameters
    ----------
    instance : PipelineInstance
        The pipeline as it is.
    changes : mapping of str to object
        A value or a list of values for ``microbatches``, ``capacity`` (such as ``1.5p``),
        ``placements``, ``recompute`` (who decides, or ``none``), ``comm`` (``x0.5``) and ``slow``
        (``2x1.5``: device 2); or, under a name of your own, a function from pipelines to pipelines.
    time_limit : float
        Wall seconds in all. Each row has an even share; time that is left goes to the widest gaps.
    on_row : callable
        Given the rows so far after each search.
    **options
        Of `ppsolve.optimize`, but for `time_limit` and `start`.

    Returns
    -------
    WhatIf
        The pipeline as it is, then each change alone, then one of each kind together.

    Raises
    ------
    InputError
        Not a pipeline, no change, an unknown one, or one that the pipeline cannot take.
    """
    pipeline = pipeline_of(instance)
    combinations = _combinations(changes, pipeline.unit_of_memory)
    variants = [
        reduce(lambda variant, change: change(variant), combination, pipeline)
        for combination in combinations
    ]
    marks = [fingerprint(variant) for variant in variants]
    different = dict(zip(marks, variants, strict=True))

    def told() -> WhatIf:
        states = dict(zip(different, search.states, strict=True))
        rows = zip(combinations, (states[mark] for mark in marks), strict=True)
        return WhatIf(
            instance=instance.name,
            objective=str(pipeline.objective),
            time_unit=instance.time_unit,
            runtime=options.get("runtime"),
            wall_seconds=search.wall_seconds,
            interrupted=search.interrupted,
            rows=tuple(
                _row(combination, state, states[marks[0]])
                for combination, state in rows
            ),
        )

    search = CaseSearch(
        list(different.values()), time_limit, options, lambda: on_row(told())
    )
    search.run(range(len(different)))
    return told()


def _combinations(
    changes: Mapping[str, Any], unit: str
) -> list[tuple[PipelineChange, ...]]:
    positions = {name: position for position, name in enumerate(AXES)}
    names = sorted(changes, key=lambda name: positions.get(name, len(positions)))
    groups = [changes_of(name, changes[name], unit) for name in names]
    if not groups:
        raise InputError(
            f"expected a change: --{', --'.join(AXES)}", code=ErrorCode.MISSING
        )
    together = prod(map(len, groups)) if len(groups) > 1 else 0
    count = 1 + sum(map(len, groups)) + together
    if count > MOST_ROWS:
        raise InputError(
            f"expected changes that make at most {MOST_ROWS} rows, got {count}",
            code=ErrorCode.RANGE,
        )
    singles = ((change,) for change in chain.from_iterable(groups))
    return [(), *singles, *(product(*groups) if together else ())]


def _row(
    changes: Sequence[PipelineChange], state: CaseState, base: CaseState
) -> WhatIfRow:
    figures = state.figures()
    time, usual = figures["microbatch_time"], base.figures()["microbatch_time"]
    return WhatIfRow(
        changes={change.axis: change.value for change in changes},
        microbatches=state.instance.num_microbatches,
        gain=round(1 - time / usual, 12) if usual and time is not None else None,
        **figures,
    )


def placements_of(
    instance: Instance, layouts: Sequence[NamedPlacement | str]
) -> list[PipelineInstance]:
    """Return a pipeline on several placements, each named after its own, in the order of `layouts`.

    Raises `InputError` as `on_layout` and `NamedPlacement.read` do, or where there is no placement.

    `layouts`: placements, such as ``vshape`` or ``interleaved:4``; equal ones count once.
    """
    pipeline, changes = pipeline_of(instance), changes_of("placements", layouts)
    names = [f"{instance.name} {change.value}" for change in changes]
    variants = [change(pipeline) for change in changes]
    return [
        p.model_copy(update={"name": name})
        for p, name in zip(variants, names, strict=True)
    ]


def optimize_placements(
    instance: Instance,
    placements: Sequence[NamedPlacement | str],
    *,
    time_limit: float | None = 60.0,
    **options: Any,
) -> list[Result]:
    """Find the best schedule of a pipeline on each of several placements.

    Parameters
    ----------
    instance : PipelineInstance
        Gives times per device, or per layer if it has more stages than devices; see `on_layout`.
    placements : sequence of NamedPlacement or str
        Placements, such as ``vshape`` or ``interleaved:4``.
    time_limit : float or None
        Wall seconds in all; each placement has an equal part.
    **options
        Others of `ppsolve.optimize`, the same for each.

    Returns
    -------
    list of Result
        The best first, by `rank_of`.

    Raises
    ------
    InputError
        As `placements_of` and `ppsolve.optimize` do.
    """
    variants = placements_of(instance, placements)
    share = None if time_limit is None else time_limit / len(variants)
    return sorted(
        (optimize(variant, time_limit=share, **options) for variant in variants),
        key=rank_of,
    )


def rank_of(result: Result) -> tuple[bool, float, float]:
    """Return the key of a result for sorting: by value (none last), then the higher bound."""
    return result.value is None, result.value or 0, -(result.bound or 0)
