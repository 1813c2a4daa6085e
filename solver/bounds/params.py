"""Limits of effort of lower bounds. Less effort gives weaker bounds, never wrong ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ppsolve.solver.clock import Clock


@dataclass(frozen=True)
class BoundsParams:
    """Limits of effort; all counts are the same whether kernels are compiled or not."""

    return_moments: int = 48  # moments at which first returns are counted
    kept_numbers: int = (
        32_000_000  # heads and tails of devices kept between rules, 8 bytes each
    )
    others_share: float = (
        0.3  # share of the time left for all resources around every device
    )
    raised_devices: int = 4  # devices whose heads are raised by the work under memory
    joint_rounds: int = 16  # rounds of begins and ends of all devices together

    raised_acquires: int = 256  # acquires of a lane whose heads are raised
    memory_rounds: int = 8  # rounds of raising and propagation
    memory_sums: int = (
        10_000_000  # sums a round; beyond, acquires and moments are left out
    )

    chain_ends: int = (
        32  # ops of a micro-batch at which the way past the others begins and ends
    )
    chain_terms: int = 100_000  # squared ends times micro-batches
    drained_resources: int = (
        2  # resources that finish micro-batches, in the order of their bounds
    )
    drain_nodes: int = 1_000  # nodes of a tree of orders at first
    more_nodes: tuple[int, ...] = (
        20_000,
        100_000,
        500_000,
    )  # where bound and schedule differ
    drain_share: float = 0.1  # share of the time left for these larger trees
    placed_ops: int = 2_000_000  # ops placed by the search over two resources
    pair_share: float = 0.2  # share of the time left for that search

    frontier_steps: int = 100_000  # labels made for a device alone
    frontier_widths: tuple[int, ...] = (
        1,
        4,
        16,
    )  # labels of a level in searches for an end
    frontier_merged: int = 128  # labels of a state; beyond, two become one
    frontier_call: int = 65_536  # labels made between two looks at the clock
    frontier_rows: int = 64  # micro-batches on their way on a device
    frontier_sums: int = 1_024  # amounts that loose work may hold
    frontier_states: int = 64  # room for states of a level at first
    frontier_labels: int = 256  # room for labels of a level at first
    frontier_words: int = 2**23  # most numbers in labels, 8 bytes each


@dataclass(frozen=True)
class FrontierParams:
    """The bound by frontiers of several devices; effort in labels made."""

    share: float = 0.2  # of the time of the exact search
    steps: int = 8_000_000  # labels in all
    unit_steps: int = 1_000_000  # labels that count as a unit of deterministic time
    width: int = 32  # labels of a level in the first round, to choose the next device
    proving: int = 16  # times as many for the device that was chosen
    wider: int = 4  # times as many in each round as in the one before
    rows: int = 8  # rows that say what a device alone still takes from a state
    states: int = 20_000  # of a device alone up to which that is looked up


DEFAULT_PARAMS = BoundsParams()


class BoundsEffort(NamedTuple):
    """How far bounds go: costly parts are cut short once the clock is over, still validly."""

    clock: Clock = Clock()
    params: BoundsParams = DEFAULT_PARAMS


ENDLESS = BoundsEffort()
