"""DynaPipe's schedulers as named heuristics for pipelines with unequal micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.documents.errors import HeuristicFailedError, NotApplicableError
from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request, Requirement
from ppsolve.solver.pipeline.actions import action_strings, schedule_actions
from ppsolve.solver.pipeline.event_driven.cyclic import cyclic, wait_free_cyclic
from ppsolve.solver.pipeline.event_driven.route import Route, RouteRun
from ppsolve.solver.pipeline.event_driven.rules import fifo, interleaved_cyclic_1f1b, relaxed_1f1b
from ppsolve.solver.pipeline.event_driven.translation import (
    no_earlier,
    orders_of_run,
    route_of,
    sending_orders,
    visit_ops,
)
from ppsolve.solver.pipeline.published import A_PIPELINE, LOOPED, ONE_PIPE, ONE_STAGE, UNEQUAL

WHOLE_GROUPS = Requirement(
    "a multiple of the devices as micro-batches",
    lambda instance: instance.num_microbatches % instance.num_devices == 0,
)

FEW = Requirement(
    "at most as many micro-batches as devices",
    lambda instance: instance.num_microbatches <= instance.num_devices,
)

DYNAPIPE = "DynaPipe: Jiang et al. 2024"


@dataclass(frozen=True)
class EventDriven:
    """Runs a scheduler that decides while time goes by, on micro-batches in a given order.

    Parameters
    ----------
    rule : callable
        Runs all micro-batches of a route in their order.
    has_barriers : bool
        Whether ops wait until the run starts them, instead of starting as early as its orders
        allow.
    sends_ahead : bool
        Whether transfers start together with the op that feeds them.
    """

    rule: Callable[[Route], RouteRun]
    has_barriers: bool = False
    sends_ahead: bool = False

    def __call__(self, request: Request, permutation: IntArray | None = None) -> Proposal:
        """Run the scheduler.

        Parameters
        ----------
        request : Request
        permutation : int64[m], optional
            The micro-batch at each place of the order; by index by default.

        Returns
        -------
        Proposal

        Raises
        ------
        NotApplicableError
            It sends ahead, and transfers take time.
        HeuristicFailedError
            The queues wait for each other.
        """
        route = route_of(request.instance, request.problem)
        if self.sends_ahead and takes_time_to_send(route):
            raise NotApplicableError(
                "needs transfers that take no time: its rounds start a transfer together with the "
                "op that feeds it"
            )
        if permutation is None:
            permutation = np.arange(route.num_microbatches)
        run = self.rule(route.permuted(permutation))
        if not run.is_complete:
            raise HeuristicFailedError("its queues wait for each other")
        orders = orders_of_run(run, permutation)
        ops = visit_ops(request.problem, route.shape)[:, :, permutation]
        edges = [] if self.sends_ahead else [sending_orders(run, ops)]
        edges += [no_earlier(run, ops)] if self.has_barriers else []
        return Proposal(schedule_actions(request.problem, orders, *edges), action_strings(orders))


def takes_time_to_send(route: Route) -> bool:
    """Say if any transfer takes time."""
    positions = range(route.shape.num_positions)
    sending = [route.shape.is_transfer(position) for position in positions]
    return bool(route.duration[sending].any() or route.lag[sending].any())


EVENT_DRIVEN = (
    Heuristic(
        "fifo",
        "every device and queue serves what arrived first",
        EventDriven(fifo),
        A_PIPELINE,
        (ONE_PIPE, UNEQUAL),
        source=DYNAPIPE,
    ),
    Heuristic(
        "cyclic",
        "rounds with a barrier: a backward and a forward of each stage a round",
        EventDriven(cyclic, has_barriers=True, sends_ahead=True),
        A_PIPELINE,
        (ONE_PIPE, UNEQUAL),
        source=DYNAPIPE,
    ),
    Heuristic(
        "wait-free-cyclic",
        "the orders of cyclic without its barriers; keeps memory if it must",
        EventDriven(wait_free_cyclic),
        A_PIPELINE,
        (ONE_PIPE, UNEQUAL),
        source=DYNAPIPE,
    ),
    Heuristic(
        "relaxed-1f1b",
        "what is there, backwards first",
        EventDriven(relaxed_1f1b),
        A_PIPELINE,
        (ONE_PIPE, ONE_STAGE, FEW, UNEQUAL),
        source=DYNAPIPE,
    ),
    Heuristic(
        "interleaved-cyclic-1f1b",
        "interleaved 1F1B with a barrier between its rounds",
        EventDriven(interleaved_cyclic_1f1b, has_barriers=True),
        A_PIPELINE,
        (ONE_PIPE, LOOPED, WHOLE_GROUPS, UNEQUAL),
        source=DYNAPIPE,
    ),
)
"""Published schedulers for unequal micro-batches that decide while time goes by."""
