"""Best makespans and bounds over capacities or numbers of micro-batches, in one time limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ppsolve.models.core.result import Figure
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.studies.curve import Curve, CurvePoint, Over
from ppsolve.solver.studies.cases import TIME_LIMIT, CaseSearch
from ppsolve.solver.studies.changes import PipelineChange, changes_of, with_decision
from ppsolve.solver.studies.generate.flags import PerDevice
from ppsolve.solver.studies.plan.placements import figure_of, pipeline_of


@dataclass(frozen=True)
class Place:
    """A point before it is solved: the varied amount, a capacity's multiple of p, the instance."""

    at: Figure
    multiple: Figure | None
    instance: PipelineInstance


def _place_of(change: PipelineChange, instance: PipelineInstance) -> Place:
    made = change(instance)
    if change.axis == Over.MICROBATCHES:
        return Place(made.num_microbatches, None, made)
    assert made.memory is not None
    assert isinstance(made.memory.capacity, Decimal)
    factor = change.value.removesuffix("p")
    multiple = None if factor == change.value else figure_of(Decimal(factor))
    return Place(figure_of(made.memory.capacity), multiple, made)


def _places_of(instance: PipelineInstance, changes: Sequence[PipelineChange]) -> list[Place]:
    """Return the points of a curve, ascending, equal values once."""
    places = sorted((_place_of(change, instance) for change in changes), key=lambda each: each.at)
    return list({place.at: place for place in places}.values())


def ends_first(count: int) -> list[int]:
    """Return 0 to count - 1 in an order of last, first, then middles of known neighbours."""
    order, waiting = [count - 1, 0][: max(0, count)], [(0, count - 1)]
    if count == 1:
        return [0]
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
        The points; ``1.5p`` is a capacity in units of p, ``1p:2p:0.5p`` are three.
    time_limit : float
        Wall seconds for all points.
    on_point : callable
        Given the curve so far after each search.
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
    changes = changes_of(varied, values)
    places, count = _places_of(pipeline, changes), 0
    order = ends_first(len(places))
    if varied is Over.CAPACITY and pipeline.memory is not None and pipeline.memory.has_modes:
        count = len(places)
        places += _places_of(with_decision(pipeline, "none"), changes)
        order += [count + index for index in order]

    def told() -> Curve:
        points = [
            CurvePoint(at=place.at, multiple=place.multiple, **state.figures())
            for place, state in zip(places, search.states, strict=True)
        ]
        return Curve(
            instance=instance.name,
            over=varied,
            objective=str(pipeline.objective),
            time_unit=instance.time_unit,
            wall_seconds=search.wall_seconds,
            interrupted=search.interrupted,
            points=tuple(points[:count] if count else points),
            kept=tuple(points[count:]) if count else None,
        )

    instances = [place.instance for place in places]
    search = CaseSearch(instances, time_limit, options, lambda: on_point(told()))
    search.run(order)
    return told()


def _over(name: Over | str) -> Over:
    try:
        return Over(name)
    except ValueError:
        listed = ", ".join(Over)
        raise InputError(f'expected {listed}, got "{str(name)[:40]}"', field="over") from None
