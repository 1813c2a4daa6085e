"""Predicted and best configurations of data-parallel jobs as they leave the program."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ppsolve.models.core.result import Reported


class GoodputRow(Reported):
    """One configuration.

    `batch_size` is samples per step over all replicas and accumulation steps, `accum_steps` the
    micro-batches before the one that exchanges gradients. Times are in the unit of the
    parameters, throughput and goodput in samples per that unit. Where a allocation allows no
    configuration the goodput is 0, and times and throughput are absent.
    """

    num_nodes: int
    num_replicas: int
    atomic_bsz: int
    accum_steps: int
    batch_size: int
    step_time: float | None = None
    throughput: float | None = None
    efficiency: float | None = None
    goodput: float | None = None

    @property
    def is_allowed(self) -> bool:
        """Whether the limits allow any configuration there."""
        return self.goodput is None or self.goodput > 0


class GoodputRows(Reported):
    """What was predicted (`prediction`), or the best of each allocation (`optimum`)."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    kind: Literal["goodput-result"] = "goodput-result"
    what: Literal["prediction", "optimum"]
    init_batch_size: float | None = None
    rows: tuple[GoodputRow, ...]
