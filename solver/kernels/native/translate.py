"""Kernels as text in LLVM's language.

Kernels are written in a small part of Python: whole numbers, int64 arrays and records of them;
loops, conditions, and calls of parts. A part is translated anew in each place where it is called,
so records and their fields cost nothing when a kernel runs. All else is refused.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Sequence
from functools import cache
from types import FunctionType
from typing import Any

from ppsolve.solver.kernels.native.body import (
    FAULT,
    INT,
    POINTER,
    ArgumentLayout,
    Array,
    Body,
    NoSourceError,
    Number,
    Record,
    UntranslatableError,
    Value,
)
from ppsolve.solver.kernels.native.expressions import RANGE, Expressions, InlinedCall

SYMBOL = "kernel"
"""Name of the function in the text."""

_HEAD = f"""declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
define i64 @{SYMBOL}(ptr noalias readonly %words) {{
opening:
"""


_CHECKED = "".join(
    f"declare {{i64, i1}} @llvm.s{name}.with.overflow.i64(i64, i64)\n"
    for name in ("add", "sub", "mul")
)


def translate(
    function: FunctionType,
    layouts: Sequence[ArgumentLayout],
    callees: set[Callable[..., Any]],
) -> str:
    """Return a kernel as text in LLVM's language.

    It is a module with one function, `SYMBOL`, which takes the address of the words of all
    arguments; a last layout of the kind `FAULT` asks for checked code. The kernel may call the
    callees. An `UntranslatableError` says that it uses something that has no translation.
    """
    body = Body()
    arguments = _arguments(body, "%words", layouts)
    prologue, body.lines = body.lines, []
    statements = Statements(body, callees)
    result = statements.call(function, arguments)
    if getattr(result, "kind", None if result else INT) != INT:
        line = function.__code__.co_firstlineno
        raise UntranslatableError(
            f"line {line}: {function.__name__} returns no whole number"
        )
    body.run(f"ret i64 {body.read(result).text if result else 0}")
    head = _CHECKED + _texts(body.descriptions, function.__name__) if body.fault else ""
    lines = [*prologue, *body.opening, "br label %main", "main:", *body.lines, "}"]
    return head + _HEAD + "\n".join(lines)


def _texts(descriptions: dict[str, str], kernel: str) -> str:
    """Return constants of a module: descriptions behind the name of a kernel."""
    lines = []
    for description, name in descriptions.items():
        content = f"{kernel} {description}\0".encode()
        escaped = "".join(f"\\{byte:02X}" for byte in content)
        lines.append(f'{name} = private constant [{len(content)} x i8] c"{escaped}"\n')
    return "".join(lines)


def _arguments(
    body: Body, words: str, layouts: Sequence[ArgumentLayout]
) -> list[Value]:
    """Load arguments, or the fields of a record, from words one after another."""
    values: list[Value] = []
    index = 0
    for layout in layouts:
        kind = POINTER if layout.kind in ("record", FAULT) else layout.kind
        first = _word(body, words, index, kind)
        index += 1
        if layout.kind == POINTER:
            values.append(Array(first, _word(body, words, index, "i64")))
            index += 1
        elif layout.kind == "record":
            fields = _arguments(body, first.text, layout.fields)
            values.append(Record(layout.names, tuple(fields)))
        elif layout.kind == FAULT:
            body.fault = first.text
        else:
            values.append(first)
    return values


def _word(body: Body, words: str, index: int, kind: str) -> Number:
    address = body.emit(f"getelementptr inbounds i64, ptr {words}, i64 {index}")
    register = f"%{body.fresh('a')}"
    body.run(f"{register} = load {kind}, ptr {address}")
    return Number(register, kind)


class Statements(Expressions):
    """Adds the instructions of statements to a body."""

    def __init__(self, body: Body, callees: set[Callable[..., Any]]) -> None:
        super().__init__(body, InlinedCall({}, set(), ""))
        self._parts = callees

    def call(self, function: Any, arguments: list[Value]) -> Value | None:
        """Add the instructions of a function in this place; return what it returns."""
        is_kernel = not self.frame.exit
        if not isinstance(function, FunctionType) or not (
            is_kernel or function in self._parts
        ):
            raise UntranslatableError("a call of what is no part")
        node, outer = _definition(function), self.frame
        frame = InlinedCall(function.__globals__, _written(node), self.body.fresh("l"))
        self.frame = frame
        if len(arguments) != len(node.args.args):
            raise UntranslatableError("a call without all parameters")
        for parameter, argument in zip(node.args.args, arguments, strict=True):
            if parameter.arg in frame.written:
                frame.names[parameter.arg] = self.body.slots(argument)
                self.body.store(frame.names[parameter.arg], argument)
            else:
                is_number = not isinstance(argument, (Array, Record))
                frame.names[parameter.arg] = (
                    self.body.read(argument) if is_number else argument
                )
        self._block(node.body)
        self.body.begin(frame.exit)
        self.frame = outer
        return frame.result

    def _block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if not self.body.is_open:
                return
            translate = getattr(self, f"_do_{type(statement).__name__.lower()}", None)
            if translate is None:
                raise UntranslatableError(
                    f"line {statement.lineno}: {ast.unparse(statement)}"
                )
            try:
                translate(statement)
            except UntranslatableError as error:
                if str(error).startswith("line "):
                    raise
                raise type(error)(f"line {statement.lineno}: {error}") from None

    def _bind(self, name: str, value: Value) -> None:
        """Let a name stand for a value from here on."""
        frame = self.frame
        if name not in frame.names:
            frame.names[name] = self.body.slots(value)
        self.body.store(frame.names[name], value)

    def _assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._bind(target.id, value)
        elif isinstance(target, ast.Tuple) and isinstance(value, Record):
            if len(target.elts) != len(value.items):
                raise UntranslatableError(
                    f"{len(value.items)} values for {len(target.elts)} names"
                )
            for inner, item in zip(target.elts, value.items, strict=True):
                self._assign(inner, item)
        elif isinstance(target, ast.Subscript):
            number = self.body.read(value)
            self.body.run(f"store i64 {number.text}, ptr {self.address(target)}")
        else:
            raise UntranslatableError(f"line {target.lineno}: {ast.unparse(target)}")

    def _do_assign(self, statement: ast.Assign) -> None:
        value = self.body.settle(self.value(statement.value))
        for target in statement.targets:
            self._assign(target, value)

    def _do_annassign(self, statement: ast.AnnAssign) -> None:
        if statement.value is not None:
            self._assign(
                statement.target, self.body.settle(self.value(statement.value))
            )

    def _do_augassign(self, statement: ast.AugAssign) -> None:
        target = statement.target
        if isinstance(target, ast.Subscript):
            address = self.address(target)
            before = Number(self.body.emit(f"load i64, ptr {address}"))
            after = self.operate(
                before, statement.op, self.number(statement.value), statement
            )
            self.body.run(f"store i64 {after.text}, ptr {address}")
        elif isinstance(target, ast.Name) and target.id in self.frame.names:
            before = self.body.read(self.frame.names[target.id])
            after = self.operate(
                before, statement.op, self.number(statement.value), statement
            )
            self._bind(target.id, after)
        else:
            raise UntranslatableError(f"line {target.lineno}: {ast.unparse(target)}")

    def _do_expr(self, statement: ast.Expr) -> None:
        node = statement.value
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and not node.keywords
        ):
            function = self.frame.namespace.get(node.func.id)
            self.call(function, [self.value(argument) for argument in node.args])
        elif not isinstance(node, ast.Constant):
            raise UntranslatableError(f"line {node.lineno}: {ast.unparse(node)}")

    def _do_return(self, statement: ast.Return) -> None:
        frame, node = self.frame, statement.value
        if node is not None and not (
            isinstance(node, ast.Constant) and node.value is None
        ):
            value = self.body.settle(self.value(node))
            if frame.result is None:
                frame.result = self.body.slots(value)
            self.body.store(frame.result, value)
        self.body.jump(frame.exit)

    def _do_if(self, statement: ast.If) -> None:
        yes, no, behind = (self.body.fresh("l") for _ in range(3))
        self.condition(statement.test, yes, no if statement.orelse else behind)
        self.body.begin(yes)
        self._block(statement.body)
        self.body.jump(behind)
        if statement.orelse:
            self.body.begin(no)
            self._block(statement.orelse)
        self.body.begin(behind)

    def _do_while(self, statement: ast.While) -> None:
        again, inside, behind = (self.body.fresh("l") for _ in range(3))
        self.body.begin(again)
        self.condition(statement.test, inside, behind)
        self._loop(statement, inside, again, behind)
        self.body.jump(again)
        self.body.begin(behind)

    def _loop(
        self, statement: ast.While | ast.For, inside: str, again: str, behind: str
    ) -> None:
        """Add the statements of a loop."""
        if statement.orelse:
            raise UntranslatableError(f"line {statement.lineno}: else of a loop")
        if inside:
            self.body.begin(inside)
        self.frame.loops.append((again, behind))
        self._block(statement.body)
        self.frame.loops.pop()

    def _do_continue(self, statement: ast.Continue) -> None:
        self.body.jump(self.frame.loops[-1][0])

    def _do_break(self, statement: ast.Break) -> None:
        self.body.jump(self.frame.loops[-1][1])

    def _do_for(self, statement: ast.For) -> None:
        values = self.body.settle(self.value(statement.iter))
        if isinstance(values, Record) and values.names == RANGE:
            first, end, step = map(self.body.read, values.items)
            self.refuse(
                f"icmp eq i64 {step.text}, 0", ValueError, statement.iter, step.text
            )
            self._count(statement, first, end, step)
        elif isinstance(values, Array):
            self._count(
                statement,
                Number("0"),
                self.body.read(values.length),
                Number("1"),
                values,
            )
        elif isinstance(values, Record):
            self._each(statement, values.items)
        else:
            line = f"line {statement.lineno}: {ast.unparse(statement.iter)}"
            raise UntranslatableError(line)

    def _each(self, statement: ast.For, items: Sequence[Value]) -> None:
        """Add the statements once for each item of a tuple."""
        behind = self.body.fresh("l")
        for item in items:
            self._assign(statement.target, item)
            following = self.body.fresh("l")
            self._loop(statement, "", following, behind)
            self.body.begin(following)
        self.body.begin(behind)

    def _count(
        self,
        statement: ast.For,
        first: Number,
        end: Number,
        step: Number,
        array: Array | None = None,
    ) -> None:
        """Add a loop over numbers, or over those of an array."""
        body = self.body
        again, inside, following, behind = (body.fresh("l") for _ in range(4))
        counter = body.slot("i64")
        body.store(counter, first)
        body.begin(again)
        number = body.read(counter)
        body.fork(self._goes_on(number, end, step), inside, behind)
        body.begin(inside)
        if array is None:
            self._assign(statement.target, number)
        else:
            address = f"getelementptr inbounds i64, ptr {array.pointer.text}, i64 {number.text}"
            self._assign(
                statement.target,
                Number(body.emit(f"load i64, ptr {body.emit(address)}")),
            )
        self._loop(statement, "", following, behind)
        body.begin(following)
        body.store(
            counter, Number(body.emit(f"add nsw i64 {number.text}, {step.text}"))
        )
        body.jump(again)
        body.begin(behind)

    def _goes_on(self, number: Number, end: Number, step: Number) -> str:
        """Add the test of a loop; return its truth."""
        emit, rises = self.body.emit, not step.text.startswith("-")
        test = emit(f"icmp {'slt' if rises else 'sgt'} i64 {number.text}, {end.text}")
        if not step.text.startswith("%"):
            return test
        falls = emit(f"icmp slt i64 {step.text}, 0")
        opposite = emit(f"icmp sgt i64 {number.text}, {end.text}")
        return emit(f"select i1 {falls}, i1 {opposite}, i1 {test}")


@cache
def _definition(function: FunctionType) -> ast.FunctionDef:
    code = function.__code__
    definition = _definitions(code.co_filename).get(
        (function.__name__, code.co_firstlineno)
    )
    if definition is None:
        raise NoSourceError(function.__name__)
    return definition


@cache
def _definitions(path: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """Return the functions of a file by name and first line, that of a decorator."""
    return {
        (
            node.name,
            min(
                [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
            ),
        ): node
        for node in ast.walk(ast.parse("".join(linecache.getlines(path))))
        if isinstance(node, ast.FunctionDef)
    }


def _written(function: ast.FunctionDef) -> set[str]:
    """Return the names that a function assigns."""
    return {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
