"""Which labels count: suspected labels are put to trusted people, and set aside only if their answers refute them.

::

                              ┌──────── refuted ───────┐
                              ▼                        │
    ─► TRUSTING ─suspected─► AUDITING ─refuted─► QUARANTINED ─audit_due─► REAUDITING
         ▲  ▲                 │                    │    ▲                  │    │
         │  └── confirmed, ───┘                    │    └───── refuted ────┘    │
         │      unanswered,                        │                            │
         │      unfounded                          │                            │
         └──────────────────── released ───────────┴── confirmed, unanswered, ──┘
                                                       unfounded, released

While an audit is open, labels are believed as before: both models failing alike looks the same as bad labels. If the
answers do not decide, the audit asks for more. A quarantine ends by itself: when the labels' errors are again what they
were (a CUSUM test), or when a repeated audit does not refute the labels again or gets no answers. Any suspicion ends
(people_judged, not drawn) when single labelers are set aside: what the others say is judged anew without them.

:func:`step` maps a state and one piece of evidence to the next state and its effects. It changes nothing else: the fold
applies the effects to the label table and to what it knows of changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import exp
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from pydantic import JsonValue

from recalibrator.fit.arrays import Floats, Ints
from recalibrator.fit.data.revisions import Flips
from recalibrator.fit.estimate.agreement import Chances, chances_of, inside
from recalibrator.fit.label_quality.audit_test import (
    SUPPORT,
    AuditRules,
    OddsPosterior,
    Verdict,
    log_likelihood_ratios,
    odds_posterior,
    verdict,
)
from recalibrator.fit.method_constants import AuditConstants
from schemas.event import from_us
from schemas.traffic import TrafficSummary, VersionTraffic

News = Literal["labels_refuted", "labels_confirmed", "labels_unanswered", "labels_unfounded", "labels_released"]

Part = TypeVar("Part")
_ANSWERS_LEAST = 10
_HELD_BETWEEN_FITS = 50
_CARRIED_SHARE = 2.0 / 3.0
"""Of the bound: most that earlier audits count against labels, so that each new audit must contribute evidence."""


class LabelState(Enum):
    """Whether ordinary labels count."""

    TRUSTING = "trusting"
    """They count."""

    AUDITING = "auditing"
    """They count while trusted people are asked."""

    QUARANTINED = "quarantined"
    """They are set aside."""

    REAUDITING = "reauditing"
    """They are set aside while trusted people are asked again."""


class LabelEvent(Enum):
    """What the evidence amounts to."""

    SUSPECTED = "suspected"
    REFUTED = "refuted"
    CONFIRMED = "confirmed"
    UNANSWERED = "unanswered"
    UNFOUNDED = "unfounded"
    RELEASED = "released"
    AUDIT_DUE = "audit_due"
    PEOPLE_JUDGED = "people_judged"


TRANSITIONS: dict[LabelState, dict[LabelEvent, LabelState]] = {
    LabelState.TRUSTING: {LabelEvent.SUSPECTED: LabelState.AUDITING},
    LabelState.AUDITING: {
        LabelEvent.REFUTED: LabelState.QUARANTINED,
        LabelEvent.CONFIRMED: LabelState.TRUSTING,
        LabelEvent.UNANSWERED: LabelState.TRUSTING,
        LabelEvent.UNFOUNDED: LabelState.TRUSTING,
        LabelEvent.PEOPLE_JUDGED: LabelState.TRUSTING,
    },
    LabelState.QUARANTINED: {
        LabelEvent.PEOPLE_JUDGED: LabelState.TRUSTING,
        LabelEvent.RELEASED: LabelState.TRUSTING,
        LabelEvent.AUDIT_DUE: LabelState.REAUDITING,
    },
    LabelState.REAUDITING: {
        LabelEvent.REFUTED: LabelState.QUARANTINED,
        LabelEvent.CONFIRMED: LabelState.TRUSTING,
        LabelEvent.UNANSWERED: LabelState.TRUSTING,
        LabelEvent.UNFOUNDED: LabelState.TRUSTING,
        LabelEvent.RELEASED: LabelState.TRUSTING,
        LabelEvent.PEOPLE_JUDGED: LabelState.TRUSTING,
    },
}

_NEWS: dict[LabelEvent, News] = {
    LabelEvent.REFUTED: "labels_refuted",
    LabelEvent.CONFIRMED: "labels_confirmed",
    LabelEvent.UNANSWERED: "labels_unanswered",
    LabelEvent.UNFOUNDED: "labels_unfounded",
    LabelEvent.RELEASED: "labels_released",
}


class Expected(NamedTuple):
    """What labels are compared with: outcomes as they were before the suspicion.

    Parameters
    ----------
    agreement : ndarray, shape (cells,)
        P(agree | u).
    error_given : ndarray, shape (2, cells)
        P(the small answer is wrong | u, the answers differ), and where they are equal, by labels as they stand.
    """

    agreement: Floats
    error_given: Floats

    def first(self, labels: LabelFacts) -> Floats:
        """Return the errors that first labels report, by all that is known now of how they are corrected."""
        return inside(labels.flips.first(self.error_given))


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What is suspected, and since when.

    Parameters
    ----------
    agreeing : bool
        Whether errors are too many where answers agree, or too few where they differ.
    began_us : int
        When labels began to contradict what was expected.
    expected : Expected
    log_odds : float
        Of the factor that labels put on the odds of an error.
    evidence : float
        Log odds that labels are right: the prior and the audits so far.
    """

    agreeing: bool
    began_us: int
    expected: Expected
    log_odds: float = 0.0
    evidence: float = 0.0


