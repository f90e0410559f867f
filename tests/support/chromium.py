"""The machine's own Chromium: found, or installed where that is possible without asking anybody."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_INSTALL = (
    ("apt-get", "update", "-qq"),
    ("apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"),
)
_INSTALL_S = 300
# Nothing but what a test asks for: no updates, no sync, no sandbox that root could not set up.
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    # A container has 64 MB of shared memory, which a page in three sizes may fill.
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class ChromiumNotInstalled(Exception):
    """Says why, and what to do."""


def chromium_path() -> str:
    """Return the browser's path; Debian's is installed where root may and no other is there."""
    found = _found()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
        found = _found()
    if found is None:
        raise ChromiumNotInstalled("no Chromium: install it, for example by `apt-get install chromium` as root")
    return found


@contextmanager
def open_chromium() -> Iterator[Browser]:
    """Start the browser with a fresh profile. Raises ChromiumNotInstalled."""
    path = chromium_path()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


def _found() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def _install() -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in _INSTALL:
        try:
            subprocess.run(command, check=True, capture_output=True, env=environment, timeout=_INSTALL_S)
        except (subprocess.SubprocessError, OSError) as error:
            raise ChromiumNotInstalled(f"no Chromium, and {' '.join(command)} failed: {error}") from None
