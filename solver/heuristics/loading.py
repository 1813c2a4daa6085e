"""Functions that a user names: ``package.module:function`` or ``path/to/file.py:function``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ppsolve.models.documents.base import did_you_mean
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.heuristics.own import exception_line

EXPECTED = "expected package.module:function or path/to/file.py:function"


def is_spec(name: str) -> bool:
    """Whether a name says where a function is; names of heuristics have no colon."""
    return ":" in name


def load_function(spec: str) -> Callable[..., Any]:
    """Return the function that a user names, its module imported.

    The folder of the file, or the current one for a module, is put at the end of ``sys.path``, so
    that it finds its neighbours and hides nothing that is installed.

    Parameters
    ----------
    spec : str
        ``package.module:function`` or ``path/to/file.py:function``.

    Returns
    -------
    callable
        The function; the same one each time.

    Raises
    ------
    InputError
        There is no such module or function, or its module cannot be imported; says why.
    """
    home, _, name = spec.rpartition(":")
    if not home or not name:
        raise InputError(f'"{spec}": {EXPECTED}')
    module = _imported(spec, home)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        known = [key for key, one in vars(module).items() if callable(one) and key[:1] != "_"]
        hint = did_you_mean(name, known) if known else ""
        raise InputError(f'"{spec}": there is no "{name}" in {home}{hint}')
    if not callable(found):
        raise InputError(f'"{spec}": expected a function, "{name}" is none')
    function: Callable[..., Any] = found
    return function


def source_of(spec: str) -> Path | None:
    """Return the file of the module that a spec names; nothing but its parents is imported.

    Parameters
    ----------
    spec : str
        As for `load_function`.

    Returns
    -------
    Path or None
        None where there is no such module, or none with a file.
    """
    home = spec.rpartition(":")[0]
    if home.endswith(".py"):
        return Path(home)
    _reachable(Path.cwd())
    try:
        found = importlib.util.find_spec(home)
    except Exception:
        return None
    return Path(found.origin) if found is not None and found.has_location and found.origin else None


def _imported(spec: str, home: str) -> ModuleType:
    is_file = home.endswith(".py")
    if is_file and not Path(home).is_file():
        raise InputError(f'"{spec}": there is no file {home}')
    try:
        return _of_file(Path(home)) if is_file else _of_name(home)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f'"{spec}": cannot be imported: {exception_line(error)}') from None


def _of_name(home: str) -> ModuleType:
    _reachable(Path.cwd())
    return importlib.import_module(home)


def _of_file(path: Path) -> ModuleType:
    """Import a file under a name of its own, once."""
    path = path.resolve()
    name = f"ppsolve-own:{path}"
    if name in sys.modules:
        return sys.modules[name]
    _reachable(path.parent)
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise InputError(f'"{path}": {EXPECTED}')
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _reachable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
