"""The verdict on a recorded run as data: how far it is from optimal, and what would help."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppsolve.models.core.result import Status

SECOND = 10**9
"""Nanoseconds."""

NEARLY = 0.005
"""Share of the bound within which a recorded order is called optimal."""

FIGURES = (
    "recorded",
    "replay",
    "ordered",
    "ordered_bound",
    "exchanged",
    "exchanged_bound",
)
"""Figures of a step, in the order of documents and tables."""


@dataclass(frozen=True)
class ReplicaVerdict:
    """How far one replica of one step is from optimal, nanoseconds."""

    replica: int
    recorded: int  # its span as recorded
    # the recorded order with the recorded durations, as early as possible, transfers free
    replay: int
    ordered: int  # the best order found for its micro-batches
    bound: int  # the least that any order of them can take

    @property
    def status(self) -> Status:
        """OPTIMAL where the order is proved to be the best, else FEASIBLE."""
        return Status.OPTIMAL if self.ordered == self.bound else Status.FEASIBLE


@dataclass(frozen=True)
class StepVerdict:
    """How far one step, that is its slowest replica, is from optimal, nanoseconds."""

    step: int
    replicas: tuple[ReplicaVerdict, ...]  # by number
    microbatches: tuple[int, ...]  # of each replica
    # the least that the slowest replica can take with the micro-batches that it has
    ordered_bound: int
    # the best found, and the least, where micro-batches are exchanged between replicas too
    exchanged: int
    exchanged_bound: int

    @property
    def recorded(self) -> int:
        """The longest recorded span."""
        return max(replica.recorded for replica in self.replicas)

    @property
    def replay(self) -> int:
        """The longest replay."""
        return max(replica.replay for replica in self.replicas)

    @property
    def ordered(self) -> int:
        """The longest of the best orders."""
        return max(replica.ordered for replica in self.replicas)


@dataclass(frozen=True)
class Help:
    """A change of the run, and what the mean step would take with it."""

    change: str
    assumes: str  # what is assumed of it, or why it was not computed
    # mean nanoseconds of the slowest replica over `steps`, and a lower bound of it; None where it
    # was not computed, or has no bound
    value: float | None = None
    bound: float | None = None
    replay: float = 0.0  # mean nanoseconds of the replay of the same steps
    steps: tuple[int, ...] = ()  # the steps that it was computed on

    @property
    def saved(self) -> float | None:
        """Share of the replay that the change saves, negative where it costs."""
        return None if self.value is None else 1 - self.value / self.replay

    def document(self) -> dict[str, Any]:
        """Return it as plain data, seconds."""
        return {
            "change": self.change,
            "assumes": self.assumes,
            "value": _seconds(self.value),
            "bound": _seconds(self.bound),
            "replay": _seconds(self.replay) if self.steps else None,
            "saved": self.saved,
            "steps": list(self.steps),
        }


@dataclass(frozen=True)
class Diagnosis:
    """The verdict on a run."""

    steps: tuple[StepVerdict, ...]  # by number
    helps: tuple[Help, ...]  # what would help, and what was not computed
    # parts of the mean idle time of a device, nanoseconds, see `bubble_of`
    bubble: dict[str, float]
    # mean time of a micro-batch by stage and replica, over the mean of all
    slowness: tuple[tuple[float, ...], ...]
    replicas: tuple[int, ...]  # numbers of the columns of `slowness`

    def mean(self, figure: str) -> float:
        """Return the mean of one of the `FIGURES` over all steps, nanoseconds."""
        return float(np.mean([getattr(step, figure) for step in self.steps]))

    @property
    def best(self) -> Help | None:
        """The change that saves most; None where none saves anything."""
        best = max(self.helps, key=lambda change: change.saved or 0.0)
        return best if (best.saved or 0.0) > 0 else None

    @property
    def typical(self) -> tuple[int, int]:
        """Step of the median replay, and its slowest replica."""
        by_replay = sorted(self.steps, key=lambda verdict: verdict.replay)
        step = by_replay[(len(by_replay) - 1) // 2]
        slowest = max(step.replicas, key=lambda replica: replica.recorded)
        return step.step, slowest.replica

    @property
    def is_order_optimal(self) -> bool:
        """Whether the replayed order is within `NEARLY` of the bound of all orders."""
        return self.mean("replay") <= (1 + NEARLY) * self.mean("ordered_bound")

    def document(self) -> dict[str, Any]:
        """Return the verdict as plain data, seconds."""
        return {
            "schema": 1,
            "time_unit": "s",
            "steps": [_step_document(step) for step in self.steps],
            "mean": {name: _seconds(self.mean(name)) for name in FIGURES},
            "order_is_optimal": self.is_order_optimal,
            "helps": [change.document() for change in self.helps],
            "bubble": {name: _seconds(time) for name, time in self.bubble.items()},
            "slowness": {"replicas": self.replicas, "stages": self.slowness},
        }


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / SECOND


def mean_of(values: Iterable[float]) -> float:
    """Return the mean of some numbers."""
    return float(np.mean(list(values)))


def _step_document(step: StepVerdict) -> dict[str, Any]:
    return {
        "step": step.step,
        **{name: _seconds(getattr(step, name)) for name in FIGURES},
        "replicas": [
            {
                "replica": replica.replica,
                **{name: _seconds(getattr(replica, name)) for name in FIGURES[:3]},
                "bound": _seconds(replica.bound),
                "status": replica.status.value,
            }
            for replica in step.replicas
        ],
    }
