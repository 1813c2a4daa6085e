"""Only code that this user has compiled is run: whole, unchanged, and out of others' reach."""

from __future__ import annotations

import errno
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ppsolve.solver.kernels import cache, compilation
from ppsolve.solver.kernels.compilation import Kernel
from ppsolve.solver.kernels.native import machine
from ppsolve.solver.kernels.native.body import layout_of
from ppsolve.solver.kernels.native.machine import machine_code
from ppsolve.solver.kernels.native.translate import translate

has_owners = pytest.mark.skipif(
    not hasattr(os, "geteuid"), reason="access lists, not owners"
)
FOREIGN = 54_321


def divide(a: int, b: int) -> int:
    return (a // b) * 1000 + a % b


def steal(a: int, b: int) -> int:
    return 666


@pytest.fixture(autouse=True)
def base(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "base"))
    cache.folder.cache_clear()
    yield tmp_path / "base"
    cache.folder.cache_clear()


@pytest.fixture
def folder() -> Path:
    found = cache.folder()
    assert found is not None
    return found


def quotient() -> int | None:
    code = machine_code(divide, (7, 2), set())
    assert code is not None
    return code(7, 2)


@pytest.fixture
def kept(folder: Path) -> Path:
    """Return the file of `divide`, in which a foreign kernel lies as if it belonged there."""
    assert quotient() == 3001
    (path,) = folder.iterdir()
    layouts = [layout_of(1)] * 2
    path.write_bytes(
        cache._sealed(path, machine.object_of(translate(steal, layouts, set())))
    )
    assert quotient() == 666  # what all tests below keep from being run
    return path


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file or folder belong to somebody else, really where the test may do that."""
    if os.geteuid() == 0:
        os.chown(path, FOREIGN, FOREIGN)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: FOREIGN)


def looked_anew() -> Path | None:
    cache.folder.cache_clear()
    return cache.folder()


def test_it_lies_where_it_is_told_and_only_the_user_reads_it(
    base: Path, folder: Path
) -> None:
    assert not cache.is_warm()
    assert folder.parent == base
    assert quotient() == 3001
    modes = [path.stat().st_mode & 0o777 for path in (base, folder, *folder.iterdir())]
    assert modes == [0o700, 0o700, 0o600] or os.name == "nt"


def test_code_is_taken_from_it(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    assert quotient() == 3001
    assert cache.is_stored("divide")
    assert not cache.is_stored("steal")
    monkeypatch.setattr(machine, "object_of", None)
    assert quotient() == 3001
    assert [path.suffix for path in folder.iterdir()] == [".o"]


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o757])
def test_it_goes_to_the_user_where_others_write_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int
) -> None:
    package, home = tmp_path / "package", tmp_path / "home"
    package.mkdir()
    package.chmod(mode)
    monkeypatch.setattr(cache, "_PACKAGE", package)
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    found = looked_anew()
    assert found is not None
    is_private = mode == 0o755 and hasattr(os, "geteuid")
    assert found.parent == (package / "__pycache__" if is_private else home / "ppsolve")
    assert any(package.iterdir()) == is_private


def test_there_is_none_for_a_user_without_a_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_home() -> Path:
        raise RuntimeError

    (tmp_path / "file").touch()
    monkeypatch.setattr(cache, "_PACKAGE", tmp_path / "file")
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv(cache.VARIABLE)
    assert looked_anew() is None
    assert not cache.is_warm()
    assert quotient() == 3001


@has_owners
@pytest.mark.parametrize("level", ["base", "folder"])
def test_no_folder_of_somebody_else_is_used(
    monkeypatch: pytest.MonkeyPatch, kept: Path, level: str
) -> None:
    give_away(kept.parent if level == "folder" else kept.parent.parent, monkeypatch)
    assert looked_anew() is None
    assert quotient() == 3001
    assert kept.exists()  # it is not ours to remove


@has_owners
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_no_folder_that_others_write_is_used(kept: Path, mode: int) -> None:
    kept.parent.chmod(mode)
    assert looked_anew() is None
    assert quotient() == 3001


@has_owners
@pytest.mark.parametrize(
    "mode, is_used", [(0o777, False), (0o720, False), (0o1777, True)]
)
def test_others_may_write_a_parent_only_where_it_is_sticky(
    folder: Path, base: Path, mode: int, is_used: bool
) -> None:
    for parent in (base, base.parent):
        parent.chmod(mode)
        assert (looked_anew() == folder) == is_used
        parent.chmod(0o700)


@has_owners
@pytest.mark.parametrize("level", ["base", "folder"])
def test_no_link_to_a_folder_is_followed(kept: Path, level: str) -> None:
    link = kept.parent if level == "folder" else kept.parent.parent
    link.rename(link.with_name("away"))
    link.symlink_to(link.with_name("away"))
    assert looked_anew() is None
    assert quotient() == 3001


def test_parents_may_be_links(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "link" / "base"))
    found = looked_anew()
    assert found is not None
    assert found.parent == tmp_path / "real" / "base"


def link(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.rename(path.parent.parent / "away.o")
    path.symlink_to(path.parent.parent / "away.o")


@has_owners
@pytest.mark.parametrize(
    "expose",
    [
        give_away,
        lambda path, _: path.chmod(0o660),
        lambda path, _: path.chmod(0o606),
        link,
    ],
)
def test_no_file_within_reach_of_others_is_run(
    monkeypatch: pytest.MonkeyPatch,
    kept: Path,
    expose: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    with monkeypatch.context() as patch:
        expose(kept, patch)
        assert cache.stored(*kept.stem.split("-")) is None
    assert not cache.is_stored("divide")  # it is promised no longer
    assert quotient() == 3001
    assert cache.stored(*kept.stem.split("-"))


def patched(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:32],
        lambda content: content[32:],
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: np.random.default_rng(1).bytes(len(content)),
        lambda content: bytes(len(content)),
        lambda content: patched(content, 0),
        lambda content: patched(content, len(content) // 2),
        lambda content: patched(content, len(content) - 1),
    ],
)
def test_a_damaged_file_is_made_anew(
    folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    assert quotient() == 3001
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert cache.stored(*path.stem.split("-")) is None
    assert not cache.is_stored("divide")
    assert quotient() == 3001
    assert path.read_bytes() == whole


def test_the_file_of_another_kernel_or_version_is_not_run(
    base: Path, folder: Path
) -> None:
    assert quotient() == 3001
    (path,) = folder.iterdir()
    machine_code(steal, (7, 2), set())
    (other,) = folder.glob("steal-*.o")
    old = base / "kernels-old" / path.name
    old.parent.mkdir()
    old.write_bytes(cache._sealed(old, path.read_bytes()[32:]))
    for foreign in (other, old):
        foreign.rename(path)
        assert cache.stored(*path.stem.split("-")) is None
        assert quotient() == 3001


def test_nothing_is_left_where_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", full)
    assert quotient() == 3001
    assert list(folder.iterdir()) == []
    assert not cache.is_warm()


def test_sixteen_threads_fill_an_empty_cache(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setitem(compilation._state, "compiled", True)
    monkeypatch.setitem(compilation._state, "due", math.inf)
    shared, answers, together = Kernel(divide), [], threading.Barrier(16)

    def run() -> None:
        together.wait()
        answers.append((shared(7, 2), Kernel(divide)(9, 2), quotient()))

    threads = [threading.Thread(target=run) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [(3001, 4001, 3001)] * 16
    assert [path.suffix for path in folder.iterdir()] == [".o"]


SOLVE = """
import sys
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.kernels import compilation
from ppsolve.solver.api.api import optimize

