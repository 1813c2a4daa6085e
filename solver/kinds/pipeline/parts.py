"""The parts of pipelines that leave more open than orders."""

from __future__ import annotations

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.kinds.pipeline.layers.part import LayersPart
from ppsolve.solver.kinds.pipeline.modes.part import ModesPart
from ppsolve.solver.kinds.pipeline.options.parts import FillerDevicesPart, FusedPart
from ppsolve.solver.kinds.pipeline.part import OpenPart
from ppsolve.solver.kinds.pipeline.replicas.part import ReplicasPart

PARTS: tuple[OpenPart, ...] = (
    ReplicasPart(),
    FusedPart(),
    FillerDevicesPart(),
    ModesPart(),
    LayersPart(),
)
"""Every part, their heuristics in the order of reports.

`ppsolve.models.kinds.pipeline.combinations` refuses the pairs that no pipeline has.
"""

NOTHING_OPEN = OpenPart()


def part_of(instance: PipelineInstance) -> OpenPart:
    """Return the part that a pipeline has, all of them as one, or `NOTHING_OPEN`."""
    parts = [part for part in PARTS if getattr(instance, part.attribute)]
    if len(parts) > 1 or any(part.needs_search_of_choices(instance) for part in parts):
        from ppsolve.solver.kinds.pipeline.open.part import CombinedPart

        return CombinedPart(parts)
    return parts[0] if parts else NOTHING_OPEN
