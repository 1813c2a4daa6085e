"""The document of a what-if: one pipeline under changes, one at a time and all together."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ppsolve.models.core.result import ReportedFile
from ppsolve.models.documents.display import ShownInNotebooks
from ppsolve.models.studies.curve import SolvedPoint


class WhatIfRow(SolvedPoint):
    """The pipeline under some changes.

    `changes` has the value of each changed option; a function of one's own has its name and an
    empty value. `gain` is the share by which the value per micro-batch is below that of the first
    row, absent where one of both is unknown.
    """

    changes: dict[str, str] = Field(default_factory=dict)
    microbatches: int
    gain: float | None = None


class WhatIf(ShownInNotebooks, ReportedFile):
    """Best values and bounds of a pipeline as it is (the first row) and under changes.

    With a `runtime` only schedules that it runs count.
    """

    kind: Literal["what-if"] = "what-if"
    instance: str
    objective: str
    time_unit: str
    runtime: str | None = None
    wall_seconds: float = 0.0
    interrupted: bool = False
    rows: tuple[WhatIfRow, ...] = Field(min_length=1)
