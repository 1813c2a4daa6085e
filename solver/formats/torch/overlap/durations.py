"""How long scheduler nodes run: measured where a profile has them, else as Inductor estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Estimates:
    """Run times of scheduler nodes in ms.

    A profile is a trace of ``torch.profiler`` with recorded shapes: torch's own
    ``ProfileGuidedEstimator`` finds collectives by group, type and size, and other ops by shapes.
    What it does not have is asked of ``config.estimate_op_runtime``, the user's or Inductor's own.
    """

    profile: str | None = None  # path of the trace

    def measured(self, node: Any) -> float | None:
        """Return the measured run time of a node in ms, None where the profile has none."""
        if self.profile is None:
            return None
        estimator = _estimator(self.profile)
        durations: list[float] = []
        for inner in node.get_nodes():
            # A kernel that Inductor generates from several ops is none of them.
            origins = list(inner.node.get_origins()) if _is_extern(inner.node) else []
            times = [
                time for origin in origins if (time := estimator(origin)) is not None
            ]
            if not times:
                return None
            durations += times
        return sum(durations)

    def __call__(self, node: Any) -> float:
        """Return the run time of a node in ms."""
        from torch._inductor import comms

        measured = self.measured(node)
        return (
            float(comms.estimate_op_runtime(node) or 0.0)
            if measured is None
            else measured
        )


@cache
def _estimator(profile: str) -> Any:
    from torch._inductor.fx_passes.profile_guided_estimation import (
        ProfileGuidedEstimator,
    )

    return ProfileGuidedEstimator(profile)


def _is_extern(kernel: Any) -> bool:
    from torch._inductor import ir

    return isinstance(kernel, ir.ExternKernel)


def measured_share(durations: Estimates, nodes: Sequence[Any]) -> float:
    """Return the share of the run time of scheduler nodes that was measured, from 0 to 1."""
    times = [(durations(node), durations.measured(node)) for node in nodes]
    total = sum(time for time, _ in times)
    return (
        sum(measured for _, measured in times if measured is not None) / total
        if total
        else 0.0
    )
