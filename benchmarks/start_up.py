"""Measure the processor time of starting, side by side: ``python benchmarks/start_up.py``.

Every command runs `--runs` times, in turns, so that load on the machine hits all alike; the
figure that matters is the ratio to the import of the two libraries that models need.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

# What the page asks for first, from a service that starts: its own processes are among the costs.
FIRST_PAGE = """
import subprocess, sys, urllib.request
command = [sys.executable, "-m", "ppsolve", "explore", "--no-browser"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
    urllib.request.urlopen(service.stdout.readline().strip()).read()
    service.terminate()
"""

CALL = "from ppsolve.solver.cli.main import run; run()"
BASE = "import numpy, pydantic"


def commands(instance: Path, result: Path) -> dict[str, list[str]]:
    """Return the commands to measure, by label."""
    python = [sys.executable, "-c"]
    statements = ("pass", BASE, "import ppsolve", "import ppsolve; ppsolve.optimize")
    arguments = {
        "ppsolve --help": ["--help"],
        "ppsolve --version": ["--version"],
        "ppsolve optimize --help": ["optimize", "--help"],
        "ppsolve check --help": ["check", "--help"],
        "ppsolve show (4x8)": ["show", str(instance)],
        "ppsolve show (4x8, its result)": ["show", str(result)],
        "ppsolve check (4x8, its result)": ["check", str(result)],
        "ppsolve optimize (4x8)": ["optimize", str(instance), "--quiet"],
    }
    pages = {"ppsolve explore, first page": [*python, FIRST_PAGE]}
    bare = {statement: [*python, statement] for statement in statements}
    calls = {name: [*python, CALL, *rest] for name, rest in arguments.items()}
    return bare | calls | (pages if find_spec("uvicorn") else {})


def main() -> None:
    """Measure and print a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = max(1, parser.parse_args().runs)
    with tempfile.TemporaryDirectory() as directory:
        instance, result = (
            Path(directory) / name for name in ("4x8.json", "best.json")
        )
        write_instance(instance)
        solve = [sys.executable, "-c", CALL, "optimize", str(instance), "--quiet"]
        subprocess.run([*solve, "-o", str(result)], check=True, capture_output=True)
        measured = measure(commands(instance, result), runs)
    base = min(measured[BASE])
    print(f"| command | median s | least s | x {BASE} |\n| --- | --- | --- | --- |")
    for label, seconds in measured.items():
        middle, least = statistics.median(seconds), min(seconds)
        print(f"| {label} | {middle:.3f} | {least:.3f} | {least / base:.1f} |")


def write_instance(path: Path) -> None:
    """Write a 4 x 8 instance whose bound a heuristic meets."""
    options = "--devices 4 --microbatches 8 --forward 100 --backward-input 100"
    more = "--backward-weight 100 --capacity 1p"
    command = [sys.executable, "-c", CALL, "generate", *options.split(), *more.split()]
    subprocess.run([*command, "-o", str(path)], check=True)


def measure(table: dict[str, list[str]], runs: int) -> dict[str, list[float]]:
    """Return the seconds of processor time of every run of every command."""
    measured: dict[str, list[float]] = {label: [] for label in table}
    for _ in range(runs):
        for label, command in table.items():
            began = _processor_time_of_children()
            subprocess.run(command, check=True, capture_output=True)
            measured[label].append(_processor_time_of_children() - began)
    return measured


def _processor_time_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


if __name__ == "__main__":
    main()
