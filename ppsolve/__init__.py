"""ppsolve: the exact schedule solver for distributed training.

    >>> import ppsolve
    >>> instance = ppsolve.load_instance("instances/published/...json")
    >>> result = ppsolve.optimize(instance, time_limit=60)
    >>> result.status, result.value, result.bound

Everything is imported on first use, so that ``import ppsolve`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ppsolve.models.documents.display import register_display

if TYPE_CHECKING:
    from ppsolve.models.core.documents import load_schedule
    from ppsolve.models.core.problem import Objective, Problem
    from ppsolve.models.core.result import HeuristicEntry, Result, ScheduleDocument, Status
    from ppsolve.models.core.schedule import Schedule
    from ppsolve.models.core.violation import Violation
    from ppsolve.models.curve import Curve
    from ppsolve.models.documents.errors import (
        DeadlockError,
        InputError,
        NotApplicableError,
        PpsolveError,
    )
    from ppsolve.models.goodput.params import GradParams, PerfParams
    from ppsolve.models.graph import GraphInstance
    from ppsolve.models.instances import Instance
    from ppsolve.models.kfac.instance import KfacInstance
    from ppsolve.models.overlap.instance import OverlapInstance
    from ppsolve.models.overlap.result import OverlapEntry, OverlapResult
    from ppsolve.models.pipeline.instance import PipelineInstance
    from ppsolve.models.plan.request import PlanRequest, load_request
    from ppsolve.models.plan.result import Plan
    from ppsolve.solver.bench.many import Answer, optimize_many
    from ppsolve.solver.curve import curve
    from ppsolve.solver.goodput.curve import ScheduleCurve
    from ppsolve.solver.goodput.fit import fit_goodput
    from ppsolve.solver.goodput.model import GoodputModel, goodput_table
    from ppsolve.solver.goodput.pipeline import PipelineGoodput
    from ppsolve.solver.optimize.api import check, compare, optimize, simulate
    from ppsolve.solver.optimize.kinds import load_instance, parse_instance
    from ppsolve.solver.optimize.stress import stress
    from ppsolve.solver.pipeline.replicas.step import StepAnswer, StepScheduler
    from ppsolve.solver.plan.api import plan
    from ppsolve.solver.plan.curve import measure_curve
    from ppsolve.solver.plan.placements import optimize_placements
    from ppsolve.solver.run.progress import Progress

register_display("html", "ppsolve.solver.render.notebook:html_of")
register_display("gantt", "ppsolve.solver.render.plot.pictures:gantt")
register_display("frame", "ppsolve.solver.render.notebook:frame_of")

_HOME = {
    "Answer": "solver.bench.many",
    "Curve": "models.curve",
    "DeadlockError": "models.documents.errors",
    "GoodputModel": "solver.goodput.model",
    "GradParams": "models.goodput.params",
    "GraphInstance": "models.graph",
    "HeuristicEntry": "models.core.result",
    "InputError": "models.documents.errors",
    "Instance": "models.instances",
    "KfacInstance": "models.kfac.instance",
    "NotApplicableError": "models.documents.errors",
    "Objective": "models.core.problem",
    "OverlapEntry": "models.overlap.result",
    "OverlapInstance": "models.overlap.instance",
    "OverlapResult": "models.overlap.result",
    "PerfParams": "models.goodput.params",
    "PipelineGoodput": "solver.goodput.pipeline",
    "PipelineInstance": "models.pipeline.instance",
    "Plan": "models.plan.result",
    "PlanRequest": "models.plan.request",
    "PpsolveError": "models.documents.errors",
    "Problem": "models.core.problem",
    "Progress": "solver.run.progress",
    "Result": "models.core.result",
    "Schedule": "models.core.schedule",
    "ScheduleCurve": "solver.goodput.curve",
    "ScheduleDocument": "models.core.result",
    "Status": "models.core.result",
    "StepAnswer": "solver.pipeline.replicas.step",
    "StepScheduler": "solver.pipeline.replicas.step",
    "Violation": "models.core.violation",
    "check": "solver.optimize.api",
    "compare": "solver.optimize.api",
    "curve": "solver.curve",
    "fit_goodput": "solver.goodput.fit",
    "goodput_table": "solver.goodput.model",
    "load_instance": "solver.optimize.kinds",
    "load_request": "models.plan.request",
    "load_schedule": "models.core.documents",
    "measure_curve": "solver.plan.curve",
    "optimize": "solver.optimize.api",
    "optimize_many": "solver.bench.many",
    "optimize_placements": "solver.plan.placements",
    "parse_instance": "solver.optimize.kinds",
    "plan": "solver.plan.api",
    "simulate": "solver.optimize.api",
    "stress": "solver.optimize.stress",
}

__all__ = [
    "Answer",
    "Curve",
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
    "StepAnswer",
    "StepScheduler",
    "Violation",
    "__version__",
    "check",
    "compare",
    "curve",
    "fit_goodput",
    "goodput_table",
    "load_instance",
    "load_request",
    "load_schedule",
    "measure_curve",
    "optimize",
    "optimize_many",
    "optimize_placements",
    "parse_instance",
    "plan",
    "simulate",
    "stress",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name == "__version__":
        from importlib.metadata import version  # most of what importing this package would cost

        return version("ppsolve")
    if name not in _HOME:
        raise AttributeError(f"module 'ppsolve' has no attribute {name!r}")
    value = getattr(import_module(f"ppsolve.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
