"""DynaPipe's other schedulers: first in, first out, and fixed orders of directions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain

from ppsolve.solver.pipeline.event_driven.events import (
    BackwardsFirst,
    FirstCome,
    InTurn,
    Waits,
    serve,
)
from ppsolve.solver.pipeline.event_driven.route import Route, RouteRun, Visit

Turn = tuple[bool, int]
"""Whether a turn is a forward, and its micro-batch."""


def fifo(route: Route) -> RouteRun:
    """Let every queue serve what arrived first (DynaPipe, Jiang et al., EuroSys 2024)."""
    return serve(route, [FirstCome() for _ in range(route.num_queues)])


def strict_1f1b(route: Route) -> RouteRun:
    """Run 1F1B, interleaved where devices have several stages; transfers go in the same order.

    The order of each device is one of micro-batches and directions; which of its stages has a turn
    is what has arrived (DynaPipe, Jiang et al., EuroSys 2024).
    """
    return _strict(route, {})


def relaxed_1f1b(route: Route) -> RouteRun:
    """Run what is there, backwards first, at most p forwards more than backwards on any queue.

    As published, the cap holds for queues that send too: that of device 0 has no backwards, so that
    it stops after p micro-batches (DynaPipe, awslabs repository, HEAD 2023-12-08).
    """
    count, is_forward = route.num_devices, route.shape.is_forward
    return serve(route, [BackwardsFirst(is_forward, count) for _ in range(route.num_queues)])


def interleaved_cyclic_1f1b(route: Route) -> RouteRun:
    """Run interleaved 1F1B with a barrier between the backwards of a round and the next forwards.

    In round r, device d runs forward r of those that its lead leaves, counted from the p - d - 1
    before, and backward r - (p - d - 1). The published code counts stages without transfers where
    it sets its barriers, and with them where it obeys them, so that few hold anything up: this
    does the same, as the published figures need it (DynaPipe, awslabs repository, HEAD 2023-12-08).
    """
    chunks = route.shape.num_stages // route.num_devices
    rounds = chunks * route.num_microbatches - route.num_devices
    forwards, backwards = _rounds(route, is_forward=True), _rounds(route, is_forward=False)
    return _strict(
        route,
        {
            visit: backwards[number - 1]
            for number in range(1, rounds)
            for visit in forwards.get(number, ())
            if number - 1 in backwards
        },
    )


def _rounds(route: Route, *, is_forward: bool) -> dict[int, list[Visit]]:
    # Stages are counted without transfers here.
    devices, stages = route.num_devices, route.shape.num_stages
    found: dict[int, list[Visit]] = defaultdict(list)
    for device in range(devices):
        behind = devices - device - 1
        turns = [k for forward, k in turns_1f1b(route, device) if forward == is_forward]
        skipped = _lead(route, device) - behind if is_forward else -behind
        first = device if is_forward else stages + behind
        passed: Counter[int] = Counter()
        for place, microbatch in enumerate(turns):
            position = first + passed[microbatch] * devices
            found[place - skipped].append(Visit(position, microbatch))
            passed[microbatch] += 1
    return found


def _strict(route: Route, waits: Waits) -> RouteRun:
    is_forward = route.shape.is_forward
    last = route.num_devices - 1
    plans = [turns_1f1b(route, device) for device in range(route.num_devices)]
    sent = [_without_last(plan, at_end=True) if d == last else plan for d, plan in enumerate(plans)]
    sent[0] = _without_last(sent[0], at_end=False)
    through = [
        [turn for turn in sent[device] if turn[0] in directions]
        for device, directions in route.sending
    ]

    def turn_of(visit: Visit) -> Turn:
        return is_forward(visit.position), visit.microbatch

    return serve(route, [InTurn(plan, turn_of) for plan in (*through, *plans)], waits)


def turns_1f1b(route: Route, device: int) -> list[Turn]:
    """Return the turns of a device under 1F1B.

    The lead is that of Megatron (Narayanan et al. 2021): devices behind this one, twice and a
    group of micro-batches per further chunk where stages are interleaved. Then a forward and a
    backward in turn, then the backwards that are left.

    Parameters
    ----------
    route : Route
    device : int
        The device.

    Returns
    -------
    list of Turn
    """
    devices, count = route.num_devices, route.num_microbatches
    chunks = route.shape.num_stages // devices
    groups = [range(first, min(first + devices, count)) for first in range(0, count, devices)]
    turns = [k for group in groups for _ in range(chunks) for k in group]
    lead = min(_lead(route, device), len(turns))
    pairs = zip(turns[lead:], turns, strict=False)
    steady = chain.from_iterable(((True, ahead), (False, back)) for ahead, back in pairs)
    first = [(True, k) for k in turns[:lead]]
    return [*first, *steady, *((False, k) for k in turns[len(turns) - lead :])]


def _lead(route: Route, device: int) -> int:
    behind = route.num_devices - device - 1
    chunks = route.shape.num_stages // route.num_devices
    return behind if chunks == 1 else 2 * behind + (chunks - 1) * route.num_devices


def _without_last(turns: Sequence[Turn], *, at_end: bool) -> list[Turn]:
    # Nothing is sent after the last turn of a micro-batch in a direction.
    seen: set[Turn] = set()
    kept: list[Turn] = []
    for turn in reversed(turns):
        if turn[0] == at_end and turn not in seen:
            seen.add(turn)
        else:
            kept.append(turn)
    return kept[::-1]
