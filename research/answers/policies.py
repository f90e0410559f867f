"""Every policy that is judged, made anew for each stream from its offline labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import NamedTuple

import numpy as np

from research.answers.pairs import PAIRS
from research.answers.reminded import Reminded
from research.answers.streams import Judged
from research.candidate.on_answers import OnAnswers
from research.recorded.clairvoyant import Clairvoyant
from research.recorded.service import START, Service, outcome_counts
from research.recorded.simulate import Policy, Routed
from research.recorded.stream import LABELLED_ESCALATED, LABELLED_KEPT, WORKLOAD, Outcomes
from research.recorded.windows import KEEP_ALL, KEEP_NONE, WINDOW_QUERIES, Static, largest_feasible, scores
from schemas import LabelledExample

SAFETY = 0.65
MARGINS = tuple(0.0025 * step for step in range(17))
"""Of micro-F1 above the target: what the static calibration's best one is chosen from, in hindsight."""


def static_threshold(offline: Outcomes, target: float) -> float:
    """Return the paper's threshold: the largest at which the offline labels meet the target.

    A failed small answer escalates at every threshold.
    """
    small, large = scores(offline, target)
    failed = np.isnan(offline.uncertainty)
    return largest_feasible(np.where(failed, np.inf, offline.uncertainty), np.where(failed, large, small), large)


class FixedRate(Static):
    """Escalates the share that the offline calibration does, of the last queries, whatever their u."""

    def __init__(self, offline: Outcomes, threshold: float) -> None:
        super().__init__(threshold)
        self._kept = 1.0 - offline.above(threshold).mean()
        self._recent = np.nan_to_num(offline.uncertainty, nan=np.inf)

    def see(self, routed: Routed) -> None:
        """Move to the quantile of the last queries."""
        recent = np.nan_to_num(routed.outcomes.uncertainty, nan=np.inf)
        self._recent = np.concatenate((self._recent, recent))[-WINDOW_QUERIES:]
        found = np.quantile(self._recent, self._kept, method="lower")
        self.threshold = float(min(found, KEEP_ALL))


class Aci(Static):
    """Adaptive conformal inference (Gibbs & Candès 2021): each label moves the kept share by how far it is off.

    The kept share stands for a quantile of the offline u; ``target`` has the margin in it.
    """

    def __init__(self, offline: Outcomes, target: float, threshold: float, labels: float, step: float = 0.001) -> None:
        super().__init__(threshold)
        self._target, self._labels, self._step = target, labels, step
        self._size = float((offline.large_named + offline.gold).mean())
        self._ranked = np.sort(offline.uncertainty[~np.isnan(offline.uncertainty)])
        self._kept = float((self._ranked <= threshold).mean())

    def learn(self, labelled: Routed) -> None:
        """Keep more where labels exceed the target, less where they miss it."""
        small, large = scores(labelled.outcomes, self._target)
        served = np.where(labelled.ran, large, small) / self._size
        asked = self._labels * np.where(labelled.above, LABELLED_ESCALATED, LABELLED_KEPT)
        self._kept = float(np.clip(self._kept + self._step * (served / asked).sum(), 0.0, 1.0))
        self.threshold = float(np.quantile(self._ranked, self._kept)) if self._kept else KEEP_NONE


def offline_labels(offline: Outcomes) -> Iterator[LabelledExample]:
    """Turn the offline queries into labels as the service reads them, one a second, both models run."""
    u = offline.uncertainty
    for place in range(len(offline)):
        moment = START - timedelta(seconds=len(offline) - place)
        yield LabelledExample(
            query_id=f"offline-{place:06d}",
            workload=WORKLOAD,
            uncertainty=None if np.isnan(u[place]) else float(u[place]),
            small_exact=bool(offline.exact[place]),
            small=outcome_counts(offline.small_hits[place], offline.small_named[place]),
            large=outcome_counts(offline.large_hits[place], offline.large_named[place]),
            gold_count=int(offline.gold[place]),
            large_probability=1.0,
            label_probability=1.0,
            label_requested=True,
            reason="cold_start",
            agree=bool(offline.agree[place]),
            routed_at=moment,
            labelled_at=moment,
        )


def ours(judged: Judged, safety: float = SAFETY, kind: type[Service] = Service) -> Service:
    """Return the service's core, or a variant of it, at the start of a stream."""
    return kind(
        judged.target,
        safety,
        fields=PAIRS[judged.pair].fields,
        offline=offline_labels(judged.offline),
        labels=judged.stream.labels,
    )


def _clairvoyant(judged: Judged, kind: type[Clairvoyant] = Clairvoyant) -> Policy:
    policy = ours(judged, kind=kind)
    assert isinstance(policy, Clairvoyant)
    policy.foresee(judged.stream)
    return policy


def static(judged: Judged, margin: float = 0.0) -> Static:
    """Return the paper's static calibration, on a target that is higher by a margin."""
    return Static(static_threshold(judged.offline, judged.target + margin))


def _fixed_rate(judged: Judged) -> Policy:
    return FixedRate(judged.offline, static_threshold(judged.offline, judged.target))


ACI_MARGIN = 0.005


def _aci(judged: Judged) -> Policy:
    threshold = static_threshold(judged.offline, judged.target)
    return Aci(judged.offline, judged.target + ACI_MARGIN, threshold, judged.stream.labels)


class Entry(NamedTuple):
    """A policy's name in tables, and how it is made."""

    title: str
    make: Callable[[Judged], Policy]


ENTRIES = {
    "static": Entry("Static (the paper)", static),
    "fixed_rate": Entry("Fixed rate of escalation", _fixed_rate),
    "aci": Entry(f"ACI, margin {ACI_MARGIN}", _aci),
    "service": Entry("This project", ours),
    "service_strict": Entry("This project, safety 1", lambda judged: ours(judged, 1.0)),
    "candidate": Entry("Candidate for the core", lambda judged: OnAnswers(judged.target, judged.offline)),
    "candidate_strict": Entry(
        "Candidate, safety 1", lambda judged: OnAnswers(judged.target, judged.offline, safety=1.0)
    ),
    "clairvoyant": Entry("Clairvoyant", _clairvoyant),
    "reminded": Entry("Clairvoyant that remembers", lambda judged: _clairvoyant(judged, Reminded)),
}
HINDSIGHT = "static_hindsight"
