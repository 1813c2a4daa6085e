"""A stack machine for scanned pickles: it moves plain values about and calls nothing of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.convert.pickles.names import lookup
from ppsolve.solver.convert.pickles.numpy_parts import Factory
from ppsolve.solver.convert.pickles.opcodes import MAX_OPCODES, Instruction
from ppsolve.solver.convert.pickles.refusals import broken

MAX_MARKS = 100
"""Open marks: how deep what is being put together is nested. Picklers stop at about 10."""

MAX_STACK = 100_000
"""Values that wait to be put together; picklers never let more than about 1,000 wait."""


def run(instructions: list[Instruction]) -> Any:
    """Return the value that the instructions build.

    The value is made of None, bool, int, float, str, bytes, list, tuple, dict with str keys, and
    the stand-ins of `numpy_parts`. It may hold itself, and one part of it many times over.

    Raises
    ------
    InputError
        Instructions that do not fit together, go beyond a limit, or need anything else.
    """
    machine = _Machine()
    for action, argument in instructions:
        _ACTIONS[action](machine, argument)
        if len(machine.stack) > MAX_STACK:
            raise InputError(f"the pickle keeps more than {MAX_STACK} values waiting")
    return machine.result()


class _Machine:
    """Stack, marks (lengths of the stack) and memo; one method per action."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.factory = Factory()

    def result(self) -> Any:
        if len(self.stack) != 1 or self.marks:
            raise broken(f"{len(self.stack)} values are left at its end, not 1")
        return self.stack[0]

    def top(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise broken("it takes a value that is not there")
        return self.stack[-1]

    def pop(self) -> Any:
        value = self.top()
        self.stack.pop()
        return value

    def pop_to_mark(self) -> list[Any]:
        if not self.marks:
            raise broken("it goes back to a mark that is not there")
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self, _: None) -> None:
        if len(self.marks) >= MAX_MARKS:
            raise InputError(f"the pickle is nested deeper than {MAX_MARKS} levels")
        self.marks.append(len(self.stack))

    def stop(self, _: None) -> None:
        """Do nothing: the scan has made sure that this is the last instruction."""

    def make_tuple(self, _: None) -> None:
        self.push(tuple(self.pop_to_mark()))

    def make_short_tuple(self, length: int) -> None:
        items = [self.pop() for _ in range(length)]
        self.push(tuple(reversed(items)))

    def make_empty_list(self, _: None) -> None:
        self.push([])

    def make_list(self, _: None) -> None:
        self.push(self.pop_to_mark())

    def append(self, _: None) -> None:
        self._extend([self.pop()])

    def appends(self, _: None) -> None:
        self._extend(self.pop_to_mark())

    def _extend(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) is not list:
            raise broken("it appends to what is no list")
        target.extend(items)

    def make_empty_dict(self, _: None) -> None:
        self.push({})

    def make_dict(self, _: None) -> None:
        items = self.pop_to_mark()
        self.push({})
        self._set(items)

    def setitem(self, _: None) -> None:
        value, key = self.pop(), self.pop()
        self._set([key, value])

    def setitems(self, _: None) -> None:
        self._set(self.pop_to_mark())

    def _set(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) is not dict or len(items) % 2:
            raise broken("it sets items of what is no dict, or a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str:
                raise InputError("expected texts as keys of a dict, the pickle has another key")
            if key in target:
                raise InputError(f"the key {key[:60]!a} is there twice in one dict")
            target[key] = value

    def put(self, index: int | None) -> None:
        place = len(self.memo) if index is None else index
        if not 0 <= place <= MAX_OPCODES:
            raise InputError(f"expected memo places from 0 to {MAX_OPCODES}, got {place}")
        self.memo[place] = self.top()

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise broken(f"it takes the memo's place {index}, where nothing is")
        self.push(self.memo[index])

    def stack_name(self, _: None) -> None:
        name, module = self.pop(), self.pop()
        self.push(lookup(module, name))

    def reduce(self, _: None) -> None:
        arguments, maker = self.pop(), self.pop()
        self.push(self.factory.call(maker, arguments))

    def build(self, _: None) -> None:
        state = self.pop()
        self.factory.fill(self.top(), state)


_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "push": _Machine.push,
    "mark": _Machine.mark,
    "stop": _Machine.stop,
    "tuple": _Machine.make_tuple,
    "short_tuple": _Machine.make_short_tuple,
    "empty_list": _Machine.make_empty_list,
    "list": _Machine.make_list,
    "append": _Machine.append,
    "appends": _Machine.appends,
    "empty_dict": _Machine.make_empty_dict,
    "dict": _Machine.make_dict,
    "setitem": _Machine.setitem,
    "setitems": _Machine.setitems,
    "put": _Machine.put,
    "get": _Machine.get,
    "stack_global": _Machine.stack_name,
    "reduce": _Machine.reduce,
    "build": _Machine.build,
}
