"""How pipelines are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ppsolve.models.instances import Instance
from ppsolve.models.kinds.pipeline.instance import ExplicitPlacement, PipelineInstance
from ppsolve.solver.kinds.pipeline.published import has_unequal_microbatches
from ppsolve.solver.views.drawing import Drawing

if TYPE_CHECKING:
    from ppsolve.solver.views.drawing import Facts


class PipelineDrawing(Drawing):
    """Pipelines have a shape: devices, stages, micro-batches."""

    def shape(self, instance: Instance) -> Facts:
        """Yield devices, stages, micro-batches and how they are placed."""
        return pipeline_shape(cast("PipelineInstance", instance))


def pipeline_shape(instance: PipelineInstance) -> Facts:
    """Yield devices, stages, micro-batches and how they are placed."""
    placement = instance.placement
    yield "devices", str(instance.num_devices)
    yield "stages", str(instance.num_stages)
    differ = " of different sizes" if has_unequal_microbatches(instance) else ""
    yield "micro-batches", f"{instance.num_microbatches}{differ}"
    if instance.replicas is not None:
        yield "replicas", f"{instance.replicas.count}, assignment {instance.replicas.assignment}"
    explicit = isinstance(placement, ExplicitPlacement)
    yield "placement", "explicit" if explicit else str(placement)
    yield "backward", "split (I + W)" if instance.times.is_split else "fused (B)"
    yield "transfers", instance.p2p.mode
