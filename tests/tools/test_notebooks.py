"""The notebooks run from top to bottom, and print what their readers see."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tools.docs.notebooks import EXAMPLES, executed, printed


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the kernel's own sockets and event loop warn
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_prints_what_it_shows(path: Path) -> None:
    """Each cell runs, and its printed lines equal those stored in the file; `make docs` renews them."""
    stored = nbformat.read(path, as_version=4)
    assert any(printed(stored))
    assert printed(executed(path)) == printed(stored)
