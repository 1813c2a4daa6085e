"""The instances of a curve: one pipeline with other capacities, micro-batches or chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from ppsolve.models.core.result import Figure
from ppsolve.models.curve.document import Over
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import instance_data
from ppsolve.models.instances import Instance
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.optimize.kinds import parse_instance
from ppsolve.solver.plan.placements import NamedPlacement, figure_of, on_layout


@dataclass(frozen=True)
class Multiple:
    """A capacity of `factor` times the memory of p micro-batches on a device: ``1.5p``."""

    factor: Decimal


@dataclass(frozen=True)
class Place:
    """A point of a curve before it is solved.

    Parameters
    ----------
    at : int, float or list
        The capacity, number of micro-batches or chunks.
    multiple : float or None
        The capacity as multiple of p, where it was given so.
    instance : PipelineInstance
        The instance.
    """

    at: Figure | list[Figure]
    multiple: Figure | None
    instance: PipelineInstance


def places_of(instance: Instance, over: Over, values: Sequence[Decimal | Multiple]) -> list[Place]:
    """Return the points of a curve, ascending.

    Parameters
    ----------
    instance : PipelineInstance
        Gives all but what is varied.
    over : Over
        What is varied.
    values : sequence of Decimal or Multiple
        Capacities, or whole numbers of micro-batches or of chunks.

    Returns
    -------
    list of Place
        Each with its own instance, equal values once.

    Raises
    ------
    InputError
        The instance is no pipeline, a value is none that it can take, or what is varied is said
        per micro-batch or per stage, so that another number has no meaning.
    """
    if instance.kind != "pipeline":
        raise InputError(
            f'expected a pipeline, this is of kind "{instance.kind}"', source=instance.name
        )
    pipeline, field = cast("PipelineInstance", instance), f"--{over}"
    if not values:
        raise InputError("expected at least one value", field=field)
    make = {
        Over.CAPACITY: _with_capacity,
        Over.MICROBATCHES: _with_microbatches,
        Over.CHUNKS: _with_chunks,
    }[over]
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


def _with_capacity(instance: PipelineInstance, value: Decimal | Multiple) -> Place:
    data = instance_data(instance)
    if instance.memory is None:
        raise InputError("this pipeline has no memory; give memory.activation", field="memory")
    capacity: Any = figure_of(value) if isinstance(value, Decimal) else f"{value.factor}p"
    data["memory"] = {**data["memory"], "capacity": capacity}
    made = _parsed(data)
    multiple = figure_of(value.factor) if isinstance(value, Multiple) else None
    return Place(_resolved(made), multiple, made)


def _resolved(instance: PipelineInstance) -> Figure | list[Figure]:
    """Return the capacity as one amount, or as one for each device."""
    assert instance.memory is not None
    amounts = instance.memory.capacity
    if isinstance(amounts, Decimal):
        return figure_of(amounts)
    return [figure_of(Decimal(each)) for each in amounts]


def _with_microbatches(instance: PipelineInstance, value: Decimal | Multiple) -> Place:
    count = _whole(value)
    data = instance_data(instance) | {"num_microbatches": count}
    return Place(count, None, _parsed(data))


def _with_chunks(instance: PipelineInstance, value: Decimal | Multiple) -> Place:
    """Split the times and activations of every device evenly over its chunks, interleaved."""
    count = _whole(value)
    if instance.num_stages != instance.num_devices or instance.placement != "linear":
        raise InputError("expected a pipeline with one stage per device, linear")
    made = instance if count == 1 else on_layout(instance, NamedPlacement("interleaved", count))
    return Place(count, None, made)


def _whole(value: Decimal | Multiple) -> int:
    if isinstance(value, Multiple) or value != int(value) or value < 1:
        shown = f"{value.factor}p" if isinstance(value, Multiple) else str(value)
        raise InputError(f"expected a whole number >= 1, got {shown}")
    return int(value)


def _parsed(data: dict[str, Any]) -> PipelineInstance:
    return cast("PipelineInstance", parse_instance(data))
