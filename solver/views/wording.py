"""Words and colours for statuses, objectives, units and broken rules."""

from __future__ import annotations

from ppsolve.models.core.problem import Objective
from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result, Status
from ppsolve.models.core.units import finest_time
from ppsolve.models.instances import Instance
from ppsolve.solver.views.figures import at_most

STATUS_STYLE = {
    Status.OPTIMAL: "bold green",
    Status.FEASIBLE: "bold yellow",
    Status.INFEASIBLE: "bold red",
    Status.UNKNOWN: "bold red",
}
ENTRY_STYLE = {
    HeuristicStatus.FEASIBLE: "",
    HeuristicStatus.INFEASIBLE: "yellow",
    HeuristicStatus.FAILED: "red",
    HeuristicStatus.NOT_APPLICABLE: "dim",
}
ITERATIONS = "iterations"


def spaced(name: str) -> str:
    """Return a status, an objective or a reason to stop as people write it: ``device span``."""
    return name.replace("_", " ")


def unit_of(result: Result) -> str:
    """Return the unit of the value and the bound of a result."""
    return result.value_unit or result.time_unit


def bubble_name(source: Result | HeuristicEntry) -> str:
    """Return the name of the bubble ratio that a result or entry has: that of its objective."""
    if isinstance(source, Result):
        is_of_span = source.objective is Objective.DEVICE_SPAN
    else:
        # An entry names no objective; where both times are equal both ratios are.
        is_of_span = source.value == source.device_span != source.makespan
    return "bubble ratio of device span" if is_of_span else "bubble ratio"


def rounding_note(
    error: float | None, unit: str, instance: Instance | None = None
) -> str | None:
    """Return a line on what rounding to ticks means for a result, None where nothing was rounded.

    `error` is the time by which the optimum on ticks may exceed that of the given times, which are
    those of the instance.
    """
    if not error:
        return None
    finest = instance and finest_time(instance)
    return (
        "times are rounded up to whole ticks, and optima are of those: "
        f"of the given times at most {at_most(error)} {unit} lower"
        + (f" ({finest} has the most digits)" if finest else "")
    )


def with_unit(text: str, unit: str) -> str:
    """Return a figure with its unit: ``90 us``, ``8 iterations``, ``1 iteration``.

    No unit leaves the figure alone.
    """
    return (
        f"{text} iteration"
        if (text, unit) == ("1", ITERATIONS)
        else f"{text} {unit}".rstrip()
    )
