"""Best makespans and bounds over capacities or numbers of micro-batches, in one time limit.

Where only the capacity grows, a schedule for less memory holds for more, and a bound for more
memory holds for less. So the ends come first, then middles; a point between two that have met is
closed without a search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

from ppsolve.models.core.result import Figure, Result, Status, StopReason
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import instance_data
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.studies.curve import Curve, CurvePoint, Over
from ppsolve.solver.api.api import optimize
from ppsolve.solver.clock import Clock
from ppsolve.solver.studies.generate.flags import PerDevice
from ppsolve.solver.studies.plan.placements import figure_of, parsed_pipeline


@dataclass(frozen=True)
class Place:
    """A point before it is solved: the varied amount, a capacity's multiple of p, the instance."""

    at: Figure | list[Figure]
    multiple: Figure | None
    instance: PipelineInstance


def places_of(instance: Instance, over: Over, values: Sequence[Decimal | PerDevice]) -> list[Place]:
    """Return the points of a curve, ascending, equal values once.

    Parameters
    ----------
    instance : PipelineInstance
        Gives all but the varied amount.
    over : Over
        The varied amount.
    values : sequence of Decimal or PerDevice
        Capacities, or whole numbers of micro-batches.

    Returns
    -------
    list of Place
        Each with its own instance.

    Raises
    ------
    InputError
        The instance is no pipeline, it cannot take a value, or amounts are given per micro-batch,
        so that another number has no meaning.
    """
    if instance.kind != "pipeline":
        raise InputError(
            f'expected a pipeline, this is of kind "{instance.kind}"', source=instance.name
        )
    pipeline, field = cast("PipelineInstance", instance), f"--{over}"
    if not values:
        raise InputError("expected at least one value", field=field)
    make = _with_capacity if over is Over.CAPACITY else _with_microbatches
    try:
        places = [make(pipeline, value) for value in values]
    except InputError as error:
        raise InputError(
            error.message, source=instance.name, field=" ".join(filter(None, (field, error.field)))
        ) from None
    kept = {str(place.at): place for place in sorted(places, key=lambda place: _order(place.at))}
    return list(kept.values())


def _order(at: Figure | list[Figure]) -> float:
    return float(sum(at)) if isinstance(at, list) else float(at)


def _with_capacity(instance: PipelineInstance, value: Decimal | PerDevice) -> Place:
    data = instance_data(instance)
    if instance.memory is None:
        raise InputError("this pipeline has no memory; give memory.activation", field="memory")
    capacity: Any = figure_of(value) if isinstance(value, Decimal) else f"{value.factor}p"
    data["memory"] = {**data["memory"], "capacity": capacity}
    made = parsed_pipeline(data)
    multiple = figure_of(value.factor) if isinstance(value, PerDevice) else None
    return Place(_resolved(made), multiple, made)


def _resolved(instance: PipelineInstance) -> Figure | list[Figure]:
    assert instance.memory is not None
    amounts = instance.memory.capacity
    if isinstance(amounts, Decimal):
        return figure_of(amounts)
    return [figure_of(Decimal(each)) for each in amounts]


def _with_microbatches(instance: PipelineInstance, value: Decimal | PerDevice) -> Place:
    count = _whole(value)
    data = instance_data(instance) | {"num_microbatches": count}
    return Place(count, None, parsed_pipeline(data))


def _whole(value: Decimal | PerDevice) -> int:
    if isinstance(value, PerDevice) or value != int(value) or value < 1:
        shown = f"{value.factor}p" if isinstance(value, PerDevice) else str(value)
        raise InputError(f"expected a whole number >= 1, got {shown}")
    return int(value)


LEAST_SECONDS = 0.2
"""With less time left no search begins: reading and lowering alone take a tenth of it."""

GROWTH = 1.5
"""Multiple of its even share of the remaining time that a point may take when visited again."""


@dataclass
class _PointState:
    place: Place
    value: Figure | None = None
    bound: Figure | None = None
    best_by: str | None = None
    result: Result | None = None
    is_infeasible: bool = False
    reason: str | None = None
    visits: int = 0

    @property
    def is_closed(self) -> bool:
        return self.is_infeasible or (self.value is not None and self.value == self.bound)

    @property
    def gap(self) -> float | None:
        if self.value is None or self.bound is None:
            return None
        return float((self.value - self.bound) / self.value) if self.value else 0.0

    def document(self) -> CurvePoint:
        status = Status.FEASIBLE
        if self.is_infeasible:
            status = Status.INFEASIBLE
        elif self.value is None:
            status = Status.UNKNOWN
        elif self.is_closed:
            status = Status.OPTIMAL
        count = self.place.instance.num_microbatches
        return CurvePoint(
            at=self.place.at,
            multiple=self.place.multiple,
            status=status,
            value=self.value,
            bound=None if self.is_infeasible else self.bound,
            gap=self.gap,
            microbatch_time=None if self.value is None else float(self.value) / count,
            best_by=self.best_by,
            reason=self.reason,
        )


