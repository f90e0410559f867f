"""A suspicion of labels as it stands: what is suspected, how far its audit is, and what people are told of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from pydantic import JsonValue

from schemas.event import from_us


@dataclass(slots=True)
class Suspicion:
    """What is suspected, since when, and how far its audit and its quarantine are.

    Parameters
    ----------
    agreeing : bool
        Whether errors are too many where answers agree, or too few where they differ.
    began_us : int
        From when labels contradict what was known.
    log_odds : float
        Of the factor that labels put on the odds of an error.
    opened_us : int or None
        When the last audit was opened; None between two audits.
    probability : float
        Of an audit, for each query that both models answer.
    asked : float
        Pairs of this kind that have been drawn, in expectation.
    ordinary : int
        Ordinary labels of queries routed since the audit was opened, or since its verdict.
    evidence : float
        Log odds that labels are right, beforehand and by the audits so far.
    quarantined : bool
    held : int
        Labels in quarantine of this kind.
    easing, easing_since_us
        Log likelihood ratio of "as before" over "as suspected" for labels in quarantine, and since when it rises.
    rounds : int
        Times that the open audit has asked for answers.
    judged_us : int or None
        When an audit refuted labels last.
    """

    agreeing: bool
    began_us: int
    log_odds: float
    opened_us: int | None
    probability: float
    asked: float = 0.0
    ordinary: int = 0
    evidence: float = 0.0
    quarantined: bool = False
    held: int = 0
    easing: float = 0.0
    easing_since_us: int | None = None
    rounds: int = 1
    judged_us: int | None = None

    def details(self) -> dict[str, JsonValue]:
        """Return what people are told of it, its answers aside."""
        return {
            "suspected": "errors_where_answers_agree" if self.agreeing else "few_errors_where_answers_differ",
            "since": from_us(self.began_us).isoformat(),
            "odds": exp(self.log_odds),
            "in_quarantine": self.quarantined,
            "audit_open": self.opened_us is not None,
            "asked": round(self.asked, 1),
        }


@dataclass(slots=True)
class Concluded:
    """The last verdict: what it said, the answers it rests on, and when it was reached."""

    verdict: str
    answers: int
    errors: int
    at_us: int

    def details(self) -> dict[str, JsonValue]:
        """Return what people are told of it."""
        return {
            "verdict": self.verdict,
            "answers": self.answers,
            "errors": self.errors,
            "at": from_us(self.at_us).isoformat(),
        }


def sentence(doubt: Suspicion | None, last: Concluded | None, set_aside: int) -> str:
    """Say in one plain sentence what is suspected of labels, of which so many are set aside."""
    if doubt is None:
        return (
            "Labels contradict what was known where both models answered, and no trusted answer has come: check "
            "the labelers, or both models fail alike."
        )
    what = (
        "call answers wrong on which both models agree"
        if doubt.agreeing
        else "call the small model right where the large one differs"
    )
    since = f"{from_us(doubt.began_us):%Y-%m-%d %H:%M} UTC"
    if doubt.quarantined and last is not None:
        return (
            f"Labels since {since} {what} and {last.answers} trusted answers refute them: "
            f"{set_aside} labels are set aside until they are right again."
        )
    return (
        f"Labels since {since} {what} more often than before: trusted people are asked by audit, and until "
        "they answer labels are believed."
    )
