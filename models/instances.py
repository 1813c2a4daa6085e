"""What every instance has, whatever its kind."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ppsolve.models.core.units import WithUnits
from ppsolve.models.documents.display import Pairs, ShownInNotebooks, counts_of


class Instance(ShownInNotebooks, WithUnits):
    """Base of all instances: a strict document that its ``kind`` names.

    Each kind declares `kind` anew, and `name` with its default.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    kind: str
    name: str
    description: str | None = None
    time_unit: str = "us"

    @property
    def factors(self) -> dict[str, str | float]:
        """Figures that benchmarks are grouped by, under short names; kinds override it."""
        return {}

    def __repr_args__(self) -> Pairs:
        """Yield what `repr` shows: the name, numbers, and how many items lists have."""
        return counts_of(self)
