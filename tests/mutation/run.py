"""Runs a seeded sample of mutants of each package against its tests, and prints what survives.

``python -m tests.mutation.run [package ...] [--sample 40] [--seed 1] [--jobs 2] [--whole]``. A
mutant is one small change of `changes`; those of a package are numbered over all of its files,
and the sample is drawn from them. The tests of the package's folder judge each; with ``--whole``
the survivors are tried against the default run of all tests too. What says nothing of answers is
not changed: messages, annotations, decorators, lengths and types that are only claimed
(``strict=``, ``dtype=``, ``kind=``), and numbers from `EFFORT` on, which are limits of effort.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from tests.mutation.survivors import copy_of_the_tree
from tests.paths import ROOT

TESTS: dict[str, tuple[str, ...]] = {
    "solver/checker.py": ("checker",),
    "solver/bounds": ("bounds",),
    "solver/structure": ("structure", "bounds"),
    "solver/exact": ("cpsat",),
    "solver/bounds/flow": ("flow",),
    "solver/kinds/kfac": ("kfac",),
    "solver/kernels": ("kernels", "heuristics", "structure", "bounds"),
    "solver/kinds/overlap": ("overlap",),
    "solver/kinds/pipeline": ("pipeline",),
    "solver/heuristics": ("heuristics",),
    "solver/studies/plan": ("plan",),
    "solver/studies/goodput": ("goodput",),
    "models/core": ("core", "checker"),
    "models/kinds/pipeline": ("pipeline",),
    "models/kinds/kfac": ("kfac",),
    "models/kinds/overlap": ("overlap",),
}
"""Packages, and the folders of tests that state their rules."""

EFFORT = 16
MEMORY = 6 << 30

SWAPS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
    ast.And: "or", ast.Or: "and",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Div: "*",
}  # fmt: skip
WORDS = {
    "max": "min", "min": "max", "all": "any", "any": "all", "left": "right", "right": "left",
    "maximum": "minimum", "minimum": "maximum",
}  # fmt: skip
CLAIMS = {"strict", "dtype", "kind"}


class Mutant(NamedTuple):
    """One change: the bytes from `start` to `end` of a file become `new`."""

    path: str
    start: int
    end: int
    new: str

    def applied(self, text: bytes) -> bytes:
        """Return the text of the file with the change."""
        return text[: self.start] + self.new.encode() + text[self.end :]

    def shown(self) -> str:
        """Return where the change is, and what was there."""
        text = (ROOT / self.path).read_bytes()
        line = text.count(b"\n", 0, self.start) + 1
        old = text[self.start : self.end].decode()
        return f"{self.path}:{line}: {old}  ->  {self.new}"


def mutants_of(path: str) -> list[Mutant]:
    """Return all mutants of a file, in the order of the text."""
    text = (ROOT / path).read_bytes()
    starts = [0]
    for row in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        start = starts[node.lineno - 1] + node.col_offset
        return start, starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    def source(node: ast.expr) -> str:
        start, end = span(node)
        return f"({text[start:end].decode()})"

    nodes = (
        node
        for node in _nodes(ast.parse(text))
        if isinstance(node, ast.expr | ast.stmt)
    )
    found = {
        Mutant(path, *span(node), new)
        for changed in nodes
        for node, new in _changes(changed, source)
    }
    return sorted(found)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Walk all that decides answers."""
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    yield node
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            is_claim = isinstance(child, ast.keyword) and child.arg in CLAIMS
            if isinstance(child, ast.AST) and not is_claim:
                yield from _nodes(child)


