"""Every command that reads files answers mutated ones with a documented exit code, in time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli import mutated_files
from tests.cli.mutated_commands import QUICK, READING, SEEDS
from tests.cli.mutated_files import Answer, Folder, reading_commands

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")

FEW, MANY = 30, 5_000
PATIENCE = (
    20  # times its limit and a second; how late a command is depends on the machine
)


def faults_of(folder: Folder, count: int) -> list[Answer]:
    """Return the answers of mutations that are wrong, or far beyond their limit."""
    answers = folder.answers(list(range(count)))
    return [
        one for one in answers if one.fault or one.seconds > PATIENCE * (one.limit + 1)
    ]


def test_every_command_that_reads_files_gets_mutated_ones() -> None:
    lines = [reading.line for reading in READING]
    for name in reading_commands():
        assert any(line.startswith(f"{name} {{") for line in lines), name


def test_every_kind_of_file_has_commands_that_read_it() -> None:
    read = frozenset().union(*(reading.roles for reading in READING))
    made = {role for seed in SEEDS for role in (seed.role, *seed.derived)}
    assert made == read


def test_a_mutation_follows_from_its_seed_and_number(tmp_path: Path) -> None:
    folder = Folder(tmp_path, QUICK[1:2], seed=3)
    texts = []
    for _ in range(2):
        folder.mutation(5, tmp_path)
        texts.append((tmp_path / "mutated.json").read_text())
    assert texts[0] == texts[1]


def test_some_mutated_files(tmp_path: Path) -> None:
    without_search = tuple(reading for reading in READING if " -t " not in reading.line)
    folder = Folder(tmp_path, QUICK[1:], seed=1, commands=without_search)
    assert faults_of(folder, FEW) == []


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", [1, 2])
def test_thousands_of_mutated_files(tmp_path: Path, seed: int) -> None:
    mutated_files._load_all()
    assert faults_of(Folder(tmp_path, SEEDS, seed), MANY // 2) == []
