"""Search for a lower bound: the frontiers of ever more devices together, in ever wider beams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ppsolve.solver.board import Board
from ppsolve.solver.bounds.frontier_chains import (
    alone,
    chain_of,
    device_ops,
)
from ppsolve.solver.bounds.frontier_search import (
    NOTHING_AHEAD,
    BeamLimits,
    DeviceAhead,
    FrontierSearch,
    device_ahead,
    look_ahead,
)
from ppsolve.solver.bounds.params import BoundsEffort, FrontierParams
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.kernels.frontier import DeviceChain, LookAhead

JOINT_FRONTIER = "joint-frontier"
"""Name of the bound by the frontiers of several devices together."""

Part = tuple[int, ...]  # positions of devices, going up


class PartBound(NamedTuple):
    """A lower bound in ticks that some devices prove."""

    value: int
    part: Part


class FrontierDevices:
    """Bounds on the objective by the frontiers of a few devices.

    Each round begins with the device whose own bound is largest; the one that raises it most joins
    next, as long as any does. Narrow beams choose it, a wide one proves. The beams of each round
    are wider than those of the one before; there is none behind a round whose bounds are no larger
    than those of other rules.
    """

    def __init__(
        self, relaxations: Relaxations, board: Board, params: FrontierParams, steps: int
    ) -> None:
        self._relaxations, self._board, self._params = relaxations, board, params
        self._left = steps
        devices = list(device_ops(relaxations))
        counts = Counter(device.family for device in devices)
        self._devices = [
            device for device in devices if device.family == counts.most_common(1)[0][0]
        ]
        self._is_exact = True  # nothing was left out in the round
        self._exact: dict[Part, int] = {}
        self._ahead: dict[tuple[bytes, ...], DeviceAhead | None] = {}

    @property
    def is_over(self) -> bool:
        """Whether the bound meets the schedule, or a limit is reached."""
        is_used_up = self._left <= 0 or self._relaxations.clock.is_over
        return is_used_up or self._board.is_good_enough

    @property
    def steps_left(self) -> int:
        """Labels that may still be made."""
        return max(0, self._left)

    def run(self) -> None:
        """Raise the board's bound until it is over or no wider beam is likely to raise it."""
        width = self._params.width
        while self._devices and not self.is_over and not self._grow(width):
            width *= self._params.wider

    def _grow(self, width: int) -> bool:
        """Let devices join while they raise the bound; return whether a wider beam is in vain."""
        self._is_exact, wide = True, width * self._params.proving
        best = self._largest(((d,) for d in range(len(self._devices))), width)
        best = PartBound(self._bound(best.part, wide), best.part)
        while len(best.part) < len(self._devices) and not self.is_over:
            rest = [d for d in range(len(self._devices)) if d not in best.part]
            longer = (tuple(sorted((*best.part, d))) for d in rest)
            part = self._largest(longer, width).part
            value = self._bound(part, wide)
            if value <= best.value:
                break
            best = PartBound(value, part)
        return self._is_exact or self._board.bound.name != JOINT_FRONTIER

    def _largest(self, parts: Iterable[Part], width: int) -> PartBound:
        """Return the part of the largest bound, the first one of equals."""
        best = PartBound(-1, ())
        for part in parts:
            if best.part and self.is_over:
                break
            value = self._bound(part, width)
            if value > best.value:
                best = PartBound(value, part)
        return best

    def _bound(self, part: Part, width: int) -> int:
        """Return a bound by some devices, 0 where they are no chain; raise that of the board."""
        if part in self._exact:
            return self._exact[part]
        devices = [self._devices[d] for d in part]
        chain = chain_of(self._relaxations, devices)
        if chain is None:
            self._exact[part] = 0
            return 0
        value = self._board.value
        assert value is not None
        beam = BeamLimits(width=width, most_steps=self.steps_left)
        params, clock = self._relaxations.params, self._relaxations.clock
        effort = BoundsEffort(clock, params)
        search = FrontierSearch(chain, value, beam, effort, self._look_ahead(chain))
        search.run()
        self._left -= search.steps + 1
        self._is_exact &= search.is_exact
        if search.is_exact:
            self._exact[part] = search.lower
        resources = tuple(device.resource for device in devices)
        self._board.raise_bound(search.lower, JOINT_FRONTIER, *resources)
        return search.lower

    def _look_ahead(self, chain: DeviceChain) -> LookAhead:
        """Return the times of each device alone, none where one has too many states."""
        tables = []
        for device in range(len(chain.room)):
            part = alone(chain, device)
            key = tuple(np.asarray(field).tobytes() for field in part)
            if key not in self._ahead:
                params = self._params
                self._ahead[key] = device_ahead(part, params.rows, params.states)
            table = self._ahead[key]
            if table is None:
                return NOTHING_AHEAD
            tables.append(table)
        return look_ahead(chain, tables)