def _changes(
    node: ast.expr | ast.stmt, source: Callable[[ast.expr], str]
) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield a part of a statement or expression and what it becomes."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in SWAPS:
            yield node, f"{source(left)} {SWAPS[type(op)]} {source(right)}"
        case ast.BoolOp(op=op, values=values):
            yield node, f" {SWAPS[type(op)]} ".join(map(source, values))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPS:
            yield node, f"{source(left)} {SWAPS[type(op)]} {source(right)}"
            yield node, source(left)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield node, source(operand)
        case ast.IfExp(body=body, orelse=orelse):
            yield node, source(body)
            yield node, source(orelse)
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call() as test):
            yield test, f"not {source(test)}"
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value)) if value < EFFORT:
            yield node, str(value + 1)
        case ast.Constant(value=str(value)) if value in WORDS:
            yield node, f'"{WORDS[value]}"'
        case ast.Name(id=name) if name in WORDS:
            yield node, WORDS[name]
        case ast.Attribute(value=inner, attr=name) if name in WORDS:
            yield node, f"{source(inner)}.{WORDS[name]}"
        case ast.AugAssign(op=op, target=target, value=value) if type(op) in SWAPS:
            yield node, f"{source(target)[1:-1]} {SWAPS[type(op)]}= {source(value)}"
        case ast.Expr(value=ast.Call()) | ast.Continue():
            yield node, "pass"
        case ast.Break():
            yield node, "continue"


def sample_of(package: str, size: int, seed: int) -> tuple[int, list[Mutant]]:
    """Return how many mutants a package has, and a seeded sample of them."""
    place = ROOT / package
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    found = [m for path in files for m in mutants_of(path.relative_to(ROOT).as_posix())]
    chosen = random.Random(f"{seed} {package}").sample(found, min(size, len(found)))
    return len(found), sorted(chosen)


def pytest_in(tree: Path, tests: list[str], limit: float | None) -> str:
    """Run tests in a copy of the project; return ``passed``, ``failed`` or ``late``."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += ["-n", "0", "--hypothesis-seed=1", *tests]
    environment = {
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "" if limit is None else "1",
    }
    with subprocess.Popen(
        command,
        cwd=tree,
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
        start_new_session=True,
    ) as run:
        try:
            return "failed" if run.wait(limit) else "passed"
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            return "late"


def judged(mutant: Mutant, tests: list[str], trees: Queue[Path], limit: float) -> str:
    """Apply a mutant to one of the copies, run the tests, and take it back."""
    tree = trees.get()
    path = tree / mutant.path
    text = path.read_bytes()
    path.write_bytes(mutant.applied(text))
    try:
        return pytest_in(tree, tests, limit)
    finally:
        path.write_bytes(text)
        trees.put(tree)


def main() -> int:
    """Judge the packages asked for; print a line each, and the survivors."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.run")
    parser.add_argument(
        "packages", nargs="*", help=f"default: all of {', '.join(TESTS)}"
    )
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--whole", action="store_true", help="try survivors against all tests too"
    )
    given = parser.parse_args()
    trees: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(given.jobs) as pool:
        for number in range(given.jobs):
            trees.put(copy_of_the_tree(Path(place) / str(number)))
        for package in given.packages or TESTS:
            total, sample = sample_of(package, given.sample, given.seed)
            tests = [f"tests/{folder}" for folder in TESTS[package]]
            alive, late = sample, 0
            for chosen in [tests, *([["tests"]] if given.whole else [])]:
                start = time.monotonic()
                for tree in list(trees.queue):
                    if pytest_in(tree, chosen, None) != "passed":
                        raise SystemExit(f"{' '.join(chosen)} fail without a mutant")
                limit = 30 + 3 * (time.monotonic() - start)
                run = partial(judged, tests=chosen, trees=trees, limit=limit)
                ends = dict(zip(alive, pool.map(run, alive), strict=True))
                late += list(ends.values()).count("late")
                alive = [mutant for mutant in alive if ends[mutant] == "passed"]
            killed = len(sample) - len(alive)
            share = f"{killed} of {len(sample)}, {killed / len(sample):.0%}"
            print(
                f"{package}: {total} mutants, killed {share} ({late} by time)",
                flush=True,
            )
            for mutant in alive:
                print(f"  {mutant.shown()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
