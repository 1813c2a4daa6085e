"""A directory with one tiny instance, and updates of it with results that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from best_known import update

import ppsolve
from ppsolve.models.core.result import Result
from ppsolve.models.documents.files import write_text
from ppsolve.models.documents.text import instance_text
from tests.benchmarks.tiny import NAME, TODAY, Solve, tiny


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "tiny").mkdir()
    write_text(tmp_path / NAME, instance_text(tiny()))
    return tmp_path


@pytest.fixture
def solve(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Solve:
    """Run one update in which optimize returns the given result."""

    def once(result: Result | None, **options: Any) -> Any:
        def fake(*_: Any, **__: Any) -> Result:
            assert result is not None, "optimize must not be called"
            return result

        with monkeypatch.context() as patched:
            patched.setattr(ppsolve, "optimize", fake)
            (outcome,) = update(directory, today=TODAY, **options)
        return outcome

    return once