@dataclass(frozen=True, slots=True)
class Audit:
    """An open audit.

    Parameters
    ----------
    opened_us : int
    probability : float
        With which routers ask for an audit of a query that both models answer.
    asked : float
        Pairs of the suspected kind drawn so far, in expectation.
    ordinary : int
        Ordinary labels of queries routed since it was opened.
    rounds : int
        How often it has asked for a full number of answers.
    """

    opened_us: int
    probability: float
    asked: float = 0.0
    ordinary: int = 0
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Labels set aside, and the test that releases them.

    Parameters
    ----------
    judged_us : int
        When an audit last refuted the labels.
    ordinary : int
        Ordinary labels since then.
    held : int
        Labels of the suspected kind set aside so far.
    release : float
        CUSUM of the log likelihood ratio of "errors as before" over "errors as suspected".
    release_since_us : int or None
        Since when that sum is positive.
    """

    judged_us: int
    ordinary: int = 0
    held: int = 0
    release: float = 0.0
    release_since_us: int | None = None


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The last verdict: what it was, the answers behind it, and when it was reached."""

    verdict: str
    answers: int
    errors: int
    at_us: int


@dataclass(frozen=True, slots=True)
class LabelQuality:
    """The machine's whole state; immutable.

    Parameters
    ----------
    state : LabelState
    suspicion : Suspicion or None
        None while trusting.
    audit : Audit or None
        Present while auditing or reauditing.
    quarantine : Quarantine or None
        Present while labels are set aside.
    conclusion : Conclusion or None
        The last one.

    Examples
    --------
    >>> LabelQuality().state
    <LabelState.TRUSTING: 'trusting'>
    """

    state: LabelState = LabelState.TRUSTING
    suspicion: Suspicion | None = None
    audit: Audit | None = None
    quarantine: Quarantine | None = None
    conclusion: Conclusion | None = None

    @property
    def is_trusting(self) -> bool:
        """Whether labels are not suspected."""
        return self.state is LabelState.TRUSTING

    @property
    def is_unanswered(self) -> bool:
        """Whether the last audit was never answered."""
        return self.conclusion is not None and self.conclusion.verdict == LabelEvent.UNANSWERED.value

    def audit_probability(self, constants: AuditConstants) -> float:
        """Return the share of the queries answered by both models that trusted people are to label."""
        audit = self.audit
        if audit is None or audit.asked >= audit.rounds * constants.audit_requests:
            return 0.0
        return audit.probability


class LabelFacts(Protocol):
    """What evidence reads of the label table."""

    @property
    def flips(self) -> Flips:
        """How first labels differ from labels as they stand."""
        ...

    def errors_since(self, since_us: int, *, audited: bool, suspects: Floats = ...) -> tuple[Ints, Ints, Floats]:
        """Return relation of the answers, cell of u and error of the labels of queries routed since a time."""
        ...

    def labelers_since(self, instant_us: int) -> Floats:
        """Return the numbers of the labelers of ordinary labels since a time."""
        ...

    def set_aside_since(self, instant_us: int) -> int:
        """Return the number of labels set aside since a time."""
        ...


