"""Published choices of what to recompute or offload, each under a published order of ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.models.kinds.pipeline.entries import entry_at
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.labels import RECOMPUTE_KIND, RELOAD_KIND
from ppsolve.models.kinds.pipeline.modes import has_open_modes, modes_of
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.heuristic import (
    Heuristic,
    Proposal,
    Request,
    Requirement,
)
from ppsolve.solver.kinds.pipeline.actions import (
    Chains,
    Order,
    action_strings,
    gradient_after_weight,
    resolved,
)
from ppsolve.solver.kinds.pipeline.modes.problems import ModeProblems
from ppsolve.solver.kinds.pipeline.published import PUBLISHED

ORDERED_BY = ("1f1b", "interleaved-1f1b", "zbv")
"""The schedules under which modes are chosen: the first that applies to the placement."""

AHEAD = 2
"""Ops of a device before a backward after which its activation begins to come back."""


@dataclass(frozen=True)
class _OrderedChoice:
    schedule: Schedule
    orders: list[Order]
    overfull: tuple[int, ...]  # devices whose memory is exceeded


class OrderedModes:
    """Choices of modes of one pipeline, each timed under one order.

    `request`: the pipeline and its relaxed problem.
    `orders`: the order of each device; by default that of the first published schedule
        that applies.
    Raises `NotApplicableError`: no published order suits the placement.
    """

    def __init__(self, request: Request, orders: Sequence[Order] | None = None) -> None:
        instance: PipelineInstance = request.instance
        modes = modes_of(instance)
        assert modes is not None
        self.modes, self.problems = modes, ModeProblems(modes, request.problem.scale)
        self.orders: list[Order] = (
            _published(request) if orders is None else list(orders)
        )

    def timed(self, choice: IntArray, *, waits: bool = False) -> _OrderedChoice:
        """Time the order with a choice of modes.

        `choice`: int64[S, m].
        `waits`: recomputing waits for the gradient, as a part of the backward does.
        """
        if not self.modes.allows(choice):
            raise NotApplicableError(
                f"needs other decisions than by {self.modes.decide}"
            )
        problem = self.problems.problem(choice)
        known = resolved(problem, self.orders)
        chains = replace(
            known, ops=[_with_recomputing(problem, ops) for ops in known.ops]
        )
        edges = [_copies_back(problem, chains)]
        if waits:
            fused = gradient_after_weight(problem, known.inputs, known.weights)
            edges.append(
                _gradients(problem, (problem.before, problem.after, problem.lag))
            )
            edges.append(_gradients(problem, fused))
        schedule = chains.timed(problem, *edges)
        broken = check_schedule(problem, schedule)
        over = {violation.pool for violation in broken}
        devices = range(self.problems.instance.num_devices)
        overfull = tuple(d for d in devices if DeviceName("device", (d,)) in over)
        return _OrderedChoice(schedule, self.orders, overfull)

    @cached_property
    def times(self) -> Any:
        """Time that each mode takes to recompute, 0 of keeping: object[modes, S]."""
        stages, kept = range(self.modes.shape[0]), [0] * self.modes.shape[0]
        modes = map(self.modes.mode, self.modes.recomputing)
        return np.array(
            [kept, *([entry_at(m.time, s) for s in stages] for m in modes)], object
        )

    @cached_property
    def smallest(self) -> int:
        """The mode that recomputes and leaves the least in memory."""
        stages, held = range(self.modes.shape[0]), self.modes.held
        return min(
            self.modes.recomputing, key=lambda n: sum(held(s, n).sum() for s in stages)
        )

    @property
    def by_time(self) -> list[int]:
        """Keeping, then modes that recompute by the time that they take in all."""
        return [0, *sorted(self.modes.recomputing, key=lambda n: self.times[n].sum())]

    def everywhere(self, mode: int) -> IntArray:
        """Return the choice of one mode for all."""
        return np.full(self.modes.shape, mode, dtype=np.int64)


def _published(request: Request) -> list[Order]:
    known = (each for each in PUBLISHED if each.name in ORDERED_BY)
    base = next(
        (each for each in known if each.obstacle(request.instance) is None), None
    )
    if base is None or base.orders is None:
        raise NotApplicableError(f"needs a placement of {', '.join(ORDERED_BY)}")
    return base.orders(request)


def _with_recomputing(problem: Problem, ops: IntArray) -> IntArray:
    """Return the order of a device with each recomputation right before its backward."""
    found = np.stack((_needed(problem, RECOMPUTE_KIND)[ops], ops), axis=1).ravel()
    return np.extract(found != FREE, found)


def _needed(problem: Problem, kind: str) -> IntArray:
    # The op of a kind that each backward needs, int64[n]; FREE where there is none.
    needed = problem.grid(kind)[problem.stage, problem.microbatch]
    needed[~problem.kind_mask("I", "B")] = FREE
    return needed


def _gradients(problem: Problem, edges: Edges) -> Edges:
    """Return edges from what brings the gradient of each backward to its recomputation.

    `edges`: those to the backwards, among others.
    """
    before, after, lag = edges
    needed = _needed(problem, RECOMPUTE_KIND)[after]
    other = problem.stage[before] != problem.stage[after]
    chosen = (needed != FREE) & other
    return before[chosen], needed[chosen], lag[chosen]


def _copies_back(problem: Problem, chains: Chains) -> Edges:
    """Return edges that keep copies back until their backward is near, and in its order."""
    needed = _needed(problem, RELOAD_KIND)
    before, after, last = [], [], dict[int, int]()
    for ops in chains.ops:
        for number in np.flatnonzero(needed[ops] != FREE).tolist():
            back = int(needed[ops[number]])
            if number > AHEAD:
                before.append(int(ops[number - AHEAD - 1]))
                after.append(back)
            channel = int(problem.resources_of(back)[0])
            if (
                channel in last
                and problem.device[last[channel]] == problem.device[back]
            ):
                before.append(last[channel])
                after.append(back)
            last[channel] = back
    edges = np.array([before, after], dtype=np.int64).reshape(2, -1)
    return edges[0], edges[1], np.zeros(edges.shape[1], dtype=np.int64)


def _first_that_fits(
    asked: OrderedModes, choices: Iterable[IntArray]
) -> _OrderedChoice:
    for found in map(partial(asked.timed, waits=True), choices):
        if not found.overfull:
            break
    return found


def _recompute_window(asked: OrderedModes) -> _OrderedChoice:
    most = int(asked.modes.windows_of().max()) + 1
    kept = (
        asked.modes.in_window(asked.smallest, count) for count in range(most, -1, -1)
    )
    return _first_that_fits(asked, kept)


def _recompute_per_stage(asked: OrderedModes) -> _OrderedChoice:
    """Choose, device by device, the modes that take the least time and fit."""
    problem = asked.problems.problem(asked.everywhere(0))
    first = problem.grid("F")[:, 0]
    stages_of = [
        np.flatnonzero(problem.device[first] == d) for d in range(len(asked.orders))
    ]
    combinations = []
    for stages in stages_of:
        every = list(product(asked.by_time, repeat=len(stages)))
        times = asked.times[np.array(every), stages].sum(axis=1)
        combinations.append(
            [every[number] for number in np.argsort(times, kind="stable")]
        )
    place = [0] * len(combinations)
    while True:
        column = np.zeros(asked.modes.shape[0], dtype=np.int64)
        for stages, known, number in zip(stages_of, combinations, place, strict=True):
            column[stages] = known[number]
        found = asked.timed(asked.modes.of_stages(column.tolist()), waits=True)
        waiting = [d for d in found.overfull if place[d] + 1 < len(combinations[d])]
        if not waiting:
            return found
        for device in waiting:
            place[device] += 1


def _lifespans(asked: OrderedModes) -> tuple[IntArray, int]:
    # How long each activation is held where all are kept, and the time of a slot: the longest copy.
    kept = asked.timed(asked.everywhere(0)).schedule
    problem = kept.problem
    backward = problem.grid("I" if "I" in problem.kinds else "B")
    forward = problem.grid("F")
    offload = asked.modes.offload
    assert offload is not None
    ticks = problem.scale.ticks
    slot = max(
        ticks(entry_at(entry, stage))
        for entry in (offload.out, offload.back)
        for stage in range(asked.modes.shape[0])
    )
    span = kept.start[backward] - kept.end[forward] - problem.duration[backward]
    return span, slot


def _pipe_offload(asked: OrderedModes) -> _OrderedChoice:
    """Offload what is held for more than three pairs of slots."""
    span, slot = _lifespans(asked)
    long = span > 6 * slot
    if asked.modes.decide != "microbatch":
        long = np.broadcast_to(
            np.median(span, axis=1, keepdims=True) > 6 * slot, span.shape
        )
    return asked.timed(np.where(long, asked.modes.offloading, 0))


def _pipe_offload_longest(asked: OrderedModes) -> _OrderedChoice:
    """Offload what is held the longest, until it fits."""
    span, _ = _lifespans(asked)
    order = np.argsort(-np.median(span, axis=1), kind="stable")
    rank = np.argsort(order)[:, None]
    choices = (
        np.broadcast_to(np.where(rank < count, asked.modes.offloading, 0), span.shape)
        for count in range(len(order) + 1)
    )
    return _first_that_fits(asked, choices)


def _offload_first(asked: OrderedModes) -> _OrderedChoice:
    """Offload the first stages of every device, as few as fit."""
    devices = asked.problems.instance.num_devices
    chunks = np.arange(asked.modes.shape[0])[:, None] // devices
    choices = (
        np.broadcast_to(
            np.where(chunks < count, asked.modes.offloading, 0), asked.modes.shape
        )
        for count in range(int(chunks.max()) + 2)
    )
    return _first_that_fits(asked, choices)


OPEN = Requirement("memory modes that are open", has_open_modes)
RECOMPUTES = Requirement(
    "modes that recompute",
    lambda instance: (
        instance.memory is not None and instance.memory.recompute is not None
    ),
)
ANYTIME = Requirement(
    'recomputing with place "anytime"',
    lambda instance: instance.memory.recompute.place == "anytime",
)
OFFLOADS = Requirement(
    "offload",
    lambda instance: (
        instance.memory is not None and instance.memory.offload is not None
    ),
)


def _baseline(
    name: str,
    summary: str,
    choose: Callable[[OrderedModes], _OrderedChoice],
    source: str,
    *requirements: Requirement,
) -> Heuristic:
    def propose(request: Request) -> Proposal:
        found = choose(OrderedModes(request))
        return Proposal(found.schedule, action_strings(found.orders))

    return Heuristic(
        name,
        summary,
        propose,
        "open memory modes",
        (OPEN, *requirements),
        source=source,
    )


BASELINES = (
    _baseline(
        "keep-all",
        "every activation is kept",
        lambda asked: asked.timed(asked.everywhere(0)),
        "1F1B: Narayanan et al. 2021",
    ),
    _baseline(
        "recompute-full",
        "everything is recomputed before its backward",
        lambda asked: asked.timed(asked.everywhere(asked.smallest), waits=True),
        "Chen et al. 2016 (arXiv 1604.06174)",
        RECOMPUTES,
    ),
    _baseline(
        "recompute-block",
        "the same mode on every stage: the fastest that fits",
        lambda asked: _first_that_fits(asked, map(asked.everywhere, asked.by_time)),
        "Megatron-LM --recompute-method block",
        RECOMPUTES,
    ),
    _baseline(
        "recompute-window",
        "the first micro-batches of every window are kept, as many as fit",
        _recompute_window,
        "Megatron-LM num_microbatches_with_partial_activation_checkpoints",
        RECOMPUTES,
    ),
    _baseline(
        "recompute-per-stage",
        "each device recomputes what takes the least time and fits",
        _recompute_per_stage,
        "AdaPipe: Sun et al. 2024",
        RECOMPUTES,
    ),
    _baseline(
        "recompute-preponed",
        "everything is recomputed, in idle time before the gradient arrives",
        lambda asked: asked.timed(asked.everywhere(asked.smallest)),
        "Mario: Liu et al. 2025; MindSpeed recompute-in-bubble",
        RECOMPUTES,
        ANYTIME,
    ),
    _baseline(
        "pipe-offload",
        "what is held for long is offloaded",
        _pipe_offload,
        "PipeOffload: Wan et al. 2025",
        OFFLOADS,
    ),
    _baseline(
        "pipe-offload-longest",
        "what is held the longest is offloaded, until the rest fits",
        _pipe_offload_longest,
        "PipeOffload, longest lifespan first",
        OFFLOADS,
    ),
    _baseline(
        "offload-first",
        "the first chunks of every device are offloaded, as few as fit",
        _offload_first,
        "Megatron-LM fine-grained activation offloading",
        OFFLOADS,
    ),
)
"""Published choices of modes, in the order of reports."""