@dataclass
class _CurveSearch:
    places: Sequence[Place]
    over: Over
    instance: Instance
    time_limit: float
    options: dict[str, Any] = field(default_factory=dict)
    tell: Callable[[Curve], None] = lambda curve: None

    def __post_init__(self) -> None:
        self._clock = Clock(self.time_limit)
        self._states = [_PointState(place) for place in self.places]
        self._interrupted = False

    def run(self) -> Curve:
        """Search until all points are closed, time is over or Ctrl-C; return the curve."""
        self._spread()
        for place in ends_first(len(self._states)):
            left = sum(not state.is_closed and not state.visits for state in self._states)
            self._visit(place, self._clock.left / max(1, left))
        while (widest := self._widest()) is not None and not self._is_over():
            open_points = sum(not state.is_closed for state in self._states)
            self._visit(widest, GROWTH * self._clock.left / open_points)
        return self.curve()

    def _is_over(self) -> bool:
        return self._interrupted or self._clock.left <= LEAST_SECONDS

    def curve(self) -> Curve:
        return Curve(
            instance=self.instance.name,
            over=self.over,
            objective=str(self.places[0].instance.objective),
            time_unit=self.instance.time_unit,
            wall_seconds=round(self._clock.elapsed, 3),
            interrupted=self._interrupted,
            points=tuple(state.document() for state in self._states),
        )

    def _widest(self) -> int | None:
        # The open point with the widest gap, those with the fewest visits first.
        open_points = [
            (state.visits, -(state.gap if state.gap is not None else 1.0), index)
            for index, state in enumerate(self._states)
            if not state.is_closed
        ]
        return min(open_points)[2] if open_points else None

    def _visit(self, index: int, seconds: float) -> None:
        state = self._states[index]
        is_over = state.visits and self._clock.left <= LEAST_SECONDS
        if self._interrupted or state.is_closed or is_over:
            return
        seconds = max(LEAST_SECONDS, min(seconds, self._clock.left))
        result = optimize(
            state.place.instance, time_limit=seconds, start=state.result, **self.options
        )
        self._interrupted = result.stop_reason is StopReason.INTERRUPTED
        state.visits += 1
        self._take(state, result)
        self._spread()
        self.tell(self.curve())

    def _take(self, state: _PointState, result: Result) -> None:
        if result.status is Status.INFEASIBLE:
            state.is_infeasible, state.reason = True, result.reason
            return
        if result.bound is not None and (state.bound is None or result.bound > state.bound):
            state.bound = result.bound
        if result.value is not None and (state.value is None or result.value < state.value):
            state.value, state.result = result.value, result
            if result.best_by != "start":
                state.best_by = result.best_by

    def _spread(self) -> None:
        """Let values hold for more memory and bounds for less."""
        if self.over is not Over.CAPACITY:
            return
        for less, more in zip(self._states, self._states[1:], strict=False):
            if less.value is not None and (more.value is None or less.value < more.value):
                more.value, more.best_by = less.value, less.best_by
                more.result = less.result
        for less, more in zip(self._states[-2::-1], self._states[:0:-1], strict=True):
            if more.is_infeasible:
                less.is_infeasible, less.reason = True, more.reason
            elif more.bound is not None and (less.bound is None or more.bound > less.bound):
                less.bound = more.bound


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


TIME_LIMIT = 60.0


def curve(
    instance: Instance,
    over: Over | str,
    values: Sequence[Decimal | float | PerDevice],
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
    values : sequence of number or PerDevice
        The points; a `PerDevice` is a capacity in units of p.
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
    if not time_limit > 0:
        raise InputError(f"expected seconds above 0, got {time_limit}", field="time_limit")
    varied = _over(over)
    numbers = [each if isinstance(each, PerDevice) else Decimal(str(each)) for each in values]
    plain = _all_kept(instance) if varied is Over.CAPACITY else None
    seconds = time_limit if plain is None else time_limit / 2
    places = places_of(instance, varied, numbers)
    found = _CurveSearch(places, varied, instance, seconds, options, on_point).run()
    if plain is None or found.interrupted:
        return found
    others = places_of(plain, varied, numbers)
    kept = _CurveSearch(others, varied, plain, seconds, options).run()
    wall = found.wall_seconds + kept.wall_seconds
    return found.model_copy(update={"kept": kept.points, "wall_seconds": wall})


def _all_kept(instance: Instance) -> PipelineInstance | None:
    """Return the pipeline without memory modes, None where it has none."""
    if instance.kind != "pipeline":
        return None
    pipeline = cast("PipelineInstance", instance)
    if pipeline.memory is None or not pipeline.memory.has_modes:
        return None
    plain = pipeline.memory.model_copy(update={"recompute": None, "offload": None})
    return pipeline.model_copy(update={"memory": plain})


def _over(name: Over | str) -> Over:
    try:
        return Over(name)
    except ValueError:
        listed = ", ".join(Over)
        raise InputError(f'expected {listed}, got "{str(name)[:40]}"', field="over") from None
