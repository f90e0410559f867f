"""How sure the small model was of each field stands in the result where its answer was streamed, and nowhere else."""

from __future__ import annotations

import pytest

from schemas.costs import ModelCosts
from schemas.routed import RoutedEvent
from tests.support.cascades import InForce, bench
from tests.support.scripted_model_server import FIELDS, answer_to
from tests.support.versions import sealed_version

TEXT = "canon 5d"
KEPT = sealed_version(uncertainty_threshold=1.0, costs=ModelCosts(small=1.0, large=3.0))


@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_a_result_says_how_sure_each_field_was(api: str) -> None:
    """The small call is streamed then; margins are means over some of the tokens that u is a mean over."""
    async with bench(InForce(KEPT), api=api, field_margins=True) as b:
        routed = await b.answer(TEXT)
    assert [body.get("stream") for body in b.small.seen.bodies if body["max_tokens"] > 1] == [True]
    assert routed.small is not None
    margins = routed.small.field_margins
    assert margins is not None
    assert set(margins) == set(FIELDS)
    tokens = [2.0 * p - 1.0 for p in answer_to(f"Query: {TEXT}", "small").p1]
    assert all(min(tokens) - 1e-4 <= margin <= max(tokens) + 1e-4 for margin in margins.values())
    assert RoutedEvent.from_json(routed.to_json()) == routed


async def test_elsewhere_nothing_is_streamed_or_said() -> None:
    """A whole reply names tokens by number: where they stand in the text is not known."""
    async with bench(InForce(KEPT)) as b:
        routed = await b.answer(TEXT)
    assert not any(body.get("stream") for body in b.small.seen.bodies)
    assert b"field_margins" not in routed.to_json()
