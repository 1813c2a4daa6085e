"""Steps of a recorded run that can be used; the others are left out, and said to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from ppsolve.models.documents.errors import InputError
from ppsolve.models.trace.table import Trace

Made = TypeVar("Made")


def kept_steps(trace: Trace, make: Callable[[Trace], Made]) -> tuple[Trace, list[Made]]:
    """Make something of each replica-step; leave out the steps in which one is refused.

    Parameters
    ----------
    trace : Trace
        A checked trace.
    make : callable
        Takes a replica-step; raises an `InputError` where its times are impossible.

    Returns
    -------
    trace : Trace
        The steps that are left, with a warning for each of the others.
    made : list
        What was made of their replicas, by step, then by replica.

    Raises
    ------
    InputError
        No step is left: that of the first one.
    """
    made: list[tuple[int, Made]] = []
    refused: dict[int, InputError] = {}
    for step, _, part in trace.parts():
        if step not in refused:
            try:
                made.append((step, make(part)))
            except InputError as error:
                refused[step] = error
    left = trace.where(~np.isin(trace.step, list(refused)))
    if not len(left):
        raise next(iter(refused.values()))
    warnings = [f"step {step} is left out: {error}" for step, error in refused.items()]
    return left.warn(*warnings), [one for step, one in made if step not in refused]
