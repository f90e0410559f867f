"""Where a generation ends that neither says so itself nor was given a bound."""

from __future__ import annotations

from tests.support.demo_models import SLOTS, checkpoint
from ucci_demo.model_server.generation import ContinuousBatch, Generation


def test_generation_ends_at_a_full_context() -> None:
    opened = checkpoint("small")
    batch = ContinuousBatch(opened.model, SLOTS)
    full = Generation([opened.encode("x")[0]] * (opened.model.shape.context - 3), 256, lambda _: None)
    batch.submit(full)
    while batch.step():
        pass
    assert len(full.tokens) <= 3
