"""How far large programs are from proved: ``python benchmarks/overlap_large.py [--seconds S]``.

FSDP steps of 1,010 nodes with 0.8 to 1.2 times as much communication as compute, collective order
frozen and free, solved within the time limit; then one of 5,006 nodes with heuristics and
bounds only. Prints a line for each.
"""

from __future__ import annotations

import argparse
import time

from make_overlap_instances import uneven_fsdp

import ppsolve
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.labels import NodeKind


def fsdp(layers: int, gather: int, order: str, seed: int) -> OverlapInstance:
    """Return an FSDP step with uneven layers; `gather` is about how long a gather takes."""
    name = f"fsdp-{layers}l-{gather}-{order}-{seed}"
    return uneven_fsdp(name, layers, order, gather=gather, seed=seed)


def report(instance: OverlapInstance, seconds: float) -> None:
    """Solve and print one line."""
    compute, comm = (
        sum(node.duration for node in instance.nodes if node.kind is kind)
        for kind in (NodeKind.COMPUTE, NodeKind.COMM)
    )
    began = time.perf_counter()
    result = ppsolve.optimize(instance, time_limit=seconds, workers=2)
    took = time.perf_counter() - began
    gap = "-" if result.gap is None else f"{result.gap:.3%}"
    print(
        f"{instance.name:24} {len(instance.nodes):5} nodes, comm/compute {comm / compute:.2f}: "
        f"{result.status} {result.value}, bound {result.bound}, gap {gap}, {took:.1f} s",
        flush=True,
    )


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    for seed in (1, 2):
        for gather in (150, 190, 225):
            for order in ("frozen", "free"):
                report(fsdp(84, gather, order, seed), seconds)
    for order in ("frozen", "free"):
        report(fsdp(417, 170, order, 1), 0.0)


if __name__ == "__main__":
    main()
