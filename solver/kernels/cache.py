"""Where compiled kernels are kept between runs."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

Compiled = TypeVar("Compiled")

_COMPLETE = "complete"
"""File that says so once all kernels were compiled."""

_PACKAGE = Path(__file__).resolve().parent


@cache
def folder() -> Path | None:
    """Return the folder of the compiled kernels, None where none can be written.

    It lies where numba's own variable ``NUMBA_CACHE_DIR`` says, else in the package's
    ``__pycache__``, else in the user's cache folder. Its name is a hash of all kernels and of
    numba's version: numba by itself misses changes of called functions.
    """
    name, asked = f"kernels-{_fingerprint()}", os.environ.get("NUMBA_CACHE_DIR")
    for base in [Path(asked)] if asked else [_PACKAGE / "__pycache__", _user_cache()]:
        path = base / name
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(path, os.W_OK):
            return path
    return None


def is_warm(kernel: str = "") -> bool:
    """Return true if a kernel, or else any, was compiled here before."""
    path = folder()
    return path is not None and any(path.rglob(f"*.{kernel}-*.nbi" if kernel else "*.nbi"))


def is_stored(kernel: str) -> bool:
    """Return true if the code of a kernel is here; numba writes it after its entry in the index."""
    path = folder()
    return path is not None and any(path.rglob(f"*.{kernel}-*.nbc"))


def note_complete() -> None:
    """Write down that all kernels are here."""
    path = folder()
    if path is not None:
        (path / _COMPLETE).touch()


def is_complete() -> bool:
    """Return true if all kernels are here."""
    path = folder()
    return path is not None and (path / _COMPLETE).exists()


def cached_in(compiler: Callable[[bool], Compiled]) -> Compiled:
    """Call a compiler while numba keeps its files in `folder`.

    Parameters
    ----------
    compiler : callable
        Takes whether to use a cache.

    Returns
    -------
    object
        What the compiler returns.
    """
    from numba import config

    path, before = folder(), config.CACHE_DIR
    if path is None:
        return compiler(False)
    try:
        config.CACHE_DIR = str(path)
        return compiler(True)
    finally:
        config.CACHE_DIR = before


def _fingerprint() -> str:
    digest = hashlib.sha256(f"{sys.version}{_version('numba')}{_version('numpy')}".encode())
    for path in sorted(_PACKAGE.glob("*.py")):
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
