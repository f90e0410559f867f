"""Whether labels as a whole can be believed: what they suddenly report, trusted people are asked about.

A suspicion is one question: have errors become as frequent as labels say, or do labels slip? Trusted answers move the
odds of it, by a likelihood ratio (Wald, 1945): errors are as frequent as before, or their odds are multiplied by a
factor that the suspected labels suggest. They know it only up to a posterior distribution, so the ratio is averaged
over it. By as much as answers speak against the labels, these count for what true ones would say
(:mod:`recalibrator.fit.data.slips`): nothing is set aside, and nothing is lost if the odds turn again. Without trusted
answers labels are believed. A suspicion ends when answers confirm the labels, when nobody answers, when labels report
what they did before (a CUSUM), or when single people are set aside, since what the others say is judged again.

Functions map a suspicion and one piece of evidence to the next one and its effects. They change nothing else: the fold
applies the effects to the label table and to what it knows of changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import JsonValue

from recalibrator.fit.codec import Floats
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.slips import Flips, Slips
from recalibrator.fit.estimate.agreement import Chances, inside, multiply_odds
from recalibrator.fit.method_constants import MethodConstants
from schemas.event import from_us
from schemas.traffic import VersionTraffic

_SIZES = np.linspace(log(1.25), log(8.0), 16)
"""Logs of the factors on the odds that are considered: less is not suspected, and a few labels cannot show more."""
_PRIOR = -0.5 * ((_SIZES - log(2.0)) / 0.5) ** 2
_PRIOR -= np.logaddexp.reduce(_PRIOR)
"""Ln of each factor's prior probability: twice the odds, give or take a factor of 1.6."""

SUPPORT = 2.0
"""Ln of the likelihood ratio from which labels count as right by themselves: wrong ones come to look so in one case of
seven at most (Ville)."""


class OddsPosterior(NamedTuple):
    """Posterior distribution of the factor on the odds, given suspected labels."""

    #: Shape (factors,): logs of factors.
    log_odds: Floats
    #: Shape (factors,): Ln of each factor's posterior probability, given that there is one.
    log_probability: Floats
    #: Ln of P(labels | some factor) over P(labels | none).
    support: float

    @property
    def mean(self) -> float:
        """Posterior mean of the log of the factor."""
        return float(self.log_odds @ np.exp(self.log_probability))


def log_likelihood_ratios(chances: Chances, errors: Floats, log_odds: Floats) -> Floats:
    """Return ln of P(errors | odds multiplied) over P(errors | as before) for each of some factors.

    Examples
    --------
    >>> known = Chances(np.zeros(2), np.ones(2), np.full(2, 0.1))
    >>> log_likelihood_ratios(known, np.array([0.0, 1.0]), np.log([1.0, 9.0])).round(4).tolist()
    [0.0, 1.0217]
    """
    before, after = chances.at(0.0), chances.at(log_odds[:, None])
    right, wrong = np.log((1.0 - after) / (1.0 - before)), np.log(after / before)
    return np.asarray(np.where(errors > 0.0, wrong, right).sum(axis=1))


def odds_posterior(chances: Chances, errors: Floats, *, rising: bool) -> OddsPosterior:
    """Return the posterior of the factor on the odds, by Bayes' rule; ``rising``: errors are suspected to be too many.

    The labels that raised an alarm are the worst of a while and overstate the factor: without the prior, answers that
    support a smaller factor would count as supporting none.

    Examples
    --------
    >>> few = Chances(np.zeros(3), np.ones(3), np.full(3, 0.1))
    >>> round(float(np.exp(odds_posterior(few, np.ones(3), rising=True).mean)), 2)
    3.38
    """
    log_odds = _SIZES if rising else -_SIZES
    joint = log_likelihood_ratios(chances, errors, log_odds) + _PRIOR
    support = float(np.logaddexp.reduce(joint))
    return OddsPosterior(log_odds, joint - support, support)


