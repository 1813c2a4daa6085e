"""Rows as data frames of pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ppsolve.models.documents.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

COUNTED = ("stage", "device", "microbatch", "replica")
"""Columns of whole numbers, some of which may be missing."""


def frame_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> DataFrame:
    """Return rows as a data frame.

    Parameters
    ----------
    rows : sequence of mapping
        Values by column.
    columns : sequence of str
        The columns, also where there are no rows.

    Returns
    -------
    DataFrame
        One row each; stages, devices, micro-batches and replicas are ``Int64``, which knows
        missing values.

    Raises
    ------
    InputError
        pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise InputError("needs pandas, which is not installed: pip install pandas") from None
    found = pandas.DataFrame(rows, columns=list(columns))
    return found.astype({name: "Int64" for name in COUNTED if name in found.columns})
