"""Measure whether time limits are kept: ``python benchmarks/limits.py [--shipped] [--busy N]``.

32 shipped instances of every kind and 28 made ones, up to 196,608 ops, each with every limit in a
process of its own. What counts is the wall time of the call of `ppsolve.optimize`, and of the whole
command once Python has loaded it; a limit is kept within 1.05 times itself and 0.5 s.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FACTOR, EXTRA = 1.05, 0.5
"""A call may take so many times its limit and so many seconds more."""

SHIPPED = (
    "kfac/free",
    "kfac/measured",
    "kfac/pinned",
    "fillers",
    *(
        "few_microbatches",
        "heterogeneous",
        "large",
        "memory_curve",
        "memory_scan",
        "overlap",
    ),
    *(
        "overlap_pipelines",
        "p2p_heavy",
        "published",
        "step_end",
        "tight_memory",
        "uniform",
    ),
    "virtual_stages",
)
"""Folders below ``instances`` of which the first and the largest file are run."""

CALL = """
import json, sys, time
from ppsolve.solver.cli import main
from ppsolve.solver.api import api
limit, path, optimize, seconds = sys.argv[1], sys.argv[2], api.optimize, []
def measured(instance, on_progress=None, **options):
    began = time.monotonic()
    result = optimize(instance, on_progress=lambda event: seconds.append(event.seconds), **options)
    wall = time.monotonic() - began
    quiet = max((b - a for a, b in zip(seconds, seconds[1:])), default=0.0)
    figures = [loaded, wall, quiet, result.status, result.stop_reason, result.gap]
    print(json.dumps(figures), file=sys.stderr, flush=True)
    return result
api.optimize = measured
main.load("optimize")
loaded = time.monotonic()
sys.argv = ["ppsolve", "optimize", path, "--time-limit", limit]
main.run()
"""
"""Program of the process that is measured: the command, around the call of the library."""

BUSY = "while True: pass"


def main() -> None:
    """Measure and print a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--limits", type=float, nargs="+", default=[1.0, 5.0, 20.0], metavar="S"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="instances with this in the name"
    )
    parser.add_argument("--most-ops", type=int, default=10**6, metavar="N")
    parser.add_argument("--shipped", action="store_true", help="shipped instances only")
    parser.add_argument(
        "--busy", type=int, default=0, metavar="N", help="beside N other busy processes"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, _busy(chosen.busy):
        cases = [
            case
            for case in _cases(Path(directory), shipped_only=chosen.shipped)
            if chosen.only in case[0] and case[1] <= chosen.most_ops
        ]
        _warm(Path(directory))
        _measure(cases, chosen.limits)


@contextmanager
def _busy(count: int) -> Iterator[None]:
    neighbours = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for each in neighbours:
            each.kill()


def _warm(directory: Path) -> None:
    """Let kernels be compiled, which no limit below 20 s leaves time for."""
    for objective in ("makespan", "device_span"):
        data = _pipeline("vshape", 16, 128, 2, objective=objective)
        _call(_written(data, directory), 0.0)


def _measure(cases: list[tuple[str, int, Path]], limits: list[float]) -> None:
    print(
        "| instance | ops | limit | wall | command | longest silence | status | beyond |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    beyond, most = 0, 0.0
    for name, ops, path in cases:
        for limit in limits:
            command, wall, quiet, status, reason, gap = _call(path, limit)
            is_beyond = max(wall, command) > FACTOR * limit + EXTRA
            beyond, most = beyond + is_beyond, max(most, command - limit)
            shown = "" if gap is None else f" {100 * gap:.2f} %"
            print(
                f"| {name} | {ops:,} | {limit:g} | {wall:.2f} | {command:.2f} | {quiet:.2f} "
                f"| {status}{shown}, {reason} | {'yes' if is_beyond else ''} |",
                flush=True,
            )
    print(
        f"\n{beyond} of {len(cases) * len(limits)} beyond {FACTOR} x limit + {EXTRA} s"
    )
    print(f"commands take at most {most:.2f} s more than their limit")


def _call(path: Path, limit: float) -> list[Any]:
    """Return seconds of a command and of its call, longest silence, status, stop reason and gap."""
    command = [sys.executable, "-c", CALL, str(limit), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    ended = time.monotonic()
    figures = [line for line in done.stderr.splitlines() if line.startswith("[")]
    if not figures:
        sys.exit(f"{path.name}: {done.stderr}")
    loaded, *answer = json.loads(figures[-1])
    return [ended - loaded, *answer]


def _cases(directory: Path, *, shipped_only: bool) -> list[tuple[str, int, Path]]:
    """Return name, number of ops and file of every instance, by the number of ops."""
    from ppsolve.solver.api.kinds import kind_of, load_instance

    made = [] if shipped_only else _generated()
    paths = [*_shipped(), *(_written(data, directory) for data in made)]
    found = []
    for path in paths:
        instance = load_instance(path)
        task = kind_of(instance).task(instance)
        found.append((path.stem, task.size, path))
    return sorted(found, key=lambda case: case[1])


def _shipped() -> list[Path]:
    found = []
    for folder in SHIPPED:
        files = sorted((ROOT / "instances" / folder).glob("*.json"))
        found += [files[0], max(files[1:], key=lambda path: path.stat().st_size)]
    return found


def _written(data: dict[str, Any], directory: Path) -> Path:
    path = directory / f"{data['name']}.json"
    path.write_text(json.dumps(data))
    return path


def _generated() -> Iterator[dict[str, Any]]:
    for devices, microbatches in ((4, 8), (8, 24), (16, 64), (24, 72), (32, 256)):
        for placement, chunks in (
            ("linear", 1),
            ("vshape", 2),
            ("interleaved", 2),
            ("bidirectional", 1),
        ):
            yield _pipeline(placement, devices, microbatches, chunks)
    for devices, microbatches in ((8, 16), (16, 48), (32, 128)):
        yield _pipeline("linear", devices, microbatches, 1, objective="device_span")
        yield _pipeline("wave", devices, microbatches, 3, capacity=1.5)
    yield _pipeline("linear", 64, 512, 1)
    yield _pipeline("linear", 64, 1024, 1)


def _pipeline(
    placement: str,
    devices: int,
    microbatches: int,
    chunks: int,
    *,
    capacity: float = 1.0,
    objective: str = "makespan",
) -> dict[str, Any]:
    """Return a pipeline with uneven stages and a cap of so many times its devices."""
    rng = random.Random(devices * microbatches)

    def times(least: int, most: int) -> list[int]:
        return [rng.randint(least, most) for _ in range(devices * chunks)]

    return {
        "schema": 1,
        "kind": "pipeline",
        "name": f"{placement}-{devices}x{microbatches}-{objective}",
        "time_unit": "us",
        "num_devices": devices,
        "stages_per_device": chunks,
        "num_microbatches": microbatches,
        "placement": placement,
        "times": {
            "forward": times(90, 110),
            "backward_input": times(90, 110),
            "backward_weight": times(60, 80),
        },
        "p2p": {"latency": 4},
        "memory": {
            "capacity": capacity * devices * chunks,
            "activation": 1,
            "released_by_backward_weight": 0.43243243243243246,
        },
        "objective": objective,
    }


if __name__ == "__main__":
    main()
