"""The optimum of one device with its memory, while all others run any number of ops at once.

Alike rows run in index order, so a device's state is how many of them have passed each op of its
chain. What its pool holds follows from that, whatever the time: all ops of the pool run on one
resource, so whatever was begun before has ended when the next op starts. What time there is left
depends on few moments: when the device is free, and when each row on its way can go on. Of two
labels of a state, the one that is later in every moment is dropped.

Work behind which nothing on the device waits, as a weight gradient, is loose: it may be
interrupted, and put off until memory or the end asks for it. Let A be the end of the last op and E
that of the work which is there by then. An op that takes memory starts no sooner than E less the
most loose work that may still wait beside it: since A the device has done no more of that work
than the time that has passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ppsolve.solver.bounds.frontier_chains import chain_of, device_ops
from ppsolve.solver.bounds.frontier_search import BeamLimits, FrontierSearch
from ppsolve.solver.bounds.one_machine import Reason, largest
from ppsolve.solver.bounds.params import ENDLESS, BoundsEffort
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.kernels.frontier import DeviceChain
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.structure.holds import MemoryInfeasible


class FrontierAnswer(NamedTuple):
    """A lower bound on the end of a chain, in ticks; `NEVER` where no order keeps the pool."""

    bound: int
    is_optimum: bool  # nothing was left out or merged
    steps: int  # labels made


def frontier(relaxations: Relaxations) -> Reason:
    """Return the largest optimum of a device alone, 0 where it does not raise the bound so far.

    A `MemoryInfeasible` says that no order of a device's ops keeps the capacity of its pool.
    """
    clock, lower = relaxations.clock, relaxations.lower
    best, effort = Reason(lower), BoundsEffort(clock, relaxations.params)
    for resource, chain in device_chains(relaxations):
        if clock.is_over:
            break
        bound = least_end(chain, best.value, effort).bound
        if bound == NEVER:
            name = relaxations.problem.resource_names[resource]
            raise MemoryInfeasible(
                f"memory: no order of the ops of {name} keeps its capacity"
            )
        best = largest((best, Reason(bound, resource)))
    return best if best.value > lower else Reason(0)


def device_chains(relaxations: Relaxations) -> Iterator[tuple[int, DeviceChain]]:
    """Yield each device whose memory may delay a chain of alike rows, and the chain."""
    for device in device_ops(relaxations):
        if device.delays_ops and device.needs_search:
            chain = chain_of(relaxations, [device])
            if chain is not None:
                yield device.resource, chain


def least_end(
    chain: DeviceChain, floor: int = 0, effort: BoundsEffort = ENDLESS
) -> FrontierAnswer:
    """Return a lower bound on the end of a chain in ticks, 0 where its optimum is within a floor.

    Ever wider searches look for an end within the floor first.
    """
    steps, params = 0, effort.params
    for width in params.frontier_widths:
        beam = BeamLimits(width, in_turn=True, most_steps=params.frontier_steps)
        narrow = FrontierSearch(chain, floor + 1, beam, effort)
        narrow.run()
        steps += narrow.steps
        if narrow.end <= floor:
            return FrontierAnswer(0, is_optimum=False, steps=steps)
    beam = BeamLimits(merged=params.frontier_merged, most_steps=params.frontier_steps)
    search = FrontierSearch(chain, NEVER, beam, effort)
    search.run()
    return FrontierAnswer(search.lower, search.is_exact, steps + search.steps)
