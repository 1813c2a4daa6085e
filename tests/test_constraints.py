"""Every dependency has its tested version in constraints.txt, within the bounds of the project."""

from __future__ import annotations

import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
ASKED = [
    Requirement(text)
    for texts in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for text in texts
]
TESTED = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_dependency_has_a_tested_version_within_its_bounds(
    asked: Requirement,
) -> None:
    versions = [
        next(iter(each.specifier)).version
        for each in TESTED
        if canonicalize_name(each.name) == canonicalize_name(asked.name)
    ]
    assert versions
    assert all(
        asked.specifier.contains(version, prereleases=True) for version in versions
    )


def test_tested_versions_are_exact() -> None:
    assert all([each.operator for each in line.specifier] == ["=="] for line in TESTED)


@pytest.mark.parametrize("private", ["ortools", "llvmlite", "pydantic", "torch"])
def test_what_is_used_privately_has_an_upper_bound(private: str) -> None:
    (asked,) = [each for each in ASKED if each.name == private]
    assert not asked.specifier.contains("99")
