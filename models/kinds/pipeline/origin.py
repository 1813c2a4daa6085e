"""What a plan chose for a pipeline beside its schedule, so that no file loses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from ppsolve.models.documents.base import StrictModel, Whole

LayerRecompute = Literal["none", "selective", "full"]
"""What layers run again in their backward: nothing, the attention core, or all of the forward."""

Positive = Annotated[Whole, Field(ge=1, le=10**9)]


class PlanOrigin(StrictModel):
    """The choices of a plan that are no ops: exports say them, solvers ignore them.

    Parameters
    ----------
    request : str
        Name of the request.
    layers_per_stage : list of int
        Layers of the profile on each stage.
    model : str, optional
        What these layers are, as `letters_of` of the exports reads it: ``Et*10L``.
    microbatch_size : int
        Samples of a micro-batch.
    replicas : int
        Copies of the pipeline that run the same schedule.
    rank_order : str, optional
        Which ranks are neighbours, where that makes a difference.
    tensor_parallel : int
        Devices that share each layer.
    recompute : str
        What every layer recomputes.
    """

    request: str
    layers_per_stage: tuple[Positive, ...]
    model: str | None = None
    microbatch_size: Positive
    replicas: Positive = 1
    rank_order: Literal["stages_first", "replicas_first"] | None = None
    tensor_parallel: Positive = 1
    recompute: LayerRecompute = "none"

    def decisions(self) -> Iterator[tuple[str, str]]:
        """Yield the field and the words of every choice that is not the usual one."""
        yield (
            "layers_per_stage",
            f"layers per stage {','.join(map(str, self.layers_per_stage))}",
        )
        yield "microbatch_size", f"micro-batch size {self.microbatch_size}"
        if self.replicas > 1:
            yield "replicas", f"{self.replicas} replicas"
        if self.rank_order is not None:
            yield "rank_order", f"ranks {self.rank_order.replace('_', ' ')}"
        if self.tensor_parallel > 1:
            yield "tensor_parallel", f"tensor parallelism {self.tensor_parallel}"
        if self.recompute != "none":
            yield "recompute", f"{self.recompute} recomputation"
