"""What early stop and handoff do to the queries of a stream: where calls end, what is served, and tokens generated.

Pure, given the recorded :class:`~benchmarks.recorded.answers.Answers`. A call that is stopped before the small model's
first unsure token hands over less than the whole answer would have. The large model is then taken to give the same
answer, and to generate the rest of the part itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from benchmarks.handoff.experiment import LARGE_TOKEN
from benchmarks.recorded.answers import load_answers
from benchmarks.recorded.stream import Floats, Integers, Mask, Outcomes, offline_outcomes
from recalibrator.fit.publish.early_stopping import longest
from schemas.early_stop import EarlyStop, rounded_length
from ucci_demo.recorded.traffic import RecordedQuery, load_traffic, with_handoff
from ucci_stream.demo.scenario import offline_set

HANDOFF = "token@0.9"
FULL_SHARE, LENGTH_QUANTILE = 0.2, 0.9
"""As the settings have them by default."""


class Levers(NamedTuple):
    """Which levers are in force.

    Parameters
    ----------
    handoff : bool
        Whether the large model goes on from the small one's answer, under :data:`HANDOFF`.
    early_stop : EarlyStop or None
        When small calls are stopped; None: never.
    guard_share : float
        Share of what the threshold escalates for which the large model also answers alone, where there is a handoff.
    """

    handoff: bool = False
    early_stop: EarlyStop | None = None
    guard_share: float = 0.0


NO_LEVERS = Levers()


@cache
def _settled() -> Floats:
    """Return by recorded query and token the doubt up to it, before which a call may be stopped; shape as ``doubt``.

    Behind the last token but one there is nothing left to stop.
    """
    answers = load_answers()
    total = np.cumsum(answers.doubt, axis=1)
    total[np.arange(total.shape[1]) >= answers.small_tokens[:, None] - 1] = -np.inf
    return np.asarray(total)


def stop_places(recording: Integers, threshold: float, early_stop: EarlyStop | None) -> Integers:
    """Return after how many tokens each small call gives cause to be stopped; 0 where it gives none.

    The rule of :class:`~stream_router.model_client.request.StopRule`, for many calls at once.
    """
    if early_stop is None:
        return np.zeros(len(recording), dtype=np.int64)
    most = early_stop.longest
    met = _settled()[recording, :most] > threshold * most
    return np.where(met.any(axis=1), met.argmax(axis=1) + 1, 0)


def under_handoff(outcomes: Outcomes) -> Outcomes:
    """Return the same queries with the large model's answers under the handoff."""
    answers, rows = load_answers(), outcomes.recording
    return replace(
        outcomes,
        large_hits=answers.large_hits[rows],
        large_named=answers.large_named[rows],
        agree=answers.agree[rows],
    )


def offline_queries(*, handoff: bool) -> list[RecordedQuery]:
    """Return the offline set, as the large model answers it alone or under the handoff."""
    offline = offline_set(load_traffic())
    return with_handoff(offline) if handoff else offline


def offline_early_stop() -> EarlyStop:
    """Return when calls may be stopped as the offline set's lengths have it, with the settings' defaults."""
    counted = Counter(map(rounded_length, load_answers().small_tokens[offline_outcomes().recording].tolist()))
    found = longest(counted, LENGTH_QUANTILE)
    assert found is not None
    return EarlyStop(longest=found, full_share=FULL_SHARE)


@dataclass(frozen=True, slots=True)
class Generated:
    """Tokens that queries cost, shape (queries,) each.

    Parameters
    ----------
    small : ndarray of int
        Up to the stop, where a call was stopped.
    large : ndarray of int
        Of the answer that is served, both calls where it was asked again; 0 where the large model did not run.
    guard : ndarray of int
        Of answers that are only compared.
    large_calls : ndarray of int
        All calls of the large model.
    """

    small: Integers
    large: Integers
    guard: Integers
    large_calls: Integers

    @property
    def sequential(self) -> Floats:
        """Cost in small tokens: all that was generated."""
        return self.small + LARGE_TOKEN * (self.large + self.guard)

    @property
    def paper(self) -> Floats:
        """Cost as the paper counts it: without the small call of escalated queries, and without what is compared."""
        return np.where(self.large_calls > 0, LARGE_TOKEN * self.large, self.small.astype(np.float64))


def is_compared(recording: Integers, above: Mask, draw: Floats, share: float) -> Mask:
    """Return for which escalated queries the large model, which went on from something, also answers alone."""
    answers = load_answers()
    return above & (draw < share) & (answers.handed[recording] > 0) & ~answers.asked_again[recording]


def generated(
    recording: Integers, place: Integers, *, stopped: Mask, ran: Mask, handed: Mask, compared: Mask
) -> Generated:
    """Count the tokens of queries.

    Parameters
    ----------
    recording : ndarray of int, shape (queries,)
    place : ndarray of int
        As :func:`stop_places` gives it: what is handed over ends there, whether or not the call does.
    stopped, ran, handed, compared : ndarray of bool
        Whether the small call was stopped, the large model ran, under the handoff, and alone as well.
    """
    answers = load_answers()
    missing = np.where(place > 0, np.maximum(answers.handed[recording] - place, 0), 0)
    begun, alone = answers.large_tokens[recording] + missing, answers.alone_tokens[recording]
    return Generated(
        small=np.where(stopped, place, answers.small_tokens[recording]),
        large=np.where(ran, np.where(handed, begun, alone), 0),
        guard=np.where(compared, alone, 0),
        large_calls=ran.astype(np.int64) + compared + (ran & handed & answers.asked_again[recording]),
    )


@cache
def small_call() -> float:
    """Return the mean length of the small answers of the offline set: the unit in which costs are shown."""
    return float(load_answers().small_tokens[offline_outcomes().recording].mean())
