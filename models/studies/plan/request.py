"""Requests for plans: a model profile, a cluster, and the configurations to choose from."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ppsolve.models.core.units import WithUnits
from ppsolve.models.documents.base import Number, StrictModel, Whole, error_at
from ppsolve.models.documents.contents import KINDS, refuse_others
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.documents.measures import Bandwidth, ByteCount, Time
from ppsolve.models.studies.goodput.files import GradFields
from ppsolve.models.studies.plan.profile import ModelProfile

MAX_DEVICES = 65_536
"""Larger clusters are refused: links are looked for replica by replica. It bounds time only."""


class RankOrder(StrEnum):
    """Which ranks are neighbours: the stages of one replica, or the replicas of one stage."""

    STAGES_FIRST = "stages_first"
    REPLICAS_FIRST = "replicas_first"


class Link(StrictModel):
    """A transfer takes `latency` + bytes / `bandwidth`, in time units and bytes per unit.

    Without `bandwidth` every transfer takes `latency`.
    """

    latency: Time[Number] = Field(default=0, validate_default=True)
    bandwidth: Bandwidth[Annotated[Number, Field(gt=0)]] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.bandwidth is None and "latency" not in self.model_fields_set:
            text = 'expected "bandwidth", "latency" or both'
            raise error_at((), text)
        return self

    def transfer(self, amount: Fraction) -> Fraction:
        """Return the time to send `amount` bytes."""
        latency = Fraction(self.latency)
        if self.bandwidth is None:
            return latency
        return latency + amount / Fraction(self.bandwidth)

    def ring_allreduce(self, amount: Fraction, members: int) -> Fraction:
        """Return the time of a ring all-reduce: 2 (n - 1) steps (Patarasuk and Yuan 2009).

        `amount`: bytes of every member; nothing takes no time.
        `members`: n, the size of the ring.
        """
        if members == 1 or not amount:
            return Fraction(0)
        return 2 * (members - 1) * self.transfer(amount / members)


class Cluster(StrictModel):
    """Equal devices in equal nodes.

    Parameters
    ----------
    nodes, devices_per_node : int
        Size of the cluster.
    memory : number, optional
        Bytes of each device; no limit by default.
    within_node, between_nodes : Link
        Transfers between stages. Several nodes need `between_nodes`.
    allreduce_within_node, allreduce_between_nodes : Link, optional
        Steps of a ring all-reduce; the links of transfers by default.
    gradient_buckets : str
        ``stage``: a stage all-reduces its gradients at once, after its last backward. ``layer``:
        those of each layer as soon as they exist, under the backward of the layers before it; only
        the rest after the last backward is charged.
    """

    nodes: Annotated[Whole, Field(ge=1, le=MAX_DEVICES)] = 1
    devices_per_node: Annotated[Whole, Field(ge=1, le=4096)]
    memory: ByteCount[Annotated[Number, Field(gt=0)]] | None = None
    within_node: Link
    between_nodes: Link | None = None
    allreduce_within_node: Link | None = None
    allreduce_between_nodes: Link | None = None
    gradient_buckets: Literal["stage", "layer"] = "stage"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.devices > MAX_DEVICES:
            text = f"expected at most {MAX_DEVICES} devices, got {self.devices}"
            raise InputError(text, field="cluster.nodes", code=ErrorCode.RANGE)
        if self.nodes > 1 and self.between_nodes is None:
            text = f"this field is required with {self.nodes} nodes"
            raise InputError(
                text, field="cluster.between_nodes", code=ErrorCode.MISSING
            )
        return self

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.nodes * self.devices_per_node

    def in_groups(self, size: int) -> Cluster:
        """Return the cluster whose devices are groups of neighbours; memory and links stay."""
        return self.model_copy(
            update={"devices_per_node": self.devices_per_node // size}
        )

    def orders_are_alike(self, depth: int, replicas: int) -> bool:
        """Whether it makes no difference which ranks are neighbours: one node, or one line."""
        return depth == 1 or replicas == 1 or depth * replicas <= self.devices_per_node

    def _rank(
        self, device: int, replica: int, shape: tuple[int, int], order: RankOrder
    ) -> int:
        # Ranks fill node by node; `shape` is pipeline depth and number of replicas.
        depth, replicas = shape
        if order is RankOrder.STAGES_FIRST:
            return replica * depth + device
        return device * replicas + replica

    def p2p(self, a: int, b: int, shape: tuple[int, int], order: RankOrder) -> Link:
        """Return the slowest link over all replicas between two pipeline devices.

        It is that between nodes, if the two are on different nodes in some replica.

        `shape`: pipeline depth and number of replicas.
        """
        crosses = any(
            self._node(self._rank(a, replica, shape, order))
            != self._node(self._rank(b, replica, shape, order))
            for replica in range(shape[1])
        )
        return self._link(crosses, self.within_node, self.between_nodes)

    def allreduce(self, device: int, shape: tuple[int, int], order: RankOrder) -> Link:
        """Return the link of the all-reduces of a pipeline device's replicas.

        It is that between nodes, if the replicas are on several.
        """
        ranks = (
            self._rank(device, replica, shape, order) for replica in range(shape[1])
        )
        crosses = len({self._node(rank) for rank in ranks}) > 1
        return self._link(
            crosses,
            self.allreduce_within_node or self.within_node,
            self.allreduce_between_nodes or self.between_nodes,
        )

    def _node(self, rank: int) -> int:
        return rank // self.devices_per_node

    def _link(self, crosses: bool, within: Link, between: Link | None) -> Link:
        return between if crosses and between is not None else within


REQUEST_SUFFIX = ".plan.json"
"""How files of requests are named where they lie among instances."""

Count = Annotated[Whole, Field(ge=1, le=10**9)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1, max_length=1000)]


class Statistics(StrictModel):
    """Worth of larger batches.

    Parameters
    ----------
    init_batch_size : int
        Batch size at which every sample counts fully; no plan has a smaller batch.
    max_batch_size : int, optional
        No plan has a larger batch.
    grad : GradFields, optional
        Without it every sample counts fully at every batch size: goodput is throughput.
    """

    init_batch_size: Count
    max_batch_size: Count | None = None
    grad: GradFields | None = None

    def efficiency(self, batch_size: int) -> float:
        """Return the worth of a sample at a batch size, as a share of that at the initial one."""
        if self.grad is None:
            return 1.0
        return float(self.grad.params.efficiency(batch_size / self.init_batch_size))

    @model_validator(mode="after")
    def _limits_leave_something(self) -> Self:
        if (
            self.max_batch_size is not None
            and self.max_batch_size < self.init_batch_size
        ):
            raise InputError(
                f"expected at least the initial batch size {self.init_batch_size}, "
                f"got {self.max_batch_size}",
                field="goodput.max_batch_size",
                code=ErrorCode.RANGE,
            )
        return self


class SearchSpace(StrictModel):
    """The configurations to choose from: all combinations of these lists that fit together.

    Parameters
    ----------
    pipeline_depths : list of int, optional
        Devices of one pipeline; by default the divisors of the number of devices up to the layers.
    replicas : list of int, optional
        Data-parallel copies; by default as many as the cluster has room for.
    placements : list of str
        ``linear``, ``interleaved``, ``vshape``, ``wave``.
    virtual_stages : list of int
        Stages per device of ``interleaved`` and ``wave``.
    microbatch_sizes : list of int, optional
        Samples of a micro-batch; those of the profile by default.
    batch_sizes, microbatches : list of int, optional
        Samples of a step over all replicas, or micro-batches of each replica; at most one of them.
        By default the initial batch size, doubled as long as the largest batch allows.
    rank_orders : list of str
        ``stages_first``, ``replicas_first``.
    backward : list of str, optional
        ``fused``, ``split``; by default as in the profile.
    layer_splits : list of str
        ``searched`` (any split), ``balanced`` (slowest device as fast as can be, exactly), ``even``
        (by number of layers).
    schedules : list of str, optional
        Names of heuristics that the runtime can run; without them any schedule.
    """

    pipeline_depths: Counts | None = None
    replicas: Counts | None = None
    placements: Annotated[
        tuple[Literal["linear", "interleaved", "vshape", "wave"], ...],
        Field(min_length=1),
    ] = ("linear",)
    virtual_stages: Annotated[
        tuple[Annotated[Count, Field(ge=2)], ...], Field(min_length=1)
    ] = (2,)
    microbatch_sizes: Counts | None = None
    batch_sizes: Counts | None = None
    microbatches: Counts | None = None
    rank_orders: Annotated[tuple[RankOrder, ...], Field(min_length=1)] = tuple(
        RankOrder
    )
    backward: (
        Annotated[tuple[Literal["fused", "split"], ...], Field(min_length=1)] | None
    ) = None
    layer_splits: Annotated[
        tuple[Literal["searched", "balanced", "even"], ...], Field(min_length=1)
    ] = ("searched",)
    schedules: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_way_to_count(self) -> Self:
        if self.batch_sizes is not None and self.microbatches is not None:
            text = 'expected either "batch_sizes" or "microbatches", not both'
            raise InputError(text, field="search.microbatches", code=ErrorCode.CONFLICT)
        return self


def _fixed_batch(fields: dict[str, Any]) -> Statistics:
    sizes = fields["search"].batch_sizes if "search" in fields else (1,)
    if sizes is None:
        text = 'this field is required without "batch_sizes" in "search"'
        raise InputError(text, field="goodput", code=ErrorCode.MISSING)
    return Statistics(init_batch_size=min(sizes))


class PlanRequest(WithUnits):
    """A model, a cluster, and what to choose from. All times share `time_unit`.

    Without `goodput` every sample counts fully, and `search` says the batch sizes. `variants` are
    profiles of the same model with other tensor parallelism or recomputation, which the plan
    chooses from too.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    kind: Literal["plan"] = "plan"
    name: str = "plan"
    description: str | None = None
    time_unit: Literal["ns", "us", "ms", "s"] = "us"
    model: ModelProfile
    variants: tuple[ModelProfile, ...] = ()
    cluster: Cluster
    search: SearchSpace = SearchSpace()
    goodput: Statistics = Field(default_factory=_fixed_batch)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_profiles()
        sizes = sorted(
            {size for profile in self.profiles for size in profile.microbatch_sizes}
        )
        for index, size in enumerate(self.search.microbatch_sizes or ()):
            if size not in sizes and all(
                profile.is_measured for profile in self.profiles
            ):
                text = f"expected a profiled size ({', '.join(map(str, sizes))}), got {size}"
                raise InputError(text, field=f"search.microbatch_sizes[{index}]")
        if "split" in (self.search.backward or ()) and not all(
            p.is_split for p in self.profiles
        ):
            text = '"split" needs "backward_input" and "backward_weight" in every layer'
            raise InputError(text, field="search.backward")
        self._check_depths()
        self._check_batch_sizes()
        return self

    @property
    def profiles(self) -> tuple[ModelProfile, ...]:
        """The model and its variants."""
        return (self.model, *self.variants)

    def alone(self, profile: ModelProfile) -> PlanRequest:
        """Return the request with one of its profiles; its devices are groups that share layers."""
        cluster = self.cluster.in_groups(profile.tensor_parallel)
        return self.model_copy(
            update={"model": profile, "variants": (), "cluster": cluster}
        )

    def _check_profiles(self) -> None:
        per_node, seen = self.cluster.devices_per_node, set[tuple[int, str]]()
        for index, profile in enumerate(self.profiles):
            path = f"variants[{index - 1}]" if index else "model"
            if per_node % profile.tensor_parallel:
                raise InputError(
                    f"expected a divisor of cluster.devices_per_node ({per_node}), got "
                    f"{profile.tensor_parallel}",
                    field=f"{path}.tensor_parallel",
                )
            if profile.num_layers != self.model.num_layers:
                raise InputError(
                    f"expected the {self.model.num_layers} layers of the model, got "
                    f"{profile.num_layers}",
                    field=f"{path}.layers",
                )
            if profile.variant in seen:
                raise InputError(
                    'expected a "tensor_parallel" or "recompute" that no profile before it has, '
                    f"got {profile.tensor_parallel} and {profile.recompute} again",
                    field=path,
                    code=ErrorCode.CONFLICT,
                )
            seen.add(profile.variant)

    def _check_depths(self) -> None:
        groups = self.cluster.devices // min(p.tensor_parallel for p in self.profiles)
        deepest = min(groups, self.model.num_layers)
        for index, depth in enumerate(self.search.pipeline_depths or ()):
            if depth > deepest:
                raise InputError(
                    f"expected at most {deepest} ({groups} devices, "
                    f"{self.model.num_layers} layers), got {depth}",
                    field=f"search.pipeline_depths[{index}]",
                    code=ErrorCode.RANGE,
                )

    def _check_batch_sizes(self) -> None:
        low, high = self.goodput.init_batch_size, self.goodput.max_batch_size
        for index, batch in enumerate(self.search.batch_sizes or ()):
            if batch < low or (high is not None and batch > high):
                limits = f"at least {low}" if high is None else f"{low} to {high}"
                text = f"expected a batch size of {limits}, got {batch}"
                raise InputError(
                    text, field=f"search.batch_sizes[{index}]", code=ErrorCode.RANGE
                )


def parse_request(data: Any, source: str | None = None) -> PlanRequest:
    """Validate parsed JSON as a request, with all defaults.

    Parameters
    ----------
    data : Any
        The document: an object, as ``json.loads`` returns it.
    source : str, optional
        Name of the file that it is from, for errors.

    Returns
    -------
    PlanRequest
        The request.

    Raises
    ------
    InputError
        Names `source`, the field and what would be right.
    """
    refuse_others(data, "a request for a plan", KINDS["plan"], source)
    return PlanRequest.parse(data, source)


def load_request(path: str | Path) -> PlanRequest:
    """Read a request from a file (``-``: standard input); errors as in `parse_request`."""
    return parse_request(read_json(path), source_name(path))
