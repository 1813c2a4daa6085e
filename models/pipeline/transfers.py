"""Transfers between stages: where they go, and whether their units look right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import pairwise

from ppsolve.models.pipeline.entries import decimals, entry_at, row_of
from ppsolve.models.pipeline.instance import PipelineInstance

VANISHING, DOMINATING = Fraction(1, 10**6), 10**3
"""Share of the shortest op below which transfers are questioned, and multiple of the longest one
above which they are. In the 90 pipelines of `instances/` with transfers or latencies, the longest
takes at least 0.018 times the shortest op and at most as long as the longest one. A wrong unit (ms
for us, GB for MB) is a factor of 1000: one is noticed where transfers weigh most."""


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


def doubtful_units(instance: PipelineInstance) -> Iterator[str]:
    """Yield a line for each field of the transfers whose unit looks wrong: at most two.

    Transfers or latencies are questioned that are all shorter than `VANISHING` times the shortest
    op, or of which one is longer than `DOMINATING` times the longest op. Times of zero are none.
    """
    instance = instance.in_numbers()
    entries = instance.times.by_kind().values()
    ops = {time for entry in entries for time in decimals(entry) if time > 0}
    if not ops:
        return
    found = hops(instance)
    latencies = [entry_at(instance.p2p.latency, *pair) for _, *pair in found]
    questions = {
        "p2p.bandwidth": ("a transfer takes", _transfers(instance, found)),
        "p2p.latency": ("it is", latencies),
    }
    for field, (what, times) in questions.items():
        odd = _odd(times, Fraction(min(ops)), Fraction(max(ops)))
        if odd is not None:
            time, relation, op = odd
            yield (
                f"{field}: {what} {float(time):.2G} {instance.time_unit} where the {relation} op "
                f"takes {float(op):.2G} {instance.time_unit}: is the unit right?"
            )


def _transfers(
    instance: PipelineInstance, over: Iterable[tuple[int, int, int]]
) -> Iterator[Fraction]:
    for boundary, source, target in over if instance.p2p.mode != "delay" else ():
        bandwidth = entry_at(instance.p2p.bandwidth, source, target)
        sizes = set(row_of(instance.p2p.bytes, boundary))
        yield from (Fraction(size) / bandwidth for size in sizes)


def _odd(
    times: Iterable[Fraction], least: Fraction, most: Fraction
) -> tuple[Fraction, str, Fraction] | None:
    longest = max(times, default=Fraction(0))
    if longest > DOMINATING * most:
        return longest, "longest", most
    if 0 < longest < VANISHING * least:
        return longest, "shortest", least
    return None
