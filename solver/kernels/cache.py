"""Where compiled kernels are kept between runs."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

VARIABLE = "PPSOLVE_CACHE_DIR"
"""Environment variable: the folder below which compiled kernels are kept."""

_PACKAGE = Path(__file__).resolve().parent


@cache
def folder() -> Path | None:
    """Return the folder of the compiled kernels, None where none can be written.

    It lies where `VARIABLE` says, else in the package's ``__pycache__``, else in the user's cache
    folder. Its name is a hash of all kernels, of what translates them, and of LLVM's version.
    """
    name, asked = f"kernels-{_fingerprint()}", os.environ.get(VARIABLE)
    for base in [Path(asked)] if asked else [_PACKAGE / "__pycache__", _user_cache()]:
        path = base / name
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(path, os.W_OK):
            return path
    return None


def is_warm() -> bool:
    """Return true if any kernel was compiled here before."""
    return is_stored("*")


def is_stored(kernel: str) -> bool:
    """Return true if the code of a kernel is here."""
    path = folder()
    return path is not None and any(path.glob(f"{kernel}-*.o"))


def stored(kernel: str, key: str) -> bytes | None:
    """Return the code of a kernel, None where it is not here.

    Parameters
    ----------
    kernel, key : str
        Name of the kernel, and a hash of what its code depends on.

    Returns
    -------
    bytes or None
        The object file.
    """
    path = folder()
    try:
        return None if path is None else (path / f"{kernel}-{key}.o").read_bytes()
    except OSError:
        return None


def store(kernel: str, key: str, code: bytes) -> None:
    """Keep the code of a kernel, whole or not at all.

    Parameters
    ----------
    kernel, key : str
        Name of the kernel, and a hash of what its code depends on.
    code : bytes
        The object file.
    """
    path = folder()
    if path is None:
        return
    partial = path / f"{kernel}-{key}.{os.getpid()}"
    try:
        partial.write_bytes(code)
        partial.replace(path / f"{kernel}-{key}.o")
    except OSError:
        partial.unlink(missing_ok=True)


def _fingerprint() -> str:
    digest = hashlib.sha256(f"{sys.version}{_version('llvmlite')}".encode())
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
    places = {
        "darwin": home / "Library" / "Caches",
        "win32": Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")),
    }
    named = os.environ.get("XDG_CACHE_HOME")
    return Path(named or places.get(sys.platform, home / ".cache")) / "ppsolve"
