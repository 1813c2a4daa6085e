"""Figures of a refresh: iterations, usage, bubbles, saved memory and age of inverses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ppsolve.models.kfac.labels import precondition_label
from ppsolve.models.kfac.pattern import RefreshPattern
from ppsolve.solver.kfac.placement import DevicePlan, absolute_starts, common_interval


@dataclass(frozen=True)
class Refresh:
    """A refresh of all devices: the pattern and where each device does its work."""

    pattern: RefreshPattern
    plans: Sequence[DevicePlan]

    def figures(self, *, with_labels: bool = True) -> dict[str, Any]:
        """Return the fields of `ppsolve.models.kfac.result.RefreshFigures`."""
        found = {
            "iterations": common_interval(self.plans),
            "iterations_of": [plan.iterations for plan in self.plans],
            "usage_of": [round(plan.usage(self.pattern), 4) for plan in self.plans],
            "bubbles_of": [self._bubbles(plan) for plan in self.plans],
            "peak_saved_of": [float(self._peak_saved(plan)) for plan in self.plans],
            "ages_of": [self._ages(plan) for plan in self.plans],
            "oldest_of": [self._oldest(plan) for plan in self.plans],
        }
        if with_labels:
            found["labels"] = [plan.labels() for plan in self.plans]
        return found

    @property
    def usage(self) -> float:
        """Busy share of all devices over their iterations, from 0."""
        whole = sum(plan.iterations for plan in self.plans) * self.pattern.period
        return sum(plan.busy(self.pattern) for plan in self.plans) / whole

    def _bubbles(self, plan: DevicePlan) -> int | float:
        whole = plan.iterations * self.pattern.period
        return self.pattern.scale.time(whole - plan.busy(self.pattern))

    def _peak_saved(self, plan: DevicePlan) -> Fraction:
        device = self.pattern.devices[plan.device]
        saved = self.pattern.saved[plan.device] if self.pattern.saved else None
        amounts = {
            "A": Fraction(1) if saved is None else saved.input,
            "B": Fraction(1) if saved is None else saved.error,
        }
        changes: list[tuple[int, Fraction]] = []
        for (index, part), start in absolute_starts(plan, self.pattern).items():
            work = device.work[index]
            data = device.data_of(work.label) if work.label.kind == "cov" else []
            if part < len(data):
                amount = amounts[work.label.factor]
                since = max(data[part].start, 0)
                changes += [(since, amount), (start + work.length, -amount)]
        peak = held = Fraction(0)
        for _, change in sorted(changes):
            held += change
            peak = max(peak, held)
        return peak

    def _ages(self, plan: DevicePlan) -> dict[str, int]:
        # Timelines have no preconditioning: there an inverse is used at the end of the iteration.
        device, period = self.pattern.devices[plan.device], self.pattern.period
        uses = {op.label: op.start for op in device.ops}
        ages: dict[str, int] = {}
        for (index, _), start in absolute_starts(plan, self.pattern).items():
            work = device.work[index]
            if work.label.kind == "inv":
                text = work.label.text
                late = start + work.length - uses.get(precondition_label(work.label.module), period)
                ages[text] = max(ages.get(text, 0), -(-late // period))
        return ages

    def _oldest(self, plan: DevicePlan) -> int | None:
        ages = self._ages(plan).values()
        return max(ages) + plan.iterations - 1 if ages else None