def mixed_ratio(chances: Chances, errors: Floats, posterior: OddsPosterior) -> float:
    """Return ln of P(errors | odds multiplied) over P(errors | as before), the factor averaged over its posterior."""
    ratios = log_likelihood_ratios(chances, errors, posterior.log_odds)
    return float(np.logaddexp.reduce(posterior.log_probability + ratios))


News = Literal["labels_refuted", "labels_confirmed", "labels_unanswered", "labels_released"]

_ANSWERS_LEAST = 10
"""Trusted answers below which a fall of quality is believed, not explained away."""

_LABELS_BETWEEN_FITS = 50
_NO_ANSWERS: Floats = np.zeros(0)
_CARRIED_SHARE = 2.0 / 3.0
"""Of the bound: most that earlier audits count, so that each new one must contribute evidence."""


class Expected(NamedTuple):
    """What labels are compared with: outcomes as they were before the suspicion."""

    #: Shape (cells,): P(agree | u).
    agreement: Floats
    #: Shape (2, cells): P(the small answer is wrong | u, the answers differ), and where they are equal, by labels as
    #: they stand.
    error_given: Floats


@dataclass(frozen=True, slots=True)
class Audit:
    """An open audit."""

    opened_us: int
    #: With which routers ask for an audit of a query that both models answer.
    probability: float
    #: Pairs of the suspected kind drawn so far, in expectation.
    asked: float = 0.0


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What is suspected of labels, since when, and what speaks for them."""

    #: Whether errors are too many where answers agree, or too few where they differ.
    agreeing: bool
    #: When labels began to contradict what was expected.
    began_us: int
    expected: Expected
    #: Of the factor that labels put on the odds of an error.
    log_odds: float = 0.0
    #: ``carried`` and ``evidence``: log odds that labels are right: before the open audit, and now.
    carried: float = 0.0
    evidence: float = 0.0
    #: By trusted people, so far.
    answers: int = 0
    #: None between two.
    audit: Audit | None = None
    #: ``ordinary`` and ``seen``: labels since the last audit was opened or closed; labels of the suspected kind.
    ordinary: int = 0
    seen: int = 0
    #: CUSUM of the log likelihood ratio of "errors as before" over "errors as suspected".
    release: float = 0.0
    #: Since when that sum is positive.
    release_since_us: int | None = None

    @property
    def slipping(self) -> float:
        """Probability that labels slip, rather than report what has changed."""
        return 1.0 / (1.0 + exp(self.evidence)) if self.answers >= _ANSWERS_LEAST else 0.0

    def chances(self, cell: Any, flips: Flips = Flips()) -> Chances:  # noqa: B008 (immutable)
        """Return the chances of errors expected in labels of the suspected kind, in some cells of u.

        ``flips`` say how first labels differ from labels as they stand, which are meant without them.
        """
        error = inside(flips.first(self.expected.error_given))[int(self.agreeing)][cell]
        return Chances(np.zeros_like(error), np.ones_like(error), error)

    def slips(self) -> Slips:
        """Return how often labels slip."""
        apart, alike = self.expected.error_given
        agreement, true = self.expected.agreement, alike if self.agreeing else apart
        said = multiply_odds(true, exp(self.log_odds))
        share = self.slipping * np.abs(said - true) / (1.0 - true if self.agreeing else true)
        error = np.stack(((1.0 - agreement) * apart + agreement * alike, apart, alike))
        return Slips(self.began_us, None, self.agreeing, share, error)


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The last verdict: what it was, the answers behind it, and when it was reached."""

    verdict: str
    answers: int
    errors: int
    at_us: int


