"""The walk: a stream and a policy flow in, what was routed how flows out.

Queries go by in chunks; within one, the policy stands still. Exploration is drawn inside the label draw, so that
explored queries are labelled; audits are drawn apart. A policy sees u and agreement of a chunk once it is over, and
labels once they came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift.streams import Stream
from benchmarks.drift.world import Answers

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

CHUNK = 250
EXPLORED, LABELLED_KEPT, LABELLED_ESCALATED = 0.03, 0.05, 0.10
OFFLINE_PROBABILITY = 0.07
"""Propensity that the labelled set of the start is given: each of its queries counts as one of the stream's labels."""


class Traffic(NamedTuple):
    """One chunk as routed, shape (queries,) each; ``agree`` holds only where the large model ran."""

    at_s: Floats
    u: Floats
    escalated: Bools
    large_ran: Bools
    agree: Bools
    label_requested: Bools


class Labels(NamedTuple):
    """Labels in the order in which they came, shape (labels,) each.

    Parameters
    ----------
    number : ndarray of int
        Place of the query in the stream; negative for the labelled set of the start.
    at_s, label_at_s : ndarray
    u, routed_error : ndarray
        Uncertainty, and g(u) of the version that routed it (NaN: none).
    version : ndarray of int
        The policy's own number of what routed it.
    gold, small, large : ndarray of int
        Gold pairs, and hits of both answers, as told.
    large_ran, escalated, agree, audited : ndarray of bool
        Audited: asked of trusted people, whose labels are true.
    probability, pair_probability : ndarray
        Of being labelled given u, and of being labelled with both models run.
    """

    number: Ints
    at_s: Floats
    label_at_s: Floats
    u: Floats
    routed_error: Floats
    version: Ints
    gold: Ints
    small: Ints
    large: Ints
    large_ran: Bools
    escalated: Bools
    agree: Bools
    audited: Bools
    probability: Floats
    pair_probability: Floats

    @property
    def wrong(self) -> Floats:
        """1 where the small answer is not exact."""
        return (self.small < self.gold).astype(np.float64)


class Alarm(NamedTuple):
    """A detector's alarm: the query at which it was seen."""

    number: int
    detector: str
    needs_labels: bool


class Policy(Protocol):
    """What the benchmark asks of a policy.

    While ``audit`` is above 0, trusted people label all explored queries and this share of the escalated ones.
    """

    exploration: float
    audit: float
    version: int
    alarms: list[Alarm]

    def start(self, labels: Labels) -> None:
        """Take the labelled set in, with both models run on all of it."""

    def escalates(self, u: Floats) -> Bools:
        """Decide for each query whether the large model answers it."""

    def error_probability(self, u: Floats) -> Floats | None:
        """Return g(u), or None where the policy holds no map."""

    def on_traffic(self, traffic: Traffic) -> None:
        """Take one chunk in, without labels."""

    def on_labels(self, labels: Labels) -> None:
        """Take in what came meanwhile."""


@dataclass(slots=True)
class Routed:
    """What became of each query, shape (queries,) each.

    Parameters
    ----------
    escalated, large_ran, label_requested, audited : ndarray of bool
        ``large_ran`` holds exploration too; the large answer is then served.
    audit : ndarray
        Probability of an audit where a query escalates.
    routed_error : ndarray
        g(u) in force, NaN where there was none.
    version : ndarray of int
    alarms : list of Alarm
    """

    escalated: Bools
    large_ran: Bools
    label_requested: Bools
    audited: Bools
    audit: Floats
    routed_error: Floats
    version: Ints
    alarms: list[Alarm] = field(default_factory=list)

    @classmethod
    def blank(cls, queries: int) -> Routed:
        """Return columns to fill."""
        none = np.zeros((4, queries), dtype=bool)
        return cls(*none, np.zeros(queries), np.full(queries, np.nan), np.zeros(queries, dtype=np.int64))


