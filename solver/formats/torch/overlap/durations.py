"""How long scheduler nodes run: measured where a table has them, else as Inductor estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Estimates:
    """Run times of scheduler nodes in ms.

    A table has the run time of an op by its signature: `signature_of` says which; what it does not
    have is asked of ``config.estimate_op_runtime``, the user's or Inductor's own.
    """

    table: dict[str, float] = field(default_factory=dict)

    @property
    def overrides(self) -> bool:
        """Whether there is anything measured."""
        return bool(self.table)

    def measured(self, node: Any) -> float | None:
        """Return the measured run time of a node in ms, None where the table has none."""
        return self.table.get(signature_of(node)) if self.table else None

    def __call__(self, node: Any) -> float:
        """Return the run time of a node in ms."""
        known = self.measured(node)
        return float(_estimated(node) if known is None else known)


def _estimated(node: Any) -> float:
    from torch._inductor import comms

    return float(comms.estimate_op_runtime(node) or 0.0)


def measured_share(durations: Estimates, nodes: Sequence[Any]) -> float:
    """Add up which share of the run time of nodes was measured.

    Parameters
    ----------
    durations, nodes
        The run times, and the scheduler nodes of a graph.

    Returns
    -------
    float
        From 0 to 1.
    """
    times = [(durations(node), durations.measured(node)) for node in nodes]
    total = sum(time for time, _ in times)
    return sum(known for _, known in times if known is not None) / total if total else 0.0


def signature_of(node: Any) -> str:
    """Return op, shapes and dtype of a node's kernel, as the table of run times names them."""
    kernel = node.node
    name = getattr(kernel, "python_kernel_name", None) or getattr(kernel, "op_overload", None)
    sizes = [
        f"{tuple(int(size) for size in each.node.get_size())}:{each.node.get_dtype()}"
        for each in node.get_outputs()
        if hasattr(each.node, "get_size") and hasattr(each.node, "get_dtype")
    ]
    return f"{name or type(node).__name__} {' '.join(sizes)}"