@dataclass(frozen=True, slots=True)
class LabelQuality:
    """What is suspected of labels, and the last verdict on them."""

    suspicion: Suspicion | None = None
    conclusion: Conclusion | None = None

    @property
    def is_trusting(self) -> bool:
        """Whether labels are not suspected."""
        return self.suspicion is None

    @property
    def audit(self) -> Audit | None:
        """The open audit, if there is one."""
        return None if self.suspicion is None else self.suspicion.audit

    @property
    def is_unanswered(self) -> bool:
        """Whether the last audit was never answered."""
        return self.conclusion is not None and self.conclusion.verdict == "unanswered"

    def audit_probability(self, constants: MethodConstants) -> float:
        """Return the share of the queries answered by both models that trusted people are to label."""
        audit = self.audit
        return 0.0 if audit is None or audit.asked >= constants.audit_requests else audit.probability


class RecentPairs(NamedTuple):
    """Recent traffic: queries, those answered by both models, and those of them whose answers agree."""

    queries: float
    pairs: float
    agreeing: float


class LabelSeen(NamedTuple):
    """The first label of a query, which the label table has taken in."""

    routed_us: int
    now_us: int
    #: Whether it answers an audit.
    audited: bool
    #: Of u; None where the query has none.
    cell: int | None
    agree: bool | None
    #: 1 where the small answer is wrong.
    error: float
    labels: LabelTable
    recent: RecentPairs


class Effects(NamedTuple):
    """What the fold is to do."""

    #: A suspicion was judged this way: a reason for a new version.
    news: News | None = None
    #: Since when labels are wrong, or right again.
    from_us: int = 0
    #: Take back a change of outcomes that these labels had reported.
    retract: bool = False
    #: Outcomes are believed to have changed then, given agreement too.
    changed: bool = False


_NONE = Effects()


def take_label(quality: LabelQuality, label: LabelSeen, constants: MethodConstants) -> tuple[LabelQuality, Effects]:
    """Return what a label leads to; while labels are not suspected, to nothing."""
    if quality.suspicion is None:
        return quality, _NONE
    take = _take_answer if label.audited else _take_ordinary
    return take(quality, quality.suspicion, label, constants)


def judge_again(quality: LabelQuality) -> tuple[LabelQuality, Effects]:
    """Trust labels once single labelers were set aside, or are believed again: the others' are judged anew."""
    if quality.suspicion is None:
        return quality, _NONE
    return replace(quality, suspicion=None), Effects(from_us=quality.suspicion.began_us, retract=True)


def _take_ordinary(
    quality: LabelQuality, suspicion: Suspicion, label: LabelSeen, constants: MethodConstants
) -> tuple[LabelQuality, Effects]:
    """Let one label of the crowd speak for itself; after so many, an audit ends, or another one begins."""
    suspicion, released_us = _release_test(replace(suspicion, ordinary=suspicion.ordinary + 1), label, constants)
    if released_us is not None:
        return _end("released", label, Effects("labels_released", released_us))
    quality = replace(quality, suspicion=suspicion)
    if suspicion.ordinary < constants.audit_again_labels:
        return quality, _NONE
    if suspicion.audit is not None:
        return _take_answer(quality, suspicion, label, constants, is_over=True)
    audit = _open(label.recent, label.now_us, constants, agreeing=suspicion.agreeing)
    return replace(quality, suspicion=replace(suspicion, audit=audit, ordinary=0)), _NONE


def _end(
    verdict: str, label: LabelSeen, effects: Effects, answers: Floats = _NO_ANSWERS
) -> tuple[LabelQuality, Effects]:
    conclusion = Conclusion(verdict, len(answers), int(answers.sum()), label.now_us)
    return LabelQuality(None, conclusion), effects


def suspect(
    alarm: Suspicion, labels: LabelTable, recent: RecentPairs, now_us: int, constants: MethodConstants
) -> Suspicion:
    """Return what an alarm leads to: trusted people are asked."""
    audit = _open(recent, now_us, constants, agreeing=alarm.agreeing)
    # The prior favours the side that costs only money if it is wrong.
    caution = constants.audit_caution if alarm.agreeing else -constants.audit_caution
    made = replace(alarm, carried=caution, evidence=caution, audit=audit)
    return replace(made, log_odds=_posterior(made, labels).mean)


