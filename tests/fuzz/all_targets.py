"""Every target, in the order in which data passes through the service."""

from __future__ import annotations

from functools import cache

from tests.fuzz.http_targets import http_targets
from tests.fuzz.record_targets import record_targets
from tests.fuzz.state_targets import state_targets
from tests.fuzz.targets import Target


@cache
def all_targets() -> tuple[Target, ...]:
    """Return the targets; they are made once, since some keep an application or a directory."""
    return (*record_targets(), *state_targets(), *http_targets())
