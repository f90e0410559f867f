"""What a handoff does to the queries of a stream: what is served, and tokens generated.

Pure, given the recorded :class:`~research.recorded.answers.Answers`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from research.handoff.experiment import LARGE_TOKEN
from research.recorded.answers import load_answers
from research.recorded.stream import Floats, Integers, Mask, Outcomes, offline_outcomes
from ucci_demo.recorded.traffic import RecordedQuery, load_traffic, with_handoff
from ucci_stream.demo.scenario import offline_set

HANDOFF = "token@0.9"


class Levers(NamedTuple):
    """Which levers are in force.

    ``handoff``: whether the large model goes on from the small one's answer, under :data:`HANDOFF`. ``guard_share``:
    share of what the threshold escalates for which the large model also answers alone, where there is a handoff.
    """

    handoff: bool = False
    guard_share: float = 0.0


NO_LEVERS = Levers()


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


@dataclass(frozen=True, slots=True)
class Generated:
    """Tokens that queries cost, shape (queries,) each.

    ``large``: of the answer that is served, both calls where it was asked again; 0 where the large model did not run.
    ``guard``: of answers that are only compared. ``large_calls``: all calls of the large model.
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


def generated(recording: Integers, *, ran: Mask, handed: Mask, compared: Mask) -> Generated:
    """Count the tokens of queries.

    ``recording``: ndarray of int, shape (queries,). ``ran``, ``handed``, ``compared``: whether the large model ran,
    under the handoff, and alone as well.
    """
    answers = load_answers()
    begun, alone = answers.large_tokens[recording], answers.alone_tokens[recording]
    return Generated(
        small=answers.small_tokens[recording],
        large=np.where(ran, np.where(handed, begun, alone), 0),
        guard=np.where(compared, alone, 0),
        large_calls=ran.astype(np.int64) + compared + (ran & handed & answers.asked_again[recording]),
    )


@cache
def small_call() -> float:
    """Return the mean length of the small answers of the offline set: the unit in which costs are shown."""
    return float(load_answers().small_tokens[offline_outcomes().recording].mean())
