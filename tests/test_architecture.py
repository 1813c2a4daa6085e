"""The rules of the source tree: one way for imports, one meaning per class name, short files."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.syntax import parsed, statements

SOURCES = sorted([*(ROOT / "models").rglob("*.py"), *(ROOT / "solver").rglob("*.py")])
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MOST_LINES = 650

LAYERS = {
    "models": [],
    "base": ["interruptible", "clock", "board", "kernels", "structure", "checker"],
    "methods": ["bounds", "heuristics", "exact"],
    "run": ["run"],
    "kinds": ["kinds"],
    "library": ["api"],
    "studies": ["studies"],
    "output": ["views", "formats"],
    "service": ["service"],
    "cli": ["cli"],
}
"""Modules of ``ppsolve.solver`` by layer, from the lowest layer to the highest.

A module imports from its own layer and from lower ones, wherever the import stands.
"""

KIND_CLASSES = {
    "kfac": {"KfacInstance", "RefreshResult", "RefreshEntry", "RefreshFigures"},
    "overlap": {"OverlapInstance", "OverlapResult", "OverlapEntry", "ProgramFigures"},
    "pipeline": {"PipelineInstance"},
    "graph": {"GraphInstance"},
}
"""Instances and results that only the packages of their own kind tell by their class."""

LOADING_ORTOOLS = (
    "ppsolve.solver.exact.constraints",
    "ppsolve.solver.exact.exact",
    "ppsolve.solver.exact.few_devices",
    "ppsolve.solver.exact.memory",
    "ppsolve.solver.exact.model",
    "ppsolve.solver.exact.parameters",
    "ppsolve.solver.exact.search",
    "ppsolve.solver.exact.variables",
    "ppsolve.solver.exact.window_lns",
    "ppsolve.solver.kinds.kfac.exact",
    "ppsolve.solver.kinds.overlap.least_bytes",
    "ppsolve.solver.kinds.pipeline.layers.model",
    "ppsolve.solver.kinds.pipeline.modes.joint_model",
    "ppsolve.solver.kinds.pipeline.options.joint_model",
    "ppsolve.solver.studies.plan.split_cpsat",
)
"""Importing these loads OR-tools, so all others import them inside functions only."""

SCREEN = {"typer", "rich", "click"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("ppsolve", *parts)).removesuffix(".__init__")


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Every module that a file imports, and whether it does so while being imported itself."""
    tree = parsed(path)
    lazy = {
        id(node)
        for outer in statements(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        or _is_type_checking(outer)
        for node in statements(outer)
    }
    found = []
    for node in statements(tree):
        names = (
            [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        )
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = str(node.module)
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        found += [(name, id(node) not in lazy) for name in names]
    return found


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and any(
        isinstance(name, ast.Name) and name.id == "TYPE_CHECKING"
        for name in ast.walk(node.test)
    )


def top(name: str) -> str:
    return name.split(".")[0]


def layer(name: str) -> str | None:
    parts = name.split(".")
    if parts[:2] == ["ppsolve", "models"]:
        return "models"
    if parts[:2] != ["ppsolve", "solver"] or len(parts) < 3:
        return None
    return next((name for name, modules in LAYERS.items() if parts[2] in modules), None)


def named(prefix: str) -> list[Path]:
    return [path for path in SOURCES if module_name(path).startswith(prefix)]


def each(paths: list[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Hold every file to a rule in one test, which names all that break it."""

    def decorate(rule: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            broken = {}
            for path in paths:
                try:
                    rule(path)
                except AssertionError as error:
                    broken[path.relative_to(ROOT).as_posix()] = str(error)
            assert broken == {}

        test.__doc__ = rule.__doc__
        return test

    return decorate


def package(name: str) -> str:
    """``ppsolve.solver.kinds.kfac`` for any module in it."""
    return ".".join(name.split(".")[:3])


def packages_imported() -> dict[str, set[str]]:
    """Every package's imports of other packages, those inside functions included."""
    modules = {module_name(path) for path in SOURCES}
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        own = package(module_name(path))
        used = {package(name) for name, _ in imports(path) if name in modules}
        found.setdefault(own, set()).update(used - {own})
    return found


def test_no_circles_between_packages() -> None:
    left = packages_imported()
    while True:
        free = [name for name, used in left.items() if not used & left.keys()]
        if not free:
            break
        left = {name: used for name, used in left.items() if name not in free}
    assert left == {}, "these import each other"


@each(SOURCES)
def test_kinds_are_told_by_class_in_their_own_packages_only(path: Path) -> None:
    others = {
        name
        for kind, names in KIND_CLASSES.items()
        if kind not in path.relative_to(ROOT).with_suffix("").parts
        for name in names
    }
    tested = {
        node.id
        for call in ast.walk(parsed(path))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if call.func.id in {"isinstance", "issubclass"}
        for node in ast.walk(call.args[1])
        if isinstance(node, ast.Name)
    }
    assert tested & others == set()


def test_class_names_have_one_meaning() -> None:
    where: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name.lstrip("_"), []).append(module_name(path))
    assert {name: modules for name, modules in where.items() if len(modules) > 1} == {}


def test_layers_name_what_exists() -> None:
    there = {name.split(".")[2] for name in map(module_name, named("ppsolve.solver."))}
    assert {name for layer in LAYERS.values() for name in layer} == there
    loading = [name for name in LOADING_ORTOOLS if not named(name)]
    assert loading == []


def test_every_module_has_a_layer() -> None:
    modules = [module_name(path) for path in named("ppsolve.solver.")]
    assert [name for name in modules if layer(name) is None] == []


@each([*named("ppsolve.models"), *named("ppsolve.solver.")])
def test_imports_point_one_way(path: Path) -> None:
    order = list(LAYERS)
    own = layer(module_name(path))
    assert own is not None
    higher = order[order.index(own) + 1 :]
    upward = {name for name, _ in imports(path) if layer(name) in higher}
    assert upward == set()


LIST_OF_KINDS = "ppsolve.solver.api.kinds"
"""The one module below the studies that may import kinds."""


@each(SOURCES)
def test_what_serves_every_kind_imports_none(path: Path) -> None:
    name = module_name(path)
    if (
        layer(name) not in {"base", "methods", "run", "library"}
        or name == LIST_OF_KINDS
    ):
        return
    kinds = {
        used
        for used, _ in imports(path)
        if used.startswith(("ppsolve.solver.kinds.", "ppsolve.models.kinds."))
        and used.split(".")[3] in KIND_CLASSES
    }
    assert kinds == set()


def test_every_kind_is_known_to_the_walls() -> None:
    names = {
        path.stem
        for room in ("models", "solver")
        for path in (ROOT / room / "kinds").iterdir()
        if not path.name.startswith("_")
    }
    assert names - {"kind", "inner", "narrowing"} == set(KIND_CLASSES)


def test_the_kind_of_pipelines_leaves_each_part_to_its_object() -> None:
    """No feature chain: of an instance `kind.py` reads the name, for errors, and nothing else."""
    tree = parsed(ROOT / "solver" / "kinds" / "pipeline" / "kind.py")
    fields = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "instance"
    }
    assert fields <= {"name"}
    asked = {
        call.func.id
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if call.func.id
        in {"isinstance", "getattr", "hasattr", "modes_of", "has_open_modes"}
    }
    assert asked == set()


REPORTING = {"propose", "raise_bound"}
"""The verbs by which a schedule or a bound reaches the board; `retract` and `close` end one."""

BOARD = {
    "beginning",
    "with_target",
    "propose",
    "raise_bound",
    "retract",
    "subscribe",
    "close",
}


def test_schedules_and_bounds_reach_a_run_by_two_verbs() -> None:
    board = next(
        node
        for node in parsed(ROOT / "solver" / "board.py").body
        if isinstance(node, ast.ClassDef) and node.name == "Board"
    )
    methods = [node for node in board.body if isinstance(node, ast.FunctionDef)]
    public = {
        method.name
        for method in methods
        if not method.name.startswith("_")
        and not any(
            isinstance(d, ast.Name) and d.id == "property"
            for d in method.decorator_list
        )
    }
    assert public == BOARD
    writers = {
        module_name(path)
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Assign | ast.AugAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute)
        and target.attr in {"incumbent", "bound", "bounds"}
        and "board" in ast.unparse(target.value)
    }
    assert writers <= {"ppsolve.solver.board"}


def test_the_table_of_steps_decides_which_search_runs() -> None:
    """No task, kind or search has a predicate of its own that chooses searches."""
    old = (
        "glance",
        "has_parts",
        "searches_beside",
        "takes_parts",
        "is_race",
        "is_in_turn",
    )
    old += (
        "takes_devices",
        "is_too_large",
        "is_one_free_problem",
        "glances_first",
        "strategies",
    )
    found = {
        f"{module_name(path)}: {node.name}"
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef)
        and node.name in old
        and not module_name(path).startswith(
            ("ppsolve.solver.kinds.kfac.exact", "ppsolve.solver.studies.plan")
        )
    }
    assert found == set()