class RecentPairs(NamedTuple):
    """Recent traffic: queries, those answered by both models, and those of them whose answers agree."""

    queries: float
    pairs: float
    agreeing: float


class Suspected(NamedTuple):
    """An alarm: labels contradict what was expected."""

    began_us: int
    agreeing: bool
    expected: Expected
    labels: LabelFacts
    recent: RecentPairs
    now_us: int


class LabelSeen(NamedTuple):
    """The first label of a query, which the label table has taken in.

    Parameters
    ----------
    audited : bool
        Whether it answers an audit.
    cell : int or None
        Of u; None where the query has none.
    agree : bool or None
    error : float
        1 where the small answer is wrong.
    """

    routed_us: int
    now_us: int
    audited: bool
    cell: int | None
    agree: bool | None
    error: float
    labels: LabelFacts
    recent: RecentPairs


class AuditsDrawn(NamedTuple):
    """Traffic, and the audit probabilities by version with which routers drew audits of it."""

    summary: TrafficSummary
    probabilities: Mapping[int, float]


class PeopleJudged(NamedTuple):
    """Single labelers were set aside, or are believed again: what labels say as a whole is to be judged anew."""


Evidence = Suspected | LabelSeen | AuditsDrawn | PeopleJudged


class Effects(NamedTuple):
    """What the fold is to do.

    Parameters
    ----------
    news : str or None
        A suspicion was decided this way: a reason for a new version.
    from_us : int
        Since when labels are wrong (refuted, unfounded), or right again.
    set_aside : bool
        Ordinary labels of queries routed from then on do not count.
    believe : bool
        The present quarantine ends then.
    retract : bool
        Take back a change of outcomes that these labels had reported.
    changed : bool
        Outcomes are believed to have changed then.
    settled : bool
        Given agreement too, so that later labels are compared with those since.
    """

    news: News | None = None
    from_us: int = 0
    set_aside: bool = False
    believe: bool = False
    retract: bool = False
    changed: bool = False
    settled: bool = False


_NONE = Effects()


def step(quality: LabelQuality, evidence: Evidence, constants: AuditConstants) -> tuple[LabelQuality, Effects]:
    """Return what one piece of evidence leads to.

    Parameters
    ----------
    quality : LabelQuality
    evidence : Suspected, LabelSeen, AuditsDrawn or PeopleJudged
        An alarm while labels are suspected already, or a label while they are not, changes nothing.
    constants : AuditConstants
    """
    if isinstance(evidence, Suspected):
        return (_suspect(quality, evidence, constants) if quality.is_trusting else quality), _NONE
    if isinstance(evidence, AuditsDrawn):
        return _count_drawn(quality, evidence), _NONE
    if quality.state is LabelState.TRUSTING:
        return quality, _NONE
    if isinstance(evidence, PeopleJudged):
        began_us, believe = _present(quality.suspicion).began_us, quality.quarantine is not None
        quality = _advance(quality, LabelEvent.PEOPLE_JUDGED, suspicion=None, audit=None, quarantine=None)
        return quality, Effects(from_us=began_us, believe=believe, retract=True)
    if quality.state is LabelState.QUARANTINED:
        return _on_held_label(quality, evidence, constants)
    return _on_label(quality, evidence, constants)


def _on_held_label(quality: LabelQuality, label: LabelSeen, constants: AuditConstants) -> tuple[LabelQuality, Effects]:
    if label.audited:
        return quality, _NONE
    return _release_test(_count_held(quality, label, constants), label, constants)


def _on_label(quality: LabelQuality, label: LabelSeen, constants: AuditConstants) -> tuple[LabelQuality, Effects]:
    if not label.audited:
        quality = _count_ordinary(quality, label)
        if quality.state is LabelState.REAUDITING:
            quality, effects = _release_test(quality, label, constants)
            if effects.news is not None:
                return quality, effects
        if not _is_over(quality, constants):
            return quality, _NONE
    return _judge(quality, label, constants)


def _present(part: Part | None) -> Part:
    """Return a part that the state has by the table."""
    assert part is not None
    return part


