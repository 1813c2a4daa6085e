"""The scheduling problem to which every kind of instance is lowered: arrays of integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.core.keys import DeviceName, JoinedOps, OpKey
from ppsolve.models.core.timescale import TimeScale

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

FREE = -1
"""Marks an op without a pinned start, or a label (stage, device, micro-batch) that is absent."""

LABELS = ("stage", "device", "microbatch", "replica", "piece", "step")
COLUMNS = ("duration", "kind", "release", "pinned", "weight", *LABELS)
"""Fields of a problem with a number for each op; some problems lack some of them."""


def unit_name(unit: int, slices: int) -> str:
    """Return the end of the names of ops: ``.3``, or ``.3.1`` for slice 1 of micro-batch 3.

    The unit counts slices over all micro-batches.
    """
    return f".{unit}" if slices == 1 else ".{}.{}".format(*divmod(unit, slices))


def _none() -> IntArray:
    return np.zeros(0, dtype=np.int64)


class Objective(StrEnum):
    """The figure of a schedule that is minimised."""

    MAKESPAN = "makespan"
    DEVICE_SPAN = "device_span"
    COMPLETION = "completion"
    """Sum of weighted ends; used inside the program, no instance may ask for it."""
    ITERATIONS = "iterations"
    """Iterations of a pipeline until K-FAC work is done; for K-FAC instances only."""


ScheduleObjective = Literal[Objective.MAKESPAN, Objective.DEVICE_SPAN]
"""Objectives of pipeline and graph instances."""


@dataclass(frozen=True, eq=False)
class Pool:
    """A memory pool: ops acquire amounts at their start and release amounts at their end."""

    key: DeviceName
    capacity: Fraction  # exact, as all amounts
    initial: Fraction  # in use before any op (static bytes)
    amounts: tuple[Fraction, ...]  # distinct
    acquire_op: IntArray  # int64[a], op of every acquire
    acquire_amount: IntArray  # int64[a], index into `amounts`
    release_op: IntArray  # int64[r], op of every release
    release_amount: IntArray  # int64[r], index into `amounts`
    unit: str = ""  # of all amounts, where it is declared

    @classmethod
    def of(
        cls,
        key: DeviceName,
        capacity: Fraction,
        acquires: Sequence[tuple[int, Fraction]],
        releases: Sequence[tuple[int, Fraction]],
        initial: Fraction = Fraction(0),
        unit: str = "",
    ) -> Pool:
        """Return a pool of (op, amount) pairs; amounts are numbered as they are met."""
        distinct = dict.fromkeys(amount for _, amount in (*acquires, *releases))
        index = {amount: number for number, amount in enumerate(distinct)}

        def column(values: Iterable[int]) -> IntArray:
            return np.array(list(values), dtype=np.int64)

        return cls(
            key=key,
            capacity=capacity,
            initial=initial,
            amounts=tuple(index),
            acquire_op=column(op for op, _ in acquires),
            acquire_amount=column(index[amount] for _, amount in acquires),
            release_op=column(op for op, _ in releases),
            release_amount=column(index[amount] for _, amount in releases),
            unit=unit,
        )

    def used_by(
        self,
        acquires: Sequence[tuple[int, Fraction]],
        releases: Sequence[tuple[int, Fraction]],
    ) -> Pool:
        """Return this pool with other (op, amount) pairs."""
        return self.of(
            self.key, self.capacity, acquires, releases, self.initial, self.unit
        )

    @property
    def name(self) -> str:
        """Its name as users see it, e.g. ``device 0``."""
        return str(self.key)

    @property
    def limit(self) -> Fraction:
        """Largest amount that may be in use, allowed excess included."""
        return most_in_use(self.capacity)


def most_in_use(capacity: Fraction) -> Fraction:
    """Return the capacity and an excess of 1e-9 of it, for amounts that were rounded to doubles."""
    return capacity + capacity / 10**9


@dataclass(frozen=True, eq=False)
class Problem:
    """Ops, resources, precedences and memory pools, all as integer arrays.

    n ops, k precedences, R resources. Times are in ticks of `scale`.

    Parameters
    ----------
    name : str
        Name of the instance.
    scale : TimeScale
        Meaning of one tick.
    objective : Objective
        Figure to minimise.
    duration : int64[n]
        Duration of each op, >= 0.
    resources : tuple of DeviceName
        Key of each of the R resources. A resource holds one op at a time.
    resource_ptr : int64[n + 1]
        Op j occupies ``resource_idx[resource_ptr[j]:resource_ptr[j + 1]]`` while it runs.
    resource_idx : int64[...]
        Resource numbers, see `resource_ptr`.
    before, after, lag : int64[k]
        start(after) >= end(before) + lag.
    release, pinned : int64[n]
        Earliest start of each op; its fixed start, or `FREE`.
    pools : tuple of Pool
        Memory pools.
    families : tuple of int64[members, length]
        Interchangeable op vectors: rows may be permuted without changing any rule (alike
        micro-batches). Every op is in at most one family.
    span_resources : int64[...]
        Resources whose spans count for the device span (compute streams), in device order.
    kinds : tuple of str
        Names of op kinds.
    kind, stage, device, microbatch : int64[n]
        Labels of each op (`kind` indexes `kinds`), `FREE` where absent.
    explicit_names : mapping of int to str
        Names of the ops that are not called by their keys:
        ``<kind><stage>.<micro-batch>.<slice>/<piece>@<step>``, without what they do not have.
    windows : mapping of int to int64[w, 2]
        Ops that may start within one of w closed intervals only, sorted and disjoint.
    weight : int64[n]
        Weights of the ends for the objective `COMPLETION`.
    points : int64[...]
        Ops of duration zero that keep their place on their resources: none runs across them.
    replica : int64[n] or int64[0]
        Replica of each op, where there are several.
    piece, step : int64[n] or int64[0]
        Piece of an op that is cut into several (else `FREE`), and step of several ones. A point
        that belongs to a node or a buffer of a program has the number of that for its piece.
    joined : mapping of int to JoinedOps
        Ops that run several as one, and what these are.
    choices : mapping of str to int64[...]
        What was chosen where more than orders is open, by the field of documents that says it.
    slices : int
        Slices of each micro-batch; `microbatch` counts them: slice j of micro-batch i is the unit
        i x slices + j.
    """

    name: str
    scale: TimeScale
    objective: Objective
    duration: IntArray
    resources: tuple[DeviceName, ...]
    resource_ptr: IntArray
    resource_idx: IntArray
    before: IntArray
    after: IntArray
    lag: IntArray
    release: IntArray
    pinned: IntArray
    pools: tuple[Pool, ...]
    families: tuple[IntArray, ...]
    span_resources: IntArray
    kinds: tuple[str, ...]
    kind: IntArray
    stage: IntArray
    device: IntArray
    microbatch: IntArray
    explicit_names: Mapping[int, str] = field(repr=False)
    windows: Mapping[int, IntArray] = field(default_factory=dict, repr=False)
    weight: IntArray = field(default_factory=_none, repr=False)
    points: IntArray = field(default_factory=_none, repr=False)
    replica: IntArray = field(default_factory=_none, repr=False)
    piece: IntArray = field(default_factory=_none, repr=False)
    step: IntArray = field(default_factory=_none, repr=False)
    joined: Mapping[int, JoinedOps] = field(default_factory=dict, repr=False)
    choices: Mapping[str, IntArray] = field(default_factory=dict, repr=False)
    slices: int = 1

    def chosen(self, field: str) -> IntArray:
        """Return the choice of a field, int64[0] where there is none."""
        return self.choices.get(field, _none())

    @property
    def num_ops(self) -> int:
        """Number of ops n."""
        return len(self.duration)

    @property
    def num_resources(self) -> int:
        """Number of resources R."""
        return len(self.resources)

    @cached_property
    def resource_names(self) -> tuple[str, ...]:
        """Name of each resource as users see it."""
        return tuple(map(str, self.resources))

    @property
    def is_anchored(self) -> bool:
        """True if a release time, a pinned start or a window fixes time 0."""
        is_given = (self.release > 0) | (self.pinned != FREE)
        return bool(is_given.any() or self.windows)

    @property
    def tick_error(self) -> int:
        """Ticks by which the optimum may exceed that of the given times; 0 if nothing is rounded.

        Let every op keep the place among the others that it has in an optimal schedule of the given
        times, wherever it waits for the end of one of them: by precedence, resource or memory. That
        order is one on ticks too, and it lasts as long as its longest chain. A chain holds each op
        once, with its duration and the lag before it, and one release time; each is less than a
        tick longer than given. The same holds for the device span: the chains of all devices that
        shift each other form cycles, and those hold each op once. Pinned starts have no such bound.
        """
        if self.scale.is_exact:
            return 0
        delayed = np.unique(self.after[self.lag > 0])
        released = int(np.any(self.release > 0))
        return int(np.count_nonzero(self.duration)) + len(delayed) + released

    def op_name(self, op: int) -> str:
        """Return the name of an op, made on demand from its labels."""
        return self.op_names([op])[0]

    def op_names(self, ops: Sequence[int] | IntArray) -> list[str]:
        """Return the names of several ops."""
        indices = np.asarray(ops, dtype=np.int64)
        beginnings, endings = self._parts_of_names
        labels = (
            label[indices].tolist()
            for label in (self.kind, self.stage, self.microbatch)
        )
        names = [
            beginnings[kind][stage] + endings[microbatch]
            for kind, stage, microbatch in zip(*labels, strict=True)
        ]
        for mark, column, lowest in (("/", self.piece, 0), ("@", self.step, 1)):
            if len(column):
                names = [
                    f"{name}{mark}{number}" if number >= lowest else name
                    for name, number in zip(
                        names, column[indices].tolist(), strict=True
                    )
                ]
        explicit = self.explicit_names
        if not explicit:
            return names
        return [
            explicit.get(op, name)
            for op, name in zip(indices.tolist(), names, strict=True)
        ]

    def op_keys(self, ops: Sequence[int] | IntArray) -> list[OpKey]:
        """Return the keys of several ops: what they are, whatever their piece and step."""
        indices = np.asarray(ops, dtype=np.int64)
        labels = (self.kind, self.stage, self.device, self.microbatch)
        rows = zip(*(label[indices].tolist() for label in labels), strict=True)
        return [OpKey(self.kinds[kind], *position) for kind, *position in rows]

    @cached_property
    def _parts_of_names(self) -> tuple[list[list[str]], list[str]]:
        stages = (*range(int(self.stage.max(initial=FREE)) + 1), FREE)
        beginnings = [[f"{kind}{stage}" for stage in stages] for kind in self.kinds]
        microbatches = range(int(self.microbatch.max(initial=FREE)) + 1)
        return beginnings, [
            *(unit_name(unit, self.slices) for unit in microbatches),
            "",
        ]

    @cached_property
    def numbers(self) -> dict[str, IntArray]:
        """Labels of the ops as documents have them, int64[n] each: micro-batches, then slices."""
        columns = {"stage": self.stage, "device": self.device}
        columns["microbatch"] = self.microbatch // self.slices
        if self.slices > 1:
            columns["slice"] = np.where(
                self.microbatch < 0, FREE, self.microbatch % self.slices
            )
        return columns | ({"replica": self.replica} if len(self.replica) else {})

    def resources_of(self, op: int) -> IntArray:
        """Return the resources that op number `op` occupies."""
        return self.resource_idx[self.resource_ptr[op] : self.resource_ptr[op + 1]]

    def share_resource(self, ops: IntArray) -> bool:
        """Whether all ops occupy one common resource, or there are none."""
        if not len(ops):
            return True
        candidates = self.resources_of(int(ops[0])).tolist()
        return any(
            bool(np.isin(ops, self.ops_by_resource[r]).all()) for r in candidates
        )

    @cached_property
    def ops_by_resource(self) -> tuple[IntArray, ...]:
        """Ops that occupy each resource, in op order."""
        owner = np.repeat(np.arange(self.num_ops), np.diff(self.resource_ptr))
        order = np.argsort(self.resource_idx, kind="stable")
        bounds = np.searchsorted(
            self.resource_idx[order], np.arange(self.num_resources + 1)
        )
        return tuple(np.split(owner[order], bounds[1:-1])[: self.num_resources])

    @cached_property
    def holds_place(self) -> BoolArray:
        """Ops that keep others off their resources (a duration > 0, or a point), bool[n]."""
        mask = self.duration > 0
        mask[self.points] = True
        return mask

    @cached_property
    def is_compute(self) -> BoolArray:
        """Ops on a resource whose span counts (a compute stream), bool[n]."""
        mask = np.zeros(self.num_ops, dtype=np.bool_)
        for resource in self.span_resources:
            mask[self.ops_by_resource[int(resource)]] = True
        return mask

    def kind_mask(self, *names: str) -> BoolArray:
        """Return a mask of the ops of the named kinds, bool[n]."""
        numbers = [index for index, name in enumerate(self.kinds) if name in names]
        return np.isin(self.kind, numbers)

    def by_place(self, *names: str) -> dict[tuple[int, int], IntArray]:
        """Return the ops of the named kinds by stage and device, in op order."""
        ops = np.flatnonzero(self.kind_mask(*names))
        ops = ops[np.lexsort((self.device[ops], self.stage[ops]))]
        stage, device = self.stage[ops], self.device[ops]
        cuts = (
            np.flatnonzero((stage[1:] != stage[:-1]) | (device[1:] != device[:-1])) + 1
        )
        groups = np.split(ops, cuts) if len(ops) else []
        return {
            (int(self.stage[group[0]]), int(self.device[group[0]])): group
            for group in groups
        }

    def grid(self, kind: str) -> IntArray:
        """Return op numbers of `kind` as ``int64[stages, micro-batches]``, `FREE` where absent."""
        ops = np.flatnonzero(self.kind_mask(kind) & (self.microbatch != FREE))
        shape = (
            int(self.stage.max(initial=-1)) + 1,
            int(self.microbatch.max(initial=-1)) + 1,
        )
        table = np.full(shape, FREE, dtype=np.int64)
        table[self.stage[ops], self.microbatch[ops]] = ops
        return table
