"""One pipeline under changes, one at a time and all together, and on several placements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import chain, product
from math import prod
from typing import Any

from ppsolve.models.core.result import Result
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import fingerprint
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.studies.what_if import WhatIf, WhatIfRow
from ppsolve.solver.api.api import optimize
from ppsolve.solver.studies.cases import TIME_LIMIT, CaseSearch, CaseState
from ppsolve.solver.studies.changes import AXES, PipelineChange, changes_of
from ppsolve.solver.studies.plan.placements import NamedPlacement, pipeline_of

MOST_ROWS = 100
"""More rows are taken for a mistake: several values of many options multiply."""


def what_if(
    instance: Instance,
    changes: Mapping[str, Any],
    *,
    time_limit: float = TIME_LIMIT,
    on_row: Callable[[WhatIf], None] = lambda found: None,
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
    pipeline, wanted = pipeline_of(instance), _combinations(changes)
    made = [reduce(lambda given, change: change(given), each, pipeline) for each in wanted]
    marks = [fingerprint(each) for each in made]
    different = dict(zip(marks, made, strict=True))

    def told() -> WhatIf:
        known = dict(zip(different, search.states, strict=True))
        rows = zip(wanted, (known[mark] for mark in marks), strict=True)
        return WhatIf(
            instance=instance.name,
            objective=str(pipeline.objective),
            time_unit=instance.time_unit,
            wall_seconds=search.wall_seconds,
            interrupted=search.interrupted,
            rows=tuple(_row(each, state, known[marks[0]]) for each, state in rows),
        )

    search = CaseSearch(list(different.values()), time_limit, options, lambda: on_row(told()))
    search.run(range(len(different)))
    return told()


def _combinations(changes: Mapping[str, Any]) -> list[tuple[PipelineChange, ...]]:
    places = {name: place for place, name in enumerate(AXES)}
    names = sorted(changes, key=lambda name: places.get(name, len(places)))
    groups = [changes_of(name, changes[name]) for name in names]
    if not groups:
        raise InputError(f"expected a change: --{', --'.join(AXES)}")
    together = prod(map(len, groups)) if len(groups) > 1 else 0
    count = 1 + sum(map(len, groups)) + together
    if count > MOST_ROWS:
        raise InputError(f"expected changes that make at most {MOST_ROWS} rows, got {count}")
    alone = ((change,) for change in chain.from_iterable(groups))
    return [(), *alone, *(product(*groups) if together else ())]


def _row(changes: Sequence[PipelineChange], state: CaseState, base: CaseState) -> WhatIfRow:
    figures = state.figures()
    taken, usual = figures["microbatch_time"], base.figures()["microbatch_time"]
    return WhatIfRow(
        changes={change.axis: change.value for change in changes},
        microbatches=state.instance.num_microbatches,
        gain=round(1 - taken / usual, 12) if usual and taken is not None else None,
        **figures,
    )


def placements_of(
    instance: Instance, layouts: Sequence[NamedPlacement | str]
) -> list[PipelineInstance]:
    """Return a pipeline on several placements, each named after its own.

    Parameters
    ----------
    instance : PipelineInstance
        The pipeline.
    layouts : sequence of NamedPlacement or str
        Placements, such as ``vshape`` or ``interleaved:4``; equal ones count once.

    Returns
    -------
    list of PipelineInstance
        In the order of `layouts`.

    Raises
    ------
    InputError
        As `on_layout` and `NamedPlacement.read` do, or there is no placement.
    """
    pipeline, changes = pipeline_of(instance), changes_of("placements", layouts)
    names = [f"{instance.name} {change.value}" for change in changes]
    made = [change(pipeline) for change in changes]
    return [p.model_copy(update={"name": name}) for p, name in zip(made, names, strict=True)]


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
    made = placements_of(instance, placements)
    share = None if time_limit is None else time_limit / len(made)
    return sorted((optimize(each, time_limit=share, **options) for each in made), key=rank_of)


def rank_of(result: Result) -> tuple[bool, float, float]:
    """Return the key of a result for sorting: by value (none last), then the higher bound."""
    return result.value is None, result.value or 0, -(result.bound or 0)
