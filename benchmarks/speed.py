"""Measure heuristics and bounds alone: ``python benchmarks/speed.py [NAME...] [--fresh]``.

Three large pipelines with ``time_limit=0``, each in a process of its own: seconds of wall time from
the instance to its result, and peak memory. With ``--fresh`` kernels are compiled first, into an
empty cache folder, as on a new machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

SHARE = Decimal("0.43243243243243246")
NAMES = ("v-24x72", "linear-32x256", "uneven-64x1024")


def main() -> None:
    """Measure the named pipelines, all by default, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, help=", ".join(NAMES))
    parser.add_argument("--fresh", action="store_true", help="also with an empty cache")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.names[0])))
        return
    print("| pipeline | ops | cache | s | GB | value | bound |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in options.names:
        with tempfile.TemporaryDirectory() as folder:
            if options.fresh:
                report(name, "empty", {"PPSOLVE_CACHE_DIR": folder})
                report(name, "filled", {"PPSOLVE_CACHE_DIR": folder})
            else:
                measured(name, {})
                report(name, "filled", {})


def report(name: str, cache: str, variables: dict[str, str]) -> None:
    """Measure once and print the row."""
    row = measured(name, variables)
    print(
        f"| {name} | {row['ops']} | {cache} | {row['seconds']:.2f} | {row['gigabytes']:.2f} "
        f"| {row['value']} | {row['bound']} |",
        flush=True,
    )


def measured(name: str, variables: dict[str, str]) -> Any:
    """Return the figures of one pipeline, measured by a process with more environment variables."""
    command = [sys.executable, str(Path(__file__)), name, "--one"]
    done = subprocess.run(
        command,
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def measure(name: str) -> dict[str, Any]:
    """Solve one pipeline here and now."""
    import ppsolve
    from ppsolve.solver.api.kinds import lower

    instance = pipeline(name)
    began = time.perf_counter()
    result = ppsolve.optimize(instance, time_limit=0)
    seconds = time.perf_counter() - began
    return {
        "ops": lower(instance).num_ops,
        "seconds": seconds,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "value": result.value,
        "bound": result.bound,
    }


def pipeline(name: str) -> Any:
    """Return the pipeline of that name, with memory for p micro-batches on p devices."""
    from ppsolve.solver.studies.generate.flags import PerDevice
    from ppsolve.solver.studies.generate.instances import generate

    devices, microbatches = (int(part) for part in name.split("-")[1].split("x"))
    rng = random.Random(1)
    times: dict[str, Any] = {
        "forward": Decimal(100),
        "backward_input": Decimal(105),
        "backward_weight": Decimal(70),
    }
    if not name.startswith("v-"):
        for kind, low, high in (
            ("forward", 90, 110),
            ("backward_input", 90, 110),
            ("backward_weight", 60, 80),
        ):
            times[kind] = tuple(Decimal(rng.randint(low, high)) for _ in range(devices))
    return generate(
        name=name,
        devices=devices,
        microbatches=microbatches,
        placement="vshape" if name.startswith("v-") else "linear",
        **times,
        p2p=Decimal(4),
        share=SHARE,
        capacity=PerDevice(Decimal(1)),
    )


if __name__ == "__main__":
    main()
