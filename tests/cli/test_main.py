"""The program as a whole: its table of commands, loaded one by one, and both ways to start it."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ppsolve.solver.cli.main import COMMANDS, build, load


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_what_the_table_says(name):
    assert load(name).get_short_help_str(200) == COMMANDS[name][1]
    assert CliRunner().invoke(build(), [name, "--help"]).exit_code == 0


def test_help_loads_no_command():
    code = (
        "import sys\n"
        "from ppsolve.solver.cli.main import COMMANDS, run\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        "home = 'ppsolve.solver.cli.'\n"
        "print([m for m, _ in COMMANDS.values() if home + m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(f"  {name} " in done.stdout for name in COMMANDS)
    assert done.stderr == "[]\n"


def test_python_m_runs_the_program():
    for arguments, code in ((["--version"], 0), (["optimise", "x"], 2)):
        done = subprocess.run(
            [sys.executable, "-m", "ppsolve", *arguments],
            capture_output=True,
            text=True,
        )
        assert done.returncode == code
    assert "No such command 'optimise'. Did you mean 'optimize'?" in done.stderr


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, ppsolve\n"
        "heavy = {'numpy', 'pydantic', 'ortools', 'rich', 'typer', 'importlib.metadata'}\n"
        "print(heavy & set(sys.modules)); print(ppsolve.__version__)"
    )
    command = [
        sys.executable,
        "-S",
        "-c",
        f"import sys; sys.path[:0] = {sys.path!r}; " + code,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("set()\n")