def walk(stream: Stream, start: Stream, policy: Policy) -> Routed:
    """Lead a policy through a stream.

    Parameters
    ----------
    stream : Stream
    start : Stream
        The labelled set of the start; both models ran on it.
    policy : Policy
        Fresh; it is changed.
    """
    policy.start(_offline_labels(start))
    routed = Routed.blank(len(stream))
    pending = np.zeros(0, dtype=np.int64)
    for first in range(0, len(stream), CHUNK):
        chunk = slice(first, first + CHUNK)
        _route(stream, routed, policy, chunk)
        policy.on_traffic(
            Traffic(
                stream.at_s[chunk],
                stream.u[chunk],
                routed.escalated[chunk],
                routed.large_ran[chunk],
                stream.truth.agree[chunk],
                routed.label_requested[chunk],
            )
        )
        asked = first + np.flatnonzero(routed.label_requested[chunk])
        pending = np.concatenate((pending, asked[np.isfinite(stream.label_at_s[asked])]))
        due = stream.label_at_s[pending] <= stream.at_s[min(first + CHUNK, len(stream)) - 1]
        come, pending = pending[due], pending[~due]
        if len(come):
            policy.on_labels(_labels(stream, routed, policy, come[np.argsort(stream.label_at_s[come], kind="stable")]))
    routed.alarms = policy.alarms
    return routed


def _route(stream: Stream, routed: Routed, policy: Policy, chunk: slice) -> None:
    u, drawn = stream.u[chunk], stream.draw[chunk]
    escalated = policy.escalates(u)
    routed.escalated[chunk] = escalated
    routed.large_ran[chunk] = escalated | (drawn < policy.exploration)
    routed.label_requested[chunk] = drawn < np.where(escalated, LABELLED_ESCALATED, LABELLED_KEPT)
    routed.audit[chunk] = policy.audit
    drawn_for_audit = np.where(escalated, stream.audit_draw[chunk] < policy.audit, policy.audit > 0.0)
    routed.audited[chunk] = routed.large_ran[chunk] & drawn_for_audit
    routed.label_requested[chunk] |= routed.audited[chunk]
    routed.version[chunk] = policy.version
    error = policy.error_probability(u)
    if error is not None:
        routed.routed_error[chunk] = error


def _labels(stream: Stream, routed: Routed, policy: Policy, number: Ints) -> Labels:
    escalated, audited = routed.escalated[number], routed.audited[number]
    wanted = LABELLED_ESCALATED + (1.0 - LABELLED_ESCALATED) * routed.audit[number]

    def as_labelled(answers: Callable[[Answers], Ints]) -> Ints:
        return np.where(audited, answers(stream.truth)[number], answers(stream.told)[number])

    return Labels(
        number=number,
        at_s=stream.at_s[number],
        label_at_s=stream.label_at_s[number],
        u=stream.u[number],
        routed_error=routed.routed_error[number],
        version=routed.version[number],
        gold=as_labelled(lambda answers: answers.gold),
        small=as_labelled(lambda answers: answers.small),
        large=as_labelled(lambda answers: answers.large),
        large_ran=routed.large_ran[number],
        escalated=escalated,
        agree=stream.told.agree[number],
        audited=audited,
        probability=np.where(escalated, wanted, LABELLED_KEPT),
        pair_probability=np.where(escalated, wanted, policy.exploration),
    )


def _offline_labels(start: Stream) -> Labels:
    queries = len(start)
    both = np.ones(queries, dtype=bool)
    probability = np.full(queries, OFFLINE_PROBABILITY)
    return Labels(
        number=np.arange(-queries, 0),
        at_s=start.at_s,
        label_at_s=start.at_s,
        u=start.u,
        routed_error=np.full(queries, np.nan),
        version=np.zeros(queries, dtype=np.int64),
        gold=start.truth.gold,
        small=start.truth.small,
        large=start.truth.large,
        large_ran=both,
        escalated=both,
        agree=start.truth.agree,
        audited=np.zeros(queries, dtype=bool),
        probability=probability,
        pair_probability=probability,
    )
