"""The problem of splitting layers into pipeline stages, and its answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from ppsolve.models.documents.errors import InputError, PpsolveError

Boundaries = tuple[int, ...]


@dataclass(frozen=True)
class SplitParams:
    """Limits of splits, and the effort of their search."""

    # Sum of all layers' times in ticks: sums with signs over every stage stay within an int64.
    most_ticks: int = 2**50
    # The same where CP-SAT searches: version 9.15 called a wrong split optimal at 1e11 ticks.
    most_searched_ticks: int = 2**31
    # Sum of all layers' bytes with every activation in flight, to stay within an int64.
    most_bytes: int = 10**16
    # Deterministic seconds of a search: more makes plans longer, less leaves splits unproved.
    seconds: float = 0.25
    # Single layers moved by the split without a search, and before one, at most.
    most_moves: int = 200


class SplitUndecidedError(PpsolveError):
    """The search found no split that fits the memory, nor proved that there is none."""


@dataclass(frozen=True)
class SplitProblem:
    """Layers in their order, and the stages to be made of them.

    Parameters
    ----------
    times : tuple of int
        Ticks of each layer for one micro-batch, forward and backward.
    static : tuple of int
        Bytes each layer always takes.
    activation : tuple of int
        Bytes each layer saves per micro-batch in flight.
    stage_to_device : tuple of int
        Device of each stage; devices are 0..D-1, each with at least one stage.
    capacity : tuple of int or None
        Bytes of each device; None for no limit.
    in_flight : tuple of int
        Micro-batches whose activations each stage must be able to hold.

    Raises
    ------
    InputError
        A sum exceeds `SplitParams.most_ticks` or `most_bytes`.
    """

    times: tuple[int, ...]
    static: tuple[int, ...]
    activation: tuple[int, ...]
    stage_to_device: tuple[int, ...]
    capacity: tuple[int, ...] | None
    in_flight: tuple[int, ...]

    @classmethod
    def without_memory(cls, times: Iterable[int], stage_to_device: Iterable[int]) -> SplitProblem:
        """Return a problem whose layers take no memory.

        Parameters
        ----------
        times, stage_to_device : iterable of int
            As for the class.

        Returns
        -------
        SplitProblem
            Without a capacity.
        """
        layers, devices = tuple(times), tuple(stage_to_device)
        nothing = (0,) * len(layers)
        return cls(layers, nothing, nothing, devices, None, (0,) * len(devices))

    def __post_init__(self) -> None:
        """Refuse sums that may overflow."""
        params, ticks = SplitParams(), sum(self.times)
        if ticks > params.most_ticks:
            raise InputError(
                f"expected at most {params.most_ticks} ticks in total, got {ticks}; "
                "use a coarser tick",
                field="times",
            )
        held = sum(self.static) + max(self.in_flight) * sum(self.activation)
        if held > params.most_bytes:
            raise InputError(
                f"expected at most {params.most_bytes} bytes in static and in-flight activations "
                f"together, got {held}",
                field="activation",
            )

    @property
    def num_layers(self) -> int:
        """Number of layers n."""
        return len(self.times)

    @property
    def num_stages(self) -> int:
        """Number of stages S."""
        return len(self.stage_to_device)

    @property
    def num_devices(self) -> int:
        """Number of devices D."""
        return max(self.stage_to_device) + 1

    @property
    def has_one_stage_per_device(self) -> bool:
        """Whether no two stages share a device."""
        return self.num_stages == self.num_devices

    def stage_times(self, boundaries: Boundaries) -> list[int]:
        """Return the ticks of each stage."""
        return [sum(self.times[first:last]) for first, last in pairwise(boundaries)]

    def device_times(self, boundaries: Boundaries) -> list[int]:
        """Return the ticks of each device."""
        return self._per_device(self.stage_times(boundaries))

    def device_bytes(self, boundaries: Boundaries) -> list[int]:
        """Return the bytes that each device must be able to hold."""
        spans = zip(pairwise(boundaries), self.in_flight, strict=True)
        return self._per_device(
            [
                sum(self.static[first:last]) + held * sum(self.activation[first:last])
                for (first, last), held in spans
            ]
        )

    @property
    def unlimited(self) -> SplitProblem:
        """The same layers without a capacity."""
        return replace(self, capacity=None)

    def fits(self, boundaries: Boundaries) -> bool:
        """Say if every device can hold its stages."""
        if self.capacity is None:
            return True
        pairs = zip(self.device_bytes(boundaries), self.capacity, strict=True)
        return all(held <= room for held, room in pairs)

    def split(self, boundaries: Boundaries, *, proved: bool) -> Split:
        """Return the split at these boundaries, with its figures.

        Parameters
        ----------
        boundaries, proved
            As in `Split`.

        Returns
        -------
        Split
            The split.
        """
        devices, stages = self.device_times(boundaries), self.stage_times(boundaries)
        return Split(boundaries, max(devices), max(stages), proved)

    def _per_device(self, values: list[int]) -> list[int]:
        sums = [0] * self.num_devices
        for device, value in zip(self.stage_to_device, values, strict=True):
            sums[device] += value
        return sums


@dataclass(frozen=True)
class Split:
    """A split of the layers into stages.

    `boundaries` are S + 1 ascending layer indices: stage s has layers ``boundaries[s]`` to
    ``boundaries[s + 1] - 1``. `slowest_device` and `slowest_stage` are the most ticks of one of
    them; `proved` says whether no split has a faster slowest device.
    """

    boundaries: Boundaries
    slowest_device: int
    slowest_stage: int
    proved: bool
