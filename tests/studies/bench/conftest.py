"""The command line in a process of its own, and the package that does not behave."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.studies.bench.misbehaving import install

Bench = Callable[..., subprocess.CompletedProcess[str]]


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "ppsolve", "bench", *map(str, arguments)]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which the package that does not behave is installed."""
    site = tmp_path / "site"
    site.mkdir()
    install(site)
    paths = [str(ROOT), str(site), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.fixture
def bench(tmp_path: Path, environment: dict[str, str]) -> Bench:
    def run(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command(*arguments),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stderr
        return done

    return run
