"""The memo of recorded outputs: equal to what the model says live, token by token."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.demo_models import checkpoint, generate, ids
from ucci_demo.model_server import PROMPT
from ucci_demo.model_server.memo import ALTERNATIVES, Memo
from ucci_demo.recorded.traffic import RecordedQuery, load_traffic

#: How many recorded prompts are answered again; the large model is slow on one core.
ROLES = {"small": 48, "large": 8}

#: Between batches of another size: float32 sums in another order. Runners-up near -20 differ most.
LOGPROB_TOLERANCE = 2e-3

MARGIN_TOLERANCE = 1e-5


def memo_of(role: str) -> Memo:
    memo = Memo.of(role)
    assert memo is not None
    return memo


def sample(role: str) -> list[RecordedQuery]:
    memo = memo_of(role)
    known = [q for q in load_traffic() if memo.find(PROMPT.replace("{text}", q.text)) is not None]
    assert len(known) > 1_000
    return known[:: len(known) // ROLES[role]][: ROLES[role]]


@pytest.mark.parametrize("role", ROLES)
def test_memo_and_live_answers_are_equal_token_by_token(role: str) -> None:
    memo, queries = memo_of(role), sample(role)
    for query, live in zip(queries, generate(role, [one.text for one in queries]), strict=True):
        remembered = memo.find(PROMPT.replace("{text}", query.text))
        assert remembered is not None
        assert [token.token_id for token in remembered] == ids(live)
        now = np.array([token.top_logprobs[:ALTERNATIVES] for token in live.tokens])
        then = np.array([token.top_logprobs for token in remembered])
        np.testing.assert_allclose(now, then, atol=LOGPROB_TOLERANCE)
        np.testing.assert_allclose(margins(now), margins(then), atol=MARGIN_TOLERANCE)


def margins(
    logprobs: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    probabilities = np.exp(logprobs)
    return np.asarray(probabilities[:, 0] - probabilities[:, 1])


def test_other_tokens_of_the_same_text_are_not_recorded_ones() -> None:
    """A beginning that the server cuts otherwise than the model wrote it may be gone on with otherwise."""
    memo, opened = memo_of("small"), checkpoint("small")
    text = sample("small")[0].text
    prompt = PROMPT.replace("{text}", text)
    recorded = memo.find(prompt)
    assert recorded is not None
    assert memo.find(text) is None, "by its whole prompt alone"
    asked, first = opened.encode(prompt), [token.token_id for token in recorded[:6]]
    begun = prompt + opened.decode(first)
    rest = memo.find_rest(begun, asked + first, opened.encode)
    assert rest is not None
    assert [token.token_id for token in rest] == [token.token_id for token in recorded[6:]]
    letters = [token_id for letter in opened.decode(first) for token_id in opened.encode(letter)]
    assert opened.decode(letters) == opened.decode(first)
    assert letters != first
    assert memo.find_rest(begun, asked + letters, opened.encode) is None
    assert memo.find_rest(PROMPT.replace("{text}", "never asked") + " {", [1, 2], opened.encode) is None
    assert memo.find_rest("no such prompt", [1, 2], opened.encode) is None


def test_a_checkpoint_of_the_user_s_own_has_no_memo() -> None:
    assert Memo.of("some/folder") is None
