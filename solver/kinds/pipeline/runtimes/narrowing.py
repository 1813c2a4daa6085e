"""Pipelines for one runtime, as the library solves them."""

from __future__ import annotations

from typing import Any

from ppsolve.models.core.deferred import Deferred
from ppsolve.models.core.result import Result
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.text import instance_data
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.modes import KEEP, has_open_modes
from ppsolve.models.kinds.pipeline.replicas import RuntimeFigures
from ppsolve.solver.kinds.narrowing import Narrowing
from ppsolve.solver.kinds.pipeline.claimed import RULE
from ppsolve.solver.kinds.pipeline.programs.waited import waits_of
from ppsolve.solver.kinds.pipeline.runtimes.families import family_of
from ppsolve.solver.kinds.pipeline.runtimes.task import (
    RuntimeTask,
    any_order,
    shown_waits,
    task_for,
)
from ppsolve.solver.run.task import Task

SPLITS_SHARE = 0.8
"""Share of the time for what a runtime runs, where it shares out layers."""


class RuntimeNarrowing(Narrowing):
    """A pipeline for a runtime; an `InputError` says why the runtime cannot run it."""

    def __init__(
        self, kind: Any, instance: PipelineInstance, runtime: str, *, exact: bool
    ) -> None:
        self.kind = kind
        self.instance = instance
        self.family = family_of(runtime)
        self.exact = exact
        self.is_finite = self.family.is_finite
        self._first: Task | None = None
        if instance.layers is not None:
            self.first_share = SPLITS_SHARE
        reason = self.family.obstacle(instance)
        if reason is not None:
            raise InputError(
                reason, source=instance.name, field=RULE, code=ErrorCode.UNSUPPORTED
            )

    def task(self) -> Task:
        """Return the task of all orders, or of what the rules of the runtime admit."""
        self._first = task_for(self.kind, self.instance, self.family, exact=self.exact)
        return self._first

    def any_order(self) -> Task:
        """Return the task of any order of ops on each rank, with the stages of the best one."""
        first = self._first
        instance = first.placed if isinstance(first, RuntimeTask) else self.instance
        return any_order(self.kind, instance, exact=self.exact)

    def fields(
        self, task: Task | None, result: Result, best: Result | None
    ) -> dict[str, Any]:
        """Return the figures of the runtime; those of a narrowed pipeline are of the whole one."""
        if isinstance(task, RuntimeTask):
            return {RULE: task.runtime_figures(best)}
        update: dict[str, Any] = {
            RULE: RuntimeFigures(name=self.family.name, waits=self._waits()),
            "instance_document": Deferred(lambda: instance_data(self.instance)),
        }
        is_kept = result.schedule is not None and getattr(result, "modes", None) is None
        if is_kept and has_open_modes(self.instance):
            update["modes"] = (KEEP,) * self.instance.num_stages
        return update

    def _waits(self) -> dict[str, Any] | None:
        task = self._first
        if task is None or task.schedule is None or not self.instance.p2p.is_waited_for:
            return None
        return shown_waits(task, waits_of(task.schedule, is_whole=False))