ROUTE = (
    "solver/cli/optimize.py",
    "solver/cli/comparing.py",
    "solver/cli/solving.py",
    "solver/api/api.py",
    "solver/run/solve_run.py",
    "solver/run/steps.py",
    "solver/exact/exact.py",
    "solver/exact/search.py",
)
"""Files that a reader passes from the command to `CpSolver.solve`; ARCHITECTURE.md lists them."""


def test_the_way_to_the_exact_solver_is_short() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(ROUTE) <= 8
    assert [path for path in ROUTE if path not in text] == []
    for path, after in itertools.pairwise(ROUTE):
        used = {name for name, _ in imports(ROOT / path)}
        target = module_name(ROOT / after)
        # The run knows no steps: the task that it is given has them.
        is_handed = after == "solver/run/steps.py"
        assert target in used or is_handed, f"{path} does not use {after}"


def test_solvers_get_their_parameters_in_one_place() -> None:
    made = [
        module_name(path) for path in SOURCES if "CpSolver()" in path.read_text("utf-8")
    ]
    assert made == ["ppsolve.solver.exact.parameters"]


def test_optional_intervals_have_a_fixed_size() -> None:
    """Those of alternatives would share start and end: tests/exact/test_interval_forms.py."""
    paths = [*SOURCES, *TESTS, *(ROOT / "benchmarks").rglob("*.py")]
    makers = [
        path.name
        for path in paths
        if "new_optional_interval_var(" in path.read_text("utf-8")
    ]
    assert makers == ["test_interval_forms.py", "test_architecture.py"]