def _open(recent: RecentPairs, now_us: int, constants: MethodConstants, *, agreeing: bool) -> Audit:
    pairs = recent.agreeing if agreeing else recent.pairs - recent.agreeing
    share = pairs / max(recent.queries, 1.0)
    wanted = constants.audit_requests / constants.audit_queries
    return Audit(now_us, min(1.0, wanted / share) if share > 0.0 else 1.0)


def count_audits(
    quality: LabelQuality, parts: Iterable[VersionTraffic], probabilities: Mapping[int, float]
) -> LabelQuality:
    """Count what routers have drawn of an open audit, with these audit probabilities by version."""
    suspicion, audit = quality.suspicion, quality.audit
    if suspicion is None or audit is None:
        return quality
    asked = audit.asked
    for part in parts:
        share = probabilities.get(part.calibration_version or 0, 0.0)
        if share > 0.0:
            asked += _audits(part, share, agreeing=suspicion.agreeing)
    return replace(quality, suspicion=replace(suspicion, audit=replace(audit, asked=asked)))


def _audits(part: VersionTraffic, share: float, *, agreeing: bool) -> float:
    """Return how many audits of pairs of one kind one version's routers have drawn, in expectation.

    Every explored query is audited, and a share of the others; of the explored, as many agree as in their cell.
    """
    counts = (part.pairs, part.agreeing, part.pairs_explored)
    pairs, agree, explored = (np.array(one, dtype=np.float64) for one in counts)
    kind = agree if agreeing else pairs - agree
    of_explored = kind * np.divide(explored, pairs, out=np.zeros(len(pairs)), where=pairs > 0.0)
    return float((share * (kind - of_explored) + of_explored).sum())


def _release_test(suspicion: Suspicion, label: LabelSeen, constants: MethodConstants) -> tuple[Suspicion, int | None]:
    """Compare one label with what was expected; returns since when labels are as before, where they are."""
    if label.cell is None or label.agree is not suspicion.agreeing:
        return suspicion, None
    suspicion = replace(suspicion, seen=suspicion.seen + 1)
    if suspicion.seen % _LABELS_BETWEEN_FITS == 0:
        posterior = _posterior(suspicion, label.labels)
        if posterior.support <= -SUPPORT:
            return suspicion, suspicion.began_us
        suspicion = replace(suspicion, log_odds=posterior.mean)
    chances = suspicion.chances(label.cell, label.labels.flips)
    ratios = log_likelihood_ratios(chances, np.array(label.error), np.array([suspicion.log_odds]))
    release = max(0.0, suspicion.release - float(ratios[0]))
    since_us = None if release <= 0.0 else suspicion.release_since_us or label.routed_us
    suspicion = replace(suspicion, release=release, release_since_us=since_us)
    if since_us is None or release < constants.audit_release_bound:
        return suspicion, None
    are_right = _posterior(suspicion, label.labels).support <= -SUPPORT
    return suspicion, suspicion.began_us if are_right else since_us


def _take_answer(
    quality: LabelQuality, suspicion: Suspicion, label: LabelSeen, constants: MethodConstants, *, is_over: bool = False
) -> tuple[LabelQuality, Effects]:
    """Let the trusted answers to the open audit move the odds, and end it when they suffice or no more come."""
    if suspicion.audit is None:
        return quality, _NONE
    chances, errors = _answers(suspicion, label.labels, suspicion.audit.opened_us)
    # Labels that raised an alarm are the worst of a while: only later ones are an unbiased sample.
    posterior = _posterior(suspicion, label.labels, suspicion.audit.opened_us)
    evidence = suspicion.carried + mixed_ratio(chances, errors, posterior)
    suspicion = replace(suspicion, evidence=evidence, answers=max(suspicion.answers, len(errors)))
    suffices = len(errors) >= (_ANSWERS_LEAST if abs(evidence) >= constants.audit_bound else constants.audit_answers)
    if not (suffices or is_over):
        return replace(quality, suspicion=suspicion), _NONE
    if len(errors) < _ANSWERS_LEAST:
        return _end("unanswered", label, Effects("labels_unanswered", suspicion.began_us, changed=True), errors)
    if evidence >= constants.audit_bound:
        return _end("confirmed", label, Effects("labels_confirmed", suspicion.began_us, changed=True), errors)
    return _keep(suspicion, label, errors, constants)


