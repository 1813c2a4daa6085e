"""What an op, a resource or a pool is stands in keys: no program reads its names or messages."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.syntax import parsed, statements
from tests.test_architecture import SOURCES, module_name

TEXTS = {"op_name", "op_names", "resource_names", "explicit_names", "message", "reason"}
"""Words for users, as are names of pools, ops of violations and texts of errors."""

READING = {
    "partition", "rpartition", "split", "rsplit", "startswith", "endswith", "removeprefix",
    "removesuffix", "match", "fullmatch", "search", "sub", "findall", "finditer", "isdecimal",
}  # fmt: skip

ALLOWED = {
    # Texts of alike failures are one row of a report; nothing else is learnt from them.
    "ppsolve.solver.studies.bench.report.rows: _general",
    "ppsolve.solver.views.progress: own_failures",
    # Whether an error of the translator has its line already; kernels import nothing.
    "ppsolve.solver.kernels.native.translate: _block",
}


def is_text(node: ast.AST, texts: set[str]) -> bool:
    """Whether an expression has a name, a message or a variable that holds one inside."""
    return any(_is_text(inner, texts) for inner in ast.walk(node))


def _is_text(node: ast.AST, texts: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in texts
    if isinstance(node, ast.Attribute):
        owner = {"name": "pool", "ops": "violation"}.get(node.attr)
        return node.attr in TEXTS or bool(
            owner and ast.unparse(node.value).endswith(owner)
        )
    is_str = (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "str"
    )
    return is_str and ast.unparse(node).startswith(("str(error", "str(violation"))


def bindings(function: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield every target and what it is bound to, or is an item of."""
    for node in ast.walk(function):
        if isinstance(node, ast.NamedExpr):
            yield node.target, node.value
        pairs = [(target, node.value) for target in getattr(node, "targets", ())
                 if isinstance(node, ast.Assign)]  # fmt: skip
        if isinstance(node, ast.For | ast.comprehension):
            pairs.append((node.target, node.iter))
        for target, value in pairs:
            parts = value.elts if isinstance(value, ast.Tuple) else []
            if isinstance(value, ast.Call) and ast.unparse(value.func) == "zip":
                parts = value.args
            if isinstance(target, ast.Tuple) and len(parts) == len(target.elts):
                yield from zip(target.elts, parts, strict=True)
            else:
                yield target, value


def texts_in(function: ast.AST) -> set[str]:
    """Return the variables of a function that hold names or messages."""
    bound, texts = list(bindings(function)), set[str]()
    while True:
        more = {
            name.id
            for target, value in bound
            if is_text(value, texts)
            for name in (target.elts if isinstance(target, ast.Tuple) else [target])
            if isinstance(name, ast.Name)
        }
        if more <= texts:
            return texts
        texts |= more


def readings(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions of a function that look into a name or a message."""
    if not is_text(function, set()):
        return
    texts = texts_in(function)
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            # Without an argument, blanks are folded.
            parts = (node.func.value, *node.args) if node.args else ()
            if node.func.attr in READING and any(
                is_text(part, texts) for part in parts
            ):
                yield node
        elif isinstance(node, ast.Compare) and isinstance(
            node.ops[0], ast.In | ast.NotIn
        ):
            is_word = isinstance(node.left, ast.Constant) and isinstance(
                node.left.value, str
            )
            if is_word and is_text(node.comparators[0], texts):
                yield node


def reading_functions() -> set[str]:
    return {
        f"{module_name(path)}: {node.name}"
        for path in SOURCES
        for node in statements(parsed(path))
        if isinstance(node, ast.FunctionDef) and any(readings(node))
    }


def test_names_and_messages_are_not_read() -> None:
    assert reading_functions() == ALLOWED


def test_what_counts_as_reading() -> None:
    """Each line was one way by which a fact was found in a text."""
    bodies = {
        "return int(problem.op_name(op).partition('/')[0])": True,
        "word, _, name = problem.op_name(op).partition(':')": True,
        "return _MEMORY.match(entry.reason or '')": True,
        "text = entry.reason or ''\n    return _MEMORY.match(text)": True,
        "return (entry.reason or '').startswith('memory')": True,
        "return [int(pool.name.split(' ')[1]) for pool in problem.pools]": True,
        "return [name.split('+') for name in problem.op_names(ops)]": True,
        "return [o for o, n in zip(ops, problem.op_names(ops)) if n.startswith('F')]": True,
        "return int(violation.ops[-1].partition('/')[0])": True,
        "return str(error).partition(' is not applicable: ')": True,
        "return 'memory' in violation.message": True,
        "return re.sub('[0-9]+', str, problem.resource_names[0])": True,
        "return {name: op for op, name in enumerate(problem.op_names(ops))}": False,
        "return ' '.join(str(error).split())": False,
        "return name.split('+')": False,
    }
    for body, is_reading in bodies.items():
        (function,) = ast.parse(f"def f(problem, entry):\n    {body}").body
        assert any(readings(function)) is is_reading, body
