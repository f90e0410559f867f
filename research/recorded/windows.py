"""Policies that choose the threshold on a window of the last labels, each with its own idea of what they stand for.

All start from the offline labels, on which both models ran, and refit every 100 labels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from research.recorded.simulate import Routed
from research.recorded.stream import (
    EXPLORED,
    LABELLED_ESCALATED,
    LABELLED_KEPT,
    Floats,
    Mask,
    Outcomes,
)
from research.recorded.tokens import NO_LEVERS, Levers

WINDOW_QUERIES = 5_000
REFIT_EVERY = 100
CELLS = 40
KEEP_NONE, KEEP_ALL = -1.0, 1.0


def scores(outcomes: Outcomes, target: float) -> tuple[Floats, Floats]:
    """Return z of the small and of the large answer, shape (queries,).

    z = 2 TP - target (predicted + gold): its sum over the served answers is not negative exactly where micro-F1
    meets the target.
    """
    small = 2.0 * outcomes.small_hits - target * (outcomes.small_named + outcomes.gold)
    return small, 2.0 * outcomes.large_hits - target * (outcomes.large_named + outcomes.gold)


def largest_feasible(uncertainty: Floats, small: Floats, large: Floats) -> float:
    """Return the largest threshold on u with a sum of z that is not negative; keep none where there is none.

    ``uncertainty``, ``small``, ``large``: ndarray of float, shape (queries,); u and the (weighted) z of both answers.
    """
    order = np.argsort(uncertainty, kind="stable")
    total = large.sum() + np.concatenate(([0.0], np.cumsum((small - large)[order])))
    ranked = uncertainty[order]
    last_of_ties = np.concatenate(([True], np.append(ranked[1:] > ranked[:-1], True)))
    feasible = np.flatnonzero((total >= 0.0) & last_of_ties)
    if not len(feasible):
        return KEEP_NONE
    if feasible[-1] == len(ranked):
        return KEEP_ALL
    return float(ranked[feasible[-1] - 1]) if feasible[-1] else KEEP_NONE


class Static:
    """A threshold that stays: the paper's, chosen offline, or none at all.

    ``threshold``: on u. ``levers``: none by default.
    """

    exploration = 0.0

    def __init__(self, threshold: float, levers: Levers = NO_LEVERS) -> None:
        self.threshold, self.levers = threshold, levers

    def see(self, routed: Routed) -> None:
        """Look at nothing."""

    def learn(self, labelled: Routed) -> None:
        """Learn nothing."""


class Window(ABC):
    """The last labels, and a threshold chosen anew on them.

    ``offline``: fills the window at first; each counts as a label below the threshold with both models run. ``target``:
    micro-F1. ``start``: threshold until the first refit. ``window``: labels remembered. ``exploration``: share of the
    kept queries on which the large model runs as well.
    """

    levers = NO_LEVERS

    def __init__(
        self, offline: Outcomes, target: float, start: float, window: int = 4_000, exploration: float = EXPLORED
    ) -> None:
        known = offline.take(np.flatnonzero(~np.isnan(offline.uncertainty))[-window:])
        small, large = scores(known, target)
        count = len(known)
        weight = np.full(count, 1.0 / LABELLED_KEPT)
        self.exploration, self._window, self._target = exploration, window, target
        self._uncertainty, self._small, self._large = known.uncertainty, small, large
        self._small_weight, self._large_weight = weight, weight
        self._recent = known.uncertainty
        self._fresh = 0
        self.threshold = start

    def see(self, routed: Routed) -> None:
        """Remember u of the last queries."""
        known = routed.outcomes.uncertainty[~np.isnan(routed.outcomes.uncertainty)]
        self._recent = np.concatenate((self._recent, known))[-WINDOW_QUERIES:]

    def learn(self, labelled: Routed) -> None:
        """Put labels into the window; refit when enough are new."""
        part = labelled.take(np.flatnonzero(~np.isnan(labelled.outcomes.uncertainty)))
        small, large = scores(part.outcomes, self._target)
        ran = part.above | part.explored
        small_weight = 1.0 / np.where(part.above, LABELLED_ESCALATED, LABELLED_KEPT)
        # Exploration is drawn inside the label draw: an explored label was drawn with its probability.
        large_weight = np.where(ran, 1.0 / np.where(part.above, LABELLED_ESCALATED, self.exploration), 0.0)
        self._uncertainty = self._append(self._uncertainty, part.outcomes.uncertainty)
        self._small, self._large = self._append(self._small, small), self._append(self._large, large)
        self._small_weight = self._append(self._small_weight, small_weight)
        self._large_weight = self._append(self._large_weight, large_weight)
        self._fresh += len(part.rows)
        if self._fresh >= REFIT_EVERY:
            self._fresh = 0
            self.threshold = self._choose()

    def _append(self, held: Floats, values: Floats) -> Floats:
        return np.concatenate((held, values))[-self._window :]

    @abstractmethod
    def _choose(self) -> float:
        """Return the threshold that the window leads to."""

    @property
    def _pairs(self) -> Mask:
        return self._large_weight > 0.0


class NaiveRefit(Window):
    """Refits on the rows where both models ran, as if they were drawn at random."""

    def _choose(self) -> float:
        both = self._pairs
        return largest_feasible(self._uncertainty[both], self._small[both], self._large[both])


class InversePropensity(Window):
    """Weighs every label by one over the chance with which its outcome came to be known."""

    def _choose(self) -> float:
        return largest_feasible(self._uncertainty, self._small_weight * self._small, self._large_weight * self._large)


class PostStratified(Window):
    """Averages outcomes in cells of u and weighs the cells by the u of current traffic."""

    def _choose(self) -> float:
        edges = np.unique(np.quantile(self._recent, np.arange(1, CELLS) / CELLS))
        cell = np.searchsorted(edges, self._uncertainty)
        share = np.bincount(np.searchsorted(edges, self._recent), minlength=len(edges) + 1) / len(self._recent)
        both = self._pairs
        small = share * _cell_means(cell, self._small, len(share))
        large = share * _cell_means(cell[both], self._large[both], len(share))
        return largest_feasible(np.append(edges, KEEP_ALL), small, large)


def _cell_means(cell: np.ndarray, values: Floats, cells: int) -> Floats:
    """Return the mean of each cell; an empty one takes its neighbours', by linear interpolation."""
    count = np.bincount(cell, minlength=cells)
    filled = np.flatnonzero(count)
    means = np.bincount(cell, weights=values, minlength=cells)[filled] / count[filled]
    return np.interp(np.arange(cells), filled, means)
