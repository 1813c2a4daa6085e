"""One set of processes for all tests of this folder: starting them takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.formats.torch.world import World


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    pytest.importorskip("torch")
    found = World(tmp_path_factory.mktemp("world"))
    yield found
    found.close()
