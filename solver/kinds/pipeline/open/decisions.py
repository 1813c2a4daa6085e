"""What a pipeline leaves open beside orders, as finite variables: one class each."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.kinds.pipeline.filler_devices import (
    CHOSEN_DEVICES,
    FillerDevices,
)
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.joint import first_members
from ppsolve.models.kinds.pipeline.layers import CHOSEN_LAYERS, Layers
from ppsolve.models.kinds.pipeline.modes import (
    CHOSEN_MODES,
    RELAXED,
    MemoryModes,
    modes_of,
)
from ppsolve.models.kinds.pipeline.replicas import Members, Replicas, fault
from ppsolve.solver.clock import Clock
from ppsolve.solver.run.params import ModesParams

UNDECIDED = RELAXED
"""Stands for a part of a choice that is open."""

CHOSEN_REPLICAS = "replicas"
"""Key of the replica of each micro-batch in the choices of a problem, int64[m]."""

MOVES = 24
"""Neighbours of a split that are drawn at a time."""


KICK = 3
"""Steps of a kick."""

Bound = Callable[[IntArray], int]
"""Returns a bound in ticks of a choice in part."""


class Decision(ABC):
    """One thing that is open: an array, entries of which may be `UNDECIDED`."""

    field: str
    """Key of its array in the choices of a problem."""

    open: IntArray
    """The choice that leaves everything open."""

    def prepare(
        self, bound: Bound, clock: Clock, upper: int, params: ModesParams
    ) -> int:
        """Rule out parts of choices by bounds, before branches are asked for.

        `bound`: returns a bound of a choice in part while all else is open.
        `upper`: ticks; what is bounded by as much is ruled out.
        Returns: a bound of all choices in ticks.
        """
        return 0

    def open_parts(self, choice: IntArray) -> int:
        """Return the number of branchings until all is decided."""
        return int(np.count_nonzero(choice == UNDECIDED))

    @abstractmethod
    def branches(self, choice: IntArray) -> list[IntArray]:
        """Return choices that decide one more thing in every way.

        There are none where all is decided, or is not decided by branching.
        """

    @abstractmethod
    def corners(self) -> Iterator[IntArray]:
        """Yield a few whole choices, the usual one first."""

    def starts(self) -> Iterator[IntArray]:
        """Yield whole choices from which a local search begins."""
        return self.corners()

    @abstractmethod
    def neighbours(self, choice: IntArray, draw: random.Random) -> list[IntArray]:
        """Return whole choices near one."""

    def kicked(self, choice: IntArray, draw: random.Random) -> IntArray:
        """Return a whole choice a few steps from one."""
        for _ in range(KICK):
            near = self.neighbours(choice, draw)
            choice = draw.choice(near) if near else choice
        return choice

    @abstractmethod
    def allows(self, choice: IntArray) -> bool:
        """Whether an array is a whole choice."""


@dataclass
class StageGroup:
    """Stages that are decided together, and the modes that they may still have."""

    stages: list[int]
    modes: list[tuple[int, ...]]
    least: int = 0  # the least bound of these modes where all else is open, in ticks

    def apply(self, choice: IntArray, modes: tuple[int, ...]) -> IntArray:
        """Return a choice, int64[S, m], in which the stages have these modes."""
        branch = choice.copy()
        branch[self.stages] = np.array(modes)[:, None]
        return branch


class ModesDecision(Decision):
    """The mode of each stage and micro-batch, int64[S, m]."""

    field = CHOSEN_MODES

    def __init__(self, modes: MemoryModes) -> None:
        self.modes, self.open = modes, modes.relaxed
        self._groups: list[StageGroup] | None = None

    @property
    def _has_variants(self) -> bool:
        return self.modes.decide in {"all", "window"}

    def prepare(
        self, bound: Bound, clock: Clock, upper: int, params: ModesParams
    ) -> int:
        """Group the stages of each device, with the modes that no bound rules out.

        The group whose best mode is the worst comes first: there the bound grows the most.
        """
        if self.modes.decide != "stage":
            return 0
        share, groups = (
            clock.share(params.grouping_share),
            self._stage_groups(params.grouped_modes),
        )
        for group in groups:
            if share.is_over:
                break
            self._rule_out(group, bound, share, upper)
        self._groups = sorted(groups, key=lambda group: -group.least)
        return max((group.least for group in groups), default=0)

    def stages_of_devices(self) -> list[list[int]]:
        """Return the stages that run on the same devices, going up."""
        devices: dict[tuple[int, ...], list[int]] = {}
        for stage, row in enumerate(self.modes.instance.device_grid):
            devices.setdefault(tuple(np.unique(row).tolist()), []).append(stage)
        return list(devices.values())

    def _stage_groups(self, most: int) -> list[StageGroup]:
        modes, groups = range(len(self.modes.names)), []
        for stages in self.stages_of_devices():
            together = len(modes) ** len(stages) <= most
            for members in [stages] if together else [[stage] for stage in stages]:
                pairs = product(modes, repeat=len(members))
                groups.append(StageGroup(members, list(pairs)))
        return groups

    def _rule_out(
        self, group: StageGroup, bound: Bound, clock: Clock, upper: int
    ) -> None:
        """Leave the modes of a group that are not bounded by as much as `upper`."""
        modes, bounds = [], []
        for number, candidate in enumerate(group.modes):
            if clock.is_over:
                modes += group.modes[number:]
                bounds.append(0)
                break
            value = bound(group.apply(self.open, candidate))
            if value < upper:
                modes.append(candidate)
                bounds.append(value)
        group.modes, group.least = modes, min(bounds, default=upper)

    def open_parts(self, choice: IntArray) -> int:
        """Return the open groups, or else the open cells."""
        if self._groups is None:
            return super().open_parts(choice)
        return sum(choice[group.stages[0], 0] < 0 for group in self._groups)

    def branches(self, choice: IntArray) -> list[IntArray]:
        """Return a choice for the modes of the first open group, or stage and micro-batch."""
        cells = np.argwhere(choice == RELAXED)
        if not len(cells):
            return []
        if self._has_variants:
            return list(self.modes.variants())
        if self._groups is not None:
            group = next(g for g in self._groups if choice[g.stages[0], 0] < 0)
            return [group.apply(choice, modes) for modes in group.modes]
        stage, microbatch = cells[np.lexsort((cells[:, 0], cells[:, 1]))][0]
        branches = []
        for mode in range(len(self.modes.names)):
            branches.append(choice.copy())
            branches[-1][stage, microbatch] = mode
        return branches

    def corners(self) -> Iterator[IntArray]:
        """Yield one mode everywhere."""
        for mode in range(len(self.modes.names)):
            yield self.modes.of_stages([mode] * self.modes.shape[0])

    def starts(self) -> Iterator[IntArray]:
        """Yield one mode everywhere, then on the first stages only."""
        if self._has_variants:
            yield from self.modes.variants()
            return
        yield from self.corners()
        stages = range(self.modes.shape[0])
        for mode in range(1, len(self.modes.names)):
            for count in stages[1:]:
                yield self.modes.of_stages([mode if s < count else 0 for s in stages])

    def neighbours(self, choice: IntArray, draw: random.Random) -> list[IntArray]:
        """Return choices with another mode of one stage, or of some of its micro-batches."""
        if self._has_variants:
            return list(self.modes.variants())
        stages, microbatches = self.modes.shape
        is_free, k = self.modes.decide == "microbatch", np.arange(microbatches)
        rows = [k >= 0]
        if is_free:
            rows += [
                k % period >= kept for period in (2, 3, 4) for kept in range(1, period)
            ]
            rows += [k >= microbatches // 4, k >= microbatches // 2]
        near = []
        for stage in range(stages):
            for mode in range(len(self.modes.names)):
                alone = [k == draw.randrange(microbatches)] if is_free else []
                for row in [*rows, *alone]:
                    near.append(choice.copy())
                    near[-1][stage, row] = mode
        return near

    def kicked(self, choice: IntArray, draw: random.Random) -> IntArray:
        """Return a choice with other modes of two stages."""
        if self._has_variants:
            return draw.choice(list(self.modes.variants()))
        stages, moved = self.modes.shape[0], choice.copy()
        for stage in draw.sample(range(stages), min(stages, 2)):
            moved[stage] = draw.randrange(len(self.modes.names))
        return moved

    def allows(self, choice: IntArray) -> bool:
        """Whether those who decide may make the choice."""
        return choice.shape == self.modes.shape and self.modes.allows(choice)


class LayersDecision(Decision):
    """The layers of each type and stage, int64[types, S]."""

    field = CHOSEN_LAYERS

    def __init__(self, layers: Layers, stages: int) -> None:
        self.layers, self.stages = layers, stages
        self.least = layers.least(stages)
        self.open = np.full((len(layers.names), stages), UNDECIDED, dtype=np.int64)

    def branches(self, choice: IntArray) -> list[IntArray]:
        """Return a choice for all layers of the first open stage."""
        open_stages = np.flatnonzero(choice[0] == UNDECIDED)
        if not len(open_stages):
            return []
        stage, later = open_stages[0], open_stages[1:]
        left = self.layers.body.count - int(choice[choice != UNDECIDED].sum())
        most = left - int(self.least[later].sum())
        numbers = range(self.least[stage] if len(later) else left, most + 1)
        branches = []
        for number in numbers:
            types = range(len(self.layers.names))
            for members in combinations_with_replacement(types, number):
                branch = choice.copy()
                types_of = np.array(members, dtype=np.int64)
                branch[:, stage] = np.bincount(types_of, minlength=len(types))
                branches.append(branch)
        return branches

    def corners(self) -> Iterator[IntArray]:
        """Yield even splits with one type of layers."""
        even = self.layers.evenly(self.stages)
        for number in range(len(self.layers.names)):
            yield np.roll(even, number, axis=0)

    def neighbours(self, choice: IntArray, draw: random.Random) -> list[IntArray]:
        """Return splits in which a layer is elsewhere or of another type."""
        types, near = len(self.layers.names), []
        for _ in range(MOVES):
            source, target = draw.randrange(self.stages), draw.randrange(self.stages)
            types_there = np.flatnonzero(choice[:, source]).tolist()
            if not types_there:
                continue
            moved = choice.copy()
            moved[draw.choice(types_there), source] -= 1
            moved[draw.randrange(types), target] += 1
            if (moved.sum(axis=0) >= self.least).all():
                near.append(moved)
        return near

    def allows(self, choice: IntArray) -> bool:
        """Whether each stage has the layers that it needs, and all are there."""
        is_split = choice.shape == self.open.shape and (choice >= 0).all()
        total = choice.sum() == self.layers.body.count
        return bool(is_split and total and (choice.sum(axis=0) >= self.least).all())


class DevicesDecision(Decision):
    """The device of each filler that has a choice, int64[fillers], by place in its list.

    Other choices make other numbers of ops: fillers are told by their order alone.
    """

    field = CHOSEN_DEVICES

    def __init__(self, problem: FillerDevices) -> None:
        counts = [len(problem.covering[op]) + 1 for op in self.ops(problem)]
        self.counts = np.array(counts, dtype=np.int64)
        self.open = np.full(len(counts), UNDECIDED, dtype=np.int64)

    @staticmethod
    def ops(problem: FillerDevices) -> list[int]:
        """Return the fillers that have a choice, as ops of a problem."""
        return sorted(problem.covering)

    def options(self, problem: FillerDevices, choice: IntArray) -> IntArray:
        """Return the numbers of the options of a choice; open fillers take none."""
        pairs = zip(self.ops(problem), choice.tolist(), strict=True)
        numbers = [problem.covering[op][place - 1] for op, place in pairs if place > 0]
        return np.array(sorted(numbers), dtype=np.int64)

    def places(self, problem: FillerDevices, numbers: IntArray) -> IntArray:
        """Return the choice of some options."""
        chosen = set(numbers.tolist())
        places = [
            next((n + 1 for n, o in enumerate(problem.covering[op]) if o in chosen), 0)
            for op in self.ops(problem)
        ]
        return np.array(places, dtype=np.int64)

    def branches(self, choice: IntArray) -> list[IntArray]:
        """Return a choice for each device of the first open filler."""
        undecided = np.flatnonzero(choice == UNDECIDED)
        return self._elsewhere(choice, undecided[0]) if len(undecided) else []

    def _elsewhere(self, choice: IntArray, filler: int) -> list[IntArray]:
        branches = []
        for place in range(self.counts[filler]):
            branches.append(choice.copy())
            branches[-1][filler] = place
        return branches

    def corners(self) -> Iterator[IntArray]:
        """Yield the first device of each."""
        yield np.zeros_like(self.open)

    def neighbours(self, choice: IntArray, draw: random.Random) -> list[IntArray]:
        """Return choices with another device of one filler."""
        return [
            near
            for filler in range(len(self.counts))
            for near in self._elsewhere(choice, filler)
        ]

    def allows(self, choice: IntArray) -> bool:
        """Whether each filler is on one of its devices."""
        is_there = choice.shape == self.open.shape and (choice >= 0).all()
        return bool(is_there and (choice < self.counts).all())


class ReplicasDecision(Decision):
    """The replica of each micro-batch, int64[m]."""

    field = CHOSEN_REPLICAS

    def __init__(self, instance: PipelineInstance, replicas: Replicas) -> None:
        self.replicas = replicas
        self.first = replicas_of_members(first_members(instance))
        self.open = np.full(instance.num_microbatches, UNDECIDED, dtype=np.int64)

    def members(self, choice: IntArray) -> Members:
        """Return the micro-batches of each replica."""
        count = self.replicas.count
        return tuple(tuple(np.flatnonzero(choice == n).tolist()) for n in range(count))

    def branches(self, choice: IntArray) -> list[IntArray]:
        """Return a choice for each replica of the first open micro-batch.

        Replicas are alike: they are numbered by their first micro-batches.
        """
        undecided = np.flatnonzero(choice == UNDECIDED)
        if not len(undecided):
            return []
        branches = []
        for replica in range(min(int(choice.max()) + 2, self.replicas.count)):
            branch = choice.copy()
            branch[undecided[0]] = replica
            if len(undecided) > 1 or self.allows(branch):
                branches.append(branch)
        return branches

    def corners(self) -> Iterator[IntArray]:
        """Yield the first assignment."""
        yield self.first

    def neighbours(self, choice: IntArray, draw: random.Random) -> list[IntArray]:
        """Return assignments in which one micro-batch is elsewhere, or two are exchanged."""
        count, near = len(choice), []
        for _ in range(MOVES):
            a, b = draw.randrange(count), draw.randrange(count)
            moved = choice.copy()
            if draw.random() < 0.5:
                moved[[a, b]] = moved[[b, a]]
            else:
                moved[a] = draw.randrange(self.replicas.count)
            if self.allows(moved):
                near.append(moved)
        return near

    def allows(self, choice: IntArray) -> bool:
        """Whether the replicas may have these micro-batches."""
        if choice.shape != self.open.shape or (choice < 0).any():
            return False
        return fault(self.replicas, self.members(choice), len(choice)) is None


def replicas_of_members(members: Members) -> IntArray:
    """Return the replica of each micro-batch, int64[m]."""
    choice = np.zeros(sum(map(len, members)), dtype=np.int64)
    for replica, microbatches in enumerate(members):
        choice[list(microbatches)] = replica
    return choice


def decisions_of(
    instance: PipelineInstance, fillers: FillerDevices | None
) -> tuple[Decision, ...]:
    """Return the decisions of a pipeline, apart from orders and blocks.

    `fillers`: the devices of its fillers, where some have a choice.
    """
    decisions: list[Decision] = []
    if instance.layers is not None:
        decisions.append(LayersDecision(instance.layers, instance.num_stages))
    if instance.replicas is not None and instance.replicas.is_free:
        decisions.append(ReplicasDecision(instance, instance.replicas))
    modes = modes_of(instance)
    if modes is not None and modes.given is None:
        decisions.append(ModesDecision(modes))
    if fillers is not None:
        decisions.append(DevicesDecision(fillers))
    return tuple(decisions)
