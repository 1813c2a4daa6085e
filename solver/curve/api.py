"""The library's way to a curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from ppsolve.models.curve.document import Curve, Over
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.curve.points import Multiple, places_of
from ppsolve.solver.curve.search import CurveSearch, question_of

TIME_LIMIT = 60.0


def curve(
    instance: Instance,
    over: Over | str,
    values: Sequence[Decimal | float | Multiple],
    *,
    time_limit: float = TIME_LIMIT,
    known: Curve | None = None,
    on_point: Callable[[Curve], None] = lambda curve: None,
    **options: Any,
) -> Curve:
    """Find the best makespan and a bound at several capacities, micro-batches or chunks.

    Parameters
    ----------
    instance : PipelineInstance
        Gives all but what is varied.
    over : str
        ``capacity``, ``microbatches`` or ``chunks``. Chunks split the stage of each device evenly
        and place them interleaved.
    values : sequence of number or Multiple
        Where; a `Multiple` is a capacity in units of p.
    time_limit : float
        Wall seconds for all points.
    known : Curve or None
        An earlier curve of the same instance, whose points are kept.
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
        Not a pipeline, a value that it cannot take, or `known` is of another question.
    """
    if not time_limit > 0:
        raise InputError(f"expected seconds above 0, got {time_limit}", field="time_limit")
    varied = _over(over)
    numbers = [each if isinstance(each, Multiple) else Decimal(str(each)) for each in values]
    places = places_of(instance, varied, numbers)
    search = CurveSearch(places, varied, instance, time_limit, options, on_point)
    if known is not None:
        if known.question != question_of(instance, varied):
            raise InputError(
                f"this is a curve of another instance or question ({known.instance}, over "
                f"{known.over})",
                field="known",
            )
        search.resume(known)
    return search.run()


def _over(name: Over | str) -> Over:
    try:
        return Over(name)
    except ValueError:
        listed = ", ".join(Over)
        raise InputError(f'expected {listed}, got "{str(name)[:40]}"', field="over") from None
