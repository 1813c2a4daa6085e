"""Clusters for plans: nodes, devices, memory and links with latency and bandwidth."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ppsolve.models.documents.base import Number, StrictModel, Whole
from ppsolve.models.documents.errors import InputError

MAX_DEVICES = 65_536
"""Larger clusters are refused: links are looked for replica by replica. It bounds time only."""


class RankOrder(StrEnum):
    """Which ranks are neighbours: the stages of one replica, or the replicas of one stage."""

    STAGES_FIRST = "stages_first"
    REPLICAS_FIRST = "replicas_first"


class Link(StrictModel):
    """What a transfer takes: `latency` + bytes / `bandwidth`, in time units and bytes per unit."""

    latency: Number = Field(default=0, validate_default=True)
    bandwidth: Annotated[Number, Field(gt=0)]

    def transfer(self, amount: Fraction) -> Fraction:
        """Return the time to send `amount` bytes."""
        return Fraction(self.latency) + amount / Fraction(self.bandwidth)

    def ring_allreduce(self, amount: Fraction, members: int) -> Fraction:
        """Return the time of a ring all-reduce: 2 (n - 1) steps of bytes / n each; 0 of nothing.

        Parameters
        ----------
        amount : Fraction
            Bytes that every member has.
        members : int
            Members n of the ring (Patarasuk and Yuan 2009).

        Returns
        -------
        Fraction
            In the time unit of the link.
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
        Transfers between stages. `between_nodes` is needed where there are several nodes.
    allreduce_within_node, allreduce_between_nodes : Link, optional
        Steps of a ring all-reduce; the links of transfers by default.
    gradient_buckets : str
        ``stage``: the gradients of a stage are all-reduced at once, after its last backward.
        ``layer``: those of each layer as soon as they are there, under the backward of the layers
        before it; what is left after the last backward is charged.
    """

    nodes: Annotated[Whole, Field(ge=1, le=MAX_DEVICES)] = 1
    devices_per_node: Annotated[Whole, Field(ge=1, le=4096)]
    memory: Annotated[Number, Field(gt=0)] | None = None
    within_node: Link
    between_nodes: Link | None = None
    allreduce_within_node: Link | None = None
    allreduce_between_nodes: Link | None = None
    gradient_buckets: Literal["stage", "layer"] = "stage"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.devices > MAX_DEVICES:
            raise InputError(
                f"expected at most {MAX_DEVICES} devices, got {self.devices}", field="cluster.nodes"
            )
        if self.nodes > 1 and self.between_nodes is None:
            raise InputError(
                f"this field is required with {self.nodes} nodes", field="cluster.between_nodes"
            )
        return self

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.nodes * self.devices_per_node

    def rank(self, device: int, replica: int, shape: tuple[int, int], order: RankOrder) -> int:
        """Return the rank of a pipeline device of a replica.

        Parameters
        ----------
        device, replica : int
            From 0 on.
        shape : pair of int
            Pipeline depth and number of replicas.
        order : RankOrder
            Which ranks are neighbours.

        Returns
        -------
        int
            From 0 on; those of one node are neighbours.
        """
        depth, replicas = shape
        if order is RankOrder.STAGES_FIRST:
            return replica * depth + device
        return device * replicas + replica

    def p2p(self, a: int, b: int, shape: tuple[int, int], order: RankOrder) -> Link:
        """Return the slowest link over all replicas between two pipeline devices.

        Parameters
        ----------
        a, b : int
            The devices.
        shape, order
            As for `rank`.

        Returns
        -------
        Link
            That between nodes, if the two are on different nodes in some replica.
        """
        crosses = any(
            self._node(self.rank(a, replica, shape, order))
            != self._node(self.rank(b, replica, shape, order))
            for replica in range(shape[1])
        )
        return self._link(crosses, self.within_node, self.between_nodes)

    def allreduce(self, device: int, shape: tuple[int, int], order: RankOrder) -> Link:
        """Return the link that the replicas of a pipeline device all-reduce over.

        Parameters
        ----------
        device : int
            The pipeline device.
        shape, order
            As for `rank`.

        Returns
        -------
        Link
            That between nodes, if the replicas are on several.
        """
        ranks = (self.rank(device, replica, shape, order) for replica in range(shape[1]))
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
