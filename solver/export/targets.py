"""The runtimes to which schedules are exported, in the order of the help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ppsolve.models.documents.base import did_you_mean
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.export.program import Program
from ppsolve.solver.export.torch import FORMATS, Format, torch_csv


@dataclass(frozen=True)
class Target:
    """A runtime, or our own format.

    Parameters
    ----------
    name : str
        What ``--to`` says.
    write : callable
        Returns the text of the file for a `Program` and `Settings`; raises `InputError` with the
        rule and the first op that the runtime cannot say.
    notes : tuple of str
        Lines for the user, on stderr.
    formats : tuple of str
        What ``--format`` may say, the default first.
    """

    name: str
    write: Callable[[Program, Settings], str]
    notes: tuple[str, ...] = ()
    formats: tuple[Format, ...] = ()


@dataclass(frozen=True)
class Settings:
    """Choices of the caller.

    Parameters
    ----------
    form : str
        Format of PyTorch's file.
    shards : bool
        Gather and drop parameters, see `torch_csv`.
    """

    form: Format = FORMATS[0]
    shards: bool = False

    @classmethod
    def checked(cls, target: Target, form: str | None, *, fsdp: bool = False) -> Settings:
        """Return settings for a target.

        Parameters
        ----------
        target : Target
            The runtime.
        form : str or None
            One of its formats; its first one by default.
        fsdp : bool
            Gather and drop parameters.

        Returns
        -------
        Settings
            The settings.

        Raises
        ------
        InputError
            The runtime has no such format, or the format says nothing of parameters.
        """
        known = [each for each in target.formats if form in {None, each}]
        if not known and form is not None:
            hint = did_you_mean(form, target.formats) if target.formats else ""
            raise InputError(f'{target.name} has no format "{form}"{hint}', field="--format")
        chosen_form = known[0] if known else FORMATS[0]
        if fsdp and chosen_form != "compute_comms":
            raise InputError("expected --format compute_comms with --fsdp", field="--fsdp")
        return cls(chosen_form, fsdp)


TARGETS = (
    Target(
        "torch",
        lambda program, settings: torch_csv(program, settings.form, shards=settings.shards),
        formats=FORMATS,
    ),
)


def chosen(name: str) -> Target:
    """Return the target of this name.

    Raises
    ------
    InputError
        There is none of this name.
    """
    known = {target.name: target for target in TARGETS}
    if name not in known:
        raise InputError(f'unknown runtime "{name}"' + did_you_mean(name, known), field="--to")
    return known[name]
