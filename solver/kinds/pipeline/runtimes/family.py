"""The schedules that a runtime runs, as one object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import KEPT, Layers
from ppsolve.models.kinds.pipeline.modes import MemoryModes, modes_of
from ppsolve.solver.kinds.pipeline.actions import Order
from ppsolve.solver.kinds.pipeline.grammar import ComputeStep
from ppsolve.solver.kinds.pipeline.layers.rules import (
    FULL,
    RecomputeRule,
    first_rules,
    whole_rules,
)
from ppsolve.solver.kinds.pipeline.programs.communications import Ends
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape, shape_of
from ppsolve.solver.kinds.pipeline.programs.waited import Programs

Rows = Sequence[Sequence[ComputeStep]]
"""The steps of each rank, in order."""


@dataclass(frozen=True, eq=False)
class FixedOrder:
    """One order that a runtime runs."""

    words: str  # the settings that make the runtime run it
    orders: Sequence[Order]  # of each rank
    group_size: int | None = (
        None  # micro-batches that run through a chunk before the next one
    )
    is_combined: bool = False  # whether forwards are launched together with backwards


@dataclass(frozen=True, eq=False)
class WaitRule:
    """One way in which the ranks of a runtime post transfers and wait for them."""

    words: str  # of the setting that says so, empty where none does
    named: Mapping[str, str]  # the same for programs
    # takes an order of the runtime; returns what each rank runs
    programs: Callable[[PipelineShape, FixedOrder], Programs]


@dataclass(frozen=True)
class RuntimeFamily:
    """The schedules that a runtime runs."""

    name: str  # what ``--for`` and ``--to`` say
    title: str  # the name in sentences
    # takes the shape and `title`; returns why no schedule of such a pipeline can be run, or None
    fits: Callable[[PipelineShape, str], str | None]
    # the orders that are run, of runtimes that run few; None where any order may be run that keeps
    # the rules
    orders: Callable[[PipelineShape], Iterable[FixedOrder]] | None = None
    rule: Callable[[PipelineShape], str] = lambda _: (
        "any order"
    )  # what they are, in words
    # takes rows, shape and `title`; returns the first rule that the rows break, or None
    breaks: Callable[[Rows, PipelineShape, str], str | None] = lambda *_: None
    # which stages may recompute: each with a mode of its own, all with one mode, or none
    recomputes: Literal["stage", "all", "none"] = "none"
    has_windows: bool = (
        False  # whether it may keep the first micro-batches of each window
    )
    # takes the name of a mode; returns why no file of the runtime says it, or None
    unknown: Callable[[str], str | None] = lambda _: None
    # whether modes of such names are not tried, where modes are open; else they are refused
    leaves_out_unknown: bool = False
    # of pipelines whose layers are shared out, which layers of a stage may recompute: any by any
    # type, any as a whole, all stages by one rule (all layers or the first ones of each stage), or
    # all layers of all stages; None where it shares layers out itself
    recomputes_layers: Literal["any", "whole", "first", "all"] | None = "any"

    # each way in which ranks wait for transfers, the default one first, of runtimes of few orders
    waits: Callable[[PipelineShape], Sequence[WaitRule]] | None = None
    # whether waits take no longer than delays: ranks may post a receive when its data are sent
    waits_as_delays: bool = False
    # what ranks run of a program that computes, of runtimes that add transfers to it by themselves
    row_programs: Callable[[Rows], Programs] | None = None
    # what ranks run of a program whose transfers `export` adds, by the ends of its ops
    timed_programs: Callable[[Rows, Ends], Programs] | None = None

    @property
    def is_finite(self) -> bool:
        """Whether all its orders can be tried."""
        return self.orders is not None

    def obstacle(self, instance: PipelineInstance) -> str | None:
        """Return in words why no schedule of a pipeline can be run, or None if some can."""
        try:
            wrong = self.fits(shape_of(instance), self.title)
        except InputError as error:
            return f"{error.field}: {error.message}"
        modes = modes_of(instance)
        if wrong is None and instance.p2p.is_waited_for:
            wrong = self._obstacle_to_waits(instance)
        if wrong is None and instance.layers is not None:
            wrong = self._obstacle_to_layers(instance)
        if wrong is not None or modes is None:
            return wrong
        if modes.is_anytime and self.recomputes != "none" and not self.is_finite:
            return f'modes: {self.title} recomputes right before a backward, the place is "anytime"'
        if self.is_finite and not instance.has_whole_ops:
            return (
                f"modes: for {self.title} they are not timed beside collectives inside ops; "
                "expected activations that are kept"
            )
        unknown = self._unknown_of("modes", self._names_in(modes))
        if unknown is not None or modes.given is None:
            return unknown
        return self.refused_modes(modes, modes.given)

    def _names_in(self, modes: MemoryModes) -> list[str]:
        """Return the names of recomputing modes that a choice may have."""
        numbers = [*modes.recomputing] if self.recomputes != "none" else []
        if modes.given is None and self.leaves_out_unknown:
            return []
        if modes.given is not None:
            numbers = [number for number in numbers if number in modes.given]
        return [modes.names[number] for number in numbers]

    def _unknown_of(self, field: str, names: Iterable[str]) -> str | None:
        wrong = next(filter(None, map(self.unknown, names)), None)
        return None if wrong is None else f"{field}: {self.title} {wrong}"

    def _obstacle_to_waits(self, instance: PipelineInstance) -> str | None:
        if self.waits_as_delays:
            return None
        known = (self.waits, self.row_programs, self.timed_programs)
        if not any(known):
            return (
                f"p2p.mode: where ranks of {self.title} wait for transfers is not known"
            )
        fields = ("layers", "collectives") if self.is_finite else ("collectives",)
        for field in fields:
            if getattr(instance, field) is not None:
                return (
                    f"{field}: for {self.title} they are not timed where ranks wait for transfers "
                    "(p2p.mode)"
                )
        return None

    def _obstacle_to_layers(self, instance: PipelineInstance) -> str | None:
        if self.recomputes_layers is None:
            return f"layers: {self.title} shares them out evenly by itself"
        for field in ("overlap", "collectives"):
            if getattr(instance, field) is not None:
                return (
                    f"layers: for {self.title} a split is not searched beside {field}; expected "
                    "times of stages"
                )
        # Of all layers the model says what is recomputed, whatever the name of their one type.
        if self.recomputes_layers in {"whole", "all"} or instance.layers is None:
            return None
        return self._unknown_of("layers", instance.layers.names[1:])

    def refused_modes(self, modes: MemoryModes, choice: IntArray) -> str | None:
        """Return in words which stage has modes that the runtime cannot have, or None.

        `modes`: the modes of a pipeline.
        `choice`: int64[S, m], a choice of them.
        """
        has_windows = self.has_windows and modes.has_windows
        for stage, row in enumerate(choice):
            if modes.offloading in row:
                return (
                    f"modes: stage {stage} offloads, which {self.title} cannot be told"
                )
            if self.recomputes == "none" and row.any():
                return f"modes: stage {stage} recomputes, which {self.title} cannot be told"
            if not has_windows and (row != row[0]).any():
                return f"modes: {self.title} recomputes all micro-batches of stage {stage} or none"
            if self.recomputes == "all" and not has_windows and row[0] != choice[0, 0]:
                return f"modes: {self.title} has one mode for all stages, stage {stage} another"
        return None

    def rules(self, layers: Layers, stages: int) -> Iterator[RecomputeRule]:
        """Yield the rules by which a runtime of few orders recomputes layers.

        `stages`: stages that share the layers out.
        """
        yield from whole_rules(layers)
        if self.recomputes_layers == "first":
            yield from first_rules(layers, stages)

    def refused_layers(self, layers: Layers, counts: IntArray) -> str | None:
        """Return in words which stage recomputes what the runtime cannot be told, or None.

        `counts`: int64[types, S], a split of the layers, of a runtime of free orders.
        """
        for number, name in enumerate(layers.names):
            stages = np.flatnonzero(counts[number])
            if self._can_be(name) or not len(stages):
                continue
            return (
                f"layers: {self.title} recomputes whole layers ({FULL}), stage {stages[0]} has "
                f"layers of {name}"
            )
        return None

    def _can_be(self, name: str) -> bool:
        return self.recomputes_layers != "whole" or name in {KEPT, FULL}

    def narrowed(self, instance: PipelineInstance) -> PipelineInstance:
        """Return a pipeline without what a runtime of free orders cannot be told to choose."""
        layers = instance.layers
        if layers is not None:
            types = tuple(kind for kind in layers.recompute if self._can_be(kind.name))
            layers = layers.model_copy(update={"recompute": types})
            return instance.model_copy(update={"layers": layers})
        memory, modes = instance.memory, modes_of(instance)
        if memory is None or modes is None or modes.given is not None:
            return instance
        recompute = None if self.recomputes == "none" else memory.recompute
        if recompute is not None:
            decide = "all" if recompute.decide in {"all", "window"} else "stage"
            recompute = recompute.model_copy(update={"decide": decide})
        kept = memory.model_copy(update={"recompute": recompute, "offload": None})
        return instance.model_copy(update={"memory": kept})

    def order_of(self, rows: Rows, shape: PipelineShape) -> FixedOrder | None:
        """Return the one of its orders that a program is in, None where any order is run.

        `rows`: the steps of each rank.
        `shape`: the pipeline of the program.
        Raises `InputError`: the runtime cannot run the program; names the rule and the
            first op that breaks it.
        """
        wrong = self.fits(shape, self.title) or self.breaks(rows, shape, self.title)
        if wrong is not None:
            raise InputError(wrong, field="schedule", code=ErrorCode.UNSUPPORTED)
        if self.orders is None:
            return None
        latest, found = (-1, -1), ""
        for order in self.orders(shape):
            place, found_here = _first_difference(rows, order.orders)
            if place is None:
                return order
            if place > latest:
                latest, found = place, found_here
        text = f"order: {self.title} runs {self.rule(shape)}; {found}"
        raise InputError(text, field="schedule")


def _first_difference(
    rows: Rows, orders: Sequence[Order]
) -> tuple[tuple[int, int] | None, str]:
    for rank, (row, order) in enumerate(zip(rows, orders, strict=True)):
        for place, (step, wanted) in enumerate(zip_longest(row, order)):
            if step != wanted:
                text = f"rank {rank} runs {step} at place {place}, not {wanted}"
                return (rank, place), text
    return None, ""
