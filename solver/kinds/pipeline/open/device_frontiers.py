"""Bounds on modes of stages, device by device: each alone with its memory, others as delays.

What the modes of other devices change is how long a row is away. So the chain of a device is made
once for each choice of its own modes, and its optimum is kept by the delays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.models.kinds.pipeline.modes import CHOSEN_MODES
from ppsolve.solver.bounds.frontier import least_end
from ppsolve.solver.bounds.frontier_chains import (
    ChainColumns,
    chain_of,
    device_ops,
    to_release,
)
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.kernels.frontier import DeviceChain
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.kinds.pipeline.choice_bounds import INFEASIBLE
from ppsolve.solver.kinds.pipeline.open.decisions import ModesDecision
from ppsolve.solver.kinds.pipeline.open.space import PipelineSpace
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder

Modes = tuple[int, ...]  # of the stages of a device


class KeptEnd(NamedTuple):
    """A bound on a chain in ticks, 0 where its optimum is within a floor."""

    bound: int
    floor: int


class ModeChain(NamedTuple):
    """The chain of a device with modes of its own, where no other device recomputes.

    `between`: other stages whose backwards lie between each op and the next one, and
        last those behind the last one.
    """

    chain: DeviceChain
    between: list[list[int]]
    delays_ops: bool

    def delayed(self, more: IntArray) -> DeviceChain:
        """Return the chain with longer delays, in ticks for each entry of `between`."""
        chain = self.chain
        delay = chain.delay + np.append(more[:-1], 0)
        to_end = chain.to_end + np.cumsum(more[::-1])[::-1]
        tail = to_end[-1:] - chain.duration[-1]
        gives = chain.to_release == chain.duration
        return chain._replace(
            delay=delay,
            to_end=to_end,
            to_release=to_release(delay, chain.duration, gives),
            tail=tail,
            loose_tail=np.minimum(chain.loose_tail, tail)
            if (chain.load > chain.work).any()
            else tail,
        )


class DeviceFrontiers:
    """The largest optimum of a device alone, for modes of which some are open."""

    def __init__(self, space: PipelineSpace, decision: ModesDecision) -> None:
        self._space, self.decision = space, decision
        self._devices = decision.stages_of_devices()
        self._chains: dict[Modes, dict[int, ModeChain]] = {}
        self._ends: dict[tuple[int, Modes, tuple[int, ...]], KeptEnd] = {}
        self.steps = 0

    def bound(self, choice: IntArray, floor: int, upper: int) -> int:
        """Return a bound in ticks on all schedules of modes, int64[S, m].

        It is the floor where no device proves more; none is looked at once one proves as much as
        the upper bound.
        """
        modes = choice[:, 0].tolist()
        for number, stages in enumerate(self._devices):
            own = tuple(modes[stage] for stage in stages)
            if floor >= upper or min(own) < 0:
                continue
            chain = self._of_modes(own).get(number)
            if chain is not None:
                more = tuple(self._more(chain, modes).tolist())
                floor = max(floor, self._end(number, own, more, floor, upper))
        return floor

    def _end(
        self, number: int, own: Modes, more: tuple[int, ...], floor: int, upper: int
    ) -> int:
        key = number, own, more
        kept = self._ends.get(key)
        if kept is not None and (kept.bound or kept.floor <= floor):
            return kept.bound
        of_modes = self._chains[own][number]
        chain = of_modes.delayed(np.array(more))
        load = chain.members * int(chain.load.sum()) + int(chain.loose_tail[0])
        work = chain.members * int(chain.work.sum()) + int(chain.tail[0])
        bound = int(chain.heads[0]) + max(load, work)
        if bound < upper and of_modes.delays_ops:
            answer = least_end(chain, max(floor, bound))
            self.steps += answer.steps
            if answer.bound == NEVER:
                answer = answer._replace(bound=INFEASIBLE)
            bound = max(bound, answer.bound)
        kept = KeptEnd(bound if bound > floor else 0, floor)
        self._ends[key] = kept
        return kept.bound

    @cached_property
    def _open(self) -> Problem:
        return self._space.relaxed(self._space.open)

    @cached_property
    def _heads(self) -> IntArray:
        return Relaxations(ImpliedOrder(self._open)).strong_heads

    @cached_property
    def _longer(self) -> IntArray:
        """Ticks that each mode adds to the backward of a stage, int64[modes, S]."""
        stages = len(self._open.grid("F"))
        longer = np.zeros((len(self.decision.modes.names), stages), dtype=np.int64)
        usual = _backwards(self._open)
        for mode in range(len(longer)):
            modes = self.decision.modes.of_stages([mode] * stages)
            problem = self._space.problem({CHOSEN_MODES: modes})
            longer[mode] = problem.duration[_backwards(problem)]
            longer[mode] -= self._open.duration[usual]
        return longer

    def _of_modes(self, own: Modes) -> dict[int, ModeChain]:
        """Return the chains of all devices whose stages have these modes, in their order."""
        if own not in self._chains:
            self._chains[own] = {}
            modes = np.zeros(len(self._open.grid("F")), dtype=np.int64)
            for stages in self._devices:
                modes[stages] = own[: len(stages)]
            choice = self.decision.modes.of_stages(modes.tolist())
            problem = self._space.problem({CHOSEN_MODES: choice})
            try:
                self._make(problem, modes, own)
            except MemoryInfeasible:
                self._chains[own] = {}
        return self._chains[own]

    def _make(self, problem: Problem, modes: IntArray, own: Modes) -> None:
        """Note the chains of all devices in a problem of whole modes."""
        relaxations, stages = Relaxations(ImpliedOrder(problem)), len(modes)
        backward = _backwards(problem)
        for device in device_ops(relaxations):
            ops = problem.families[device.family][0]
            is_last = [bool(ops[c.index] in backward) for c in device.columns.chain]
            if not any(is_last):  # copies to a host
                continue
            last = len(is_last) - is_last[::-1].index(True)
            columns, rest = device.columns.chain[:last], device.columns.chain[last:]
            behind = [(last - 1, column) for column in rest]
            loose = ChainColumns(columns, [*behind, *device.columns.loose])
            chain = chain_of(relaxations, [device._replace(columns=loose)])
            if chain is None:
                continue
            ops = ops[[column.index for column in columns]]
            here = problem.stage[ops]
            place = np.where(np.isin(ops, backward), 2 * stages - 1 - here, here)
            between = [
                [s for s in range(stages) if first < 2 * stages - 1 - s < second]
                for first, second in pairwise([*place.tolist(), 2 * stages])
            ]
            kinds = [problem.kinds[kind] for kind in problem.kind[ops]]
            grids = [
                self._open.grid(kind)[s] for kind, s in zip(kinds, here, strict=True)
            ]
            chain = chain._replace(heads=self._heads[np.stack(grids, axis=1)].ravel())
            made = ModeChain(chain, between, device.delays_ops)
            bare = made.delayed(-self._more(made, modes.tolist()))
            number = self._devices.index(sorted(set(here.tolist())))
            self._chains[own][number] = made._replace(chain=bare)

    def _more(self, made: ModeChain, modes: Sequence[int]) -> IntArray:
        """Return the ticks that modes add to each entry of `between`."""
        return np.array(
            [
                sum(int(self._longer[modes[s], s]) for s in part if modes[s] > 0)
                for part in made.between
            ]
        )


def _backward_kind(problem: Problem) -> str:
    return "I" if "I" in problem.kinds else "B"


def _backwards(problem: Problem) -> IntArray:
    """Return the backward of each stage of the first micro-batch, as ops."""
    return problem.grid(_backward_kind(problem))[:, 0]


def device_frontiers(space: PipelineSpace) -> DeviceFrontiers | None:
    """Return bounds by single devices, None where more than a mode of each stage is open."""
    if space.fields != (CHOSEN_MODES,) or space.instance.overlap is not None:
        return None
    decision = space.decision(CHOSEN_MODES)
    assert isinstance(decision, ModesDecision)
    modes = decision.modes
    if (
        modes.decide != "stage"
        or modes.is_anytime
        or not space.instance.has_whole_ops
        or space.base.objective is not Objective.MAKESPAN
        or len(space.base.families) != 1
    ):
        return None
    return DeviceFrontiers(space, decision)
