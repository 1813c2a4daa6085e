"""Which layers recompute, where one rule says it for every stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.kinds.pipeline.layers import KEPT, Layers

FULL = "full"
"""Name of the type that recomputes whole layers."""


@dataclass(frozen=True)
class RecomputeRule:
    """All layers are of one type, or as many of every stage as there are up to a number."""

    name: str = KEPT
    number: int = 0  # of the type
    limit: int | None = None  # layers of a stage that are of the type; all by default

    @property
    def words(self) -> str:
        """The rule in words."""
        if self.limit is None:
            return f"all {self.name}"
        return f"first {self.limit} {self.name}"

    @property
    def named(self) -> dict[str, Any]:
        """The rule as documents have it."""
        limit = {} if self.limit is None else {"recompute_num_layers": self.limit}
        return {"mode": self.name, **limit}

    def counts(self, layers: IntArray, types: int) -> IntArray:
        """Return the layers of each type and stage, int64[types, S].

        `layers`: int64[S], layers of each stage.
        """
        counts = np.zeros((types, len(layers)), dtype=np.int64)
        counts[0] = layers
        if self.number:
            of_type = layers if self.limit is None else np.minimum(layers, self.limit)
            counts[self.number] = of_type
            counts[0] -= of_type
        return counts


def whole_rules(layers: Layers) -> Iterator[RecomputeRule]:
    """Yield the rules by which all layers are of one type, the kept ones first."""
    for number, name in enumerate(layers.names):
        yield RecomputeRule(name, number)


def first_rules(layers: Layers, stages: int) -> Iterator[RecomputeRule]:
    """Yield the rules by which the first layers of every stage recompute as a whole.

    Those that recompute all layers of any split are left out.
    """
    if FULL not in layers.names:
        return
    number = layers.names.index(FULL)
    least = layers.least(stages)
    most = layers.body.count - int(least.sum() - least.max())
    for limit in range(1, most):
        yield RecomputeRule(FULL, number, limit)
