"""What a router's process does for all that runs in it, done here for one part of a benchmark alone."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from ucci_runtime.process import search_cycles_seldom


@contextmanager
def as_in_a_router() -> Iterator[None]:
    """Search for cycles as seldom as ``stream-router run`` does; what is compared with it stays as Python comes."""
    before = gc.get_threshold()
    search_cycles_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
