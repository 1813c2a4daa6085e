"""What every instance has, whatever its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppsolve.models.core.units import WithUnits
from ppsolve.models.documents.display import Pairs, ShownInNotebooks, counts_of


class Instance(ShownInNotebooks, WithUnits):
    """Base of all instances: a strict document that its ``kind`` names.

    Each kind declares `kind`, `name` and `time_unit` as fields of its own, in its own order.
    """

    if TYPE_CHECKING:
        kind: str
        name: str
        description: str | None
        time_unit: str

    def __repr_args__(self) -> Pairs:
        """Yield what `repr` shows: the name, numbers, and how many items lists have."""
        return counts_of(self)
