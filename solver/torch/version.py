"""The versions of PyTorch whose private doors this package was run against."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from ppsolve.models.documents.errors import InputError

TESTED = ("2.13",)
"""Releases whose runtime the suite in tests/torch runs; others may read a schedule differently."""


def require_tested_torch() -> None:
    """Refuse a PyTorch whose pipeline runtime was not tested.

    Schedules are loaded by ``_PipelineScheduleRuntime._load_csv``, which is private and may change
    its meaning with any release.

    Raises
    ------
    InputError
        There is no torch, or its version is not one of `TESTED`.
    """
    wanted = ", ".join(f"{release}.*" for release in TESTED)
    try:
        found = version("torch")
    except PackageNotFoundError:
        raise InputError(
            f"expected torch {wanted}, it is not installed: pip install 'ppsolve[torch]'"
        ) from None
    if not any(f"{found}.".startswith(f"{release}.") for release in TESTED):
        raise InputError(
            f"expected torch {wanted}, the versions whose pipeline runtime was tested, got {found}"
        )