def _advance(quality: LabelQuality, event: LabelEvent, **parts: Any) -> LabelQuality:
    """Return the next state by the table, with the parts that change."""
    return replace(quality, state=TRANSITIONS[quality.state][event], **parts)


def _suspect(quality: LabelQuality, alarm: Suspected, constants: AuditConstants) -> LabelQuality:
    # The prior favours the side that costs only money if it is wrong.
    caution = constants.audit_caution if alarm.agreeing else -constants.audit_caution
    suspicion = Suspicion(alarm.agreeing, alarm.began_us, alarm.expected, evidence=caution)
    suspicion = replace(suspicion, log_odds=_posterior(suspicion, alarm.labels, alarm.began_us).mean)
    audit = _open(suspicion, alarm.recent, alarm.now_us, constants)
    return _advance(quality, LabelEvent.SUSPECTED, suspicion=suspicion, audit=audit)


def _open(suspicion: Suspicion, recent: RecentPairs, now_us: int, constants: AuditConstants) -> Audit:
    pairs = recent.agreeing if suspicion.agreeing else recent.pairs - recent.agreeing
    share = pairs / max(recent.queries, 1.0)
    wanted = constants.audit_requests / constants.audit_queries
    return Audit(now_us, min(1.0, wanted / share) if share > 0.0 else 1.0)


def _count_drawn(quality: LabelQuality, drawn: AuditsDrawn) -> LabelQuality:
    suspicion, audit = quality.suspicion, quality.audit
    if suspicion is None or audit is None:
        return quality
    asked = audit.asked
    for part in drawn.summary.versions:
        share = drawn.probabilities.get(part.calibration_version or 0, 0.0)
        if share > 0.0:
            asked += _audits(part, share, agreeing=suspicion.agreeing)
    return replace(quality, audit=replace(audit, asked=asked))


def _audits(part: VersionTraffic, share: float, *, agreeing: bool) -> float:
    """Return how many audits of pairs of one kind one version's routers have drawn, in expectation.

    Every explored query is audited, and a share of the others; of the explored, as many agree as in their cell.
    """
    counts = (part.pairs, part.agreeing, part.pairs_explored)
    pairs, agree, explored = (np.array(one, dtype=np.float64) for one in counts)
    kind = agree if agreeing else pairs - agree
    of_explored = kind * np.divide(explored, pairs, out=np.zeros(len(pairs)), where=pairs > 0.0)
    return float((share * (kind - of_explored) + of_explored).sum())


def _count_ordinary(quality: LabelQuality, label: LabelSeen) -> LabelQuality:
    audit = _present(quality.audit)
    counted = audit.ordinary + (label.routed_us >= audit.opened_us)
    return replace(quality, audit=replace(audit, ordinary=counted))


def _count_held(quality: LabelQuality, label: LabelSeen, constants: AuditConstants) -> LabelQuality:
    """Count a label in quarantine; after so many, an audit is due again."""
    suspicion, quarantine = _present(quality.suspicion), _present(quality.quarantine)
    quarantine = replace(quarantine, ordinary=quarantine.ordinary + 1)
    if quarantine.ordinary < constants.audit_again_labels:
        return replace(quality, quarantine=quarantine)
    audit = _open(suspicion, label.recent, label.now_us, constants)
    return _advance(quality, LabelEvent.AUDIT_DUE, audit=audit, quarantine=quarantine)


def _release_test(quality: LabelQuality, label: LabelSeen, constants: AuditConstants) -> tuple[LabelQuality, Effects]:
    """Compare one label in quarantine with what was expected; release them all where errors are as before."""
    suspicion, quarantine = _present(quality.suspicion), _present(quality.quarantine)
    if label.cell is None or label.agree is (not suspicion.agreeing):
        return quality, _NONE
    held = quarantine.held + 1
    if held % _HELD_BETWEEN_FITS == 0:
        posterior = _posterior(suspicion, label.labels, suspicion.began_us)
        if posterior.support <= -SUPPORT:
            return _release(quality, label, suspicion.began_us)
        suspicion = replace(suspicion, log_odds=posterior.mean)
    expected = suspicion.expected
    first = expected.first(label.labels)
    chances = chances_of(expected.agreement, first, label.cell, label.agree, agreeing=suspicion.agreeing)
    ratios = log_likelihood_ratios(chances, np.array(label.error), np.array([suspicion.log_odds]))
    release, since_us = quarantine.release - float(ratios[0]), quarantine.release_since_us
    if release <= 0.0:
        release, since_us = 0.0, None
    elif since_us is None:
        since_us = label.routed_us
    quarantine = replace(quarantine, held=held, release=release, release_since_us=since_us)
    quality = replace(quality, suspicion=suspicion, quarantine=quarantine)
    if since_us is None or release < constants.audit_release_bound:
        return quality, _NONE
    are_right = _posterior(suspicion, label.labels, suspicion.began_us).support <= -SUPPORT
    return _release(quality, label, suspicion.began_us if are_right else since_us)


