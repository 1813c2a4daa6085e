"""Results of overlap instances: a program order and the figures of its schedule."""

from __future__ import annotations

from ppsolve.models.core.result import Figure, HeuristicEntry, Reported, Result


class ExposedCollective(Reported):
    """A collective that the compute stream waits for.

    `waited` is the time for which its wait holds the compute stream; `because` the chain of nodes
    that ends with it, each of which starts as soon as the one before it allows.
    """

    name: str
    waited: Figure
    because: tuple[str, ...] = ()


class ProgramFigures(Reported):
    """A program order on its streams.

    `order` names the nodes in program order, `exposed_wait` is the time for which all waits hold
    the compute stream, `max_in_flight` the most collectives of one group between their place in the
    order and their wait's, `peak_live_bytes` the most bytes of outputs held at once. `estimate` and
    `estimate_seed` are Inductor's own estimates; the second is None once two collectives run at the
    same time.
    """

    order: list[str] | None = None
    exposed_wait: Figure | None = None
    max_in_flight: int | None = None
    peak_live_bytes: float | None = None
    estimate: Figure | None = None
    estimate_seed: Figure | None = None


class OverlapEntry(HeuristicEntry, ProgramFigures):
    """Result of one heuristic on a program."""

    kind: str | None = "overlap"


class OverlapResult(Result, ProgramFigures):
    """Outcome of `optimize` for an overlap instance.

    `exposed` lists the collectives that are not hidden, the longest wait first. `in_flight_curve`
    and `live_bytes_curve` give, from each time on, the collectives of all groups between their
    launch and the end of their wait, and the bytes held. `least_peak_bytes` is the proven lower
    bound on the peak of live bytes at this makespan, where it was minimised.
    """

    kind: str | None = "overlap"
    exposed: tuple[ExposedCollective, ...] = ()
    in_flight_curve: list[tuple[Figure, int]] | None = None
    live_bytes_curve: list[tuple[Figure, float]] | None = None
    least_peak_bytes: float | None = None
    heuristics: tuple[OverlapEntry, ...] = ()
