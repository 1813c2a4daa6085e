"""Builds a problem from blocks of ops and precedences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import FREE, IntArray, Objective, Pool, Problem
from ppsolve.models.core.timescale import TimeScale


def _none() -> IntArray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class OpLabels:
    """Labels of a block of ops: ints, or int64 arrays that broadcast to the block's shape."""

    stage: Any = FREE
    device: Any = FREE
    microbatch: Any = FREE
    piece: Any = FREE
    step: Any = FREE


@dataclass
class ProblemBuilder:
    """Collects blocks of ops and precedences and assembles a `Problem`.

    Blocks are arrays: lowering a pipeline costs a few numpy calls. The fields are those of the
    problem; set them at any time before `build`.
    """

    name: str
    scale: TimeScale
    objective: Objective = Objective.MAKESPAN
    span_resources: Sequence[int] | IntArray = ()
    pools: Sequence[Pool] = ()
    families: Sequence[IntArray] = ()
    explicit_names: dict[int, str] = field(default_factory=dict)
    windows: dict[int, IntArray] = field(default_factory=dict)
    weight: IntArray = field(default_factory=_none)
    points: Sequence[int] | IntArray = ()
    choices: dict[str, IntArray] = field(default_factory=dict)
    slices: int = 1

    def __post_init__(self) -> None:
        """Begin with an empty block, so that no column is missing, and no precedences."""
        self._num_ops = 0
        self._blocks: list[dict[str, IntArray]] = []
        self._edges: list[tuple[IntArray, ...]] = []
        self._resources: list[DeviceName] = []
        self._kinds: list[str] = []
        self.add_ops(_none(), _none(), _none().reshape(0, 0))
        self.add_precedences(_none(), _none())

    def add_resource(self, key: DeviceName) -> int:
        """Add a resource and return its number."""
        self._resources.append(key)
        return len(self._resources) - 1

    def kind_number(self, name: str) -> int:
        """Return the number of a kind of op, which is added if it is new."""
        if name not in self._kinds:
            self._kinds.append(name)
        return self._kinds.index(name)

    def add_ops(
        self,
        kind: str | IntArray,
        duration: IntArray,
        resources: IntArray,
        labels: OpLabels | None = None,
        *,
        release: Any = 0,
        pinned: Any = FREE,
    ) -> IntArray:
        """Add a block of ops in the shape of `duration`; return their numbers, in C order.

        The kind is one of all ops of the block, or each one's `kind_number`. Each op has a row of
        resources, of which entries of `FREE` are skipped. Earliest starts, `release`, and fixed
        ones, `pinned`, are broadcast to the block.
        """
        labels = labels or OpLabels()
        shape, size = duration.shape, duration.size

        def flat(values: Any) -> IntArray:
            return np.broadcast_to(np.asarray(values, dtype=np.int64), shape).reshape(
                size
            )

        width = resources.shape[-1]
        table = np.broadcast_to(resources, (*shape, width)).reshape(size, width)
        self._blocks.append(
            {
                "duration": flat(duration),
                "resource_count": (table != FREE).sum(axis=1),
                "resource_idx": table[table != FREE],
                "kind": flat(self.kind_number(kind) if isinstance(kind, str) else kind),
                "stage": flat(labels.stage),
                "device": flat(labels.device),
                "microbatch": flat(labels.microbatch),
                "piece": flat(labels.piece),
                "step": flat(labels.step),
                "release": flat(release),
                "pinned": flat(pinned),
            }
        )
        ops = np.arange(self._num_ops, self._num_ops + size, dtype=np.int64).reshape(
            shape
        )
        self._num_ops += size
        return ops

    def add_precedences(self, before: Any, after: Any, lag: Any = 0) -> None:
        """Add start(after) >= end(before) + lag for arrays of ops, broadcast together."""
        arrays = (np.asarray(values, dtype=np.int64) for values in (before, after, lag))
        self._edges.append(
            tuple(array.ravel() for array in np.broadcast_arrays(*arrays))
        )

    def build(self) -> Problem:
        """Return the problem; resources and kinds are numbered in the order of their addition."""
        keys = self._blocks[0]
        columns = {
            key: np.concatenate([block[key] for block in self._blocks]) for key in keys
        }
        for key in ("piece", "step"):
            columns[key] = columns[key] if (columns[key] != FREE).any() else _none()
        before, after, lag = map(np.concatenate, zip(*self._edges, strict=True))
        pointer = np.concatenate(
            ([0], np.cumsum(columns.pop("resource_count")))
        ).astype(np.int64)
        values = {
            attribute.name: getattr(self, attribute.name) for attribute in fields(self)
        } | columns
        for name in ("span_resources", "points"):
            values[name] = np.asarray(values[name], dtype=np.int64)
        values |= {"pools": tuple(self.pools), "families": tuple(self.families)}
        return Problem(
            resources=tuple(self._resources),
            resource_ptr=pointer,
            before=before,
            after=after,
            lag=lag,
            kinds=tuple(self._kinds),
            **values,
        )
