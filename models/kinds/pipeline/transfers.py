"""Transfers between stages: where they go, and whether their units look right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from ppsolve.models.kinds.pipeline.entries import decimals, entry_at, row_of

if TYPE_CHECKING:
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance


def hops(instance: PipelineInstance) -> list[tuple[int, int, int]]:
    """Return each stage boundary with the devices that a transfer over it goes from and to."""
    return sorted(
        {
            (boundary, source, target)
            for devices in instance.stage_devices_of_pipes()
            for boundary, (a, b) in enumerate(pairwise(devices))
            for source, target in ((a, b), (b, a))
            if a != b
        }
    )


def transfer_times(
    instance: PipelineInstance, over: Iterable[tuple[int, int, int]]
) -> Iterator[Fraction]:
    """Yield the time of each transfer without its latency; none where transfers are delays.

    There is one for each boundary and size, in the unit of the instance.
    """
    for boundary, source, target in over if instance.p2p.has_ops else ():
        bandwidth = entry_at(instance.p2p.bandwidth, source, target)
        sizes = set(row_of(instance.p2p.bytes, boundary))
        yield from (Fraction(size) / bandwidth for size in sizes)


def doubtful_units(instance: PipelineInstance) -> Iterator[str]:
    """Yield a line for each field of the transfers whose unit looks wrong: at most two.

    A wrong unit (ms for us, GB for MB) is a factor of 1000. Transfers or latencies are questioned
    of which one is longer than 1000 times the longest op, or that are all shorter than a millionth
    of the shortest one: the shipped pipelines stay from 0.018 to 1. Times of zero are none.
    """
    instance = instance.in_numbers()
    entries = instance.times.by_kind().values()
    ops = {time for entry in entries for time in decimals(entry) if time > 0}
    over = hops(instance)
    latencies = [entry_at(instance.p2p.latency, *pair) for _, *pair in over]
    questions = {
        "p2p.bandwidth": ("a transfer takes", transfer_times(instance, over)),
        "p2p.latency": ("it is", latencies),
    }
    shortest, longest = Fraction(min(ops)), Fraction(max(ops))
    for field, (subject, times) in questions.items():
        time = max(times, default=Fraction(0))
        if time > 1000 * longest:
            relation, op = "longest", longest
        elif 0 < time < shortest / 10**6:
            relation, op = "shortest", shortest
        else:
            continue
        yield (
            f"{field}: {subject} {float(time):.2G} {instance.time_unit} where the {relation} op "
            f"takes {float(op):.2G} {instance.time_unit}: is the unit right?"
        )
