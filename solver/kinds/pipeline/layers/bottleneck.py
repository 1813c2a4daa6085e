"""What keeps schedules long where layers are shared out."""

from __future__ import annotations

from ppsolve.models.core.result import Bottleneck
from ppsolve.solver.kinds.pipeline.layers.ordered import LAYERS
from ppsolve.solver.run.schedule_task import ScheduleTask


def bottleneck_of_layers(
    task: ScheduleTask, analytic: Bottleneck | None
) -> Bottleneck | None:
    """Return the bound over all splits as the bottleneck, where no rule of one device is stronger.

    Such rules count on each device only the least work that any split gives it.
    """
    bounds = {bound.name: bound.value for bound in task.bounds}
    value = bounds.get(LAYERS)
    if value is None:
        return analytic
    shown = task.shown(value)
    if analytic is not None and analytic.value >= shown:
        return analytic
    best = task.board.bound
    return Bottleneck(
        rule=LAYERS,
        value=shown,
        raised_by=best.name if best.value > value else None,
        why="every split of the layers that fits takes as long as this bound",
        lowered_by="less work in the layers, more memory, or more devices",
    )
