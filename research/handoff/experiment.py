"""Escalated queries answered by the large model alone, and going on from the small one: outcomes of both, paired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.handoff.models import Answer, LiveModel
from research.paper.intervals import Interval, interval, resamplings
from schemas.basis import Granularity, Handoff
from schemas.entities import PairCounts, count_pairs, equal
from stream_router.cascade.handoff import handed_over
from stream_router.model_client.answer import EntityAnswer, InvalidAnswerError, read_entities
from ucci_demo.model_server import PROMPT
from ucci_demo.recorded.traffic import RecordedQuery, load_traffic

FIELDS = ("camera", "lens", "aperture", "shutter_speed", "iso", "focal_length")
MARGINS = (0.8, 0.9, 0.95)
GRANULARITIES: tuple[Granularity, ...] = ("token", "field")
SHIFTS = {"none": "Clean texts", "typos": "Texts with typos"}
ESCALATED = 0.24
"""Share of clean queries above the threshold, which is also that of texts with typos."""
LARGE_TOKEN = 3.02
"""Price of a token that the large model generates; the small model's is the unit."""
ROUNDS = 2_000

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Answers to some queries, as columns, shape (queries,) each.

    ``hits``, ``size``: 2·TP, and pairs predicted plus gold ones. ``tokens``, ``read``: generated and read by the large
    model.
    """

    hits: Floats
    size: Floats
    tokens: Floats
    read: Floats

    def micro_f1(self, weights: Floats) -> float:
        """Return micro-F1 of the queries as often as they are drawn."""
        return float(weights @ self.hits / (weights @ self.size))


def run(queries: int, seed: int) -> dict[str, Any]:
    """Measure every margin and granularity on clean texts and on texts with typos.

    ``queries``: escalated ones of each kind, drawn with the seed; all where there are fewer. ``seed``: of the draw and
    of the bootstrap.
    """
    small, large = LiveModel("small"), LiveModel("large")
    clean = [query.small.uncertainty for query in load_traffic() if query.shift == "none"]
    threshold = float(np.quantile([u for u in clean if u is not None], 1.0 - ESCALATED))
    parts = [_measure(shift, _drawn(shift, threshold, queries, seed), small, large, seed=seed) for shift in SHIFTS]
    return {"threshold": threshold, "parts": parts}


def _drawn(shift: str, threshold: float, queries: int, seed: int) -> list[RecordedQuery]:
    escalated = [
        query
        for query in load_traffic()
        if query.shift == shift and query.small.uncertainty is not None and query.small.uncertainty > threshold
    ]
    order = np.random.default_rng(seed).permutation(len(escalated))[:queries]
    return [escalated[place] for place in sorted(order.tolist())]


def _measure(
    shift: str, queries: Sequence[RecordedQuery], small: LiveModel, large: LiveModel, *, seed: int
) -> dict[str, Any]:
    prompts = [PROMPT.replace("{text}", query.text) for query in queries]
    begun, alone = small.answers(prompts), large.answers(prompts)
    reference = outcomes(queries, alone, alone)
    rows = []
    for granularity in GRANULARITIES:
        for margin in MARGINS:
            handoff = Handoff(margin=margin, granularity=granularity)
            parts = [handed_over(answer.text, answer.marks, handoff) for answer in begun]
            row = _compare(queries, parts, large.answers(_continued(prompts, parts)), alone, reference, seed)
            rows.append({"margin": margin, "granularity": granularity, **row})
    ones = np.ones(len(queries))
    small_tokens = np.array([answer.tokens for answer in begun], dtype=np.float64)
    return {
        "texts": SHIFTS[shift],
        "queries": len(queries),
        "small_micro_f1": outcomes(queries, begun, begun).micro_f1(ones),
        "large_micro_f1": reference.micro_f1(ones),
        "small_tokens": float(small_tokens.mean()),
        "large_tokens": float(reference.tokens.mean()),
        "rows": rows,
    }


def _continued(prompts: Sequence[str], parts: Sequence[str]) -> list[str]:
    return [prompt + part for prompt, part in zip(prompts, parts, strict=True)]


def _compare(
    queries: Sequence[RecordedQuery],
    parts: Sequence[str],
    continued: Sequence[Answer],
    alone: Sequence[Answer],
    reference: Outcomes,
    seed: int,
) -> dict[str, Any]:
    """Compare with the large model alone; all intervals are of the same resamples of queries."""
    found = outcomes(queries, continued, alone, parts)
    weights = list(resamplings(len(queries), ROUNDS, seed))
    ones = np.ones(len(queries))

    def loss(drawn: Floats) -> float:
        return found.micro_f1(drawn) - reference.micro_f1(drawn)

    def saved(drawn: Floats) -> float:
        return 1.0 - float(drawn @ found.tokens / (drawn @ reference.tokens))

    texts = [part + answer.text for part, answer in zip(parts, continued, strict=True)]
    answers = [(entities_of(text), entities_of(other.text)) for text, other in zip(texts, alone, strict=True)]
    return {
        "handed_over": float(np.mean([bool(part) for part in parts])),
        "tokens_saved": saved(ones),
        "tokens_saved_interval": _interval([saved(drawn) for drawn in weights]),
        "micro_f1": found.micro_f1(ones),
        "micro_f1_change": loss(ones),
        "micro_f1_change_interval": _interval([loss(drawn) for drawn in weights]),
        "same_text": float(np.mean([text == other.text for text, other in zip(texts, alone, strict=True)])),
        "same_entities": float(np.mean([equal(one, other, FIELDS) for one, other in answers])),
        "asked_again": float(np.mean([one is None for one, _ in answers])),
        "read_more": float(found.read.mean() - reference.read.mean()),
    }


def _interval(replicates: list[float]) -> Interval:
    return interval(np.array(replicates))


def outcomes(
    queries: Sequence[RecordedQuery],
    answers: Sequence[Answer],
    alone: Sequence[Answer],
    parts: Sequence[str] | None = None,
) -> Outcomes:
    """Score answers; one that is not valid is given again, alone, and both are paid for."""
    rows = []
    for query, answer, other, part in zip(queries, answers, alone, parts or [""] * len(answers), strict=True):
        entities = entities_of(part + answer.text)
        tokens, read = answer.tokens, answer.read
        if entities is None and part:
            entities, tokens, read = entities_of(other.text), tokens + other.tokens, read + other.read
        counts: PairCounts = count_pairs(entities, query.gold, FIELDS)
        rows.append((2.0 * counts.true_positives, counts.predicted + counts.gold, tokens, read))
    hits, size, tokens_of, read_of = np.array(rows, dtype=np.float64).T
    return Outcomes(hits, size, tokens_of, read_of)


def entities_of(text: str) -> EntityAnswer | None:
    """Return what an answer says, None where it is not valid."""
    try:
        return read_entities(text, FIELDS)
    except InvalidAnswerError:
        return None
