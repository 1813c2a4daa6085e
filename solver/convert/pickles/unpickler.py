"""Python's own unpickler without its powers: it moves plain values about and calls nothing."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pickle import _Unpickler
from typing import Any, ClassVar

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.convert.pickles.names import Name, broken, lookup
from ppsolve.solver.convert.pickles.numpy_parts import Factory
from ppsolve.solver.convert.pickles.scan import ALLOWED, OPCODES, scan


def unpickle(data: bytes) -> Any:
    """Return the value that a pickle builds, once it has been scanned.

    The value is made of None, bool, int, float, str, bytes, list, tuple, dict with str keys, and
    the stand-ins of `numpy_parts`. It may hold itself, and one part of it many times over.

    Raises
    ------
    InputError
        The scan refuses it, its opcodes do not fit together, or it is no such value.
    """
    scan(data)
    try:
        return Inert(io.BytesIO(data)).load()
    except AttributeError:
        raise broken("it appends to what is no list") from None
    except (pickle.UnpicklingError, ValueError) as error:
        raise broken(error) from None


class Inert(_Unpickler):
    """The unpickler written in Python (the C one has no hooks for opcodes), with fewer opcodes."""

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.factory = Factory()

    def find_class(self, module: str, name: str) -> Name:
        """Return the stand-in for a name; nothing is imported.

        Parameters
        ----------
        module, name : str
            The name in the pickle.

        Returns
        -------
        Name
            A member of the enum.

        Raises
        ------
        InputError
            The name is not on the list.
        """
        return lookup(module, name)

    def load_reduce(self) -> None:
        """Make a number, an array or bytes, instead of calling what the pickle names."""
        arguments, called = self.stack.pop(), self.stack.pop()
        self.stack.append(self.factory.call(called, arguments))

    def load_build(self) -> None:
        """Give a dtype or array its state, instead of setting attributes."""
        state = self.stack.pop()
        self.factory.fill(self.stack[-1], state)

    def load_dict(self) -> None:
        """Put a dict."""
        items = self.pop_mark()
        self.stack.append({})
        self._set(items)

    def load_setitem(self) -> None:
        """Set one item."""
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def load_setitems(self) -> None:
        """Set the items since the mark."""
        self._set(self.pop_mark())

    def _set(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise broken("it sets items of what is no dict, or a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Other keys may be nested so deeply that to hash them takes the process down.
            if type(key) is not str:
                raise InputError("expected texts as keys of a dict, the pickle has another key")
            if key in target:
                raise InputError(f"the key {key[:60]!a} is there twice in one dict")
            target[key] = value

    dispatch: ClassVar[dict[int, Any]] = {
        code: _Unpickler.dispatch[code]
        for code, opcode in OPCODES.items()
        if opcode.name in ALLOWED | {"PROTO"}
    } | {
        pickle.REDUCE[0]: load_reduce,
        pickle.BUILD[0]: load_build,
        pickle.DICT[0]: load_dict,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        # The same form, and bytes cannot be appended to.
        pickle.BYTEARRAY8[0]: _Unpickler.dispatch[pickle.BINBYTES8[0]],
    }
