"""Expressions of kernels."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ppsolve.solver.kernels.native.body import (
    INT,
    Array,
    Body,
    Number,
    Record,
    UntranslatableError,
    Value,
)

_WHOLE: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.RShift: "ashr",
    ast.BitOr: "or",
}
_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "slt",
    ast.LtE: "sle",
    ast.Gt: "sgt",
    ast.GtE: "sge",
}

RANGE = ("first", "end", "step")
"""Names of the fields of a range."""


@dataclass
class InlinedCall:
    """A call that is being translated in the place where it stands."""

    namespace: dict[str, Any]  # globals of the function
    written: set[str]  # the names that it assigns
    exit: str  # label behind the call
    names: dict[str, Value] = field(default_factory=dict)  # what local names stand for
    result: Value | None = None  # room for what it returns
    loops: list[tuple[str, str]] = field(
        default_factory=list
    )  # labels of `continue` and `break`


class Expressions:
    """Adds the instructions of expressions to a body."""

    def __init__(self, body: Body, frame: InlinedCall) -> None:
        self.body, self.frame = body, frame

    def call(self, function: Any, arguments: list[Value]) -> Value | None:
        """Add the instructions of a part in this place; return what it returns, in slots."""
        raise NotImplementedError

    def value(self, node: ast.expr) -> Value:
        """Add an expression; return its value, which may be in slots."""
        translate = getattr(self, f"_{type(node).__name__.lower()}", None)
        result = None if translate is None else translate(node)
        if result is None:
            raise UntranslatableError(f"line {node.lineno}: {ast.unparse(node)}")
        return result

    def number(self, node: ast.expr) -> Number:
        """Add an expression; return its number."""
        return self.body.read(self.value(node))

    def _constant(self, node: ast.Constant) -> Value | None:
        return _constant(node.value)

    def _name(self, node: ast.Name) -> Value | None:
        if node.id in self.frame.names:
            return self.frame.names[node.id]
        return _constant(self.frame.namespace.get(node.id))

    def _attribute(self, node: ast.Attribute) -> Value | None:
        record = self.value(node.value)
        if not isinstance(record, Record) or node.attr not in record.names:
            return None
        return record.items[record.names.index(node.attr)]

    def _tuple(self, node: ast.Tuple) -> Value:
        return Record(
            (), tuple(self.body.settle(self.value(item)) for item in node.elts)
        )

    def _subscript(self, node: ast.Subscript) -> Value:
        return Number(self.body.emit(f"load i64, ptr {self.address(node)}"))

    def address(self, node: ast.Subscript) -> str:
        """Add the address of a number of an array; -1 stands for the last one."""
        array = self.value(node.value)
        if not isinstance(array, Array):
            raise UntranslatableError(f"line {node.lineno}: {ast.unparse(node)}")
        offset = index = self.number(node.slice).text
        if not offset.isdigit():
            length = self.body.read(array.length).text
            is_behind = self.body.emit(f"icmp slt i64 {offset}, 0")
            again = self.body.emit(f"add i64 {offset}, {length}")
            offset = self.body.emit(f"select i1 {is_behind}, i64 {again}, i64 {offset}")
        if self.body.fault:
            length = self.body.read(array.length).text
            self.refuse(
                f"icmp uge i64 {offset}, {length}", IndexError, node, index, length
            )
        first = self.body.read(array.pointer).text
        return self.body.emit(f"getelementptr inbounds i64, ptr {first}, i64 {offset}")

    def refuse(
        self,
        test: str,
        error: type[Exception],
        node: ast.expr | ast.stmt,
        first: str = "0",
        second: str = "0",
    ) -> None:
        """Add a test to checked code, nothing to other code: where it holds, the kernel ends.

        The test is an operation that returns one bit. The caller raises Python's error about the
        node with two numbers: index and length, or operands.
        """
        if self.body.fault:
            module = self.frame.namespace["__name__"]
            location = f"{module}, line {node.lineno}: {ast.unparse(node)}"
            self.body.refuse(
                self.body.emit(test), f"{error.__name__} {location}", first, second
            )

    def _binop(self, node: ast.BinOp) -> Value:
        return self.operate(
            self.number(node.left), node.op, self.number(node.right), node
        )

    def operate(
        self,
        first: Number,
        operator: ast.operator,
        second: Number,
        node: ast.expr | ast.stmt,
    ) -> Number:
        """Add an operation of two numbers.

        An `UntranslatableError` says that the operator has no translation.
        """
        emit, kind = self.body.emit, type(operator)
        self._refuse_operands(first.text, second.text, kind, node)
        if kind in _WHOLE:
            return Number(emit(f"{_WHOLE[kind]} i64 {first.text}, {second.text}"))
        return self._divide(first.text, second.text, kind)

    def _refuse_operands(
        self,
        first: str,
        second: str,
        kind: type[ast.operator],
        node: ast.expr | ast.stmt,
    ) -> None:
        """Let checked code refuse operands whose result here is not what Python's would be."""
        if not self.body.fault:
            return
        emit, wrong = self.body.emit, ""
        if kind in (ast.FloorDiv, ast.Mod):
            self.refuse(
                f"icmp eq i64 {second}, 0", ZeroDivisionError, node, first, second
            )
            is_least = emit(f"icmp eq i64 {first}, {-(2**63)}")
            wrong = f"and i1 {is_least}, {emit(f'icmp eq i64 {second}, -1')}"
        elif kind is ast.RShift:
            self.refuse(f"icmp ugt i64 {second}, 63", ValueError, node, first, second)
        elif kind in (ast.Add, ast.Sub, ast.Mult):
            name = f"@llvm.s{_WHOLE[kind]}.with.overflow.i64"
            pair = emit(f"call {{i64, i1}} {name}(i64 {first}, i64 {second})")
            wrong = f"extractvalue {{i64, i1}} {pair}, 1"
        if wrong:
            self.refuse(wrong, OverflowError, node, first, second)

    def _divide(self, first: str, second: str, kind: type[ast.operator]) -> Number:
        """Add a division that rounds down as Python's does, or what it leaves."""
        emit = self.body.emit
        if kind not in (ast.FloorDiv, ast.Mod):
            raise UntranslatableError(kind.__name__)
        remainder = emit(f"srem i64 {first}, {second}")
        is_inexact = emit(f"icmp ne i64 {remainder}, 0")
        differs = emit(f"icmp slt i64 {emit(f'xor i64 {remainder}, {second}')}, 0")
        is_low = emit(f"and i1 {is_inexact}, {differs}")
        if kind is ast.Mod:
            correction = emit(f"select i1 {is_low}, i64 {second}, i64 0")
            return Number(emit(f"add i64 {remainder}, {correction}"))
        less = emit(f"sext i1 {is_low} to i64")
        return Number(emit(f"add i64 {emit(f'sdiv i64 {first}, {second}')}, {less}"))

    def _unaryop(self, node: ast.UnaryOp) -> Value | None:
        if isinstance(node.op, ast.Not):
            return self._chosen(node)
        if not isinstance(node.op, ast.USub):
            return None
        number = self.number(node.operand)
        if number.text.isdigit():
            return Number(str(-int(number.text)))
        return self.operate(Number("0"), ast.Sub(), number, node)

    def _compare(self, node: ast.Compare) -> Value:
        return self.body.whole(self._compared(node))

    def _compared(self, node: ast.Compare) -> str:
        """Add a comparison; return its truth."""
        if len(node.ops) > 1:
            raise UntranslatableError(f"line {node.lineno}: {ast.unparse(node)}")
        first = self.number(node.left)
        return self._test(
            first, node.ops[0], self.body.settle(self.value(node.comparators[0]))
        )

    def _test(self, first: Number, operator: ast.cmpop, second: Value) -> str:
        if type(operator) not in _COMPARED:
            raise UntranslatableError(type(operator).__name__)
        two = self.body.read(second)
        return self.body.emit(
            f"icmp {_COMPARED[type(operator)]} i64 {first.text}, {two.text}"
        )

    def condition(self, node: ast.expr, yes: str, no: str) -> None:
        """Add a jump to one of two labels."""
        if isinstance(node, ast.BoolOp):
            self._conditions(node, yes, no)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.condition(node.operand, no, yes)
        elif isinstance(node, ast.Compare):
            self.body.fork(self._compared(node), yes, no)
        else:
            self.body.fork(self._truth(self.number(node)), yes, no)

    def _conditions(self, node: ast.BoolOp, yes: str, no: str) -> None:
        for operand in node.values[:-1]:
            following = self.body.fresh("l")
            if isinstance(node.op, ast.And):
                self.condition(operand, following, no)
            else:
                self.condition(operand, yes, following)
            self.body.begin(following)
        self.condition(node.values[-1], yes, no)

    def _truth(self, number: Number) -> str:
        return self._test(number, ast.NotEq(), Number("0"))

    def _chosen(self, node: ast.expr) -> Value:
        """Add a condition; return 1 or 0."""
        return self._choice(node, lambda: Number("1"), lambda: Number("0"))

    def _ifexp(self, node: ast.IfExp) -> Value:
        return self._choice(
            node.test, lambda: self.value(node.body), lambda: self.value(node.orelse)
        )

    def _choice(
        self, test: ast.expr, first: Callable[[], Value], second: Callable[[], Value]
    ) -> Value:
        yes, no, behind = (self.body.fresh("l") for _ in range(3))
        self.condition(test, yes, no)
        self.body.begin(yes)
        value = first()
        room = self.body.slots(value)
        self.body.store(room, value)
        self.body.jump(behind)
        self.body.begin(no)
        self.body.store(room, second())
        self.body.begin(behind)
        return room

    def _boolop(self, node: ast.BoolOp) -> Value:
        """Add the first operand that decides; as in Python, not just whether it is true."""
        behind, room = self.body.fresh("l"), self.body.slot(INT)
        for operand in node.values[:-1]:
            number, following = self.number(operand), self.body.fresh("l")
            self.body.store(room, number)
            labels = (
                (following, behind)
                if isinstance(node.op, ast.And)
                else (behind, following)
            )
            self.body.fork(self._truth(number), *labels)
            self.body.begin(following)
        self.body.store(room, self.value(node.values[-1]))
        self.body.begin(behind)
        return room

    def _call(self, node: ast.Call) -> Value | None:
        if not isinstance(node.func, ast.Name) or node.keywords:
            return None
        name, arguments = node.func.id, [self.value(argument) for argument in node.args]
        function = self.frame.namespace.get(name)
        if function is None:
            return self._built_in(name, arguments)
        if isinstance(function, type) and issubclass(function, tuple):
            names: tuple[str, ...] = getattr(function, "_fields", ())
            return Record(names, tuple(map(self.body.settle, arguments)))
        return self.call(function, arguments)

    def _built_in(self, name: str, arguments: list[Value]) -> Value | None:
        if name == "len" and isinstance(arguments[0], Array):
            return arguments[0].length
        numbers = [self.body.read(argument) for argument in arguments]
        if name == "range":
            return _range(numbers)
        if name == "int":
            return numbers[0]
        if name == "bool":
            return self.body.whole(self._truth(numbers[0]))
        if name not in ("min", "max"):
            return None
        best = numbers[0].text
        for number in numbers[1:]:
            best = self.body.emit(
                f"call i64 @llvm.s{name}.i64(i64 {best}, i64 {number.text})"
            )
        return Number(best)


def _constant(value: Any) -> Number | None:
    is_whole = isinstance(value, int) and -(2**63) <= value < 2**63
    return Number(str(int(value))) if is_whole else None


def _range(numbers: list[Number]) -> Record:
    first, end, step = Number("0"), numbers[0], Number("1")
    if len(numbers) > 1:
        first, end = numbers[:2]
    return Record(RANGE, (first, end, numbers[2] if len(numbers) > 2 else step))
