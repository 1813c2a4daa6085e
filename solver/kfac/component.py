"""Best schedules and bounds of components: devices whose refreshes are solved together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kfac.instance import TieBreak
from ppsolve.models.kfac.labels import Label
from ppsolve.models.kfac.unrolling import LoweredRefresh


@dataclass(frozen=True)
class ComponentSchedule:
    """A schedule of some devices, and the iterations that it takes."""

    lowered: LoweredRefresh
    schedule: Schedule
    by: str

    def iterations_of(self, devices: Sequence[int]) -> int:
        """Return the iterations of `devices`, the same for all of them."""
        return max(self.lowered.iterations[device] for device in devices)


@dataclass(frozen=True)
class ComponentResult:
    """The best schedule of one component, and its proved bound.

    Parameters
    ----------
    devices : tuple of int
        Its devices, coupled by syncs (usually one).
    best : ComponentSchedule or None
        The best schedule.
    lower : int
        Proved: fewer iterations are impossible.
    by : str
        Name of the rule or search that proved the bound.
    stop_reason : StopReason
        Why the search ended.
    tie_break : TieBreak, optional
        Secondary objective minimised at this number of iterations.
    tie : (int, int), optional
        Its value and bound, in ticks.
    """

    devices: tuple[int, ...]
    best: ComponentSchedule | None
    lower: int
    by: str
    stop_reason: StopReason
    tie_break: TieBreak | None = None
    tie: tuple[int, int] | None = None

    @property
    def iterations(self) -> int | None:
        """Iterations of the best schedule."""
        return self.best.iterations_of(self.devices) if self.best else None

    @property
    def is_proved(self) -> bool:
        """True if no schedule takes fewer iterations than the best."""
        return self.iterations == self.lower


def end_weights(tie_break: TieBreak) -> Callable[[Label], int]:
    """Return the weight of each K-FAC op's end in a tie-break, as a function of its label.

    Staleness weighs inversions, usage all K-FAC work.
    """
    if tie_break is TieBreak.STALENESS:
        return lambda label: int(label.kind == "inv")
    return lambda label: int(tie_break is TieBreak.USAGE)
