"""PyTorch: run the schedule of a result, and measure stages for an instance.

    >>> from ppsolve.torch import build_schedule, profile_stages
    >>> instance = profile_stages(
    ...     modules, example, num_microbatches=8, loss_fn=loss_fn, target=target
    ... )
    >>> schedule = build_schedule(ppsolve.optimize(instance), stages, loss_fn)
    >>> schedule.step(inputs, target=targets)

torch itself is imported by the calls: ``pip install 'ppsolve[torch]'``.
"""

from ppsolve.models.kinds.pipeline.runtime import as_torch_runs
from ppsolve.solver.formats.torch.checkpoint import checkpointed
from ppsolve.solver.formats.torch.overlap.ordering import overlap_pass, use_overlap_pass
from ppsolve.solver.formats.torch.profile import Repeats, profile_stages
from ppsolve.solver.formats.torch.runtime import (
    Compared,
    build_schedule,
    compare_in_turn,
    compare_run,
    feeding_order,
    measured_again,
    predictions_of,
    record_steps,
    steps_of,
    timed_again,
)

__all__ = [
    "Compared",
    "Repeats",
    "as_torch_runs",
    "build_schedule",
    "checkpointed",
    "compare_in_turn",
    "compare_run",
    "feeding_order",
    "measured_again",
    "overlap_pass",
    "predictions_of",
    "profile_stages",
    "record_steps",
    "steps_of",
    "timed_again",
    "use_overlap_pass",
]
