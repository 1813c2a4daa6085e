"""Measure how long processes take to start, side by side: ``python benchmarks/start_up.py``.

Every command runs `--runs` times, in turns, so that load on the machine hits all alike; the
figure that matters is the ratio to a bare interpreter.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CALL = "from ppsolve.solver.cli.main import run; run()"


def commands(instance: Path) -> dict[str, list[str]]:
    """Return the commands to measure, by label."""
    python = [sys.executable]
    return {
        "python -c pass": [*python, "-c", "pass"],
        "import numpy": [*python, "-c", "import numpy"],
        "import ppsolve": [*python, "-c", "import ppsolve"],
        "import ppsolve; ppsolve.optimize": [
            *python,
            "-c",
            "import ppsolve; ppsolve.optimize",
        ],
        "ppsolve --help": [*python, "-c", CALL, "--help"],
        "ppsolve --version": [*python, "-c", CALL, "--version"],
        "ppsolve optimize (4x8)": [
            *python,
            "-c",
            CALL,
            "optimize",
            str(instance),
            "--quiet",
        ],
    }


def main() -> None:
    """Measure and print a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = max(1, parser.parse_args().runs)
    with tempfile.TemporaryDirectory() as directory:
        instance = Path(directory) / "uniform-4x8.json"
        write_instance(instance)
        measured = measure(commands(instance), runs)
    base = statistics.median(measured["python -c pass"])
    print("| command | median s | least s | x bare python |\n| --- | --- | --- | --- |")
    for label, seconds in measured.items():
        middle = statistics.median(seconds)
        print(f"| {label} | {middle:.3f} | {min(seconds):.3f} | {middle / base:.1f} |")


def write_instance(path: Path) -> None:
    """Write a 4 x 8 instance whose bound a heuristic meets."""
    options = "--devices 4 --microbatches 8 --forward 100 --backward-input 100"
    more = "--backward-weight 100 --capacity 1p"
    command = [sys.executable, "-c", CALL, "generate", *options.split(), *more.split()]
    subprocess.run([*command, "-o", str(path)], check=True)


def measure(table: dict[str, list[str]], runs: int) -> dict[str, list[float]]:
    """Return the seconds of every run of every command."""
    measured: dict[str, list[float]] = {label: [] for label in table}
    for _ in range(runs):
        for label, command in table.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            measured[label].append(time.perf_counter() - began)
    return measured


if __name__ == "__main__":
    main()