def _release(quality: LabelQuality, label: LabelSeen, from_us: int) -> tuple[LabelQuality, Effects]:
    """Believe labels again: from the suspicion's beginning where they are right as they stand by now."""
    return _believe(quality, LabelEvent.RELEASED, Conclusion("released", 0, 0, label.now_us), from_us)


def _is_over(quality: LabelQuality, constants: AuditConstants) -> bool:
    audit = _present(quality.audit)
    return audit.ordinary >= audit.rounds * constants.audit_patience


def _judge(quality: LabelQuality, label: LabelSeen, constants: AuditConstants) -> tuple[LabelQuality, Effects]:
    """Let the trusted answers to the open audit decide."""
    suspicion, audit, quarantine = _present(quality.suspicion), _present(quality.audit), quality.quarantine
    # Labels from before the alarm are those that raised it; only later ones are an unbiased sample.
    later_us = audit.opened_us if quarantine is None else quarantine.judged_us
    posterior = _posterior(suspicion, label.labels, later_us)
    chances, errors = _answers(suspicion, label.labels, audit.opened_us)
    ended = _is_over(quality, constants)
    rules = AuditRules(constants.audit_bound, audit.rounds * constants.audit_answers, _ANSWERS_LEAST)
    found, ratio = verdict(chances, errors, posterior, rules, ended=ended, carried=suspicion.evidence)
    if found is None:
        return quality, _NONE
    # Labels that report too few errors are not believed for as long as more answers would take.
    may_ask_on = suspicion.agreeing and audit.rounds < constants.audit_rounds
    if abs(ratio) < rules.bound and not ended and may_ask_on:
        return replace(quality, audit=replace(audit, rounds=audit.rounds + 1)), _NONE
    conclusion = Conclusion(found, len(errors), int(errors.sum()), label.now_us)
    if found == "refuted":
        return _set_aside(quality, label, conclusion, ratio, rules)
    return _decide_for(quality, found, conclusion, conclusive=ratio >= rules.bound or found == "unanswered")


def _decide_for(
    quality: LabelQuality, found: Verdict, conclusion: Conclusion, *, conclusive: bool
) -> tuple[LabelQuality, Effects]:
    """Believe labels: what is merely likelier is believed too, but the question may come up again."""
    suspicion, audit = _present(quality.suspicion), _present(quality.audit)
    in_quarantine = quality.quarantine is not None
    begins_us = audit.opened_us if in_quarantine else suspicion.began_us
    changed = found == "confirmed" or (found == "unanswered" and not in_quarantine)
    quality, effects = _believe(quality, LabelEvent(found), conclusion, begins_us)
    return quality, effects._replace(changed=changed, settled=conclusive)


def _believe(
    quality: LabelQuality, event: LabelEvent, conclusion: Conclusion, from_us: int
) -> tuple[LabelQuality, Effects]:
    """Believe labels of queries routed from some time on; what was set aside before stays so."""
    effects = Effects(
        _NEWS[event], from_us, believe=quality.quarantine is not None, retract=event is LabelEvent.UNFOUNDED
    )
    trusting = _advance(quality, event, suspicion=None, audit=None, quarantine=None, conclusion=conclusion)
    return trusting, effects


