"""Pipelines with fillers that several devices may run, while they are solved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ppsolve.models.core.problem import Problem
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.pipeline.filler_devices import FillerDevices
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import FEW_DEVICES
from ppsolve.solver.heuristics.generic import GENERIC
from ppsolve.solver.kinds.pipeline.chosen import has_best_choice, search_orders
from ppsolve.solver.kinds.pipeline.options.search import FUSED
from ppsolve.solver.kinds.pipeline.options.task import OPTION_STEPS, OptionsTask
from ppsolve.solver.run.schedule_task import ScheduleTask
from ppsolve.solver.run.step import Step, Steps, replaced
from ppsolve.solver.run.steps import EXACT_SLACK

AVERAGE = "work of all devices"

ORDERS = Step("orders", has_best_choice, lambda t: 0.3, search_orders, EXACT_SLACK)

FILLER_STEPS = replaced(replaced(OPTION_STEPS, FUSED, ORDERS), FEW_DEVICES)
"""The steps of a pipeline with fillers that several devices may run."""


def anywhere(problem: FillerDevices) -> Problem:
    """Return a problem whose bounds hold for all devices: fillers with a choice take none."""
    base = problem.base
    counts, mobile = np.diff(base.resource_ptr), list(problem.covering)
    owner = np.repeat(np.arange(base.num_ops), counts)
    counts[mobile] = 0
    return replace(
        base,
        resource_ptr=np.concatenate(([0], np.cumsum(counts))),
        resource_idx=base.resource_idx[~np.isin(owner, mobile)],
    )


class FillersTask(OptionsTask):
    """A pipeline with fillers that several devices may run.

    Parameters
    ----------
    kind, instance
        As of `OptionsTask`.
    problem : FillerDevices
        Its fillers on their first devices, and the others.
    """

    steps: ClassVar[tuple[Step | Steps, ...]] = FILLER_STEPS

    def __init__(self, kind: Any, instance: Instance, problem: FillerDevices) -> None:
        ScheduleTask.__init__(self, kind, instance, anywhere(problem))
        self.open: FillerDevices = problem
        self.searches = tuple(each for each in GENERIC if each.is_search)

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Raise the bound by every analytic rule, and by the mean work of the devices.

        No device works before the first op that it may run can start, nor in the time that must
        pass after the last one.
        """
        ScheduleTask.find_bounds(self, clock)
        base, dag = self.open.base, self.implied.full
        heads = dag.heads(base.release)
        rest = dag.tails(base.duration) - base.duration
        work, mobile = int(base.duration[base.is_compute].sum()), list(self.open.covering)
        for resource in base.span_resources.tolist():
            ops = np.union1d(base.ops_by_resource[resource], mobile)
            work += int(heads[ops].min() + rest[ops].min())
        self.board.raise_bound(-(-work // len(base.span_resources)), AVERAGE)
