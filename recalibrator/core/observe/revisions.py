"""How much later corrections change what first labels say, so that like can be compared with like.

Detectors see a query's first label, since they cannot wait for corrections; curves are fitted to labels as they stand.
Where labelers correct themselves, first labels hold more errors (or fewer) than standing ones, on a stationary stream
too. Both are therefore counted over the same labels, with the weights of the curves, and what a first label is held
against is moved by the ratio of their odds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_PRIOR_LABELS = 1.0
"""Of either outcome: a handful of labels must not make the ratio extreme."""


class Revisions:
    """Decayed counts of errors by first and by standing labels, for each relation of the two models' answers.

    Parameters
    ----------
    relations : int
    half_life : float
        In labels; that of the curves.

    Examples
    --------
    >>> revisions = Revisions(relations=1, half_life=1e9)
    >>> for wrong in (1.0, 1.0, 0.0, 0.0):
    ...     revisions.first(0, wrong)
    >>> float(revisions.odds()[0])
    1.0
    >>> revisions.moved(0, serial=1, before=1.0, after=0.0)
    >>> round(float(revisions.odds()[0]), 2)
    2.0
    """

    def __init__(self, relations: int, half_life: float) -> None:
        self._half_life = half_life
        self._labels, self._first, self._standing = ([0.0] * relations for _ in range(3))
        self._scale = 1.0
        self.serial = 0

    def first(self, relation: int, error: float) -> None:
        """Take the first label of a query; it gets the next serial number."""
        # Weights grow instead of all sums decaying: one label costs a few additions.
        self._scale *= 2.0 ** (1.0 / self._half_life)
        self._labels[relation] += self._scale
        self._first[relation] += self._scale * error
        self._standing[relation] += self._scale * error
        self.serial += 1
        if self._scale > 1e100:  # noqa: PLR2004 far from the largest float
            self._rescale()

    def moved(self, relation: int, serial: float, before: float, after: float) -> None:
        """Take a correction: the standing error of a label was one thing and is another."""
        if before != after:
            self._standing[relation] += self._weight(serial) * (after - before)

    def withdrawn(self, relation: int, serial: float, first: float, standing: float) -> None:
        """Take a label out of both counts."""
        weight = self._weight(serial)
        self._labels[relation] -= weight
        self._first[relation] -= weight * first
        self._standing[relation] -= weight * standing

    def odds(self) -> Floats:
        """Return odds of an error by first labels over those by standing ones, shape (relations,); 1: no difference."""
        ratios = []
        for labels, first, standing in zip(self._labels, self._first, self._standing, strict=True):
            prior = _PRIOR_LABELS * self._scale
            wrong, right = first + prior, max(labels - first, 0.0) + prior
            stand_wrong, stand_right = max(standing, 0.0) + prior, max(labels - standing, 0.0) + prior
            ratios.append((wrong / right) / (stand_wrong / stand_right))
        return np.array(ratios)

    def overall(self) -> float:
        """Return the same over all relations."""
        prior = _PRIOR_LABELS * self._scale
        labels, first, standing = sum(self._labels), sum(self._first), max(sum(self._standing), 0.0)
        before = (first + prior) / (max(labels - first, 0.0) + prior)
        return before / ((standing + prior) / (max(labels - standing, 0.0) + prior))

    def _weight(self, serial: float) -> float:
        weight: float = self._scale * 2.0 ** (-max(0.0, self.serial - 1 - serial) / self._half_life)
        return weight

    def _rescale(self) -> None:
        for sums in (self._labels, self._first, self._standing):
            sums[:] = [value / self._scale for value in sums]
        self._scale = 1.0

    def state(self) -> list[object]:
        """Return everything as JSON values, exact."""
        return [self._labels, self._first, self._standing, self._scale, self.serial]

    def load(self, state: list[object]) -> None:
        """Take a former :meth:`state` back."""
        labels, first, standing, scale, serial = state
        assert isinstance(labels, list)
        assert isinstance(first, list)
        assert isinstance(standing, list)
        assert isinstance(scale, float)
        assert isinstance(serial, int)
        self._labels, self._first, self._standing = list(labels), list(first), list(standing)
        self._scale, self.serial = scale, serial


def multiplied(chance: Floats, odds: Floats) -> Floats:
    """Return chances whose odds are multiplied.

    Examples
    --------
    >>> multiplied(np.array([0.5, 0.2]), np.array([1.0, 4.0])).tolist()
    [0.5, 0.5]
    """
    scaled = chance * odds
    moved: Floats = scaled / (1.0 - chance + scaled)
    return moved
