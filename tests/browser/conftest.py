"""What the tests in a browser share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.chromium import ChromiumNotInstalled, open_chromium


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The machine's own browser."""
    try:
        with open_chromium() as browser:
            yield browser
    except ChromiumNotInstalled as error:
        pytest.skip(str(error))
