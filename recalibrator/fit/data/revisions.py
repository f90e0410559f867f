"""How much later corrections change what first labels say, so that like can be compared with like.

Detectors see a query's first label, since they cannot wait for corrections; curves are fitted to labels as they stand.
Where labelers correct themselves, first labels hold more errors (or fewer) than standing ones, on a stationary stream
too. Both are therefore counted over the same labels, those that have had time to be corrected, and what a first label
is held against is moved by the ratio of their odds.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from recalibrator.fit.arrays import Floats

_PRIOR_LABELS = 2.0
"""Never corrected, with as many errors as the latest labels: a handful of labels must not make the ratio extreme."""

_SETTLED_LABELS = 500
"""Labels that come after one before it counts here: the latest have not been corrected yet, if they ever will be."""


class _Counts:
    """Labels, errors by first and errors by standing labels, each by relation."""

    def __init__(self, relations: int) -> None:
        self.labels, self.first, self.standing = ([0.0] * relations for _ in range(3))

    def add(self, relation: int, first: float, standing: float, weight: float = 1.0) -> None:
        """Count one label; with a negative weight, take it out."""
        self.labels[relation] += weight
        self.first[relation] += weight * first
        self.standing[relation] += weight * standing

    def rescale(self, scale: float) -> None:
        """Divide all counts."""
        self.labels, self.first, self.standing = ([value / scale for value in row] for row in self.rows)

    @property
    def rows(self) -> tuple[list[float], list[float], list[float]]:
        """Labels, first errors and standing errors."""
        return self.labels, self.first, self.standing


class Revisions:
    """Decayed counts of errors by first and by standing labels, for each relation of the two models' answers.

    Parameters
    ----------
    relations : int
    half_life : float
        In labels, of the counts.
    settled : int
        Labels that come after one before it counts.

    Examples
    --------
    >>> revisions = Revisions(relations=1, half_life=1e9, settled=0)
    >>> for wrong in (1.0, 1.0, 0.0, 0.0):
    ...     revisions.first(0, wrong)
    >>> float(revisions.odds()[0])
    1.0
    >>> revisions.moved(0, serial=1, before=1.0, after=0.0)
    >>> round(float(revisions.odds()[0]), 2)
    2.0
    """

    def __init__(self, relations: int, half_life: float, settled: int = _SETTLED_LABELS) -> None:
        self._half_life, self._settled, self._relations = half_life, settled, relations
        self._growth = 2.0 ** (1.0 / half_life)
        # Errors are 0 or 1 and the latest are not weighted: their counts are exact, in whatever order they change.
        self._waiting: dict[int, list[float]] = {}
        self._latest, self._counted = _Counts(relations), _Counts(relations)
        self._scale = 1.0
        self.serial = 0

    def first(self, relation: int, error: float) -> None:
        """Take the first label of a query; it gets the next serial number."""
        self._waiting[self.serial] = [relation, error, error]
        self._latest.add(relation, error, error)
        self.serial += 1
        if len(self._waiting) > self._settled:
            self._settle(*self._stop_waiting(next(iter(self._waiting))))

    def _stop_waiting(self, serial: int) -> tuple[int, float, float]:
        relation, first, standing = self._waiting.pop(serial)
        self._latest.add(int(relation), first, standing, -1.0)
        return int(relation), first, standing

    def _settle(self, relation: int, first: float, standing: float) -> None:
        # Weights grow instead of all sums decaying: one label costs a few additions.
        self._scale *= self._growth
        self._counted.add(relation, first, standing, self._scale)
        if self._scale > 1e100:  # noqa: PLR2004 far from the largest float
            self._counted.rescale(self._scale)
            self._scale = 1.0

    def moved(self, relation: int, serial: float, before: float, after: float) -> None:
        """Take a correction: the standing error of a label was one thing and is another."""
        waiting = self._waiting.get(int(serial))
        if waiting is not None:
            self._latest.standing[int(waiting[0])] += after - waiting[2]
            waiting[2] = after
        elif before != after:
            self._counted.standing[relation] += self._weight(serial) * (after - before)

    def withdrawn(self, relation: int, serial: float, first: float, standing: float) -> None:
        """Take a label out of both counts."""
        if int(serial) in self._waiting:
            self._stop_waiting(int(serial))
        else:
            self._counted.add(relation, first, standing, -self._weight(serial))

    def odds(self, in_curves: float = float("inf")) -> Floats:
        """Return by what to multiply the curves' odds of an error to get those of first labels, shape (relations,).

        Parameters
        ----------
        in_curves : float
            Effective labels behind the curves.

        Notes
        -----
        Exactly 1 where nothing was ever corrected. The curves rest on the latest labels too, most of which have not
        been corrected yet: what these are expected to lose by it is taken out as well.
        """
        counts = zip(zip(*self._counted.rows, strict=True), zip(*self._latest.rows, strict=True), strict=True)
        return np.array([self._ratio(settled, latest, in_curves) for settled, latest in counts])

    def overall(self, in_curves: float = float("inf")) -> float:
        """Return the same over all relations; see :meth:`odds`."""
        settled, latest = (tuple(map(sum, counts.rows)) for counts in (self._counted, self._latest))
        return self._ratio(settled, latest, in_curves)

    def _ratio(self, settled: Iterable[float], latest: Iterable[float], in_curves: float) -> float:
        # A few numbers: plain arithmetic takes a fifth of what arrays do.
        labels, first, standing = (max(count, 0.0) / self._scale for count in settled)
        recent, recent_first, recent_standing = latest
        # The same share of errors takes another factor on the odds where errors are rare: they are not taken for half.
        usual = _PRIOR_LABELS * (recent_first + 1.0) / (recent + 2.0)
        labels, first, standing = labels + _PRIOR_LABELS, first + usual, standing + usual
        wrong_first, wrong = first / labels, standing / labels
        # Of the latest labels: the standing errors beyond those that will stand once all are corrected.
        uncorrected = (recent_standing - recent_first * (wrong / wrong_first)) / max(recent, 1.0)
        share = min(1.0, len(self._waiting) / max(in_curves, 1.0))
        held = min(max(wrong + share * uncorrected, 1e-6), 1.0 - 1e-6)
        return (wrong_first / (1.0 - wrong_first)) / (held / (1.0 - held))

    def _weight(self, serial: float) -> float:
        weight: float = self._scale * 2.0 ** (
            -max(0.0, self.serial - len(self._waiting) - 1 - serial) / self._half_life
        )
        return weight

    def state(self) -> list[object]:
        """Return everything as JSON values, exact."""
        waiting = [[serial, *label] for serial, label in self._waiting.items()]
        return [*self._counted.rows, self._scale, self.serial, waiting]

    def load(self, state: list[object]) -> None:
        """Take a former :meth:`state` back."""
        labels, first, standing, scale, serial, waiting = state
        assert isinstance(waiting, list)
        assert isinstance(labels, list)
        assert isinstance(first, list)
        assert isinstance(standing, list)
        assert isinstance(scale, float)
        assert isinstance(serial, int)
        self._counted.labels, self._counted.first, self._counted.standing = list(labels), list(first), list(standing)
        self._scale, self.serial = scale, serial
        self._waiting = {number: label for number, *label in waiting}
        self._latest = _Counts(self._relations)
        for relation, first_error, standing_error in self._waiting.values():
            self._latest.add(int(relation), first_error, standing_error)
