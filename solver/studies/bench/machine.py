"""The machine that runs here: its facts, its memory, and the memory of groups of processes."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from ppsolve.solver.run.options import default_workers

GIB = 2**30

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_FILES = {"": "memory.max", "memory": "memory/memory.limit_in_bytes"}
"""Where Linux says what a container or a job of a cluster may take, versions 2 and 1 of cgroups."""


@cache
def this_machine() -> str:
    """Return processor, cores, memory and platform of this machine, and versions, as one line."""
    facts = [
        _cpu(),
        f"{default_workers()} cores",
        f"{memory_size() / GIB:.1f} GiB",
        platform.platform(terse=True),
        f"Python {platform.python_version()}",
        f"OR-tools {version('ortools')}",
        f"numpy {version('numpy')}",
    ]
    return ", ".join(facts)


def _cpu() -> str:
    return (
        _in_proc("cpuinfo", "model name", ":")
        or platform.processor()
        or platform.machine()
    )


def _in_proc(file: str, key: str, separator: str) -> str:
    # What stands behind a name; empty where there is no such file or name.
    with suppress(OSError):
        for line in (
            (_PROC / file).read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            name, _, value = line.partition(separator)
            if name.strip() == key and value.strip():
                return value.strip()
    return ""


def memory_size() -> int:
    """Return the bytes that this process may use: of its machine, container or job of a cluster."""
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _limit_files():
        with suppress(OSError, ValueError):
            size = min(size, int(path.read_text(encoding="ascii")))
    return size


def _limit_files() -> Iterator[Path]:
    """Yield the files of memory limits of all groups that this process is in, inner ones first."""
    lines = ["0::/", "0:memory:/"]
    with suppress(OSError):
        lines += (_PROC / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    for _, controllers, group in (line.split(":", 2) for line in lines):
        if controllers in _CGROUP_FILES:
            base, name = os.path.split(_CGROUP_FILES[controllers])
            inner = PurePosixPath(group.lstrip("/"))
            yield from (
                _CGROUP / base / outer / name for outer in (inner, *inner.parents)
            )


def memory_share(processes: int) -> int:
    """Return the bytes that each of `processes` may take by default."""
    # A tenth stays free: where the last pages are gone, the system kills by itself.
    return int(memory_size() * 0.9) // processes


def group_memory() -> dict[int, int]:
    """Return the resident bytes of each process group; shared pages count for each process."""
    if not (_PROC / "self" / "stat").exists():
        return _group_memory_by_ps()
    page, sizes = os.sysconf("SC_PAGE_SIZE"), dict[int, int]()
    for name in os.listdir(_PROC):
        if name.isdecimal():
            with suppress(OSError):
                stat = (_PROC / name / "stat").read_bytes()
                # Behind the name: the process group is field 2, resident pages are field 21.
                fields = stat[stat.rindex(b")") + 2 :].split()
                group = int(fields[2])
                sizes[group] = sizes.get(group, 0) + int(fields[21]) * page
    return sizes


def _group_memory_by_ps() -> dict[int, int]:
    command = ["ps", "-A", "-o", "pgid=,rss="]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    sizes: dict[int, int] = {}
    for line in lines.splitlines():
        group, kib = map(int, line.split())
        sizes[group] = sizes.get(group, 0) + kib * 1024
    return sizes


def kernel_kills() -> int:
    """Return the number of processes that Linux has killed so far because memory ran out."""
    return int(_in_proc("vmstat", "oom_kill", " ") or 0)
