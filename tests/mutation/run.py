"""Runs mutmut on the files whose rules the tests must state, and prints what survives.

``python -m tests.mutation.run [part of a file name ...] [--sample 40] [--seed 1] [--out FOLDER]``
needs ``pip install mutmut`` (3.8 was used). mutmut names mutants by path and cannot look through
links, so the tree is copied with ``ppsolve/solver`` and ``ppsolve/models`` as real folders. Each
file is mutated by itself and judged by the few test files that state its rules, in one forked
process per mutant. Of each file a seeded sample of its mutants is run; functions with decorators
other than ``classmethod`` and ``staticmethod`` are not mutated by mutmut. What changes only a
``strict=``, a ``dtype=`` or the ``kind=`` of a sort is left out of the count: those are claims
about lengths and types that the code above them makes true.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.paths import ROOT

CPSAT = (
    "tests/cpsat/test_rules.py",
    "tests/cpsat/test_stopping.py",
    "tests/cpsat/test_rounding.py",
    "tests/cpsat/test_window_work.py",
    "tests/cpsat/test_windows.py",
    "tests/cpsat/test_demands.py",
    "tests/cpsat/test_hint.py",
)
BOUNDS = (
    "tests/bounds/test_memory_work.py",
    "tests/bounds/test_by_hand.py",
    "tests/bounds/test_bounds.py",
    "tests/kernels/test_memory_work.py",
)
PIPELINE = (
    "tests/pipeline/test_instance.py",
    "tests/pipeline/test_collectives.py",
    "tests/pipeline/test_oracle.py",
)

TARGETS: dict[str, tuple[str, ...]] = {
    "solver/checker.py": ("tests/checker/test_checker.py",),
    "solver/structure/holds.py": ("tests/structure",),
    "solver/structure/implied.py": ("tests/structure", *BOUNDS[:2]),
    "solver/structure/memory_requirements.py": ("tests/structure",),
    "solver/structure/dag.py": ("tests/structure/test_dag.py", "tests/core/test_metrics.py"),
    "solver/structure/timing.py": ("tests/structure/test_timing.py",),
    "solver/bounds/first_return.py": BOUNDS,
    "solver/bounds/lower_bounds.py": BOUNDS,
    "solver/bounds/memory_work.py": BOUNDS,
    "solver/bounds/one_machine.py": BOUNDS,
    "solver/bounds/room.py": BOUNDS,
    "solver/bounds/spans.py": BOUNDS,
    "solver/cpsat/constraints.py": CPSAT,
    "solver/cpsat/demands.py": CPSAT,
    "solver/cpsat/engine.py": CPSAT,
    "solver/cpsat/exact.py": CPSAT,
    "solver/cpsat/limits.py": CPSAT,
    "solver/cpsat/objective.py": CPSAT,
    "solver/cpsat/variables.py": CPSAT,
    "solver/cpsat/redundant/window_work.py": CPSAT,
    "solver/cpsat/windows.py": CPSAT,
    "models/pipeline/lowering.py": PIPELINE,
    "models/pipeline/collectives.py": PIPELINE,
    "models/graph.py": ("tests/instances/test_graph.py", "tests/instances/test_graph_refusals.py"),
    "models/kfac/cycle.py": ("tests/kfac/test_cycle.py",),
    "models/kfac/unrolling.py": ("tests/kfac/test_pinned.py", "tests/kfac/test_instance.py"),
    "models/overlap/lowering.py": ("tests/overlap/test_exact.py", "tests/overlap/test_instance.py"),
}

SKIPPED = shutil.ignore_patterns(".git", "__pycache__", ".*_cache", ".hypothesis", "docs")

SETTINGS = """
[tool.pytest.ini_options]
addopts = "--import-mode=importlib -n 0 -p no:cacheprovider -m 'not slow'"
markers = ["slow: long"]

