"""A data-parallel job as its parameter file and the options of a command describe it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import source_name
from ppsolve.models.goodput.files import load_params
from ppsolve.models.goodput.params import GradParams, PerfParams
from ppsolve.solver.cli.guard import say
from ppsolve.solver.goodput.model import GoodputModel

OPTION_OF = {
    "num_nodes": "--nodes",
    "num_replicas": "--replicas",
    "atomic_bsz": "--batch-per-replica",
    "accum_steps": "--accumulation-steps",
    "max_batch_size": "--max-batch-size",
    "atomic_bsz_range[0]": "--min-per-replica",
    "atomic_bsz_range[1]": "--max-per-replica",
    "atomic_bsz_range": "--min-per-replica, --max-per-replica",
    "init_batch_size": "--init-batch-size",
    "sqr": "--grad-sqr",
    "var": "--grad-var",
    "starts": "--starts",
}
"""Options by the names of what they are to the library."""

NEEDED = (
    "expected gradient statistics and the initial batch size, in the file or as --grad-sqr, "
    "--grad-var and --init-batch-size"
)


@dataclass(frozen=True)
class Job:
    """What is known about a job; without gradient statistics there is no model of goodput."""

    path: Path
    perf: PerfParams
    model: GoodputModel | None
    not_fitted: frozenset[str] = frozenset()


def read_job(
    path: Path, grad_sqr: float | None, grad_var: float | None, init_batch_size: float | None
) -> Job:
    """Read parameters; what is given as options replaces what the file has or lacks.

    Parameters
    ----------
    path : Path
        A parameter document; ``-`` is standard input.
    grad_sqr, grad_var, init_batch_size : float or None
        The options.

    Returns
    -------
    Job
        Without a model where gradient statistics or initial batch size are not known.

    Raises
    ------
    InputError
        Names the file and the field, or the option.
    """
    document = load_params(path)
    with about_options():
        grad = given_grad(grad_sqr, grad_var) or document.grad_params
        size = document.init_batch_size if init_batch_size is None else init_batch_size
        model = (
            None if grad is None or size is None else GoodputModel.of(document, grad, float(size))
        )
    return Job(path, document.perf_params, model, frozenset(document.fixed))


def warn_of_guesses(job: Job, allocations: Iterable[tuple[int, int]]) -> None:
    """Say on stderr which parameters are used that no observation speaks of.

    Parameters
    ----------
    job : Job
        The job.
    allocations : iterable of (int, int)
        Nodes and replicas.
    """
    used = set()
    for nodes, replicas in allocations:
        if replicas > 1:
            suffix = "_n" if nodes > 1 else "_r"
            used |= {"alpha" + suffix} | ({"beta" + suffix} if replicas > 2 else set())
    guessed = sorted(used & job.not_fitted)
    if guessed:
        say(
            f"warning: {source_name(job.path)}: no observation speaks of {', '.join(guessed)}, "
            "which these allocations need; their gradient exchange is a guess"
        )


def given_grad(sqr: float | None, var: float | None) -> GradParams | None:
    """Return gradient statistics given as options; None without them.

    Parameters
    ----------
    sqr, var : float or None
        Squared norm and variance of the gradient.

    Returns
    -------
    GradParams or None
        None if neither is given.

    Raises
    ------
    InputError
        Only one of them is given.
    """
    if (sqr is None) != (var is None):
        field = "--grad-sqr" if sqr is None else "--grad-var"
        raise InputError("expected both --grad-sqr and --grad-var", field=field)
    return None if sqr is None or var is None else GradParams(sqr, var)


def lack(path: Path) -> str:
    """Return the message that a file and the options together lack what goodput needs."""
    return f"{source_name(path)}: {NEEDED}"


@contextmanager
def about_options() -> Iterator[None]:
    """Let errors of the library about its arguments name the options."""
    try:
        yield
    except InputError as error:
        name, bracket, place = (error.field or "").partition("[")
        whole = OPTION_OF.get(error.field or "")
        option = whole or (f"{OPTION_OF[name]}{bracket}{place}" if name in OPTION_OF else None)
        raise InputError(error.message, source=error.source, field=option or error.field) from None
