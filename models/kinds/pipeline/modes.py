"""Memory modes: whether each activation is kept, recomputed or offloaded, and who decides that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np
from pydantic import BeforeValidator, Field, WithJsonSchema

from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.base import StrictModel, Whole, describe
from ppsolve.models.documents.errors import did_you_mean
from ppsolve.models.documents.measures import MemoryAmount, Time
from ppsolve.models.kinds.pipeline.entries import (
    PerDevice,
    PerStage,
    entry_at,
)
from ppsolve.models.kinds.pipeline.pools import stored_of

if TYPE_CHECKING:
    from ppsolve.models.kinds.pipeline.fields import Memory
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance

KEEP, OFFLOAD = "keep", "offload"

CHOSEN_MODES = "modes"
"""Key of modes in the choices of a problem, int64[S, m]."""

RELAXED = -1
"""Stands for a mode that is open: the time of the cheapest mode and the memory of the smallest."""


def group_sizes(ranks: int, microbatches: int) -> list[int]:
    """Return the sizes of groups that Megatron-LM runs: from p to m, the last one not below p."""
    sizes = range(ranks, microbatches + 1)
    return [size for size in sizes if not 0 < microbatches % size < ranks]


FreeDecision = Literal["all", "stage", "window", "microbatch"]

DECISIONS: tuple[str, ...] = get_args(FreeDecision)


def _decision(value: Any) -> Any:
    if isinstance(value, list | tuple):
        rows = tuple(tuple(row) if isinstance(row, list) else row for row in value)
        if all(map(_is_stage_decision, rows)):
            return rows
    elif value in DECISIONS:
        return value
    hint = did_you_mean(value, DECISIONS) if isinstance(value, str) else ""
    raise ValueError(
        f"expected one of {', '.join(DECISIONS)}, or a list with the mode of each stage (a name, "
        f"or one per micro-batch), got {describe(value)}{hint}"
    )


def _is_stage_decision(row: Any) -> bool:
    """Whether an item is a name, or has one for each micro-batch."""
    names = row if isinstance(row, tuple) else (row,)
    return all(isinstance(name, str) for name in names)


StageDecisions = tuple[str | tuple[str, ...], ...]
"""The mode of each stage: a name for all micro-batches, or one for each."""

_STAGE_SCHEMA = {
    "anyOf": [{"type": "string"}, {"items": {"type": "string"}, "type": "array"}]
}

Decision = Annotated[
    FreeDecision | StageDecisions,
    BeforeValidator(_decision),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(DECISIONS), "type": "string"},
                {"items": _STAGE_SCHEMA, "type": "array"},
            ]
        }
    ),
]
"""Who shares a mode: all, the micro-batches of a stage, a window of them, none; or the modes."""


class RecomputeMode(StrictModel):
    """A way to recompute a part of the activation of a stage.

    Parameters
    ----------
    name : str
        Its name, other than ``keep`` and ``offload``.
    time : number or list
        Time to recompute, per stage.
    held : number or list
        What stays in memory from the end of the forward until it is recomputed, per stage.
    """

    name: Annotated[str, Field(min_length=1, max_length=60)]
    time: Time[PerStage]
    held: MemoryAmount[PerStage] = Field(default=0, validate_default=True)


class Recompute(StrictModel):
    """Modes that recompute activations, besides keeping them.

    Parameters
    ----------
    modes : list of RecomputeMode
        At least one.
    decide : str or list of str
        ``all``: one mode everywhere. ``stage``: one for each stage. ``window``: micro-batch k of a
        stage uses the mode iff k mod (warm-up + 1) >= n, with one n for all (Megatron-LM's
        ``num_microbatches_with_partial_activation_checkpoints``). ``microbatch``: one for each
        stage and micro-batch. A list has the given mode of each stage, or a list with one for each
        of its micro-batches.
    place : str
        ``before_backward``: the backward takes longer by the time. ``anytime``: an op R between
        forward and backward, which needs no gradient.
    """

    modes: Annotated[tuple[RecomputeMode, ...], Field(min_length=1)]
    decide: Decision = "stage"
    place: Literal["before_backward", "anytime"] = "before_backward"


class Offload(StrictModel):
    """Copies of activations to the host and back, besides keeping them.

    Parameters
    ----------
    amount : number or list
        What leaves the device, per stage.
    out, back : number or list
        Times of the two copies, per stage.
    links : list of lists of int, optional
        Devices that share a copy channel; by default each device has its own.
    duplex : bool
        A channel copies both ways at once; else it copies one way at a time.
    host_capacity : number or list, optional
        Host memory for the activations of each device; without a limit by default.
    decide : str or list of str
        As of `Recompute`.
    """

    amount: MemoryAmount[PerStage]
    out: Time[PerStage]
    back: Time[PerStage]
    links: tuple[tuple[Whole, ...], ...] | None = None
    duplex: bool = True
    host_capacity: MemoryAmount[PerDevice] | None = None
    decide: Decision = "stage"


@dataclass(frozen=True)
class MemoryModes:
    """The modes of a pipeline: ``keep`` first, those that recompute, ``offload`` last.

    A choice of modes is an array int64[S, m] of numbers of modes.
    """

    instance: PipelineInstance
    recompute: Recompute | None
    offload: Offload | None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Name of each mode."""
        recomputing = () if self.recompute is None else self.recompute.modes
        offloading = () if self.offload is None else (OFFLOAD,)
        return (KEEP, *(mode.name for mode in recomputing), *offloading)

    @property
    def decide(self) -> str | StageDecisions:
        """Who shares a mode."""
        settings = self.recompute or self.offload
        assert settings is not None
        return settings.decide

    @property
    def is_anytime(self) -> bool:
        """Whether recomputing is an op of its own."""
        return self.recompute is not None and self.recompute.place == "anytime"

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of stages and micro-batches (S, m)."""
        return self.instance.num_stages, self.instance.num_microbatches

    @property
    def recomputing(self) -> range:
        """Numbers of the modes that recompute."""
        return range(
            1, 1 + (0 if self.recompute is None else len(self.recompute.modes))
        )

    @property
    def offloading(self) -> int:
        """Number of the mode that offloads, no number of a mode without one."""
        return len(self.names) - (self.offload is not None)

    def mode(self, number: int) -> RecomputeMode:
        """Return a mode that recomputes."""
        assert self.recompute is not None
        return self.recompute.modes[number - 1]

    @property
    def has_windows(self) -> bool:
        """Whether the first micro-batches of windows may be kept, and the others not."""
        return self.decide in {"window", "microbatch"}

    def windows_of(self, group_size: int | None = None) -> IntArray:
        """Return the place of each micro-batch in its window, int64[S, m].

        Megatron-LM counts the forwards of a device, over all of its stages, modulo its warm-up
        forwards + 1. Where devices have several stages, groups of as many micro-batches as devices
        run through a chunk before the next ones, or of another size.
        """
        stages, microbatches = self.shape
        devices = self.instance.num_devices
        chunks, size = stages // devices, group_size or devices
        position = np.zeros(self.shape, dtype=np.int64)
        for stage in range(stages):
            chunk, rank = divmod(stage, devices)
            k = np.arange(microbatches)
            warmup, count = devices - rank - 1, k
            if chunks > 1:
                warmup = 2 * (devices - rank - 1) + (chunks - 1) * size
                group, within = np.divmod(k, size)
                members = np.minimum(size, microbatches - group * size)
                count = group * size * chunks + chunk * members + within
            position[stage] = count % (min(warmup, microbatches * chunks) + 1)
        return position

    def in_window(
        self, mode: int, kept: int, group_size: int | None = None
    ) -> IntArray:
        """Return the choice that keeps so many first micro-batches of each window, int64[S, m].

        All others have the mode of the number.
        """
        return np.where(self.windows_of(group_size) >= kept, mode, 0)

    def of_stages(self, modes: Sequence[int]) -> IntArray:
        """Return the choice of one mode for each stage, int64[S, m]."""
        column = np.asarray(modes, dtype=np.int64)[:, None]
        return np.broadcast_to(column, self.shape)

    @property
    def relaxed(self) -> IntArray:
        """The choice that leaves everything open."""
        return np.full(self.shape, RELAXED, dtype=np.int64)

    @property
    def given(self) -> IntArray | None:
        """The choice that the instance gives, None where modes are open."""
        if isinstance(self.decide, str):
            return None
        choice = np.zeros(self.shape, dtype=np.int64)
        for stage, entry in enumerate(self.decide):
            row = entry if isinstance(entry, tuple) else (entry,)
            choice[stage] = [self.names.index(name) for name in row]
        return choice

    def variants(self) -> Iterator[IntArray]:
        """Yield every choice where one mode, or one mode and one window, is used everywhere."""
        if self.decide == "all":
            for mode in range(len(self.names)):
                yield np.full(self.shape, mode, dtype=np.int64)
        elif self.decide == "window":
            yield np.zeros(self.shape, dtype=np.int64)
            for kept in range(int(self.windows_of().max()), -1, -1):
                yield from (
                    self.in_window(mode, kept) for mode in range(1, len(self.names))
                )

    def allows(self, choice: IntArray) -> bool:
        """Whether those who decide may make a choice, int64[S, m]."""
        if self.given is not None:
            return np.array_equal(choice, self.given)
        if self.decide == "stage":
            return bool((choice == choice[:, :1]).all())
        if self.decide == "microbatch":
            return True
        return any(np.array_equal(choice, variant) for variant in self.variants())

    def as_names(self, choice: IntArray) -> tuple[str | tuple[str, ...], ...]:
        """Return the modes of a choice by name: per stage one, or one per micro-batch."""
        rows = [tuple(self.names[number] for number in row) for row in choice.tolist()]
        return tuple(row[0] if len(set(row)) == 1 else row for row in rows)

    def held(self, stage: int, number: int) -> Any:
        """Return the amount that a mode leaves in memory after a forward of a stage.

        There is one fraction for all micro-batches, or one for each.
        """
        memory = self.instance.memory
        assert memory is not None
        stored = stored_of(memory, stage)
        if number in self.recomputing:
            return np.full_like(stored, entry_at(self.mode(number).held, stage))
        if self.offload is not None and number == self.offloading:
            return stored - entry_at(self.offload.amount, stage)
        return stored

    def rest(self, stage: int, number: int) -> Any:
        """Return the amount that leaves memory of a stage in a mode: fractions as of `held`."""
        return self.held(stage, 0) - self.held(stage, number)

    def channels(self, device: int) -> tuple[DeviceName, DeviceName]:
        """Return the channels out of a device and back; one where not duplex."""
        assert self.offload is not None
        link = next(
            (devices for devices in self.offload.links or () if device in devices),
            (device,),
        )
        if self.offload.duplex:
            return DeviceName("copy out", link), DeviceName("copy in", link)
        return DeviceName("copy", link), DeviceName("copy", link)

    @staticmethod
    def host(device: int) -> DeviceName:
        """Return the host memory of a device."""
        return DeviceName("host of device", (device,))


def modes_of(instance: PipelineInstance) -> MemoryModes | None:
    """Return the modes of a pipeline, None where every activation is kept."""
    if not instance.has_modes:
        return None
    numbers = instance.in_numbers()
    memory = numbers.memory
    assert memory is not None
    return MemoryModes(numbers, memory.recompute, memory.offload)


def has_open_modes(instance: PipelineInstance) -> bool:
    """Whether it is open which activations are kept."""
    modes = modes_of(instance)
    return modes is not None and modes.given is None


def choice_of(modes: MemoryModes, document: Any) -> tuple[IntArray, str | None]:
    """Return the choice of modes that a document claims, and in words what is wrong with the claim.

    Its field ``modes`` has a name for each stage, or a list with one for each micro-batch. The
    choice is int64[S, m]; everything is kept where the claim is none.
    """
    stages, microbatches = modes.shape
    kept = np.zeros(modes.shape, dtype=np.int64) if modes.given is None else modes.given
    claim = document.get("modes") if isinstance(document, dict) else None
    if claim is None:
        wrong = (
            None
            if modes.given is not None
            else f"expected the mode of each of {stages} stages"
        )
        return kept, wrong
    if not isinstance(claim, list | tuple) or len(claim) != stages:
        return (
            kept,
            f"expected the mode of each of {stages} stages, got {describe(claim)}",
        )
    choice = np.zeros(modes.shape, dtype=np.int64)
    for stage, entry in enumerate(claim):
        row = entry if isinstance(entry, list | tuple) else [entry] * microbatches
        if len(row) != microbatches:
            return (
                kept,
                f"expected {microbatches} modes for stage {stage}, got {len(row)}",
            )
        unknown = [name for name in row if name not in modes.names]
        if unknown:
            listed = ", ".join(modes.names)
            return (
                kept,
                f"expected one of {listed} for stage {stage}, got {describe(unknown[0])}",
            )
        choice[stage] = [modes.names.index(name) for name in row]
    if not modes.allows(choice):
        return (
            kept,
            f"expected modes as decided ({decision_in_words(modes.decide)}), got others",
        )
    return choice, None


def decision_in_words(decide: str | StageDecisions) -> str:
    """Return who decides, in words."""
    return decide if isinstance(decide, str) else "given for each stage"


def with_decision(memory: Memory, decide: str | StageDecisions) -> Memory:
    """Return memory whose modes are decided so."""
    update = {
        field: modes.model_copy(update={"decide": decide})
        for field in ("recompute", "offload")
        if (modes := getattr(memory, field)) is not None
    }
    return memory.model_copy(update=update)


def with_members(memory: Memory, members: Sequence[int]) -> Memory:
    """Return memory with the given modes of some micro-batches alone."""
    modes = memory.recompute or memory.offload
    if modes is None or isinstance(modes.decide, str):
        return memory
    decide = tuple(
        tuple(entry[number] for number in members)
        if isinstance(entry, tuple)
        else entry
        for entry in modes.decide
    )
    return with_decision(memory, decide)


def modes_violations(modes: MemoryModes, document: Any) -> list[Violation]:
    """Check the modes that a document claims: at most one violation, of the rule ``modes``."""
    _, wrong = choice_of(modes, document)
    return [] if wrong is None else [Violation("modes", wrong, ())]
