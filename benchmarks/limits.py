"""Measure whether time limits are kept: ``python benchmarks/limits.py [--with-load]``.

40 instances of 96 to 196,608 ops, each with every limit in a process of its own. What counts is the
wall time of the call of `ppsolve.optimize`; a limit is kept within 1.05 times itself and 0.5 s.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
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
    "overlap",
    "overlap_pipelines",
    "step_end",
)
"""Folders below ``instances`` of which the first and the largest file are run."""

CALL = """
import json, sys, time
import ppsolve
limit, path = float(sys.argv[1]), sys.argv[2]
instance = ppsolve.load_instance(path)
seconds = []
began = last = time.monotonic()
def hear(event):
    seconds.append(event.seconds)
result = ppsolve.optimize(instance, time_limit=limit, on_progress=hear)
wall = time.monotonic() - began
quiet = max((b - a for a, b in zip(seconds, seconds[1:])), default=0.0)
print(json.dumps([wall, quiet, result.status, result.stop_reason, result.gap]))
"""
"""Program of the process that is measured."""

BUSY = "while True: pass"


def main() -> None:
    """Measure and print a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limits", type=float, nargs="+", default=[1.0, 5.0, 20.0], metavar="S")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="instances with this in the name"
    )
    parser.add_argument("--most-ops", type=int, default=10**6, metavar="N")
    parser.add_argument("--with-load", action="store_true", help="beside a second busy process")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, _load(chosen.with_load):
        cases = [
            case
            for case in _cases(Path(directory))
            if chosen.only in case[0] and case[1] <= chosen.most_ops
        ]
        _warm(Path(directory))
        _measure(cases, chosen.limits)


@contextmanager
def _load(is_wanted: bool) -> Iterator[None]:
    busy = subprocess.Popen([sys.executable, "-c", BUSY]) if is_wanted else None
    try:
        yield
    finally:
        if busy is not None:
            busy.kill()


def _warm(directory: Path) -> None:
    """Let kernels be compiled, which no limit below 20 s leaves time for."""
    for objective in ("makespan", "device_span"):
        data = _pipeline("vshape", 16, 128, 2, objective=objective)
        _call(_written(data, directory), 0.0)


def _measure(cases: list[tuple[str, int, Path]], limits: list[float]) -> None:
    print("| instance | ops | limit | wall | wall / limit | longest silence | status | beyond |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    beyond = 0
    for name, ops, path in cases:
        for limit in limits:
            wall, quiet, status, reason, gap = _call(path, limit)
            is_beyond = wall > FACTOR * limit + EXTRA
            beyond += is_beyond
            shown = "" if gap is None else f" {100 * gap:.2f} %"
            print(
                f"| {name} | {ops:,} | {limit:g} | {wall:.2f} | {wall / limit:.2f} | {quiet:.2f} "
                f"| {status}{shown}, {reason} | {'yes' if is_beyond else ''} |",
                flush=True,
            )
    print(f"\n{beyond} of {len(cases) * len(limits)} beyond {FACTOR} x limit + {EXTRA} s")


def _call(path: Path, limit: float) -> list[Any]:
    """Return seconds, longest time between two events, status, stop reason and gap of one call."""
    command = [sys.executable, "-c", CALL, str(limit), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{path.name}: {done.stderr}")
    answer: list[Any] = json.loads(done.stdout)
    return answer


def _cases(directory: Path) -> list[tuple[str, int, Path]]:
    """Return name, number of ops and file of every instance, by the number of ops."""
    from ppsolve.solver.optimize.kinds import kind_of, load_instance

    paths = [*_shipped(), *(_written(data, directory) for data in _generated())]
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