def _keep(
    suspicion: Suspicion, label: LabelSeen, errors: Floats, constants: MethodConstants
) -> tuple[LabelQuality, Effects]:
    """Close an audit that leaves labels suspected."""
    most, refuted = _CARRIED_SHARE * constants.audit_bound, suspicion.evidence <= 0.0
    carried = max(-most, min(most, suspicion.evidence))
    # Until it is decided which of the two is so, more answers are asked for at once.
    decided = suspicion.evidence <= -constants.audit_bound
    ordinary = 0 if decided else constants.audit_again_labels
    suspicion = replace(suspicion, carried=carried, evidence=carried, audit=None, ordinary=ordinary)
    verdict = "refuted" if refuted else "undecided"
    conclusion = Conclusion(verdict, len(errors), int(errors.sum()), label.now_us)
    # A change that labels reported is kept: something else than what was asked about may have changed, and where
    # nothing has, it costs no more than older labels.
    effects = Effects("labels_refuted", suspicion.began_us) if refuted else _NONE
    return LabelQuality(suspicion, conclusion), effects


def _posterior(suspicion: Suspicion, labels: LabelTable, since_us: int | None = None) -> OddsPosterior:
    """Return the factor on the odds, given ordinary labels since a time that are, or may be, of the suspected kind."""
    since_us = suspicion.began_us if since_us is None else since_us
    relation, cell, error = labels.errors_since(since_us, audited=False)
    # Where one model alone was asked, more errors may as well mean that fewer answers agree than before.
    rows = relation == 1 + suspicion.agreeing
    chances = suspicion.chances(cell[rows], labels.flips)
    return odds_posterior(chances, error[rows], rising=suspicion.agreeing)


def _answers(suspicion: Suspicion, labels: LabelTable, since_us: int) -> tuple[Chances, Floats]:
    """Return the trusted answers since a time about queries of the suspected kind, and what was expected of them."""
    relation, cell, error = labels.errors_since(since_us, audited=True, suspected_us=suspicion.began_us)
    rows = relation == 1 + suspicion.agreeing
    return suspicion.chances(cell[rows]), error[rows]


def details(quality: LabelQuality, labels: LabelTable) -> dict[str, JsonValue]:
    """Return the open suspicion, its audit and the last verdict, as the status shows them."""
    suspicion, audit, last = quality.suspicion, quality.audit, quality.conclusion
    shown: dict[str, JsonValue] = {"quarantined": round(labels.slipped)}
    if suspicion is not None:
        shown |= {
            "suspected": "errors_where_answers_agree" if suspicion.agreeing else "few_errors_where_answers_differ",
            "since": from_us(suspicion.began_us).isoformat(),
            "odds": exp(suspicion.log_odds),
            "slipping": suspicion.slipping,
            "audit_open": audit is not None,
            "asked": 0.0 if audit is None else round(audit.asked, 1),
        }
    if suspicion is not None and audit is not None:
        _, errors = _answers(suspicion, labels, audit.opened_us)
        shown |= {"answered": len(errors), "errors": int(errors.sum())}
    if last is not None:
        said = {name: getattr(last, name) for name in ("verdict", "answers", "errors")}
        shown["last"] = {**said, "at": from_us(last.at_us).isoformat()}
    return shown
