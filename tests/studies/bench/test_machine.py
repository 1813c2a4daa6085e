"""What a machine says of itself: how much memory a process may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppsolve.solver.studies.bench import machine

MIB = 2**20


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for limits of groups; this process is in the group job/step."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(
        "4:cpu:/else\n2:memory:/old\n0::/job/step\n"
    )
    for name in ("group/job/step", "group/memory/old"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(machine, "_PROC", tmp_path)
    monkeypatch.setattr(machine, "_CGROUP", tmp_path / "group")
    return tmp_path / "group"


def test_without_limits_it_is_all_memory(groups: Path) -> None:
    whole = machine.memory_size()
    (groups / "memory.max").write_text("max\n")
    assert machine.memory_size() == whole > 64 * MIB


@pytest.mark.parametrize(
    "name",
    [
        "memory.max",
        "job/memory.max",
        "job/step/memory.max",
        "memory/old/memory.limit_in_bytes",
    ],
)
def test_the_limit_of_a_job_counts(groups: Path, name: str) -> None:
    (groups / name).write_text(f"{64 * MIB}\n")
    assert machine.memory_size() == 64 * MIB
    assert machine.memory_share(2) == int(64 * MIB * 0.9) // 2


def test_the_smallest_limit_counts(groups: Path) -> None:
    (groups / "job" / "memory.max").write_text(f"{32 * MIB}\n")
    (groups / "job" / "step" / "memory.max").write_text(f"{64 * MIB}\n")
    assert machine.memory_size() == 32 * MIB
