"""DynaPipe's schedulers (Jiang et al., EuroSys 2024) for pipelines with unequal micro-batches."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import numpy as np

from ppsolve.models.core.dag import Edges, chain_edges
from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.models.documents.errors import HeuristicFailedError, NotApplicableError
from ppsolve.solver.heuristics.heuristic import (
    Heuristic,
    Proposal,
    Request,
    Requirement,
)
from ppsolve.solver.kinds.pipeline.actions import (
    FULL,
    Order,
    action_strings,
    schedule_actions,
)
from ppsolve.solver.kinds.pipeline.event_driven.route import (
    BackwardsFirst,
    FirstCome,
    InTurn,
    Route,
    RouteRun,
    Visit,
    Waits,
    route_of,
    serve,
    visit_ops,
)
from ppsolve.solver.kinds.pipeline.published import (
    A_PIPELINE,
    LOOPED,
    ONE_PIPE,
    ONE_STAGE,
    UNEQUAL,
)

Turn = tuple[bool, int]
"""Whether a turn is a forward, and its micro-batch."""


def fifo(route: Route) -> RouteRun:
    """Let every queue serve what arrived first."""
    return serve(route, [FirstCome() for _ in range(route.num_queues)])


def relaxed_1f1b(route: Route) -> RouteRun:
    """Run what is there, backwards first, at most p forwards more than backwards on any queue.

    As published, the cap holds for queues that send too: that of device 0 has no backwards, so that
    it stops after p micro-batches (awslabs repository, HEAD 2023-12-08).
    """
    count, is_forward = route.num_devices, route.shape.is_forward
    return serve(
        route, [BackwardsFirst(is_forward, count) for _ in range(route.num_queues)]
    )


def interleaved_cyclic_1f1b(route: Route) -> RouteRun:
    """Run interleaved 1F1B with a barrier between the backwards of a round and the next forwards.

    In round r, device d runs forward r of those that its lead leaves, counted from the p - d - 1
    before, and backward r - (p - d - 1). The published code counts stages without transfers where
    it sets its barriers, and with them where it obeys them, so that few hold anything up: this
    does the same, as the published figures need it (awslabs repository, HEAD 2023-12-08).
    """
    chunks = route.shape.num_stages // route.num_devices
    rounds = chunks * route.num_microbatches - route.num_devices
    forwards, backwards = (
        _rounds(route, is_forward=True),
        _rounds(route, is_forward=False),
    )
    return strict_1f1b(
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
    rounds: dict[int, list[Visit]] = defaultdict(list)
    for device in range(devices):
        behind = devices - device - 1
        turns = [k for forward, k in turns_1f1b(route, device) if forward == is_forward]
        skipped = _lead(route, device) - behind if is_forward else -behind
        first = device if is_forward else stages + behind
        passed: Counter[int] = Counter()
        for number, microbatch in enumerate(turns):
            position = first + passed[microbatch] * devices
            rounds[number - skipped].append(Visit(position, microbatch))
            passed[microbatch] += 1
    return rounds


def strict_1f1b(route: Route, waits: Waits | None = None) -> RouteRun:
    """Run 1F1B, interleaved where devices have several stages; transfers go in the same order.

    The order of each device is one of micro-batches and directions; which of its stages has a turn
    is what has arrived. Some visits may wait for others besides.
    """
    shape, last = route.shape, route.num_devices - 1
    plans = [turns_1f1b(route, device) for device in range(route.num_devices)]
    sent = [
        _without_last(plan, at_end=True) if d == last else plan
        for d, plan in enumerate(plans)
    ]
    sent[0] = _without_last(sent[0], at_end=False)
    through = []
    for queue in range(route.compute_queue(0)):
        positions = np.flatnonzero(route.queue == queue).tolist()
        device = route.stage_to_device[shape.stage(positions[0])]
        directions = {shape.is_forward(position) for position in positions}
        through.append([turn for turn in sent[device] if turn[0] in directions])

    def turn_of(visit: Visit) -> Turn:
        return shape.is_forward(visit.position), visit.microbatch

    return serve(route, [InTurn(plan, turn_of) for plan in (*through, *plans)], waits)


def turns_1f1b(route: Route, device: int) -> list[Turn]:
    """Return the turns of a device under 1F1B.

    The lead is that of Megatron (Narayanan et al. 2021): devices behind this one, twice and a
    group of micro-batches per further chunk where stages are interleaved. Then a forward and a
    backward in turn, then the backwards that are left.
    """
    devices, count = route.num_devices, route.num_microbatches
    chunks = route.shape.num_stages // devices
    groups = [
        range(first, min(first + devices, count)) for first in range(0, count, devices)
    ]
    turns = [k for group in groups for _ in range(chunks) for k in group]
    lead = min(_lead(route, device), len(turns))
    pairs = zip(turns[lead:], turns, strict=False)
    steady = chain.from_iterable(
        ((True, ahead), (False, back)) for ahead, back in pairs
    )
    first = [(True, k) for k in turns[:lead]]
    return [*first, *steady, *((False, k) for k in turns[len(turns) - lead :])]


def _lead(route: Route, device: int) -> int:
    behind = route.num_devices - device - 1
    chunks = route.shape.num_stages // route.num_devices
    return behind if chunks == 1 else 2 * behind + (chunks - 1) * route.num_devices


def _without_last(turns: Sequence[Turn], *, at_end: bool) -> list[Turn]:
    # Nothing is sent after the last turn of a micro-batch in a direction.
    last = {turn: index for index, turn in enumerate(turns) if turn[0] == at_end}
    return [turn for index, turn in enumerate(turns) if last.get(turn) != index]


def cyclic(route: Route, *, keeps_room: bool = False) -> RouteRun:
    """Run all micro-batches in rounds (section 5).

    In a round each queue serves the first waiting visit of each of its positions, backwards and
    forwards in turn, a backward first, lower micro-batches first. What becomes ready waits for the
    next round; only transfers of what a round computes go out in that round, from its start, as
    published: where transfers take time, no real schedule does that.

    To keep room, a forward is put off that would need more memory than its device has, but never
    one of the first micro-batch, or of one that the device has begun. The run is not complete where
    all that is left is put off.
    """
    return _Rounds(route, keeps_room=keeps_room).run()


def wait_free_cyclic(route: Route) -> RouteRun:
    """Run the orders of `cyclic` without waiting for rounds.

    As published, the rounds know nothing about memory as long as their orders fit by themselves.
    """
    rounds = cyclic(route)
    if not rounds.fits:
        careful = cyclic(route, keeps_room=True)
        rounds = careful if careful.is_complete else rounds
    return serve(
        route, [InTurn(served, lambda visit: visit) for served in rounds.served]
    )


class _Rounds:
    def __init__(self, route: Route, *, keeps_room: bool) -> None:
        self.route = route
        self.duration = route.duration.tolist()
        self.queue: list[int] = route.queue.tolist()
        self.waiting: list[deque[int]] = [deque() for _ in self.queue]
        self.waiting[0].extend(range(route.num_microbatches))
        self.ready: list[Visit] = []
        self.start = np.full_like(route.duration, FREE)
        self.served: list[list[Visit]] = [[] for _ in range(route.num_queues)]
        self.memory = route.memory if keeps_room else None
        self.used = [0] * route.num_devices
        self.latest = [0] * route.num_devices
        self.now = self.end = 0

    def run(self) -> RouteRun:
        queues = range(len(self.served))
        sending = queues[: -self.route.num_devices]
        moved = True
        while moved:
            moved = self._take_turns(queues)
            # What a round computes is sent in that round.
            moved |= self._take_turns(sending)
            self.now = self.end
        return RouteRun(self.route, self.served, self.start)

    def _take_turns(self, queues: range) -> bool:
        moved = [self._serve(queue) for queue in queues]
        for position, microbatch in self.ready:
            self.waiting[position].append(microbatch)
        self.ready.clear()
        return any(moved)

    def _serve(self, queue: int) -> bool:
        heads = self._first_of_each(queue)
        if not heads:
            return False
        time, count = self.now, len(self.served[queue])
        for visit in heads:
            if not self._admits(visit):
                continue
            position, microbatch = visit
            self.waiting[position].popleft()
            self.start[visit] = time
            time += self.duration[position][microbatch]
            self.served[queue].append(visit)
            if position + 1 < len(self.queue):
                self.ready.append(Visit(position + 1, microbatch))
        self.end = max(self.end, time)
        return len(self.served[queue]) > count

    def _first_of_each(self, queue: int) -> list[Visit]:
        # Backwards and forwards in turn.
        positions = [
            v
            for v, served in enumerate(self.queue)
            if served == queue and self.waiting[v]
        ]
        backwards, forwards = (
            sorted(
                (self.waiting[v][0], v)
                for v in positions
                if self.route.shape.is_forward(v) == is_forward
            )
            for is_forward in (False, True)
        )
        heads = chain.from_iterable(zip_longest(backwards, forwards))
        return [Visit(head[1], head[0]) for head in heads if head is not None]

    def _admits(self, visit: Visit) -> bool:
        # Uses the memory if there is room.
        position, microbatch = visit
        shape, memory = self.route.shape, self.memory
        if memory is None or shape.is_transfer(position):
            return True
        stage = shape.stage(position)
        device = self.route.stage_to_device[stage]
        if not shape.is_forward(position):
            self.used[device] -= int(memory.stored[stage, microbatch])
            return True
        needed = self.used[device] + int(memory.peak[stage, microbatch])
        if microbatch > self.latest[device] and needed > int(memory.room[device]):
            return False
        self.latest[device] = max(self.latest[device], microbatch)
        self.used[device] += int(memory.stored[stage, microbatch])
        return True


@dataclass(frozen=True)
class EventDriven:
    """Runs a scheduler that decides while time goes by, on micro-batches in a given order."""

    rule: Callable[
        [Route], RouteRun
    ]  # runs all micro-batches of a route in their order
    # Whether ops wait until the run starts them, instead of starting as early as its orders
    # allow.
    has_barriers: bool = False
    sends_ahead: bool = (
        False  # whether transfers start together with the op that feeds them
    )

    def __call__(
        self, request: Request, permutation: IntArray | None = None
    ) -> Proposal:
        """Run the scheduler on the micro-batch at each place of an order, by index by default.

        A `NotApplicableError` says that it sends ahead and transfers take time, a
        `HeuristicFailedError` that the queues wait for each other.
        """
        route = route_of(request.instance, request.problem)
        sending = route.shape.is_transfer(route.shape.positions)
        if self.sends_ahead and (
            route.duration[sending].any() or route.lag[sending].any()
        ):
            raise NotApplicableError(
                "needs transfers that take no time: its rounds start a transfer together with the "
                "op that feeds it"
            )
        if permutation is None:
            permutation = np.arange(route.num_microbatches)
        run = self.rule(route.permuted(permutation))
        if not run.is_complete:
            raise HeuristicFailedError("its queues wait for each other")
        orders = _orders(run, permutation)
        ops = visit_ops(request.problem, route.shape)[:, :, permutation]
        edges = [] if self.sends_ahead else [_sending_orders(run, ops)]
        edges += [_no_earlier(run, ops)] if self.has_barriers else []
        return Proposal(
            schedule_actions(request.problem, orders, *edges), action_strings(orders)
        )


def _orders(run: RouteRun, permutation: IntArray) -> list[Order]:
    route, shape = run.route, run.route.shape
    orders = []
    for device in range(route.num_devices):
        position, number = (
            np.array(run.served[route.compute_queue(device)]).reshape(-1, 2).T
        )
        kind = np.where(shape.is_forward(position), 0, FULL)
        orders.append(Order(shape.stage(position), kind, permutation[number]))
    return orders


def _sending_orders(run: RouteRun, ops: IntArray) -> Edges:
    sent = run.served[: -run.route.num_devices]
    chains = [
        np.array([ops[0][visit] for visit in visits], dtype=np.int64) for visits in sent
    ]
    return chain_edges([chain[chain != FREE] for chain in chains])


def _no_earlier(run: RouteRun, ops: IntArray) -> Edges:
    # The first visit starts at time 0 and all forwards and backwards after its end, so that a lag
    # behind it says when.
    first = ops[0, 0, 0]
    is_held = ops[0] != first
    is_held[run.route.shape.is_transfer(run.route.shape.positions)] = False
    after = ops[0][is_held]
    lag = run.start[is_held] - run.route.duration[0, 0]
    return np.full(len(after), first), after, lag


DYNAPIPE = "DynaPipe: Jiang et al. 2024"


def _dynapipe(
    name: str, summary: str, scheduler: EventDriven, *requirements: Requirement
) -> Heuristic:
    needs = (ONE_PIPE, *requirements, UNEQUAL)
    return Heuristic(name, summary, scheduler, A_PIPELINE, needs, source=DYNAPIPE)


EVENT_DRIVEN = (
    _dynapipe(
        "fifo", "every device and queue serves what arrived first", EventDriven(fifo)
    ),
    _dynapipe(
        "cyclic",
        "rounds with a barrier: a backward and a forward of each stage a round",
        EventDriven(cyclic, has_barriers=True, sends_ahead=True),
    ),
    _dynapipe(
        "wait-free-cyclic",
        "the orders of cyclic without its barriers; keeps memory if it must",
        EventDriven(wait_free_cyclic),
    ),
    _dynapipe(
        "relaxed-1f1b",
        "what is there, backwards first",
        EventDriven(relaxed_1f1b),
        ONE_STAGE,
        Requirement(
            "at most as many micro-batches as devices",
            lambda instance: instance.num_microbatches <= instance.num_devices,
        ),
    ),
    _dynapipe(
        "interleaved-cyclic-1f1b",
        "interleaved 1F1B with a barrier between its rounds",
        EventDriven(interleaved_cyclic_1f1b, has_barriers=True),
        LOOPED,
        Requirement(
            "a multiple of the devices as micro-batches",
            lambda instance: instance.num_microbatches % instance.num_devices == 0,
        ),
    ),
)
"""Published schedulers for unequal micro-batches that decide while time goes by."""
