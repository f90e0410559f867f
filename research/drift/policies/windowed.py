"""Rivals that estimate F(t) = E[z of what is served] on a window of labels and take the largest t with F(t) ≥ 0.

z = 2·TP - τ·(predicted + gold) makes the target on micro-F1 a mean. They differ in how a label is weighted: not at
all (naive), by inverse propensity, or within strata of u that are weighted by the current traffic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.drift.mess import EXPLORED
from research.drift.oracle import TARGET
from research.drift.policies.memory import LabelMemory, TrafficMemory
from research.drift.simulate import Alarm, Bools, Labels, Traffic

Floats = NDArray[np.float64]

REFIT_QUERIES = 500
_ESCALATE_ALL = -1.0
_LEAST_LABELS = 250


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of labelled queries at one target, shape (labels,) each; ``large`` is 0 where it did not run."""

    small: Floats
    large: Floats

    @classmethod
    def of(cls, labels: Labels, target: float) -> Scores:
        """Return z of both answers; each predicts as many pairs as there are gold ones."""
        large = 2.0 * (labels.large - target * labels.gold)
        return cls(2.0 * (labels.small - target * labels.gold), np.where(labels.large_ran, large, 0.0))


def scan(u: Floats, kept: Floats, escalated: Floats) -> float:
    """Return the largest threshold at which what is kept and what is escalated add up to at least 0.

    ``u``: ndarray, shape (rows,). ``kept``, ``escalated``: ndarray, shape (rows,); weighted scores of a row when it is
    kept, and when it escalates.

    Returns one of ``u``, or -1 when only escalating all comes near; where nothing reaches 0, the best there is.

    Examples
    --------
    >>> scan(np.array([0.1, 0.2, 0.3]), np.array([1.0, -0.5, -2.0]), np.array([1.0, 1.0, 0.5]))
    0.2
    """
    order = np.argsort(u, kind="stable")
    below = np.concatenate(([0.0], np.cumsum(kept[order])))
    above = escalated.sum() - np.concatenate(([0.0], np.cumsum(escalated[order])))
    value = below + above
    met = np.flatnonzero(value >= 0.0)
    best = int(met[-1]) if len(met) else int(np.argmax(value))
    return _ESCALATE_ALL if best == 0 else float(u[order[best - 1]])


class Windowed(ABC):
    """What these rivals share: a window, a threshold, a refit every few hundred queries.

    ``margin``: added to the target. ``window``: labels remembered.
    """

    def __init__(self, margin: float = 0.0, window: int = 4_000) -> None:
        self.exploration, self.audit = EXPLORED, 0.0
        self.version = 0
        self.alarms: list[Alarm] = []
        self.threshold = _ESCALATE_ALL
        self._target = TARGET + margin
        self._labels, self._traffic = LabelMemory(window), TrafficMemory()
        self._since_refit = 0

    def start(self, labels: Labels) -> None:
        """Fit on the labelled set."""
        self._labels.add(labels)
        self._traffic.start(labels.u)
        self._refit()

    def escalates(self, u: Floats) -> Bools:
        """Escalate u above the threshold."""
        return u > self.threshold

    def error_probability(self, u: Floats) -> Floats | None:
        """Hold no map."""
        del u

    def on_traffic(self, traffic: Traffic) -> None:
        """Remember u, and refit when it is time."""
        self._traffic.add(traffic)
        self._since_refit += len(traffic.u)
        if self._since_refit >= REFIT_QUERIES:
            self._since_refit = 0
            self._refit()

    def on_labels(self, labels: Labels) -> None:
        """Remember them."""
        self._labels.add(labels)

    def _refit(self) -> None:
        self.threshold = self._fit(self._labels.latest)
        self.version += 1

    @abstractmethod
    def _fit(self, labels: Labels) -> float:
        """Return the threshold that these labels lead to."""


class Naive(Windowed):
    """Refit on the rows where both models ran, as if they were all there is."""

    def _fit(self, labels: Labels) -> float:
        ran = labels.large_ran
        if np.count_nonzero(ran) < _LEAST_LABELS:
            return self.threshold
        scores = Scores.of(labels, self._target)
        return scan(labels.u[ran], scores.small[ran], scores.large[ran])


class InversePropensity(Windowed):
    """Weigh each labelled answer by one over its probability of having been seen (Horvitz and Thompson, 1952)."""

    def _fit(self, labels: Labels) -> float:
        scores = Scores.of(labels, self._target)
        pairs = labels.large_ran / np.maximum(labels.pair_probability, 1e-3)
        return scan(labels.u, scores.small / labels.probability, scores.large * pairs)


class PostStratified(Windowed):
    """Average within strata of u, weigh the strata by the current traffic.

    ``margin``, ``window``: as in :class:`Windowed`. ``half_life``: labels after which a label counts half; without it
    all in the window count alike.
    """

    def __init__(
        self, margin: float = 0.0, window: int = 4_000, half_life: float | None = None, strata: int = 40
    ) -> None:
        self._half_life, self._strata = half_life, strata
        super().__init__(margin, window)

    def _fit(self, labels: Labels) -> float:
        scores, queries = Scores.of(labels, self._target), len(labels.u)
        age = np.arange(queries, 0, -1)
        weight = np.ones(queries) if self._half_life is None else np.exp2(-age / self._half_life)
        edges = np.unique(np.quantile(self._traffic.u, np.linspace(0.0, 1.0, self._strata + 1)[1:]))
        share = np.bincount(np.searchsorted(edges[:-1], self._traffic.u), minlength=len(edges)).astype(np.float64)
        stratum = np.searchsorted(edges[:-1], labels.u)
        small = _means(stratum, weight, scores.small, len(edges))
        large = _means(stratum, weight * labels.large_ran, scores.large, len(edges))
        return scan(edges, share * small, share * large)


def _means(stratum: NDArray[np.intp], weight: Floats, value: Floats, strata: int) -> Floats:
    """Return the weighted mean by stratum; empty ones take what lies between their neighbours."""
    mass = np.bincount(stratum, weight, strata)
    total = np.bincount(stratum, weight * value, strata)
    filled = np.flatnonzero(mass > 0.0)
    return np.asarray(np.interp(np.arange(strata), filled, total[filled] / mass[filled]))


class AdaptiveConformal(Windowed):
    """Move the kept share of traffic by each served label's score (Gibbs and Candès, 2021).

    ``margin``: as in :class:`Windowed`. ``step``: kept share by which a label whose score is one mean size of an answer
    moves it.
    """

    def __init__(self, margin: float = 0.0, step: float = 0.002) -> None:
        self._step = step
        self._kept = 0.0
        super().__init__(margin)

    def _fit(self, labels: Labels) -> float:
        scores = Scores.of(labels, self._target)
        threshold = scan(labels.u, scores.small, scores.large)
        self._kept = float(np.mean(self._traffic.u <= threshold))
        return threshold

    def _refit(self) -> None:
        if self.version == 0:
            super()._refit()

    def on_labels(self, labels: Labels) -> None:
        """Step up or down; labels weigh by inverse propensity."""
        scores = Scores.of(labels, self._target)
        # Explored queries are labelled far more often than they are served: they stand for kept ones here.
        served = np.where(labels.escalated, scores.large, scores.small)
        size = 2.0 * max(float(labels.gold.mean()), 0.5)
        push = float((served / labels.probability).sum() / np.mean(1.0 / labels.probability)) / size
        self._kept = float(np.clip(self._kept + self._step * push, 0.0, 1.0))
        self.threshold = float(np.quantile(self._traffic.u, self._kept)) if self._kept > 0.0 else _ESCALATE_ALL
        self.version += 1
