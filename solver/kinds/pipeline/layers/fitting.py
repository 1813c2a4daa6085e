"""Types of layers that use the memory of a split up, and no more."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.core.problem import IntArray
from ppsolve.models.kinds.pipeline.layers import Layers
from ppsolve.solver.kinds.pipeline.layers.linear import DeviceMemory


class MemoryFit:
    """Recomputes more where memory is exceeded, and less where there is room.

    `layers`: their types; those that take no less time and memory than another one are
        not used.
    """

    def __init__(self, layers: Layers, memory: Sequence[DeviceMemory]) -> None:
        self._memory = memory
        costs = list(zip(layers.extra, layers.held, strict=True))
        every = range(len(costs))
        useful = [
            b
            for b in every
            if not any(c < costs[b] and c[1] <= costs[b][1] for c in costs)
        ]
        self._smaller = [
            (a, b) for a in every for b in useful if costs[b][1] < costs[a][1]
        ]
        self._faster = [(a, b) for a in every for b in useful if costs[b] < costs[a]]

    def fitted(
        self, counts: IntArray, changed: NDArray[np.bool_], draw: random.Random
    ) -> IntArray | None:
        """Return a split with other types on some stages, None where nothing fits.

        `counts`: int64[types, S].
        `changed`: bool[S], whose devices get other types.
        Returns: int64[types, S] or None.
        """
        fitted = counts.copy()
        for memory in self._memory:
            if changed[memory.stages].any():
                own = fitted[:, memory.stages]
                if not self._fit(memory, own, draw):
                    return None
                fitted[:, memory.stages] = own
        return fitted

    def _fit(self, memory: DeviceMemory, own: IntArray, draw: random.Random) -> bool:
        amounts, places = memory.amounts, range(len(memory.stages))
        over = (amounts * own).sum(axis=(1, 2)) - memory.limits
        while np.any(over > 0):
            steps = [(a, b, s) for a, b in self._smaller for s in places if own[a, s]]
            if not steps:
                return False
            a, b, s = draw.choice(steps)
            own[a, s] -= 1
            own[b, s] += 1
            over = over + amounts[:, b, s] - amounts[:, a, s]
        steps = [(a, b, s) for a, b in self._faster for s in places]
        draw.shuffle(steps)
        for a, b, s in steps:
            more = amounts[:, b, s] - amounts[:, a, s]
            while own[a, s] and np.all(over + more <= 0):
                own[a, s] -= 1
                own[b, s] += 1
                over = over + more
        return True
