"""Every query served four ways: with and without early stop, with and without a handoff; outcomes of all, paired.

The threshold and the lengths that are expected come from one half of the recorded queries, the queries from the other.
A query is stopped with the probability 1 - full share, over which costs and outcomes are averaged: no draw adds noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.handoff.experiment import FIELDS, LARGE_TOKEN, ROUNDS, entities_of
from benchmarks.handoff.models import Answer, LiveModel
from benchmarks.paper.intervals import interval, resamplings
from schemas.entities import count_pairs
from schemas.handoff import Handoff
from stream_router.cascade.handoff import handed_over
from stream_router.model_client.answer import EntityAnswer
from stream_router.model_client.request import StopRule
from ucci_demo.model_server import PROMPT
from ucci_demo.recorded.traffic import RecordedQuery, load_traffic

ESCALATED = 0.24
"""Share of queries above the threshold."""

QUANTILES = (0.5, 0.9, 0.99)
FULL_SHARES = (0.0, 0.1, 0.2)
HANDOFFS: dict[str, Handoff | None] = {
    "none": None,
    "field@0.9": Handoff(margin=0.9),
    "token@0.9": Handoff(margin=0.9, granularity="token"),
}

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Served:
    """How queries were served one way, shape (queries,) each.

    Parameters
    ----------
    cost : ndarray
        Of generated tokens, a small one 1.
    hits, size : ndarray
        2·TP, and pairs predicted plus gold ones, of the answer that is served.
    """

    cost: Floats
    hits: Floats
    size: Floats

    def mixed(self, other: Served, share: float) -> Served:
        """Return the mean of this way and another one, which has a share of the queries."""
        ways = ((self.cost, other.cost), (self.hits, other.hits), (self.size, other.size))
        return Served(*((1.0 - share) * one + share * two for one, two in ways))

    def micro_f1(self, weights: Floats) -> float:
        """Return micro-F1 of the queries as often as they are drawn."""
        return float(weights @ self.hits / (weights @ self.size))


def run(queries: int, seed: int) -> dict[str, Any]:
    """Measure every quantile of lengths and full share, alone and with each handoff.

    Parameters
    ----------
    queries : int
        Drawn with the seed; half of those recorded where there are fewer.
    seed : int
        Of the draw and of the bootstrap.
    """
    known = [query for query in load_traffic() if query.shift == "none" and query.small.uncertainty is not None]
    order = np.random.default_rng(seed).permutation(len(known)).tolist()
    half = len(known) // 2
    learned, drawn = [known[place] for place in order[:half]], [known[place] for place in order[half:][:queries]]
    threshold = float(np.quantile([query.small.uncertainty or 0.0 for query in learned], 1.0 - ESCALATED))
    lengths = [query.small.tokens for query in learned]
    trial = _Trial(drawn, threshold)
    today = trial.served(None, None)
    weights = list(resamplings(len(drawn), ROUNDS, seed))
    rows = [
        _row(today, trial.served(None, HANDOFFS[name]), weights, handoff=name) for name in HANDOFFS if name != "none"
    ]
    for quantile in QUANTILES:
        rule = StopRule(threshold, int(np.quantile(lengths, quantile)), stops=True)
        about = {"quantile": quantile, "longest": rule.longest, **trial.stops(rule)}
        for name, handoff in HANDOFFS.items():
            stopped, in_full = trial.served(rule, handoff), trial.served(rule._replace(stops=False), handoff)
            for share in FULL_SHARES:
                row = _row(today, stopped.mixed(in_full, share), weights, handoff=name)
                rows.append({**about, "full_share": share, **row})
    ones = np.ones(len(drawn))
    return {
        "threshold": threshold,
        "queries": len(drawn),
        "escalated": float(trial.above.mean()),
        "cost": float(today.cost.mean()),
        "micro_f1": today.micro_f1(ones),
        "rows": rows,
    }


def _row(today: Served, found: Served, weights: Sequence[Floats], *, handoff: str) -> dict[str, Any]:
    """Compare with today; all intervals are of the same resamples of queries."""
    ones = np.ones(len(today.cost))

    def cost(drawn: Floats) -> float:
        return float(drawn @ found.cost / (drawn @ today.cost))

    def change(drawn: Floats) -> float:
        return found.micro_f1(drawn) - today.micro_f1(drawn)

    return {
        "handoff": handoff,
        "cost": cost(ones),
        "cost_interval": interval(np.array([cost(drawn) for drawn in weights])),
        "micro_f1_change": change(ones),
        "micro_f1_change_interval": interval(np.array([change(drawn) for drawn in weights])),
    }


class _Trial:
    """Some queries and both models, asked live; equal prompts are answered once.

    Parameters
    ----------
    queries : sequence of RecordedQuery
    threshold : float
        On u.
    """

    def __init__(self, queries: Sequence[RecordedQuery], threshold: float) -> None:
        self._queries = queries
        self._prompts = [PROMPT.replace("{text}", query.text) for query in queries]
        self._large = LiveModel("large")
        self._small = LiveModel("small").answers(self._prompts)
        doubts = [np.array([1.0 - mark.margin for mark in answer.marks]) for answer in self._small]
        self._doubt = [np.cumsum(doubt) for doubt in doubts]
        self.above = np.array([doubt.mean() > threshold for doubt in doubts])

    def _place(self, number: int, rule: StopRule | None) -> int | None:
        """Return after how many tokens a rule stops a call; None where it does not before the answer's last one."""
        if rule is None:
            return None
        doubt = self._doubt[number][:-1].tolist()
        return next((tokens for tokens, sum_ in enumerate(doubt, start=1) if rule.is_met(tokens, sum_)), None)

    def stops(self, rule: StopRule) -> dict[str, float]:
        """Return what a rule stops: shares of all queries, and of the tokens of the answers that it stops.

        ``of_even`` is the generated part of these answers over what it would be if doubt came evenly over the tokens.
        """
        places = [self._place(number, rule) for number in range(len(self._queries))]
        stopped = np.array([place is not None for place in places])
        ended = {number: place for number, place in enumerate(places) if place is not None}
        generated = np.array([place / self._small[number].tokens for number, place in ended.items()])
        even = [min(rule.threshold * rule.longest / self._doubt[number][-1], 1.0) for number in ended]
        return {
            "stopped": float(stopped.mean()),
            "needless": float((stopped & ~self.above).mean()),
            "tokens_spared": float(1.0 - generated.mean()) if ended else 0.0,
            "of_even": float(generated.sum() / np.sum(even)) if ended else 1.0,
        }

    def served(self, rule: StopRule | None, handoff: Handoff | None) -> Served:
        """Serve all queries: the large model's answer where the rule stops the call, or u ends above the threshold."""
        places = [self._place(number, rule) for number in range(len(self._queries))]
        ends = places if rule is not None and rule.stops else [None] * len(places)
        asked = [number for number, end in enumerate(ends) if end is not None or self.above[number]]
        # What is handed over is cut where the call could be stopped, whether or not it was.
        parts = {number: self._part(number, places[number], handoff) for number in asked}
        answers = self._large.answers([self._prompts[number] + parts[number] for number in asked])
        alone = self._large.answers([self._prompts[number] for number in asked])
        large = {n: self._of_large(parts[n], *both) for n, *both in zip(asked, answers, alone, strict=True)}
        rows = []
        for number, (query, small) in enumerate(zip(self._queries, self._small, strict=True)):
            entities, tokens = large.get(number, (entities_of(small.text), 0))
            counts = count_pairs(entities, query.gold, FIELDS)
            cost = (ends[number] or small.tokens) + LARGE_TOKEN * tokens
            rows.append((cost, 2.0 * counts.true_positives, counts.predicted + counts.gold))
        return Served(*np.array(rows, dtype=np.float64).T)

    def _part(self, number: int, place: int | None, handoff: Handoff | None) -> str:
        if handoff is None:
            return ""
        answer = self._small[number]
        end = len(answer.text) if place is None else answer.marks[place].start
        return handed_over(answer.text[:end], answer.marks[:place], handoff)

    @staticmethod
    def _of_large(part: str, answer: Answer, alone: Answer) -> tuple[EntityAnswer | None, int]:
        """Return entities and tokens; an answer that is not valid is given again, alone, and both are paid for."""
        entities = entities_of(part + answer.text)
        if entities is None and part:
            return entities_of(alone.text), answer.tokens + alone.tokens
        return entities, answer.tokens
