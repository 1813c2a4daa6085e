"""What notebooks and Python sessions show of documents, made by packages that know screens.

`ppsolve` registers by name what it shows; models only know the names.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

Way = Literal["html", "gantt", "frame"]

_homes: dict[str, str] = {}


def register_display(way: Way, home: str) -> None:
    """Say which function makes a display.

    Parameters
    ----------
    way : str
        ``html``: the text of a notebook's cell; ``gantt``: a figure; ``frame``: a data frame.
    home : str
        ``module:function``, imported when it is first used.
    """
    _homes[way] = home


def display(way: Way, *given: Any, **options: Any) -> Any:
    """Return a display of a document.

    Parameters
    ----------
    way : str
        What is made, as in `register_display`.
    *given : object
        The document, and what else the function takes.
    **options : object
        Its options.

    Returns
    -------
    object
        What the registered function returns; None where none is.
    """
    if way not in _homes:
        return None
    module, _, name = _homes[way].partition(":")
    return getattr(import_module(module), name)(*given, **options)


class ShownInNotebooks:
    """A document that a notebook shows by a static page part, without any script."""

    def _repr_html_(self) -> str | None:
        """Return the document as HTML, for a notebook."""
        found: str | None = display("html", self)
        return found
