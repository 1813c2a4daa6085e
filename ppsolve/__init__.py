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
    from ppsolve.models.goodput import GoodputModel, GradParams, PerfParams
    from ppsolve.models.goodput_table import goodput_table
    from ppsolve.models.graph import GraphInstance
    from ppsolve.models.instances import Instance, load_instance, parse_instance
    from ppsolve.models.kfac import KfacInstance
    from ppsolve.models.overlap import OverlapInstance
    from ppsolve.models.overlap_result import OverlapEntry, OverlapResult
    from ppsolve.models.pipeline import PipelineInstance
    from ppsolve.models.pipeline_goodput import PipelineGoodput
    from ppsolve.models.plan import PlanRequest, load_request
    from ppsolve.models.plan_result import Plan
    from ppsolve.models.problem import Objective, Problem
    from ppsolve.models.result import HeuristicEntry, Result, ScheduleDocument, Status
    from ppsolve.models.schedule import Schedule
    from ppsolve.models.schedule_curve import ScheduleCurve
    from ppsolve.models.violation import Violation
    from ppsolve.solver.api import check, compare, optimize, simulate
    from ppsolve.solver.plan.curve import measure_curve
    from ppsolve.solver.plan.service import plan
    from ppsolve.solver.progress import Progress

_HOME = {
    "DeadlockError": "models.errors",
    "GoodputModel": "models.goodput",
    "GradParams": "models.goodput",
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
    "PerfParams": "models.goodput",
    "PipelineGoodput": "models.pipeline_goodput",
    "PipelineInstance": "models.pipeline",
    "Plan": "models.plan_result",
    "PlanRequest": "models.plan",
    "PpsolveError": "models.errors",
    "Problem": "models.problem",
    "Progress": "solver.progress",
    "Result": "models.result",
    "Schedule": "models.schedule",
    "ScheduleCurve": "models.schedule_curve",
    "ScheduleDocument": "models.result",
    "Status": "models.result",
    "Violation": "models.violation",
    "check": "solver.api",
    "compare": "solver.api",
    "goodput_table": "models.goodput_table",
    "load_instance": "models.instances",
    "load_request": "models.plan",
    "load_schedule": "models.given",
    "measure_curve": "solver.plan.curve",
    "optimize": "solver.api",
    "parse_instance": "models.instances",
    "plan": "solver.plan.service",
    "simulate": "solver.api",
}

__all__ = [
    "DeadlockError",
    "GoodputModel",
    "GradParams",
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
    "PerfParams",
    "PipelineGoodput",
    "PipelineInstance",
    "Plan",
    "PlanRequest",
    "PpsolveError",
    "Problem",
    "Progress",
    "Result",
    "Schedule",
    "ScheduleCurve",
    "ScheduleDocument",
    "Status",
    "Violation",
    "__version__",
    "check",
    "compare",
    "goodput_table",
    "load_instance",
    "load_request",
    "load_schedule",
    "measure_curve",
    "optimize",
    "parse_instance",
    "plan",
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
