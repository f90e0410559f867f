"""Continuous batching: what a query gets does not depend on who else is in the batch, or when they come and go."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.demo_models import SLOTS, checkpoint, generate, ids
from ucci_demo.model_server.generation import TOP, ContinuousBatch, Generation
from ucci_demo.recorded.traffic import load_traffic

TEXTS = [query.text for query in load_traffic()[2_000 : 2_000 + 3 * SLOTS]]


def run(batch: ContinuousBatch) -> None:
    while batch.step():
        pass


def test_joining_and_leaving_a_batch_disturbs_no_neighbour() -> None:
    expected = [ids(generation) for generation in generate("small", TEXTS)]
    opened = checkpoint("small")
    batch = ContinuousBatch(opened.model, SLOTS)
    finished: list[Generation] = []
    late = [Generation(opened.prompt_ids(text), 256, finished.append) for text in TEXTS]
    for generation in late:
        batch.submit(generation)
        batch.step()
        assert batch.load[0] <= SLOTS
    run(batch)
    assert [ids(generation) for generation in late] == expected
    assert len(finished) == len(late)
    assert all(ids(generation).count(opened.model.shape.eos_id) == 1 for generation in late)
    assert batch.load == (0, 0)


def test_generation_ends_at_max_tokens_or_a_full_context() -> None:
    (cut,) = generate("small", TEXTS[:1], max_tokens=5)
    assert (len(cut.tokens), cut.finish_reason) == (5, "length")
    opened = checkpoint("small")
    batch = ContinuousBatch(opened.model, SLOTS)
    context = opened.model.shape.context
    full = Generation([opened.encode("x")[0]] * (context - 3), 256, lambda _: None)
    batch.submit(full)
    run(batch)
    assert len(full.tokens) <= 3


def test_alternatives_are_sorted_with_the_chosen_token_first() -> None:
    (generation,) = generate("small", TEXTS[:1])
    for token in generation.tokens:
        assert len(token.top_ids) == TOP
        assert token.token_id == token.top_ids[0]
        assert token.logprob == token.top_logprobs[0]
        assert (np.diff(token.top_logprobs) <= 0).all()


def test_cancelling_frees_a_slot_or_leaves_the_queue() -> None:
    opened = checkpoint("small")
    batch = ContinuousBatch(opened.model, 1)
    ended: list[Generation] = []
    running, waiting, last = (Generation(opened.prompt_ids(text), 256, ended.append) for text in TEXTS[:3])
    for generation in (running, waiting, last):
        batch.submit(generation)
    batch.step()
    running.cancelled = waiting.cancelled = True
    run(batch)
    assert len(running.tokens) <= 3
    assert waiting.tokens == []
    assert last.finish_reason == "stop"


@pytest.mark.parametrize("steps", [0, 3])
def test_a_server_that_is_told_to_stop_hands_out_what_it_has_got(steps: int) -> None:
    opened = checkpoint("small")
    batch = ContinuousBatch(opened.model, 2)
    ended: list[Generation] = []
    for text in TEXTS[:3]:
        batch.submit(Generation(opened.prompt_ids(text), 256, ended.append))
    for _ in range(steps):
        batch.step()
    batch.abort()
    assert [generation.finish_reason for generation in ended] == ["abort"] * 3
    assert not batch.step()
