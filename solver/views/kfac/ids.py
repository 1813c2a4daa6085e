"""What the names of ops say in the schedule of a refresh around a pinned pipeline."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ppsolve.models.core.result import ScheduledOp
from ppsolve.models.kinds.kfac.labels import KFAC_KINDS, UP_PIPE
from ppsolve.models.kinds.kfac.unrolling import PINNED_KINDS

_ID = re.compile(
    r"(?P<devices>\d{1,6}(?:\+\d{1,6})*)/(?P<label>.*?)(?:#\d+)?(?:@(?P<iteration>\d{1,6}))?",
    re.DOTALL,
)
_KINDS = KFAC_KINDS | set(PINNED_KINDS.values())


@dataclass(frozen=True)
class RefreshId:
    """Parts of the name of an op."""

    devices: tuple[int, ...]  # devices that run it: several where a sync meets
    label: str  # label in timelines
    iteration: int | None  # iteration of an op of the pipeline, None for K-FAC work

    @classmethod
    def of(cls, op: ScheduledOp) -> RefreshId | None:
        """Return the parts of the name of `op`, or None if it is of another kind of schedule."""
        found = _ID.fullmatch(op.id) if op.kind in _KINDS else None
        if found is None:
            return None
        iteration = found["iteration"]
        return cls(
            tuple(map(int, found["devices"].split("+"))),
            found["label"],
            None if iteration is None else int(iteration),
        )

    @property
    def pipe(self) -> int:
        """0, or 1 for the second pipe of Chimera."""
        return int(self.label.endswith(UP_PIPE))
