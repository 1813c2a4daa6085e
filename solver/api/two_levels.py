"""Two levels: instances within an instance are solved first, then the instance with their values.

The optimum of the outer instance does not fall where a value grows. So the best values that are
known give a schedule, and the proved bounds of the inner instances give a bound of both levels
together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ppsolve.models.core.result import Result, Status
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.inner import InnerInstances

INNER_SHARE = 0.25
"""Share of the time for all inner instances together."""


def solve_inner(
    inner: InnerInstances,
    solve: Callable[[Instance, Clock], Result],
    clock: Clock,
    source: str,
) -> dict[str, Result]:
    """Solve the instances within an instance by shares of a clock.

    Returns their results by name, without heuristics. An `InputError` names `source`, and one that
    has no schedule, or takes no time.
    """
    share = INNER_SHARE / len(inner.instances)
    results = {}
    for name, program in inner.instances.items():
        result = solve(program, clock.share(share))
        if not result.value:
            text = (
                f"expected a program that has an order and takes time ({result.status})"
            )
            raise InputError(
                text,
                source=source,
                field=f"{inner.field}.{name}",
                code=ErrorCode.UNSUPPORTED,
            )
        results[name] = result.model_copy(update={"heuristics": (), "steps": ()})
    return results


def of_both_levels(
    inner: InnerInstances, result: Result, results: dict[str, Result]
) -> Result:
    """Return the result of an outer instance with the inner results, and a bound of both levels.

    `result` is of the outer instance with the values of `results`. Where one of these is not
    proved, its bound stands for its value in the analytic bounds.
    """
    update: dict[str, Any] = {inner.results: results}
    is_proved = all(
        inner_result.status is Status.OPTIMAL for inner_result in results.values()
    )
    if result.bound is not None and not is_proved:
        update |= _lower_bound(inner, result, results)
    return result.model_copy(update=update)


def _lower_bound(
    inner: InnerInstances, result: Result, results: Mapping[str, Result]
) -> dict[str, Any]:
    relaxed = inner.with_values(
        {name: inner_result.bound for name, inner_result in results.items()}
    )
    task = kind_of(relaxed).task(relaxed)
    task.find_bounds()
    bound = task.shown(task.board.bound.value)
    if result.bound is None or bound >= result.bound:
        return {}
    value = result.value
    update: dict[str, Any] = {
        "bound": bound,
        "bound_by": task.board.bound.name,
        "bound_verified": None,
        "gap": None if value is None else (value - bound) / value,
    }
    if result.status is Status.OPTIMAL:
        update["status"] = Status.FEASIBLE
    return update
