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

No pipeline has two of them: `ppsolve.models.kinds.pipeline.combinations` refuses each pair. So the
order decides nothing else.
"""

NOTHING_OPEN = OpenPart()


def part_of(instance: PipelineInstance) -> OpenPart:
    """Return the part that a pipeline has, or `NOTHING_OPEN`."""
    return next((part for part in PARTS if part.applies(instance)), NOTHING_OPEN)
