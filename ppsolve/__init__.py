"""ppsolve: the exact schedule solver for distributed training.

    >>> import ppsolve
    >>> instance = ppsolve.load_instance("instances/published/...json")
    >>> result = ppsolve.optimize(instance, time_limit=60)
    >>> result.status, result.value, result.bound

Everything is imported on first use, so that ``import ppsolve`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppsolve.models.errors import (
        DeadlockError,
        InputError,
        NotApplicableError,
        PpsolveError,
    )
    from ppsolve.models.given import load_schedule
    from ppsolve.models.graph import GraphInstance
    from ppsolve.models.instances import Instance, load_instance, parse_instance
    from ppsolve.models.kfac import KfacInstance
    from ppsolve.models.overlap import OverlapInstance
    from ppsolve.models.overlap_result import OverlapEntry, OverlapResult
    from ppsolve.models.pipeline import PipelineInstance
    from ppsolve.models.problem import Objective, Problem
    from ppsolve.models.result import HeuristicEntry, Result, ScheduleDocument, Status
    from ppsolve.models.schedule import Schedule
    from ppsolve.models.violation import Violation
    from ppsolve.solver.api import check, compare, optimize, simulate
    from ppsolve.solver.progress import Progress

_HOME = {
    "DeadlockError": "models.errors",
    "GraphInstance": "models.graph",
    "HeuristicEntry": "models.result",
    "InputError": "models.errors",
    "Instance": "models.instances",
    "KfacInstance": "models.kfac",
    "NotApplicableError": "models.errors",
    "Objective": "models.problem",
    "OverlapEntry": "models.overlap_result",
    "OverlapInstance": "models.overlap",
    "OverlapResult": "models.overlap_result",
    "PipelineInstance": "models.pipeline",
    "PpsolveError": "models.errors",
    "Problem": "models.problem",
    "Progress": "solver.progress",
    "Result": "models.result",
    "Schedule": "models.schedule",
    "ScheduleDocument": "models.result",
    "Status": "models.result",
    "Violation": "models.violation",
    "check": "solver.api",
    "compare": "solver.api",
    "load_instance": "models.instances",
    "load_schedule": "models.given",
    "optimize": "solver.api",
    "parse_instance": "models.instances",
    "simulate": "solver.api",
}

__all__ = [
    "DeadlockError",
    "GraphInstance",
    "HeuristicEntry",
    "InputError",
    "Instance",
    "KfacInstance",
    "NotApplicableError",
    "Objective",
    "OverlapEntry",
    "OverlapInstance",
    "OverlapResult",
    "PipelineInstance",
    "PpsolveError",
    "Problem",
    "Progress",
    "Result",
    "Schedule",
    "ScheduleDocument",
    "Status",
    "Violation",
    "__version__",
    "check",
    "compare",
    "load_instance",
    "load_schedule",
    "optimize",
    "parse_instance",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name == "__version__":
        return version("ppsolve")
    if name not in _HOME:
        raise AttributeError(f"module 'ppsolve' has no attribute {name!r}")
    value = getattr(import_module(f"ppsolve.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
