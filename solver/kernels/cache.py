"""Where compiled kernels are kept between runs."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

VARIABLE = "PPSOLVE_CACHE_DIR"
"""Environment variable: the folder below which compiled kernels are kept."""

_PACKAGE = Path(__file__).resolve().parent
_DIGEST_BYTES = hashlib.sha256().digest_size


@cache
def folder() -> Path | None:
    """Return the folder of the compiled kernels, None where none can be written safely.

    It lies where `VARIABLE` says, else in the package's ``__pycache__``, else in the user's cache
    folder. Its name is a hash of all kernels, of what translates them, of LLVM's version, and of
    the user: nobody else but root can write it, or put another folder in its place.
    """
    name = f"kernels-{_fingerprint()}"
    for base in _bases():
        with suppress(OSError):
            parent, base_name = os.path.split(os.path.abspath(base))
            path = Path(os.path.realpath(parent), base_name, name)
            if _is_made(path) and os.access(path, os.W_OK):
                return path
    return None


def is_warm() -> bool:
    """Whether any kernel was compiled here before."""
    return is_stored("*")


def is_stored(kernel: str) -> bool:
    """Whether the code of a kernel is here."""
    path = folder()
    return path is not None and any(path.glob(f"{kernel}-*.o"))


def stored(kernel: str, key: str) -> bytes | None:
    """Return the code of a kernel, None where it is not here; remove a file that is not to be run.

    A file is run only if nobody but this user and root can write it, and it is as `store` left it.
    The key is a hash of what the code depends on.
    """
    path = _file(kernel, key)
    if path is None:
        return None
    content = b""
    try:
        with open(path, "rb", opener=_open_no_link) as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and _is_private(status):
                content = file.read()
    except FileNotFoundError:
        return None
    except OSError:
        pass
    code = content[_DIGEST_BYTES:]
    if content == _sealed(path, code):
        return code
    with suppress(OSError):
        path.unlink()
    return None


def store(kernel: str, key: str, code: bytes) -> None:
    """Keep the code of a kernel under a hash of what it depends on, whole or not at all."""
    path = _file(kernel, key)
    if path is None:
        return
    with suppress(OSError):
        descriptor, partial = tempfile.mkstemp(dir=path.parent)
        try:
            with open(descriptor, "wb") as file:
                file.write(_sealed(path, code))
                file.flush()
                os.fsync(descriptor)
            os.replace(partial, path)
        except BaseException:
            os.unlink(partial)
            raise


def _bases() -> Iterator[str | Path]:
    asked = os.environ.get(VARIABLE)
    if asked:
        yield asked
        return
    if hasattr(
        os, "geteuid"
    ):  # else nobody can tell who else writes the package's folder
        yield _PACKAGE / "__pycache__"
    with suppress(RuntimeError):  # the user has no home
        yield _user_cache()


def _is_made(path: Path) -> bool:
    """Make a folder, return true if nobody else can write it or put another one in its place."""
    for directory in (*reversed(path.parents), path):
        directory.mkdir(0o700, exist_ok=True)
        # By its path: nobody else can change what lies there, as the folders above were checked.
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or not _is_private(
            status, is_parent=directory != path
        ):
            return False
    return True


def _is_private(status: os.stat_result, is_parent: bool = False) -> bool:
    """Whether only the user and root can write it; in a sticky parent others cannot touch ours."""
    if not hasattr(
        os, "geteuid"
    ):  # Windows has access lists in place of owners and modes
        return True
    is_sticky = is_parent and status.st_mode & stat.S_ISVTX
    is_shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky
    return status.st_uid in (0, os.geteuid()) and not is_shared


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _file(kernel: str, key: str) -> Path | None:
    path = folder()
    return None if path is None else path / f"{kernel}-{key}.o"


def _sealed(path: Path, code: bytes) -> bytes:
    """Return the content of a file: a digest of folder, name and code, and the code."""
    # No key: whoever can write here is this user or root, and could read a key just as well.
    name = f"{path.parent.name}/{path.name}\n".encode()
    return hashlib.sha256(name + code).digest() + code


def _fingerprint() -> str:
    user = os.geteuid() if hasattr(os, "geteuid") else ""
    digest = hashlib.sha256(f"{sys.version}{_version('llvmlite')}{user}".encode())
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _user_cache() -> Path:
    home = Path.home()
    folders = {
        "darwin": home / "Library" / "Caches",
        "win32": Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")),
    }
    named = os.environ.get("XDG_CACHE_HOME")
    return Path(named or folders.get(sys.platform, home / ".cache")) / "ppsolve"
