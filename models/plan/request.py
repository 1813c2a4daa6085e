"""Requests for plans: a model profile, a cluster, and the configurations to choose from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ppsolve.models.documents.base import StrictModel, Whole, describe
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.goodput.files import GradFields
from ppsolve.models.plan.cluster import Cluster, RankOrder
from ppsolve.models.plan.profile import ModelProfile

REQUEST_SUFFIX = ".plan.json"
"""How files of requests are named where they lie among instances."""

Count = Annotated[Whole, Field(ge=1, le=10**9)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1, max_length=1000)]


class Statistics(StrictModel):
    """What larger batches are worth.

    Parameters
    ----------
    init_batch_size : int
        Batch size at which every sample counts fully; smaller batches are not planned.
    max_batch_size : int, optional
        No plan has a larger batch.
    grad : GradFields, optional
        Without it every sample counts fully at every batch size: goodput is throughput.
    """

    init_batch_size: Count
    max_batch_size: Count | None = None
    grad: GradFields | None = None

    @model_validator(mode="after")
    def _limits_leave_something(self) -> Self:
        if self.max_batch_size is not None and self.max_batch_size < self.init_batch_size:
            raise InputError(
                f"expected at least the initial batch size {self.init_batch_size}, "
                f"got {self.max_batch_size}",
                field="goodput.max_batch_size",
            )
        return self


class SearchSpace(StrictModel):
    """The configurations to choose from: all combinations of these lists that fit together.

    Parameters
    ----------
    pipeline_depths : list of int, optional
        Devices of one pipeline; by default the divisors of the number of devices, as far as there
        are layers.
    replicas : list of int, optional
        Data-parallel copies; by default as many as the cluster has room for.
    placements : list of str
        ``linear``, ``interleaved``, ``vshape``, ``wave``.
    virtual_stages : list of int
        Stages per device of ``interleaved`` and ``wave``.
    microbatch_sizes : list of int, optional
        Samples of a micro-batch; those of the profile by default.
    batch_sizes, microbatches : list of int, optional
        Samples of a step over all replicas, or micro-batches of each replica; at most one of
        them. By default the initial batch size, doubled as long as the largest batch allows.
    rank_orders : list of str
        ``stages_first``, ``replicas_first``.
    backward : list of str, optional
        ``fused``, ``split``; what the profile has by default.
    layer_splits : list of str
        ``balanced`` (slowest device as fast as can be, exactly), ``even`` (by number of layers).
    schedules : list of str, optional
        Names of heuristics that the runtime can run; without them any schedule.
    """

    pipeline_depths: Counts | None = None
    replicas: Counts | None = None
    placements: Annotated[
        tuple[Literal["linear", "interleaved", "vshape", "wave"], ...], Field(min_length=1)
    ] = ("linear",)
    virtual_stages: Annotated[tuple[Annotated[Count, Field(ge=2)], ...], Field(min_length=1)] = (2,)
    microbatch_sizes: Counts | None = None
    batch_sizes: Counts | None = None
    microbatches: Counts | None = None
    rank_orders: Annotated[tuple[RankOrder, ...], Field(min_length=1)] = tuple(RankOrder)
    backward: Annotated[tuple[Literal["fused", "split"], ...], Field(min_length=1)] | None = None
    layer_splits: Annotated[tuple[Literal["balanced", "even"], ...], Field(min_length=1)] = (
        "balanced",
    )
    schedules: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_way_to_count(self) -> Self:
        if self.batch_sizes is not None and self.microbatches is not None:
            raise InputError(
                'expected either "batch_sizes" or "microbatches", not both',
                field="search.microbatches",
            )
        return self


class PlanRequest(StrictModel):
    """A model, a cluster, and what to choose from. All times share `time_unit`."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    kind: Literal["plan"] = "plan"
    name: str = "plan"
    description: str | None = None
    time_unit: Literal["ns", "us", "ms", "s"] = "us"
    model: ModelProfile
    cluster: Cluster
    goodput: Statistics
    search: SearchSpace = SearchSpace()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        sizes, search = self.model.microbatch_sizes, self.search
        for index, size in enumerate(search.microbatch_sizes or ()):
            if self.model.is_measured and size not in sizes:
                raise InputError(
                    f"expected a profiled size ({', '.join(map(str, sizes))}), got {size}",
                    field=f"search.microbatch_sizes[{index}]",
                )
        if "split" in (search.backward or ()) and not self.model.is_split:
            raise InputError(
                '"split" needs "backward_input" and "backward_weight" in every layer',
                field="search.backward",
            )
        self._check_depths()
        self._check_batch_sizes()
        return self

    def _check_depths(self) -> None:
        most = min(self.cluster.devices, self.model.num_layers)
        for index, depth in enumerate(self.search.pipeline_depths or ()):
            if depth > most:
                raise InputError(
                    f"expected at most {most} ({self.cluster.devices} devices, "
                    f"{self.model.num_layers} layers), got {depth}",
                    field=f"search.pipeline_depths[{index}]",
                )

    def _check_batch_sizes(self) -> None:
        least, most = self.goodput.init_batch_size, self.goodput.max_batch_size
        for index, batch in enumerate(self.search.batch_sizes or ()):
            if batch < least or (most is not None and batch > most):
                limits = f"at least {least}" if most is None else f"{least} to {most}"
                raise InputError(
                    f"expected a batch size of {limits}, got {batch}",
                    field=f"search.batch_sizes[{index}]",
                )


def parse_request(data: Any, source: str | None = None) -> PlanRequest:
    """Validate parsed JSON as a request.

    Parameters
    ----------
    data : object
        The document.
    source : str, optional
        The name of its file, for errors.

    Returns
    -------
    PlanRequest
        Checked, with all defaults.

    Raises
    ------
    InputError
        Names `source`, the field and what would be right.
    """
    if isinstance(data, dict) and data.get("kind", "plan") != "plan":
        raise InputError(
            f'expected "plan", got {describe(data["kind"])}', source=source, field="kind"
        )
    return PlanRequest.parse(data, source)


def load_request(path: str | Path) -> PlanRequest:
    """Read a request from a file (``-``: standard input); errors as in `parse_request`."""
    return parse_request(read_json(path), source_name(path))
