"""Docstrings of the public library say what a caller must know: parameters with units, results."""

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import ppsolve
from tests.paths import ROOT
from tests.syntax import parsed, statements

SOURCES = sorted([*(ROOT / "models").rglob("*.py"), *(ROOT / "solver").rglob("*.py")])

VAGUE = (
    "Return what",
    "Return how",
    "Return whether",
    "Return which",
    "Return whatever",
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _public(body: list[ast.stmt], owner: str = "") -> Iterator[tuple[str, Function]]:
    """Yield public functions, and public methods of public classes, with their names."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _public(node.body, f"{node.name}.")
        elif isinstance(node, Function) and not node.name.startswith("_"):
            marks = {getattr(mark, "id", "") for mark in node.decorator_list}
            if "overload" not in marks:
                yield owner + node.name, node


def _overridden(sources: list[ast.Module]) -> set[str]:
    """Return the methods, as Class.name, of which a base class in the sources has one too."""
    bases: dict[str, set[str]] = {}
    methods: dict[str, set[str]] = {}
    for node in (node for tree in sources for node in statements(tree)):
        if isinstance(node, ast.ClassDef):
            plain = [
                base.value if isinstance(base, ast.Subscript) else base
                for base in node.bases
            ]
            bases[node.name] = {base.id for base in plain if isinstance(base, ast.Name)}
            methods[node.name] = {
                each.name for each in node.body if isinstance(each, Function)
            }

    def inherited(owner: str) -> set[str]:
        known = [base for base in bases.get(owner, ()) if base in methods]
        return {name for base in known for name in methods[base] | inherited(base)}

    return {
        f"{owner}.{name}"
        for owner in methods
        for name in methods[owner] & inherited(owner)
    }


@cache
def _overrides() -> set[str]:
    """Return the methods that say what differs from the one that they override, and no more."""
    return _overridden([parsed(path) for path in SOURCES])


def _num_arguments(function: Function) -> int:
    spec = function.args
    names = [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
    names += [arg.arg for arg in (spec.vararg, spec.kwarg) if arg is not None]
    return len([name for name in names if name not in {"self", "cls"}])


def _is_command(function: Function) -> bool:
    """Say if it is a command: its docstring is its help text, and options explain themselves."""
    is_method = [arg.arg for arg in function.args.args[:1]] == ["self"]
    return function.name.endswith("_command") and not is_method


def _is_part(function: Function) -> bool:
    """Say if only kernels call it: the head of its module says what the tables hold."""
    return any(
        isinstance(d, ast.Name) and d.id == "part" for d in function.decorator_list
    )


def _missing_sections(function: Function) -> list[str]:
    """Return the sections that the docstring of a function with several arguments lacks."""
    if _num_arguments(function) < 2 or _is_command(function) or _is_part(function):
        return []
    text = ast.get_docstring(function) or ""
    gives_none = (
        isinstance(function.returns, ast.Constant) and function.returns.value is None
    )
    lacking = [] if "Parameters\n----------" in text else ["Parameters"]
    has_result = "Returns\n-------" in text or "Yields\n------" in text
    return lacking if has_result or gives_none else [*lacking, "Returns"]


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in (tree, *statements(tree)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


@cache
def _library() -> dict[str, set[str]]:
    """Return the names that users import from each module."""
    homes: dict[str, set[str]] = {}
    for name in ppsolve.__all__:
        module = getattr(getattr(ppsolve, name), "__module__", "ppsolve")
        path = Path(importlib.import_module(module).__file__ or "")
        homes.setdefault(str(path.resolve()), set()).add(name)
    return homes


def _faults(file: Path) -> list[str]:
    """Return the functions that lack sections, and the docstrings that begin vaguely."""
    tree, name = parsed(file), file.relative_to(ROOT)
    public = _library().get(str(file.resolve()), set())
    found = [
        f"{name}: {function_name} lacks {' and '.join(lacking)}"
        for function_name, function in _public(tree.body)
        if function_name.partition(".")[0] in public
        if function_name not in _overrides()
        if (lacking := _missing_sections(function))
    ]
    return found + [
        f"{name}:{line}: {text.splitlines()[0]}"
        for line, text in _docstrings(tree)
        if text.startswith(VAGUE)
    ]


def test_docstrings() -> None:
    """Public, several arguments: Parameters, Returns unless None. No docstring begins vaguely."""
    found = [fault for file in SOURCES for fault in _faults(file)]
    assert not found, "\n".join(found)


def test_overrides_are_told_by_their_bases() -> None:
    text = """
class Order:
    def of(self): ...

class Both(Order[int], Other):
    def of(self): ...
    def by(self): ...

class Last(Both):
    def of(self): ...
"""
    assert _overridden([ast.parse(text)]) == {"Both.of", "Last.of"}


def test_finder_sees_missing_sections_and_vague_beginnings() -> None:
    text = '''
class Order:
    def of(self, a, b) -> int:
        """Return what a and b make."""

    def add(self, a, b) -> None:
        """Add both.

        Parameters
        ----------
        a, b : int
            Ticks.
        """

    def _hidden(self, a, b) -> int: ...

    def get_command(self, a, b) -> None: ...


def order_command(a, b) -> int:
    """Help text."""


def single(a) -> int:
    """Return a."""
'''
    tree = ast.parse(text)
    lacking = {
        name: _missing_sections(function) for name, function in _public(tree.body)
    }
    assert lacking == {
        "Order.of": ["Parameters", "Returns"],
        "Order.add": [],
        "Order.get_command": ["Parameters"],
        "order_command": [],
        "single": [],
    }
    assert [text for _, text in _docstrings(tree) if text.startswith(VAGUE)] == [
        "Return what a and b make."
    ]
