"""Several things that a pipeline leaves open, as one: each part says its own choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import NotApplicableError, PpsolveError
from ppsolve.models.kinds.pipeline.filler_devices import (
    CHOSEN_DEVICES,
    choice_of_devices,
    device_choices,
)
from ppsolve.models.kinds.pipeline.fused import choice_of_pairs
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.joint import read_assignment
from ppsolve.models.kinds.pipeline.layers import CHOSEN_LAYERS, counts_of_document
from ppsolve.models.kinds.pipeline.modes import CHOSEN_MODES, choice_of, modes_of
from ppsolve.models.kinds.pipeline.overlap_blocks import timed_by
from ppsolve.solver.board import Board
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request
from ppsolve.solver.kinds.inner import InnerInstances
from ppsolve.solver.kinds.pipeline.open.decisions import (
    CHOSEN_REPLICAS,
    replicas_of_members,
)
from ppsolve.solver.kinds.pipeline.open.space import PipelineSpace
from ppsolve.solver.kinds.pipeline.part import OpenPart
from ppsolve.solver.kinds.pipeline.runtimes.claims import runtime_violations
from ppsolve.solver.run.schedule_task import ScheduleTask


class CombinedPart(OpenPart):
    """Parts that a pipeline has together, or one of them beside slices, steps or collectives."""

    def __init__(self, parts: Sequence[OpenPart]) -> None:
        self.parts = parts

    def problem(
        self, instance: PipelineInstance, *, exact: bool, document: Any
    ) -> Problem:
        """Return the problem of the choices that a document claims, or of the usual ones."""
        instance = timed_by(instance, document)
        space = PipelineSpace(instance, exact=exact)
        if document is None:
            return space.problem(space.first)
        problem = space.problem(_choices_of(space, document))
        blocks = space.blocks(problem)
        if blocks is None:
            return problem
        return blocks.problem(choice_of_pairs(blocks, document.get("fused") or []))

    def violations(
        self, instance: PipelineInstance, data: Any, schedule: Schedule | None
    ) -> list[Violation]:
        """Return the false claims of all parts, or of a runtime."""
        for part in self.parts:
            wrong = part.false_choices(instance, data)
            if wrong:
                return wrong
        return runtime_violations(instance, data, schedule)

    def claims(
        self, instance: PipelineInstance, schedule: Schedule
    ) -> dict[str, Any] | None:
        """Return the fields of all parts."""
        claims: dict[str, Any] = {}
        for part in self.parts:
            claims |= part.claims(instance, schedule) or {}
        return claims

    def task(
        self, kind: Any, instance: PipelineInstance, *, exact: bool
    ) -> ScheduleTask:
        """Return the task of choosing all."""
        from ppsolve.solver.kinds.pipeline.open.task import ChoiceTask

        return ChoiceTask(kind, instance, exact=exact)

    def obstacle(self, heuristic: Heuristic, instance: PipelineInstance) -> str | None:
        """Return that searches are left out: the orders of the best choices come later."""
        if heuristic.is_search and not heuristic.is_own:
            return "needs a pipeline that leaves nothing but orders open"
        return None

    def inner(self, instance: PipelineInstance) -> InnerInstances | None:
        """Return the programs of blocks."""
        inner = (part.inner(instance) for part in self.parts)
        return next((each for each in inner if each is not None), None)

    def proposal(
        self,
        propose: Callable[[Heuristic, Request], Proposal],
        heuristic: Heuristic,
        request: Request,
    ) -> Proposal:
        """Return the best schedule of a heuristic over a few choices that are given."""
        space = PipelineSpace(request.instance)
        best: Proposal | None = None
        refusal: PpsolveError | None = None
        for choices in space.corners():
            fixed = space.fixed(choices)
            reason = heuristic.obstacle(fixed)
            if reason is not None:
                refusal = refusal or NotApplicableError(reason)
                continue
            problem = space.problem(choices)
            # What it finds on the way says no choices: none for the board of the run.
            effort = replace(request.effort, board=Board())
            unnamed = replace(problem, choices={})
            asked = replace(request, instance=fixed, problem=unnamed, effort=effort)
            try:
                proposal = propose(heuristic, asked)
            except PpsolveError as error:
                refusal = error
                continue
            schedule = space.adopted(proposal.schedule, problem)
            if schedule is None:
                refusal = NotApplicableError("needs a pipeline whose choices are given")
                continue
            made = replace(proposal, schedule=schedule)
            if best is None or _rank(made) < _rank(best):
                best = made
        if best is None:
            assert refusal is not None
            raise refusal
        return best


def _rank(proposal: Proposal) -> tuple[bool, int]:
    schedule = proposal.schedule
    is_broken = bool(check_schedule(schedule.problem, schedule))
    return is_broken, schedule.value


def _choices_of(space: PipelineSpace, document: Any) -> dict[str, IntArray]:
    """Return the choices that a document claims; the usual ones where it claims none."""
    instance, choices = space.instance, dict(space.first)
    if CHOSEN_LAYERS in choices:
        choices[CHOSEN_LAYERS] = counts_of_document(instance, document)[0]
    if CHOSEN_REPLICAS in choices:
        members = read_assignment(document, instance)
        choices[CHOSEN_REPLICAS] = replicas_of_members(members)
    modes = modes_of(instance)
    if CHOSEN_MODES in choices and modes is not None:
        choices[CHOSEN_MODES] = choice_of(modes, document)[0]
    if CHOSEN_DEVICES in choices:
        numbers = choice_of_devices(
            device_choices(instance, space.base), document.get("devices") or {}
        )
        choices[CHOSEN_DEVICES] = space.device_places(numbers)
    return choices
