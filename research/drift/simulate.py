"""The walk: a stream and a policy flow in, what was routed how flows out.

Queries go by in chunks; within one, the policy stands still. Exploration is drawn inside the label draw, so that
explored queries are labelled; audits are drawn apart. A policy sees u and agreement of a chunk once it is over, and
labels once they came. In a messy stream servers fail by the load that the policy sends them, and a desk of named
labelers says what the labels are; those of :class:`~research.drift.mess.Mess` take all policies that know revisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from research.drift.desk import Desk, Standing
from research.drift.mess import CHUNK, LABELERS, Mess, Sampling
from research.drift.servers import Servers
from research.drift.streams import Stream
from research.drift.world import Answers
from schemas.calibration import LabelShares

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

OFFLINE_PROBABILITY = 0.07
"""Propensity that the labelled set of the start is given: each of its queries counts as one of the stream's labels."""


class Traffic(NamedTuple):
    """One chunk as routed, shape (queries,) each; ``agree`` holds only where both models answered.

    ``at_s`` is by the routers' clocks, ``u`` NaN where the small model failed; latencies are sums over calls.
    """

    at_s: Floats
    u: Floats
    escalated: Bools
    large_ran: Bools
    agree: Bools
    label_requested: Bools
    large_failed: Bools
    small_latency_s: float = 0.0
    large_latency_s: float = 0.0


class Labels(NamedTuple):
    """Labels in the order in which they came, shape (labels,) each.

    ``number``: place of the query in the stream; negative for the labelled set of the start. ``at_s``, ``label_at_s``:
    by the clocks of the router and of the labeler. ``u``, ``routed_error``: uncertainty, and g(u) of the version that
    routed it (NaN: none). ``version``: the policy's own number of what routed it. ``gold``, ``small``, ``large``: gold
    pairs, and hits of both answers, as told. ``large_ran``, ``escalated``, ``agree``, ``audited``: audited: asked of
    trusted people, whose labels are true. ``probability``, ``pair_probability``: of being labelled given u, and of
    being labelled with both models run. ``requested``, ``large_failed``, ``retracted``: whether anybody asked; whether
    the large model was called and gave no answer; whether the label is withdrawn. ``labeler``, ``revision``: index into
    :data:`~research.drift.desk.NAMES`, -1 where nobody is named; the query's count of examples.
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
    requested: Bools
    large_failed: Bools
    retracted: Bools
    labeler: Ints
    revision: Ints

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

    @property
    def exploration(self) -> float:
        """Return the share of the kept queries on which the large model runs as well, in force now."""
        ...

    @property
    def audit(self) -> float:
        """Return the share of the escalated queries that trusted people label, in force now."""
        ...

    @property
    def version(self) -> int:
        """Return the number of the version in force."""
        ...

    @property
    def alarms(self) -> list[Alarm]:
        """Return the alarms so far."""
        ...

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


@runtime_checkable
class Draws(Protocol):
    """What a policy offers besides if it does not explore alike at every u."""

    def explores(self, u: Floats, draws: Floats) -> Bools:
        """Return which queries the large model answers although they lie below the threshold."""
        ...


@runtime_checkable
class AsksForLabels(Protocol):
    """What a policy offers besides if it says itself what share of queries is labelled."""

    @property
    def label_shares(self) -> LabelShares:
        """Return the shares of kept and of escalated queries to label, in force now."""
        ...


@dataclass(slots=True)
class Journal:
    """What a policy says of itself in a messy stream.

    ``published``: the query after which a version came, and its threshold on u. ``set_aside``: labels in quarantine
    after so many queries. ``audits``: times that an audit was opened. ``drifted``: whether the status said so, at each
    look.
    """

    published: list[tuple[int, float]] = field(default_factory=list)
    set_aside: list[tuple[int, int]] = field(default_factory=list)
    audits: int = 0
    drifted: list[bool] = field(default_factory=list)


class TakesMess:
    """What a policy inherits that knows failed calls, revisions and withdrawals: it keeps a journal."""

    def __init__(self) -> None:
        self.journal = Journal()

    def trust_expert(self) -> None:
        """Learn, before the start, that labelers have names in this stream, and that the expert is trusted."""

    def take_sampling(self, sampling: Sampling) -> None:
        """Learn, before the start, how much is labelled and explored."""


@dataclass(slots=True)
class Routed:
    """What became of each query, shape (queries,) each.

    ``escalated``, ``large_ran``, ``label_requested``, ``audited``: ``large_ran`` holds exploration too; the large
    answer is then served. ``probability``: of being labelled, given whether it escalates. ``routed_error``: g(u) in
    force, NaN where there was none. ``small_failed``, ``large_failed``: whose call gave no answer; where the large
    one's did not, the small answer is served. ``attempts``: at the large server, retries included. ``lying``: in a
    messy stream: standing labels that are not the truth, after so many queries.
    """

    escalated: Bools
    large_ran: Bools
    label_requested: Bools
    audited: Bools
    probability: Floats
    routed_error: Floats
    version: Ints
    small_failed: Bools
    large_failed: Bools
    attempts: Floats
    lying: list[tuple[int, int]] = field(default_factory=list)
    journal: Journal | None = None
    alarms: list[Alarm] = field(default_factory=list)

    @classmethod
    def blank(cls, queries: int) -> Routed:
        """Return columns to fill."""
        none = np.zeros((6, queries), dtype=bool)
        number = np.zeros(queries, dtype=np.int64)
        return cls(*none[:4], np.zeros(queries), np.full(queries, np.nan), number, *none[4:], np.zeros(queries))

    @property
    def served_by_large(self) -> Bools:
        """Whether the large model's answer was served, shape (queries,)."""
        return self.large_ran & ~self.large_failed


