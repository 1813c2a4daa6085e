"""Tells setuptools that `ppsolve.models` and `ppsolve.solver` are the folders at the top level.

`ppsolve/` links to both, which tools that read sources follow; no build does, as checkouts on
Windows and archives hold text files in place of links.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        "ppsolve",
        *(f"ppsolve.{name}" for name in find_packages(include=["models*", "solver*"])),
        "ppsolve.solver.views.page.assets",
        "ppsolve.solver.service.page",
    ],
    package_dir={"ppsolve.models": "models", "ppsolve.solver": "solver"},
)
