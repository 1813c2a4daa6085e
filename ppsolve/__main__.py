"""``python -m ppsolve``: the program, as the ``ppsolve`` script runs it."""

from ppsolve.solver.cli.main import run

if __name__ == "__main__":
    run()
