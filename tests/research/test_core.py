"""The speed benchmark's stream is stationary: what it measures is a core at rest, and not one that follows a drift."""

from __future__ import annotations

from recalibrator.core import Recalibrator
from research.core import SETTINGS, Cascade


def test_timed_labels_agree_as_the_timed_traffic_does() -> None:
    """Traffic and the label of a query say the same of both answers: else the detector of agreement finds a drift."""
    cascade, core = Cascade(2_000), Recalibrator(SETTINGS)
    labels = [cascade.label(number) for number in range(2_000)]
    version = next(found for label in labels if (found := core.observe(label)) is not None)
    compared = 0
    for number, label in enumerate(labels):
        routed = cascade.routed(number, version)
        if routed.small is not None and routed.large is not None and label.agree is not None:
            assert (routed.small.entities == routed.large.entities) is label.agree
            compared += 1
    assert compared > 50