@each(SOURCES)
def test_installed_names_are_used(path: Path) -> None:
    bare = {
        name for name, _ in imports(path) if top(name) in {"solver", "models", "tests"}
    }
    assert bare == set()


@each(SOURCES)
def test_ortools_is_imported_only_when_solving(path: Path) -> None:
    if module_name(path).startswith(LOADING_ORTOOLS):
        return
    direct = {name for name, _ in imports(path) if top(name) == "ortools"}
    eager = {
        name for name, now in imports(path) if name.startswith(LOADING_ORTOOLS) and now
    }
    assert direct | eager == set()


@each(SOURCES)
def test_only_the_top_layers_know_a_screen(path: Path) -> None:
    used = {name for name, _ in imports(path) if top(name) in SCREEN}
    assert used == set() or layer(module_name(path)) in {"output", "cli"}


@each(named("ppsolve.models"))
def test_models_depend_on_numpy_and_pydantic_only(path: Path) -> None:
    allowed = {"numpy", "pydantic", "pydantic_core", *sys.stdlib_module_names}
    foreign = {
        name for name, _ in imports(path) if top(name) not in {*allowed, "ppsolve"}
    }
    assert foreign == set()
    assert {
        name for name, _ in imports(path) if name.startswith("ppsolve.solver")
    } == set()


def test_checker_shares_no_code_with_solvers() -> None:
    used = {
        name
        for name, _ in imports(ROOT / "solver" / "checker.py")
        if top(name) == "ppsolve"
    }
    modules = {".".join(name.split(".")[:4]) for name in used}
    assert modules == {
        "ppsolve.models.core.problem",
        "ppsolve.models.core.schedule",
        "ppsolve.models.core.violation",
    }


def test_brute_force_shares_no_code_with_the_solver() -> None:
    used = {
        name
        for name, _ in imports(ROOT / "tests" / "bruteforce.py")
        if top(name) == "ppsolve"
    }
    assert {".".join(name.split(".")[:4]) for name in used} == {
        "ppsolve.models.core.problem"
    }


def test_the_plain_model_of_pipelines_shares_no_code_with_the_program() -> None:
    paths = [
        ROOT / "tests" / "outside" / name
        for name in (
            "plain_model.py",
            "combined_model.py",
            "open_choices.py",
            "timed_program.py",
            "generators.py",
        )
    ]
    used = {name for path in paths for name, _ in imports(path)}
    assert not [name for name in used if top(name) == "ppsolve"]


@each([*SOURCES, *TESTS])
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize(
    "name", ["ppsolve", "ppsolve.solver.checker", "ppsolve.solver.cli.main"]
)
def test_import_does_not_load_ortools(name: str) -> None:
    code = f"import sys, {name}; print('ortools' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"


def test_package_holds_links_to_the_code() -> None:
    for name in ("models", "solver"):
        link = ROOT / "ppsolve" / name
        assert link.is_symlink()
        assert link.resolve() == ROOT / name