[tool.mutmut]
source_paths = ["ppsolve"]
only_mutate = ["{path}"]
also_copy = ["instances", "benchmarks", "README.md", "tests"]
pytest_add_cli_args_test_selection = {tests}
use_git_change_detection = false
timeout_constant = 5.0
timeout_multiplier = 8.0
"""


CONFTEST = """
from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "mutants",
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("mutants")
"""
"""Random tests repeat themselves and do not shrink; one process runs each of them twice."""


def copy_of_the_tree(place: Path) -> Path:
    """Copy the project with folders in place of its links."""
    tree = place / "tree"
    shutil.copytree(ROOT, tree, symlinks=False, ignore=SKIPPED)
    for folder in ("solver", "models"):
        shutil.rmtree(tree / folder)
    (tree / "tests" / "conftest.py").write_text(CONFTEST)
    return tree


NAMES = """
import sys
from pathlib import Path
from mutmut.mutation.file_mutation import mutate_file_contents
path = Path(sys.argv[1])
print(*mutate_file_contents(str(path), path.read_text(), None, None).mutant_names)
"""


def mutants_of(tree: Path, path: str) -> list[str]:
    """Return the names of all mutants of a file."""
    module = path.removesuffix(".py").replace("/", ".")
    return [f"{module}.{name}" for name in python(tree, "-c", NAMES, path).split()]


CLAIMS = re.compile(r",?\s*\b(strict|dtype|kind)=[\w.\"]+|,(?=\s*\))")


def is_claim(diff: str) -> bool:
    """Whether a mutant only changes what is claimed of lengths, types or sorts."""
    old, new = (
        [
            CLAIMS.sub("", line[1:])
            for line in diff.splitlines()
            if re.match(rf"{sign}[^{sign}]", line)
        ]
        for sign in ("-", r"\+")
    )
    return [line.replace(" ", "") for line in old] == [line.replace(" ", "") for line in new]


def judged(
    tree: Path, source: str, sample: int, seed: int, only: list[str]
) -> tuple[int, dict[str, str]]:
    """Run a sample of the mutants of `source`; return how many there are and how each ended.

    `only` names parts of the mutants to be run in place of a sample.
    """
    path = f"ppsolve/{source}"
    shutil.rmtree(tree / "mutants", ignore_errors=True)
    tests = json.dumps([name for name in TARGETS[source] if (tree / name).exists()])
    (tree / "pyproject.toml").write_text(SETTINGS.format(path=path, tests=tests))
    names = mutants_of(tree, path)
    chosen = random.Random(f"{seed} {source}").sample(names, min(sample, len(names)))
    chosen = [name for name in names if name in only] if only else chosen
    if not chosen:
        return len(names), {}
    python(tree, "-m", "mutmut", "run", "--max-children", "2", *chosen)
    said = python(tree, "-m", "mutmut", "results", "--all", "true")
    ended = dict(re.findall(r"^\s*(\S+__mutmut_\d+): (.+)$", said, flags=re.MULTILINE))
    return len(names), {name: ended.get(name, "not run") for name in chosen}


def python(tree: Path, *arguments: str) -> str:
    """Run Python in `tree` and return what it prints."""
    command = [sys.executable, *arguments]
    run = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    if run.returncode:
        print(run.stdout[-3000:], run.stderr[-3000:], file=sys.stderr)
    return run.stdout


def main() -> int:
    """Judge the files asked for and print a line each, then the survivors as diffs."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.run")
    parser.add_argument("files", nargs="*", help="parts of file names; all without")
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=Path, help="a file with the names of mutants, one a line")
    given = parser.parse_args()
    wanted = [s for s in TARGETS if not given.files or any(part in s for part in given.files)]
    only = given.only.read_text().split() if given.only else []
    with tempfile.TemporaryDirectory() as place:
        tree = copy_of_the_tree(Path(place))
        for source in wanted:
            total, ended = judged(tree, source, given.sample, given.seed, only)
            left = [name for name, end in ended.items() if end not in {"killed", "timeout"}]
            diffs = {name: python(tree, "-m", "mutmut", "show", name) for name in left}
            alive = {name: diff for name, diff in diffs.items() if not is_claim(diff)}
            count = len(ended) - len(left) + len(alive)
            killed = count - len(alive)
            late = list(ended.values()).count("timeout")
            share = f"{killed}/{count} of {total}" + (f" ({late} too slow)" if late else "")
            print(f"{source}: {share}, {killed / max(1, count):.0%}", flush=True)
            for name, diff in alive.items():
                print(ended[name], diff, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