def walk(stream: Stream, start: Stream, policy: Policy) -> Routed:
    """Lead a policy through a stream.

    ``start``: the labelled set of the start; both models ran on it. ``policy``: fresh; it is changed.

    Raises TypeError if the stream is messy and the policy does not take mess.
    """
    mess = stream.family.mess
    if mess is not None:
        if not isinstance(policy, TakesMess):
            raise TypeError(f"policy: {type(policy).__name__} does not take the mess of {stream.family.name}")
        if mess.expert:
            policy.trust_expert()
        policy.take_sampling(mess.sampling)
    if mess is None or not mess.cold:
        labels, named = offline_labels(start), mess is not None and mess.named_start
        policy.start(labels._replace(labeler=np.arange(len(labels.u)) % len(LABELERS)) if named else labels)
    routed = Routed.blank(len(stream))
    labelling = _Asked(stream) if mess is None else _Desked(stream, mess)
    servers = Servers(mess or Mess(), len(stream), stream.chance)
    chunk_queries = CHUNK if mess is None else mess.chunk
    clock_s = stream.at_s + stream.clock_s
    for first in range(0, len(stream), chunk_queries):
        chunk = slice(first, first + chunk_queries)
        labelling.before(float(stream.at_s[first]), routed, policy)
        latencies = _route(stream, routed, policy, servers, chunk)
        traffic = Traffic(
            clock_s[chunk],
            np.where(routed.small_failed[chunk], np.nan, stream.u[chunk]),
            routed.escalated[chunk],
            routed.large_ran[chunk],
            stream.truth.agree[chunk],
            routed.label_requested[chunk],
            routed.large_failed[chunk],
            *latencies,
        )
        policy.on_traffic(traffic)
        labelling.ask(first, routed, chunk)
        labelling.deliver(float(stream.at_s[min(first + chunk_queries, len(stream)) - 1]), routed, policy)
        labelling.note(min(first + chunk_queries, len(stream)), routed)
    routed.alarms = policy.alarms
    routed.journal = policy.journal if isinstance(policy, TakesMess) else None
    return routed


