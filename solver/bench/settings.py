"""Options of `ppsolve.optimize` for many instances, checked before the first is solved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from inspect import signature
from typing import Any

from ppsolve.models.documents.base import did_you_mean
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.optimize import api
from ppsolve.solver.run.options import Options

_ELSEWHERE = ("on_progress", "began")
"""Options that mean something in the calling process only."""


def checked_options(options: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """Return options with a number of workers.

    Parameters
    ----------
    options : mapping
        Keywords of `ppsolve.optimize`.
    workers : int
        Threads where the options say nothing, at least 1 of them; deterministic runs have 1.

    Returns
    -------
    dict
        The options, `workers` among them.

    Raises
    ------
    InputError
        An option is unknown, has no meaning in another process, or is out of range.
    """
    for name in options:
        if name in _ELSEWHERE:
            raise InputError("expected none for many instances: they run elsewhere", field=name)
        known = signature(api.optimize).parameters.keys() - {"instance", *_ELSEWHERE}
        if name not in known:
            raise InputError(f'unknown option "{name}"' + did_you_mean(name, sorted(known)))
    given = {"time_limit": 60.0, "workers": None, **options}
    if given["workers"] is None:
        given["workers"] = 1 if given.get("deterministic") else max(1, workers)
    checked = {field.name for field in fields(Options)}
    Options.checked(**{name: value for name, value in given.items() if name in checked})
    return given
