"""The problems of all that a pipeline leaves open: of whole choices, and of choices in part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from ppsolve.models.core.compose import without_resources
from ppsolve.models.core.options import OpenProblem
from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.filler_devices import (
    CHOSEN_DEVICES,
    device_choices,
)
from ppsolve.models.kinds.pipeline.fused import CHOSEN_BLOCKS, fused_problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.joint import first_members, join, replica_of
from ppsolve.models.kinds.pipeline.layers import (
    CHOSEN_LAYERS,
    least_of_stages,
    split_by,
    times_of_layers,
)
from ppsolve.models.kinds.pipeline.lowering import (
    lower_pipeline,
    refuse_huge,
    scale_of,
)
from ppsolve.models.kinds.pipeline.modes import CHOSEN_MODES, modes_of, with_decision
from ppsolve.models.kinds.pipeline.overlap_blocks import block_times
from ppsolve.models.kinds.pipeline.replicas import Members
from ppsolve.solver.kinds.pipeline.open.decisions import (
    CHOSEN_REPLICAS,
    UNDECIDED,
    Decision,
    DevicesDecision,
    ReplicasDecision,
    decisions_of,
    replicas_of_members,
)
from ppsolve.solver.kinds.pipeline.options.relaxed import relaxed
from ppsolve.solver.kinds.pipeline.replicas.heuristics import members_of

Choices = Mapping[str, IntArray]
"""An array for each decision, by its field; entries may be `UNDECIDED`."""


class PipelineSpace:
    """A pipeline with all that is open: layers, replicas, modes, devices of fillers, then blocks.

    Whatever is chosen, all problems have one tick.
    """

    def __init__(self, instance: PipelineInstance, *, exact: bool = False) -> None:
        refuse_huge(instance)
        self.instance = instance
        self.numbers = instance.in_numbers()
        extra = times_of_layers(instance)
        self.scale = scale_of(
            self.numbers,
            exact=exact,
            extra_times=chain(extra, block_times(self.numbers, extra)),
        )

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """What is open beside orders and blocks."""
        has_devices = self.instance.has_device_choice
        fillers = device_choices(self.instance, self.base) if has_devices else None
        return decisions_of(self.instance, fillers)

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of all decisions."""
        return tuple(decision.field for decision in self.decisions)

    @cached_property
    def open(self) -> dict[str, IntArray]:
        """The choices that leave everything open."""
        return {decision.field: decision.open for decision in self.decisions}

    @cached_property
    def first(self) -> dict[str, IntArray]:
        """The usual choices."""
        return next(self.corners())

    def corners(self) -> Iterator[dict[str, IntArray]]:
        """Yield whole choices: the usual ones, then each with other corners of one decision."""
        usual = {
            decision.field: next(decision.corners()) for decision in self.decisions
        }
        yield usual
        for decision in self.decisions:
            corners = decision.corners()
            next(corners)
            yield from ({**usual, decision.field: corner} for corner in corners)

    def starts(self) -> Iterator[dict[str, IntArray]]:
        """Yield whole choices from which a search begins: the usual ones, but for one decision."""
        for decision in self.decisions:
            for start in decision.starts():
                yield {**self.first, decision.field: start}

    def open_parts(self, choices: Choices) -> int:
        """Return the number of branchings until all is decided."""
        return sum(each.open_parts(choices[each.field]) for each in self.decisions)

    def branches(self, choices: Choices) -> list[dict[str, IntArray]]:
        """Return choices that decide one more thing in every way; none where no more is decided."""
        for decision in self.decisions:
            branches = decision.branches(choices[decision.field])
            if branches:
                return [{**choices, decision.field: branch} for branch in branches]
        return []

    def allows(self, choices: Choices) -> bool:
        """Whether all decisions allow the choices."""
        return all(
            decision.field in choices and decision.allows(choices[decision.field])
            for decision in self.decisions
        )

    def chosen(self, schedule: Schedule) -> dict[str, IntArray]:
        """Return the choices of a schedule, blocks apart."""
        choices = {field: schedule.problem.chosen(field) for field in self.fields}
        if CHOSEN_DEVICES in choices:
            choices[CHOSEN_DEVICES] = self.device_places(choices[CHOSEN_DEVICES])
        if CHOSEN_REPLICAS in choices:
            members = members_of(schedule.problem)
            choices[CHOSEN_REPLICAS] = replicas_of_members(members)
        return choices

    def decision(self, field: str) -> Decision:
        """Return the decision of a field."""
        return next(each for each in self.decisions if each.field == field)

    def split(self, choices: Choices) -> PipelineInstance:
        """Return the pipeline with its layers shared out; open stages have the least of all."""
        layers = self.instance.layers
        if layers is None:
            return self.instance
        counts = choices[CHOSEN_LAYERS]
        return split_by(self.instance, *least_of_stages(layers, counts, UNDECIDED))

    def problem(self, choices: Choices) -> Problem:
        """Return the problem of choices without blocks.

        What is undecided takes least time and memory, runs nowhere, or is left out:
        bounds hold for all choices.
        """
        plain = self.split(choices)
        if self.instance.replicas is None:
            base = lower_pipeline(
                plain, scale=self.scale, choice=choices.get(CHOSEN_MODES)
            )
        else:
            base = self._joint(plain, choices)
        if CHOSEN_DEVICES in choices:
            base = self._placed(base, choices[CHOSEN_DEVICES])
        named = {f: choices[f] for f in choices.keys() - {CHOSEN_DEVICES}}
        return replace(base, choices={**base.choices, **named})

    @cached_property
    def base(self) -> Problem:
        """The problem with the first devices of all fillers, whose options claims name."""
        modes = modes_of(self.instance)
        plain = self.instance
        if plain.layers is not None:
            plain = split_by(plain, plain.layers.evenly(plain.num_stages))
        if plain.replicas is not None:
            plain = replica_of(plain.in_numbers(), first_members(plain)[0])
            modes = modes_of(plain)
        choice = None
        if modes is not None:
            choice = modes.relaxed if modes.given is None else modes.given
        return lower_pipeline(plain, scale=self.scale, choice=choice)

    def members(self, choices: Choices) -> Members:
        """Return the micro-batches of each replica, those that are decided."""
        if CHOSEN_REPLICAS not in choices:
            return first_members(self.instance)
        decision = self.decision(CHOSEN_REPLICAS)
        assert isinstance(decision, ReplicasDecision)
        return decision.members(choices[CHOSEN_REPLICAS])

    def _joint(self, plain: PipelineInstance, choices: Choices) -> Problem:
        members = [those for those in self.members(choices) if those]
        if not members:  # any one micro-batch alone
            members = [(0,)]
        numbers, modes = plain.in_numbers(), choices.get(CHOSEN_MODES)
        problems = [
            lower_pipeline(
                replica_of(numbers, those),
                scale=self.scale,
                choice=None if modes is None else modes[:, list(those)],
            )
            for those in members
        ]
        return join(problems, members, plain.num_devices)

    def _placed(self, base: Problem, choice: IntArray) -> Problem:
        problem = device_choices(self.instance, base)
        decision = self._devices
        placed = problem.problem(decision.options(problem, choice))
        mobile = np.zeros(base.num_ops, dtype=np.bool_)
        fillers = np.array(decision.ops(problem), dtype=np.int64)
        mobile[fillers[choice == UNDECIDED]] = True
        return without_resources(placed, mobile) if mobile.any() else placed

    @property
    def _devices(self) -> DevicesDecision:
        decision = self.decision(CHOSEN_DEVICES)
        assert isinstance(decision, DevicesDecision)
        return decision

    def device_places(self, numbers: IntArray) -> IntArray:
        """Return the choice of devices by the numbers of options."""
        return self._devices.places(device_choices(self.instance, self.base), numbers)

    def blocks(self, problem: Problem) -> OpenProblem | None:
        """Return the blocks over a problem of choices, None where the pipeline has none."""
        if self.instance.overlap is None:
            return None
        return fused_problem(self.split(problem.choices), problem)

    def relaxed(self, choices: Choices) -> Problem:
        """Return a problem whose bounds hold for all schedules of choices, blocks too."""
        problem = self.problem(choices)
        blocks = self.blocks(problem)
        return problem if blocks is None else relaxed(blocks)

    def fixed(self, choices: Choices) -> PipelineInstance:
        """Return the pipeline in which whole choices are given, for heuristics."""
        plain, update = self.split(choices), dict[str, Any]()
        modes = modes_of(self.instance)
        if modes is not None and CHOSEN_MODES in choices and plain.memory is not None:
            names = modes.as_names(choices[CHOSEN_MODES])
            update["memory"] = with_decision(plain.memory, names)
        if CHOSEN_DEVICES in choices:
            update["fillers"] = tuple(
                filler.model_copy(update={"devices": ()})
                for filler in self.instance.fillers
            )
        if CHOSEN_REPLICAS in choices and plain.replicas is not None:
            update["replicas"] = plain.replicas.model_copy(
                update={"assignment": "fixed", "members": self.members(choices)}
            )
        return plain.model_copy(update=update)

    def adopted(self, schedule: Schedule, problem: Problem) -> Schedule | None:
        """Return a schedule of `fixed` as one of the problem of its choices.

        There is none if its ops are others.
        """
        numbers = schedule.problem.chosen(CHOSEN_BLOCKS)
        blocks = self.blocks(problem)
        if blocks is not None and len(numbers):
            problem = blocks.problem(numbers)
        finer = schedule.problem.scale.tick / self.scale.tick
        if schedule.problem.num_ops != problem.num_ops or finer.denominator > 1:
            return None
        return Schedule(problem, schedule.start * finer.numerator)


def is_decided(choices: Choices) -> bool:
    """Whether nothing is left open."""
    return all((choice >= 0).all() for choice in choices.values())
