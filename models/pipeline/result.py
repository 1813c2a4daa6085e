"""Results of pipelines: the micro-batches of each replica beside the figures of every result."""

from __future__ import annotations

from pydantic import Field

from ppsolve.models.core.result import Result


class PipelineResult(Result):
    """Outcome of `optimize` for a pipeline.

    Parameters
    ----------
    assignment : list of lists of int, optional
        Micro-batches of each replica, where the pipeline has replicas.
    """

    assignment: tuple[tuple[int, ...], ...] | None = Field(default=None)
