"""Results of K-FAC instances: a refresh beside the figures that every schedule has."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mode
from typing import Self

from pydantic import model_validator

from ppsolve.models.core.result import Figure, HeuristicEntry, Reported, Result
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.kfac.instance import TieBreak

ITERATIONS = "iterations"
"""Unit of values and bounds of a refresh."""

_BROKEN = {
    "cov_before_data": (
        "curvature part before its data",
        "curvature parts before their data",
    ),
    "cov_out_of_order": ("curvature part out of order", "curvature parts out of order"),
    "sync_before_cov": ("sync before its curvature", "syncs before their curvature"),
    "inv_before_cov": (
        "inversion before its curvature",
        "inversions before their curvature",
    ),
    "inv_before_sync": ("inversion before its sync", "inversions before their sync"),
    "sync_not_aligned": ("sync that does not meet", "syncs that do not meet"),
    "outside_holes": ("op outside the bubbles", "ops outside the bubbles"),
    "overlap": ("overlap", "overlaps"),
    "memory": ("memory excess", "memory excesses"),
}
"""Names of broken rules of K-FAC work, for one op and for several."""


def broken_rules(breaks: Mapping[str, int]) -> str:
    """Write counts of broken rules as text: ``2 syncs before their curvature, 1 overlap``."""
    pairs = ((count, _BROKEN.get(rule, (rule, rule))) for rule, count in breaks.items())
    return ", ".join(f"{count} {words[count != 1]}" for count, words in pairs)


BY_DEVICE = (
    "iterations_of",
    "bound_of",
    "usage_of",
    "bubbles_of",
    "peak_saved_of",
    "ages_of",
    "oldest_of",
    "labels",
    "bounds_by",
    "breaks_of",
)
"""Fields of results and entries that have one entry per device."""


class RefreshFigures(Reported):
    """One refresh of K-FAC work, per device.

    Parameters
    ----------
    iterations : int
        Refresh interval that all devices can keep: the largest of `iterations_of`.
    iterations_of : list of int
        Iterations that each device takes for its work.
    usage_of : list of float
        Busy share of each device over its iterations, in percent.
    bubbles_of : list of number
        Time that stays idle on each device over its iterations.
    peak_saved_of : list of float
        Most saved inputs and errors that wait for their curvature at one moment (in the
        instance's amounts; tensors of one module and micro-batch where it gives none).
    ages_of : list of objects
        Age of each inverse when it is first used, in iterations: 0 where it is ready for the
        preconditioning of the iteration that its curvature comes from.
    oldest_of : list of int
        Age of the oldest inverse just before the next refresh replaces it.
    labels : list of lists of lists of str
        ``labels[device][iteration]``: ops that each device runs, with PipeFisher's markers.
    """

    iterations: int | None = None
    iterations_of: list[int] | None = None
    usage_of: list[float] | None = None
    bubbles_of: list[Figure] | None = None
    peak_saved_of: list[float] | None = None
    ages_of: list[dict[str, int]] | None = None
    oldest_of: list[int | None] | None = None
    labels: list[list[list[str]]] | None = None

    @model_validator(mode="after")
    def _one_entry_per_device(self) -> Self:
        """Refuse lists by device of different lengths: no device would be that of an entry."""
        lengths = {
            name: len(getattr(self, name))
            for name in BY_DEVICE
            if getattr(self, name, None) is not None
        }
        devices = mode(lengths.values()) if lengths else 0
        for name, length in lengths.items():
            if length != devices:
                text = f"expected one entry for each of {devices} devices, got {length}"
                raise InputError(text, field=name, code=ErrorCode.LENGTH)
        return self


class RefreshEntry(HeuristicEntry, RefreshFigures):
    """Entry of a K-FAC heuristic in a report.

    Parameters
    ----------
    breaks, breaks_of
        Ops that break each rule, in all and per device: ``cov_before_data``, ``sync_before_cov``,
        ``inv_before_cov``, ``inv_before_sync``, ``outside_holes``, ``overlap``, ...
    """

    kind: str | None = "kfac"
    value_unit: str | None = ITERATIONS
    breaks: dict[str, int] | None = None
    breaks_of: list[dict[str, int]] | None = None


class TieBreakEntry(Reported):
    """Secondary objective at the fewest iterations, its value and its proven bound."""

    name: TieBreak
    value: Figure
    bound: Figure


class RefreshResult(Result, RefreshFigures):
    """Outcome of `optimize` for a K-FAC instance with a pinned pipeline.

    `value` and `bound` count iterations of the whole cycle.

    Parameters
    ----------
    bound_of : list of int
        Proven lower bound on the iterations of each device (or of those it meets in syncs).
    bounds_by : list of str
        Rule or search that proved each of them.
    tie_break : TieBreakEntry, optional
        The secondary objective at these iterations.
    """

    kind: str | None = "kfac"
    value_unit: str | None = ITERATIONS
    bound_of: list[int] | None = None
    bounds_by: list[str] | None = None
    tie_break: TieBreakEntry | None = None
    heuristics: tuple[RefreshEntry, ...] = ()
