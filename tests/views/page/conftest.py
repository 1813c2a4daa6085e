"""One browser for the tests of a file."""

from __future__ import annotations

import shutil

import pytest

from tests.views.page.browser import BINARIES, Browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if not any(map(shutil.which, BINARIES)) or not shutil.which("chromedriver"):
        pytest.skip("needs chromium and chromedriver")
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.driver.quit()
