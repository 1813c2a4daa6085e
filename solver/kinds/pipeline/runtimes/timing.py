"""Every schedule of a runtime that runs few orders: each order with each choice of modes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import CHOSEN_LAYERS, split_by
from ppsolve.models.kinds.pipeline.modes import CHOSEN_MODES, MemoryModes, modes_of
from ppsolve.models.kinds.pipeline.replicas import RuntimeFigures
from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request
from ppsolve.solver.kinds.pipeline.actions import Order
from ppsolve.solver.kinds.pipeline.adapters import adapted
from ppsolve.solver.kinds.pipeline.collectives import WITH_COLLECTIVES
from ppsolve.solver.kinds.pipeline.layers.rules import RecomputeRule
from ppsolve.solver.kinds.pipeline.modes.baselines import OrderedModes
from ppsolve.solver.kinds.pipeline.programs.shape import shape_of
from ppsolve.solver.kinds.pipeline.programs.waited import Programs, run_by
from ppsolve.solver.kinds.pipeline.published import A_PIPELINE, StaticOrders
from ppsolve.solver.kinds.pipeline.runtimes.family import FixedOrder, RuntimeFamily
from ppsolve.solver.kinds.pipeline.runtimes.recomputing import stands_beside_blocks


@dataclass(frozen=True, eq=False)
class RuntimeSettings:
    """One way to run a pipeline."""

    words: str  # unlike those of every other one
    named: dict[str, Any]  # the same for programs: as in `RuntimeFigures`
    orders: Sequence[Order]  # of each rank
    choice: IntArray | None = (
        None  # mode of each stage and micro-batch, where they have modes
    )
    rule: RecomputeRule | None = (
        None  # layers that recompute, where they are shared out
    )
    waits: str = ""  # how ranks wait for transfers, in words
    # what each rank runs, where ranks wait for transfers
    programs: Callable[[], Programs] | None = None

    def timed(self, instance: PipelineInstance, problem: Problem) -> Schedule:
        """Start each op as early as the orders allow, as the runtime does.

        `problem`: its problem, or that of any modes.
        Raises `DeadlockError`: the orders, or ranks and transfers, wait for each other.
        """
        schedule = self._without_waits(instance, problem)
        if self.programs is None:
            return schedule
        return run_by(self.programs(), schedule, instance)

    def _without_waits(self, instance: PipelineInstance, problem: Problem) -> Schedule:
        if instance.layers is not None:
            instance = split_by(instance, problem.chosen(CHOSEN_LAYERS))
        request = Request(instance.by_rank(), problem)
        if self.choice is not None:
            found = OrderedModes(request, self.orders).timed(self.choice, waits=True)
            return found.schedule.normalised()
        static = StaticOrders(lambda _, __: list(self.orders))
        heuristic = Heuristic(self.words, "", static, A_PIPELINE)
        proposal: Proposal = adapted(heuristic, WITH_COLLECTIVES).propose(request)
        return proposal.schedule.normalised()

    def refused(self, choices: Mapping[str, IntArray]) -> str | None:
        """Return in words which choices of a problem are not those of the settings, or None."""
        modes, counts = choices.get(CHOSEN_MODES), choices.get(CHOSEN_LAYERS)
        if self.choice is not None and (
            modes is None or not np.array_equal(modes, self.choice)
        ):
            return "the modes are others"
        if counts is None or self.rule is None:
            return None
        wanted = self.rule.counts(counts.sum(axis=0), len(counts))
        if np.array_equal(counts, wanted):
            return None
        return "other layers recompute"


def settings_of(
    family: RuntimeFamily, instance: PipelineInstance
) -> Iterator[RuntimeSettings]:
    """Yield every way in which a runtime of few orders runs a pipeline.

    `instance`: a pipeline to which it has no obstacle.
    Yields: orders by the size of groups, with each choice of modes, or with each rule by which
        layers recompute, whatever their split.
    """
    assert family.orders is not None
    shape = shape_of(instance)
    waits = family.waits if instance.p2p.is_waited_for else None
    for order in family.orders(shape):
        if waits is None:
            yield from _choosing(family, instance, order)
            continue
        for rule in waits(shape):
            for settings in _choosing(family, instance, order):
                yield replace(
                    settings,
                    words=", ".join(filter(None, (settings.words, rule.words))),
                    named={**settings.named, **rule.named},
                    waits=rule.words,
                    programs=partial(rule.programs, shape, order),
                )


def _choosing(
    family: RuntimeFamily, instance: PipelineInstance, order: FixedOrder
) -> Iterator[RuntimeSettings]:
    """Yield an order with each choice of modes, or with each rule of recomputing layers."""
    modes, layers = modes_of(instance), instance.layers
    named: dict[str, Any] = (
        {} if order.group_size is None else {"group_size": order.group_size}
    )
    named |= {"combined": True} if order.is_combined else {}
    if layers is not None:
        for rule in family.rules(layers, instance.num_stages):
            words = f"{order.words}, {rule.words}"
            yield RuntimeSettings(words, named | rule.named, order.orders, rule=rule)
        return
    if modes is None:
        yield RuntimeSettings(order.words, named, order.orders)
        return
    for words, more, choice in _choices(family, modes, order):
        yield RuntimeSettings(
            f"{order.words}, {words}", named | more, order.orders, choice
        )


def series_of(settings: Iterable[RuntimeSettings]) -> Iterator[list[RuntimeSettings]]:
    """Yield the windows of each order and mode by the micro-batches kept, any other one alone."""
    for _, series in groupby(
        settings, lambda each: {**each.named, "kept": "kept" in each.named}
    ):
        yield list(series)


def keeping_more_is_faster(instance: PipelineInstance, problem: Problem) -> bool:
    """Whether under one order what keeps more takes no longer, and fits where more is kept.

    Backwards become shorter, so that no op starts later: starts are longest paths, without links
    or streams that serve first come, first served. Memory is in use by the order of a rank's ops,
    where all of them take time, and keeping holds as much as any mode between its ops.

    `instance`: a pipeline with modes.
    `problem`: its problem with open modes.
    """
    modes = modes_of(instance)
    assert modes is not None
    is_longest_path = not instance.p2p.has_ops and instance.allreduce is None
    is_longest_path &= (
        instance.collectives is None and problem.objective is Objective.MAKESPAN
    )
    stages = range(modes.shape[0])
    has_less = all(
        (modes.rest(s, n) >= 0).all() for s in stages for n in modes.recomputing
    )
    return bool(
        is_longest_path and has_less and problem.duration[problem.is_compute].all()
    )


def figures_of(
    family: RuntimeFamily, instance: PipelineInstance, words: str
) -> RuntimeFigures:
    """Return the settings of these words as a document has them.

    `words`: words of some of its settings.
    """
    named = next(
        each.named for each in settings_of(family, instance) if each.words == words
    )
    return RuntimeFigures(name=family.name, settings=named, order=words)


def _choices(
    family: RuntimeFamily, modes: MemoryModes, order: FixedOrder
) -> Iterator[tuple[str, dict[str, Any], IntArray]]:
    recomputing = [] if family.recomputes == "none" else [*modes.recomputing]
    if family.leaves_out_unknown:
        recomputing = [n for n in recomputing if family.unknown(modes.names[n]) is None]
    if order.is_combined:
        recomputing = [n for n in recomputing if stands_beside_blocks(modes.names[n])]
    if modes.given is not None:
        if not set(np.unique(modes.given)) - {0, modes.offloading, *recomputing}:
            yield "the given modes", {}, modes.given
        return
    for mode in (0, *recomputing):
        choice = modes.of_stages([mode] * modes.shape[0])
        yield f"all stages {modes.names[mode]}", {"mode": modes.names[mode]}, choice
    if not family.has_windows or not modes.has_windows:
        return
    # Windows that an instance asks for are those of the usual groups, whatever the order.
    size = None if modes.decide == "window" else order.group_size
    for mode in recomputing:
        name = modes.names[mode]
        for kept in range(1, int(modes.windows_of(size).max()) + 1):
            words = f"{name} but for the first {kept} of each window"
            yield words, {"mode": name, "kept": kept}, modes.in_window(mode, kept, size)