if "full" in sys.argv:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
# By default only larger pipelines are worth it.
compilation.PARAMS = compilation.CompilationParams(paying_steps=0)
times = {"forward": 10, "backward": 20}
pipeline = {"num_devices": 2, "num_microbatches": 2, "times": times}
print(optimize(PipelineInstance.parse(pipeline), time_limit=0.0, workers=1).value)
assert compilation.is_compiled()
"""


def started(base: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {
        key: value for key, value in os.environ.items() if key != compilation.SWITCH
    }
    return subprocess.Popen(
        [sys.executable, "-c", SOLVE, *arguments],
        env=environment | {cache.VARIABLE: str(base)},
        stdout=subprocess.PIPE,
        text=True,
    )


def answers(*processes: subprocess.Popen[str]) -> list[tuple[str, int]]:
    return [(process.communicate()[0].strip(), process.wait()) for process in processes]


RIGHT = ("90", 0)  # one forward and backward after another on two devices: (2 + 1) x 30


@pytest.mark.processes
def test_runs_survive_whatever_lies_in_the_cache(base: Path) -> None:
    assert answers(started(base), started(base)) == [
        RIGHT,
        RIGHT,
    ]  # both at once, from nothing
    (folder,) = base.iterdir()
    good = {path: path.read_bytes() for path in folder.iterdir()}
    assert {path.suffix for path in good} == {".o"}
    away = base / "away"
    away.mkdir()
    for number, (path, content) in enumerate(good.items()):
        if number % 7 == 6:
            path.rename(away / path.name)
            path.symlink_to(away / path.name)
            continue
        damaged = [
            b"",
            content[:-9],
            bytes(9),
            patched(content, 99),
            content[32:],
            content,
        ]
        path.write_bytes(damaged[number % 7])
        if number % 7 == 5:
            path.chmod(0o666)
    assert answers(started(base)) == [RIGHT]
    assert {path: path.read_bytes() for path in folder.iterdir()} == good
    assert not any(path.is_symlink() or path.stat().st_mode & 0o077 for path in good)


@has_owners
@pytest.mark.processes
def test_runs_are_right_where_no_code_can_be_kept(base: Path) -> None:
    assert answers(started(base, "full")) == [RIGHT]
    (folder,) = base.iterdir()
    assert list(folder.iterdir()) == []
    folder.chmod(0o777)
    assert answers(started(base)) == [RIGHT]
    assert list(folder.iterdir()) == []
