"""What the tests of benchmarks share."""

from __future__ import annotations

import pytest

from research.drift import simulate
from research.drift.simulate import Labels
from research.drift.streams import Stream

SHORT_START = 600


@pytest.fixture
def short_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let walks begin with as many labelled queries as a first version needs, not with the benchmark's 4,000.

    To take those in costs several times as much as what most of these tests walk through afterwards.
    """
    all_of = simulate.offline_labels

    def latest(start: Stream) -> Labels:
        return Labels._make(column[-SHORT_START:] for column in all_of(start))

    monkeypatch.setattr(simulate, "offline_labels", latest)
