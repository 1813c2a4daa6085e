"""Write the tables of heuristics and of published profiles: ``python docs/making/tables.py``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from ppsolve.solver.api.registry import all_heuristics
from ppsolve.solver.studies.generate.instances import ALIASES, PROFILES

FOLDER = Path(__file__).resolve().parents[1] / "data"

HEURISTICS = """\
# All heuristics

[Heuristics](../heuristics.md) says how to run them. `docs/making/tables.py` writes this table from
the program; `ppsolve heuristics` lists the same, with what each heuristic needs. The site has a
page with a picture for each.
"""

PROFILE_HEAD = """\
# Published profiles

Times of one micro-batch on one device and of one transfer, in us, as the zero-bubble papers
measured them (Qi et al., "Zero Bubble Pipeline Parallelism", 2023; "Pipeline Parallelism with
Controllable Memory", 2024; rows `-b` with two stages per device). The share is the part of an
activation that is held until the weight-gradient backward ends.
[Instances](../instances.md#generating) says how to make a pipeline of one.
`docs/making/tables.py` writes this table from the program.
"""


def heuristics_page() -> str:
    """Return the table of all heuristics, by what they schedule."""
    lines = [HEURISTICS]
    by_kind = groupby(all_heuristics().values(), key=lambda entry: entry.made_for)
    for made_for, group in by_kind:
        rows = [(f"`{entry.name}`", entry.summary, entry.source) for entry in group]
        lines += [f"## For {made_for}\n"]
        lines += [*_table(("heuristic", "what it does", "from"), rows), ""]
    return "\n".join(lines)


def profiles_page() -> str:
    """Return the table of the published profiles."""
    aliases = {name: f" (`{alias}`)" for alias, name in ALIASES.items()}
    rows = [
        (
            f"`{name}`{aliases.get(name, '')}",
            f"{profile.num_devices} x {profile.num_microbatches}",
            str(profile.forward),
            str(profile.backward_input),
            str(profile.backward_weight),
            str(profile.p2p),
            f"{profile.share:.4f}",
        )
        for name, profile in PROFILES.items()
    ]
    head = ("profile", "devices x micro-batches", "F", "I", "W", "p2p", "share")
    return "\n".join([PROFILE_HEAD, *_table(head, rows), ""])


PAGES = {"heuristics.md": heuristics_page, "profiles.md": profiles_page}


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
