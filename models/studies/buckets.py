"""Which collectives of a program to merge, and what that gains."""

from __future__ import annotations

from typing import Literal

from ppsolve.models.core.result import Figure, Reported, ReportedFile
from ppsolve.models.kinds.overlap.instance import OverlapInstance


class BucketRow(Reported):
    """One way to merge collectives: by a fixed number, or as searched; times as in the instance."""

    name: str
    collectives: int  # after merging
    makespan: Figure | None = None  # None: no order within the caps was found
    peak_live_bytes: float | None = None


class BucketAdvice(ReportedFile):
    """Buckets of collectives, the best first of all rows, and the program that they make.

    `bound` holds for every way to merge neighbours of one group and type; `buckets` names the
    collectives of each bucket of two or more.
    """

    kind: Literal["buckets"] = "buckets"
    name: str
    time_unit: str
    latency: Figure | dict[str, Figure]  # of all collectives, or by group or type
    bound: Figure
    rows: tuple[BucketRow, ...]
    buckets: tuple[tuple[str, ...], ...]
    program: OverlapInstance