def _set_aside(
    quality: LabelQuality, label: LabelSeen, conclusion: Conclusion, ratio: float, rules: AuditRules
) -> tuple[LabelQuality, Effects]:
    suspicion, quarantine = _present(quality.suspicion), quality.quarantine
    suspicion = replace(suspicion, evidence=max(ratio, -_CARRIED_SHARE * rules.bound))
    effects = Effects("labels_refuted", suspicion.began_us, set_aside=quarantine is None, retract=True)
    if quarantine is None:
        posterior = _posterior(suspicion, label.labels, suspicion.began_us)
        suspicion = replace(suspicion, log_odds=posterior.mean)
        quarantine = Quarantine(label.now_us)
    else:
        quarantine = replace(quarantine, judged_us=label.now_us, ordinary=0)
    refuted = _advance(
        quality,
        LabelEvent.REFUTED,
        suspicion=suspicion,
        audit=None,
        quarantine=quarantine,
        conclusion=conclusion,
    )
    return refuted, effects


def _posterior(suspicion: Suspicion, labels: LabelFacts, since_us: int) -> OddsPosterior:
    """Return the factor on the odds, given ordinary labels since a time that are, or may be, of the suspected kind."""
    relation, cell, error = labels.errors_since(since_us, audited=False)
    known = relation == _kind(suspicion)
    rows = known | (relation == 0)
    expected, known, cell = suspicion.expected, known[rows], cell[rows]
    first = expected.first(labels)
    rest, weight, given = chances_of(expected.agreement, first, cell, None, agreeing=suspicion.agreeing)
    chances = Chances(np.where(known, 0.0, rest), np.where(known, 1.0, weight), given)
    return odds_posterior(chances, error[rows], rising=suspicion.agreeing)


def _answers(suspicion: Suspicion, labels: LabelFacts, since_us: int) -> tuple[Chances, Floats]:
    """Return the trusted answers since a time about queries of the suspected kind, and what was expected of them."""
    suspects = labels.labelers_since(suspicion.began_us)
    relation, cell, error = labels.errors_since(since_us, audited=True, suspects=suspects)
    rows = relation == _kind(suspicion)
    expected = suspicion.expected
    chances = chances_of(
        expected.agreement, expected.error_given, cell[rows], suspicion.agreeing, agreeing=suspicion.agreeing
    )
    return chances, error[rows]


def _kind(suspicion: Suspicion) -> int:
    """Return the relation code of ``errors_since`` that is suspected: 2 equal answers, 1 different; 0 may be either."""
    return 2 if suspicion.agreeing else 1


def sentence(quality: LabelQuality, set_aside: int) -> str:
    """Say in one plain sentence what is suspected of labels, of which so many are set aside."""
    suspicion, last = quality.suspicion, quality.conclusion
    if suspicion is None:
        return (
            "Labels contradict what was known where both models answered, and no trusted answer has come: check "
            "the labelers, or both models fail alike."
        )
    what = (
        "call answers wrong on which both models agree"
        if suspicion.agreeing
        else "call the small model right where the large one differs"
    )
    since = f"{from_us(suspicion.began_us):%Y-%m-%d %H:%M} UTC"
    if quality.quarantine is not None and last is not None:
        return (
            f"Labels since {since} {what} and {last.answers} trusted answers refute them: "
            f"{set_aside} labels are set aside until they are right again."
        )
    return (
        f"Labels since {since} {what} more often than before: trusted people are asked by audit, and until "
        "they answer labels are believed."
    )


def details(quality: LabelQuality, labels: LabelFacts) -> dict[str, JsonValue]:
    """Return the open suspicion, its audit and the last verdict, as the status shows them."""
    suspicion, audit, last = quality.suspicion, quality.audit, quality.conclusion
    shown: dict[str, JsonValue] = {"quarantined": labels.set_aside_since(-1)}
    if suspicion is not None:
        shown |= {
            "suspected": "errors_where_answers_agree" if suspicion.agreeing else "few_errors_where_answers_differ",
            "since": from_us(suspicion.began_us).isoformat(),
            "odds": exp(suspicion.log_odds),
            "in_quarantine": quality.quarantine is not None,
            "audit_open": audit is not None,
            "asked": 0.0 if audit is None else round(audit.asked, 1),
        }
    if suspicion is not None and audit is not None:
        _, errors = _answers(suspicion, labels, audit.opened_us)
        shown |= {"answered": len(errors), "errors": int(errors.sum())}
    if last is not None:
        shown["last"] = {
            "verdict": last.verdict,
            "answers": last.answers,
            "errors": last.errors,
            "at": from_us(last.at_us).isoformat(),
        }
    return shown
