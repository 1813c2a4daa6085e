"""Builds and checkouts hold every module, with links to folders or text files in their place."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from tests.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


def packages() -> dict[str, Any]:
    """Return what `setup.py` tells setuptools."""
    spec = spec_from_file_location("setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    with mock.patch("setuptools.setup") as setup:
        spec.loader.exec_module(module_from_spec(spec))
    found: dict[str, Any] = setup.call_args.kwargs
    return found


def test_the_build_has_every_folder_with_code_and_no_link(monkeypatch):
    monkeypatch.chdir(ROOT)
    told = packages()
    folders = {
        "ppsolve." + ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("models", "solver")
        for path in (ROOT / top).rglob("*.py")
    }
    data = {"ppsolve.solver.views.page.assets", "ppsolve.solver.service.page"}
    assert sorted(told["packages"]) == sorted({"ppsolve"} | folders | data)
    assert told["package_dir"] == {
        "ppsolve.models": "models",
        "ppsolve.solver": "solver",
    }


def test_a_checkout_with_text_files_in_place_of_links_runs(tmp_path: Path):
    (tmp_path / "ppsolve").mkdir()
    for path in (ROOT / "ppsolve").glob("*.py"):
        (tmp_path / "ppsolve" / path.name).write_bytes(path.read_bytes())
    for name in ("models", "solver"):
        (tmp_path / "ppsolve" / name).write_text(f"../{name}")
        (tmp_path / name).symlink_to(ROOT / name)
    program = (
        "import ppsolve, ppsolve.models.core.problem as problem\n"
        "pipeline = ppsolve.PipelineInstance(num_devices=2, num_microbatches=2,\n"
        "    times={'forward': 1, 'backward': 2})\n"
        "print(ppsolve.__file__, problem.__file__, ppsolve.optimize(pipeline, time_limit=0).value)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    package, module, value = done.stdout.split()
    assert Path(package) == tmp_path / "ppsolve" / "__init__.py"
    assert Path(module) == tmp_path / "models" / "core" / "problem.py"
    assert float(value) == 9


def test_who_cites_names_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