class _Asked:
    """Labels as a clean stream has them: each comes once, as its column says."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._pending = np.zeros(0, dtype=np.int64)

    def before(self, until_s: float, routed: Routed, policy: Policy) -> None:
        """Hand nothing over before a chunk: between two chunks no time passes."""

    def ask(self, first: int, routed: Routed, chunk: slice) -> None:
        """Note what was asked for and will come."""
        asked = first + np.flatnonzero(routed.label_requested[chunk])
        self._pending = np.concatenate((self._pending, asked[np.isfinite(self._stream.label_at_s[asked])]))

    def deliver(self, until_s: float, routed: Routed, policy: Policy) -> None:
        """Hand over what has come by a time."""
        label_at_s = self._stream.label_at_s
        due = label_at_s[self._pending] <= until_s
        come, self._pending = self._pending[due], self._pending[~due]
        if len(come):
            in_order = come[np.argsort(label_at_s[come], kind="stable")]
            policy.on_labels(_labels(self._stream, routed, policy, in_order))

    def note(self, queries: int, routed: Routed) -> None:
        """Note nothing: what lies here never changes."""


class _Desked:
    """Labels as a desk of people has them: they come late, twice, wrongly, and change."""

    def __init__(self, stream: Stream, mess: Mess) -> None:
        self._stream = stream
        self._expert = mess.expert
        self._desk = Desk(mess.habits, stream.truth, stream.at_s, stream.label_at_s, stream.chance, stream.expected[3])

    def before(self, until_s: float, routed: Routed, policy: Policy) -> None:
        """Hand over what came while no query did."""
        self.deliver(until_s, routed, policy)

    def ask(self, first: int, routed: Routed, chunk: slice) -> None:
        """Let people see what is asked for, or everything while they flood."""
        requested = routed.label_requested[chunk]
        asked = first + np.flatnonzero(requested | self._desk.is_flooded(first))
        self._desk.ask(asked, routed.audited[asked] & self._expert, routed.escalated[asked])

    def deliver(self, until_s: float, routed: Routed, policy: Policy) -> None:
        """Hand over what the join has made of all that came by a time."""
        come = self._desk.deliver(until_s)
        if come:
            policy.on_labels(_examples(self._stream, routed, policy, come))

    def note(self, queries: int, routed: Routed) -> None:
        """Note how many standing labels are not the truth."""
        routed.lying.append((queries, len(self._desk.lying)))


def _route(stream: Stream, routed: Routed, policy: Policy, servers: Servers, chunk: slice) -> tuple[float, float]:
    """Route one chunk; returns the latencies of both models, added up over their calls."""
    down = servers.small_is_down(chunk.start)
    u, drawn = stream.u[chunk], stream.draw[chunk]
    escalated = np.ones(len(u), dtype=bool) if down else policy.escalates(u)
    routed.escalated[chunk] = escalated
    explored = policy.explores(u, drawn) if isinstance(policy, Draws) else drawn < policy.exploration
    routed.large_ran[chunk] = escalated | explored
    shares = policy.label_shares if isinstance(policy, AsksForLabels) else _sampling(stream)
    routed.label_requested[chunk] = drawn < np.where(escalated, shares.escalated, shares.kept)
    audited_too = shares.escalated + (1.0 - shares.escalated) * policy.audit
    routed.probability[chunk] = np.where(escalated, audited_too, shares.kept)
    drawn_for_audit = np.where(escalated, stream.audit_draw[chunk] < policy.audit, policy.audit > 0.0)
    routed.audited[chunk] = routed.large_ran[chunk] & drawn_for_audit
    routed.label_requested[chunk] |= routed.audited[chunk]
    routed.version[chunk] = policy.version
    answered = servers.answer(chunk.start, routed.large_ran[chunk])
    routed.small_failed[chunk], routed.large_failed[chunk] = answered.small_failed, answered.large_failed
    routed.attempts[chunk] = answered.attempts
    error = None if down else policy.error_probability(u)
    if error is not None:
        routed.routed_error[chunk] = error
    return answered.small_latency_s, answered.large_latency_s


def _sampling(stream: Stream) -> Sampling:
    return Sampling() if stream.family.mess is None else stream.family.mess.sampling


def _labels(stream: Stream, routed: Routed, policy: Policy, number: Ints) -> Labels:
    escalated, audited = routed.escalated[number], routed.audited[number]

    def as_labelled(answers: Callable[[Answers], Ints]) -> Ints:
        return np.where(audited, answers(stream.truth)[number], answers(stream.told)[number])

    return Labels(
        number=number,
        at_s=stream.at_s[number],
        label_at_s=stream.label_at_s[number],
        u=np.where(routed.small_failed[number], np.nan, stream.u[number]),
        routed_error=routed.routed_error[number],
        version=routed.version[number],
        gold=as_labelled(lambda answers: answers.gold),
        small=as_labelled(lambda answers: answers.small),
        large=as_labelled(lambda answers: answers.large),
        large_ran=routed.large_ran[number],
        escalated=escalated,
        agree=stream.told.agree[number],
        audited=audited,
        probability=routed.probability[number],
        pair_probability=np.where(escalated, routed.probability[number], policy.exploration),
        requested=routed.label_requested[number],
        large_failed=routed.large_failed[number],
        retracted=np.zeros(len(number), dtype=bool),
        labeler=np.full(len(number), -1),
        revision=np.ones(len(number), dtype=np.int64),
    )


def _examples(stream: Stream, routed: Routed, policy: Policy, come: list[Standing]) -> Labels:
    """Return what the join hands over: the query as routed, and what is said of it now."""
    number = np.array([one.number for one in come])
    gold, small, large = (np.array([0 if one.said is None else one.said[place] for one in come]) for place in range(3))
    labels = _labels(stream, routed, policy, number)
    return labels._replace(
        at_s=(stream.at_s + stream.clock_s)[number],
        label_at_s=np.array([one.labelled_at_s for one in come]),
        gold=gold,
        small=np.where(routed.small_failed[number], 0, small),
        large=np.where(routed.large_failed[number], 0, large),
        retracted=np.array([one.said is None for one in come]),
        labeler=np.array([one.labeler for one in come]),
        revision=np.array([one.revision for one in come]),
    )


def offline_labels(start: Stream) -> Labels:
    """Return the labels of the set that every policy starts from, all of both models' answers."""
    queries = len(start)
    both, none = np.ones(queries, dtype=bool), np.zeros(queries, dtype=bool)
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
        audited=none,
        probability=probability,
        pair_probability=probability,
        requested=both,
        large_failed=none,
        retracted=none,
        labeler=np.full(queries, -1),
        revision=np.ones(queries, dtype=np.int64),
    )
