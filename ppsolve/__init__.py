"""ppsolve: the exact schedule solver for distributed training.

    >>> import ppsolve
    >>> instance = ppsolve.load_instance("instances/published/...json")
    >>> result = ppsolve.optimize(instance, time_limit=60)
    >>> result.status, result.value, result.bound

Everything is imported on first use, so that ``import ppsolve`` costs next to nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Checkouts on Windows hold text files in place of the links to `models` and `solver`: then both are
# found where they lie, beside this package.
_FOLDER = os.path.dirname(__file__)
if not os.path.isdir(os.path.join(_FOLDER, "models")):
    __path__.append(os.path.dirname(_FOLDER))

if TYPE_CHECKING:
    from ppsolve.models.core.documents import load_schedule
    from ppsolve.models.core.problem import Objective, Problem
    from ppsolve.models.core.result import (
        HeuristicEntry,
        Result,
        ScheduleDocument,
        Status,
    )
    from ppsolve.models.core.schedule import Schedule
    from ppsolve.models.core.violation import Violation
    from ppsolve.models.documents.errors import (
        DeadlockError,
        ErrorCode,
        InputError,
        NotApplicableError,
        PpsolveError,
    )
    from ppsolve.models.instances import Instance
    from ppsolve.models.kinds.graph import GraphInstance
    from ppsolve.models.kinds.kfac.instance import KfacInstance
    from ppsolve.models.kinds.overlap.instance import OverlapInstance
    from ppsolve.models.kinds.overlap.result import OverlapEntry, OverlapResult
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance
    from ppsolve.models.studies.curve import Curve
    from ppsolve.models.studies.goodput.params import GradParams, PerfParams
    from ppsolve.models.studies.plan.request import (
        PlanRequest,
        load_request,
        parse_request,
    )
    from ppsolve.models.studies.plan.result import Plan
    from ppsolve.models.studies.what_if import WhatIf
    from ppsolve.solver.api.api import check, compare, optimize, simulate
    from ppsolve.solver.api.kinds import load_instance, parse_instance
    from ppsolve.solver.api.stress import stress
    from ppsolve.solver.kinds.pipeline.quick import QuickAnswer, QuickAnswers, quick
    from ppsolve.solver.kinds.pipeline.replicas.step import StepAnswer, StepScheduler
    from ppsolve.solver.run.progress import STOP, Progress
    from ppsolve.solver.service.client import Client
    from ppsolve.solver.service.frame import explore
    from ppsolve.solver.studies.bench.many import Answer, optimize_many
    from ppsolve.solver.studies.curve import curve, optimize_placements, what_if
    from ppsolve.solver.studies.goodput.curve import ScheduleCurve
    from ppsolve.solver.studies.goodput.fit import fit_goodput
    from ppsolve.solver.studies.goodput.model import GoodputModel
    from ppsolve.solver.studies.goodput.pipeline import PipelineGoodput
    from ppsolve.solver.studies.plan.api import plan
    from ppsolve.solver.studies.plan.curve import measure_curve

register_display = import_module("ppsolve.models.documents.display").register_display
register_display("html", "ppsolve.solver.views.notebook:html_of")
register_display("gantt", "ppsolve.solver.views.plot.pictures:gantt")
register_display("frame", "ppsolve.solver.views.notebook:frame_of")

_HOME = {
    "Answer": "solver.studies.bench.many",
    "Client": "solver.service.client",
    "Curve": "models.studies.curve",
    "DeadlockError": "models.documents.errors",
    "ErrorCode": "models.documents.errors",
    "GoodputModel": "solver.studies.goodput.model",
    "GradParams": "models.studies.goodput.params",
    "GraphInstance": "models.kinds.graph",
    "HeuristicEntry": "models.core.result",
    "InputError": "models.documents.errors",
    "Instance": "models.instances",
    "KfacInstance": "models.kinds.kfac.instance",
    "NotApplicableError": "models.documents.errors",
    "Objective": "models.core.problem",
    "OverlapEntry": "models.kinds.overlap.result",
    "OverlapInstance": "models.kinds.overlap.instance",
    "OverlapResult": "models.kinds.overlap.result",
    "PerfParams": "models.studies.goodput.params",
    "PipelineGoodput": "solver.studies.goodput.pipeline",
    "PipelineInstance": "models.kinds.pipeline.instance",
    "Plan": "models.studies.plan.result",
    "PlanRequest": "models.studies.plan.request",
    "PpsolveError": "models.documents.errors",
    "Problem": "models.core.problem",
    "Progress": "solver.run.progress",
    "QuickAnswer": "solver.kinds.pipeline.quick",
    "QuickAnswers": "solver.kinds.pipeline.quick",
    "Result": "models.core.result",
    "STOP": "solver.run.progress",
    "Schedule": "models.core.schedule",
    "ScheduleCurve": "solver.studies.goodput.curve",
    "ScheduleDocument": "models.core.result",
    "Status": "models.core.result",
    "StepAnswer": "solver.kinds.pipeline.replicas.step",
    "StepScheduler": "solver.kinds.pipeline.replicas.step",
    "Violation": "models.core.violation",
    "WhatIf": "models.studies.what_if",
    "check": "solver.api.api",
    "compare": "solver.api.api",
    "curve": "solver.studies.curve",
    "explore": "solver.service.frame",
    "fit_goodput": "solver.studies.goodput.fit",
    "load_instance": "solver.api.kinds",
    "load_request": "models.studies.plan.request",
    "load_schedule": "models.core.documents",
    "measure_curve": "solver.studies.plan.curve",
    "optimize": "solver.api.api",
    "optimize_many": "solver.studies.bench.many",
    "optimize_placements": "solver.studies.curve",
    "parse_instance": "solver.api.kinds",
    "parse_request": "models.studies.plan.request",
    "plan": "solver.studies.plan.api",
    "quick": "solver.kinds.pipeline.quick",
    "simulate": "solver.api.api",
    "stress": "solver.api.stress",
    "what_if": "solver.studies.curve",
}

__all__ = [
    "STOP",
    "Answer",
    "Client",
    "Curve",
    "DeadlockError",
    "ErrorCode",
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
    "QuickAnswer",
    "QuickAnswers",
    "Result",
    "Schedule",
    "ScheduleCurve",
    "ScheduleDocument",
    "Status",
    "StepAnswer",
    "StepScheduler",
    "Violation",
    "WhatIf",
    "__version__",
    "check",
    "compare",
    "curve",
    "explore",
    "fit_goodput",
    "load_instance",
    "load_request",
    "load_schedule",
    "measure_curve",
    "optimize",
    "optimize_many",
    "optimize_placements",
    "parse_instance",
    "parse_request",
    "plan",
    "quick",
    "simulate",
    "stress",
    "what_if",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name == "__version__":
        from importlib.metadata import (
            version,
        )  # most of what importing this package would cost

        return version("ppsolve")
    if name not in _HOME:
        raise AttributeError(f"module 'ppsolve' has no attribute {name!r}")
    value = getattr(import_module(f"ppsolve.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
