"""Published schedules of pipelines with parts that no published order knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request


class Adapter(NamedTuple):
    """A greedy rule: what a published order does not know is left out, and added afterwards."""

    # of pipelines: there, or true, where they have the part
    attribute: str
    # asks the heuristic about the pipeline without the part, and adds it to the schedule
    propose: Callable[[Heuristic, Request], Proposal]


def adapted(heuristic: Heuristic, *adapters: Adapter) -> Heuristic:
    """Return a published schedule that also runs pipelines with parts, the first one outermost."""

    def propose(request: Request) -> Proposal:
        for adapter in adapters:
            if getattr(request.instance, adapter.attribute):
                return adapter.propose(everywhere, request)
        proposal: Proposal = heuristic.propose(request)
        return proposal

    everywhere = replace(heuristic, propose=propose)
    return everywhere
