"""A browser on the page of a service."""

from __future__ import annotations

import pytest

from tests.service.page.visitor import Visitor
from tests.views.page.conftest import browser  # noqa: F401


@pytest.fixture
def visitor(browser, service):  # noqa: F811
    """Show the page anew; at the end nothing must be in the console."""
    found = Visitor(browser, service.url)
    browser.complaints()
    found.open()
    yield found
    assert browser.complaints() == []
