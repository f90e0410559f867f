"""How often corrections turn a label over, so that first labels can be compared with curves of labels as they stand.

Detectors see a query's first label, since they cannot wait for corrections; curves are fitted to labels as they stand.
Where labelers correct themselves, first labels hold other errors than standing ones, on a stationary stream too. So it
is counted, over the labels that the curves rest on, how often a first label said wrong of what stands as right, and the
other way round; what a first label is held against is moved by both shares.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple, TypeVar

from recalibrator.fit.arrays import Floats

_PRIOR_LABELS = 2.0
"""Never corrected, of each kind: a handful of labels must not make a share extreme."""

_SETTLED_LABELS = 500
"""Labels that come after one before it counts as settled: the latest are not corrected yet, if they ever will be."""

_RESCALED_AT = 1e100
"""Far from the largest float."""

Chance = TypeVar("Chance", float, Floats)


class Flips(NamedTuple):
    """How first labels differ from those that stand.

    Parameters
    ----------
    to_right : float
        Share of the answers that stand as right which the first label called wrong.
    to_wrong : float
        Share of those that stand as wrong which it called right.
    """

    to_right: float = 0.0
    to_wrong: float = 0.0

    def first(self, error: Chance) -> Chance:
        """Return the chance that the first label says wrong, from the chance that wrong is what stands.

        Examples
        --------
        >>> Flips(to_right=0.1, to_wrong=0.2).first(0.5)
        0.45
        """
        return error * (1.0 - self.to_wrong) + (1.0 - error) * self.to_right


class _Counts:
    """Labels, errors by first labels, by standing labels, and by both."""

    def __init__(self, labels: float = 0.0, first: float = 0.0, standing: float = 0.0, both: float = 0.0) -> None:
        self.labels, self.first, self.standing, self.both = labels, first, standing, both

    def add(self, first: float, standing: float, weight: float = 1.0) -> None:
        """Count one label; with a negative weight, take it out."""
        self.labels += weight
        self.first += weight * first
        self.standing += weight * standing
        self.both += weight * first * standing

    def move(self, first: float, change: float, weight: float = 1.0) -> None:
        """Let another error stand for a label that is counted."""
        self.standing += weight * change
        self.both += weight * first * change

    def scaled(self, factor: float) -> _Counts:
        """Return all counts times a factor, none below 0."""
        return _Counts(*(max(0.0, count * factor) for count in self.all))

    def plus(self, other: _Counts) -> _Counts:
        """Return the sums of both."""
        return _Counts(*(one + another for one, another in zip(self.all, other.all, strict=True)))

    @property
    def all(self) -> tuple[float, float, float, float]:
        """The four counts."""
        return self.labels, self.first, self.standing, self.both

    @property
    def flips(self) -> Flips:
        """What they say, as if a few labels more had never been corrected."""
        to_right, to_wrong = max(0.0, self.first - self.both), max(0.0, self.standing - self.both)
        right = max(to_right, self.labels - self.standing)
        return Flips(to_right / (right + _PRIOR_LABELS), to_wrong / (self.standing + _PRIOR_LABELS))


class Revisions:
    """Decayed counts of errors by first and by standing labels.

    Parameters
    ----------
    half_life : float
        In labels, of the counts.
    settled : int
        Labels that come after one before it counts as settled.

    Examples
    --------
    >>> revisions = Revisions(half_life=1e9, settled=0)
    >>> for wrong in (1.0, 1.0, 0.0, 0.0):
    ...     revisions.first(wrong)
    >>> revisions.flips()
    Flips(to_right=0.0, to_wrong=0.0)
    >>> revisions.moved(serial=1, first=1.0, before=1.0, after=0.0)
    >>> round(revisions.flips().to_right, 2)
    0.2
    """

    def __init__(self, half_life: float, settled: int = _SETTLED_LABELS) -> None:
        self._half_life, self._settled_after = half_life, settled
        self._growth = 2.0 ** (1.0 / half_life)
        # Errors are 0 or 1 and the latest are not weighted: their counts are exact, in whatever order they change.
        self._waiting: dict[int, list[float]] = {}
        self._latest, self._settled = _Counts(), _Counts()
        self._scale = 1.0
        self.serial = 0

    def first(self, error: float) -> None:
        """Take the first label of a query; it gets the next serial number."""
        self._waiting[self.serial] = [error, error]
        self._latest.add(error, error)
        self.serial += 1
        if len(self._waiting) > self._settled_after:
            self._settle(*self._stop_waiting(next(iter(self._waiting))))

    def _stop_waiting(self, serial: int) -> tuple[float, float]:
        first, standing = self._waiting.pop(serial)
        self._latest.add(first, standing, -1.0)
        return first, standing

    def _settle(self, first: float, standing: float) -> None:
        # Weights grow instead of all sums decaying: one label costs a few additions.
        self._scale *= self._growth
        self._settled.add(first, standing, self._scale)
        if self._scale > _RESCALED_AT:
            self._settled = self._settled.scaled(1.0 / self._scale)
            self._scale = 1.0

    def moved(self, serial: float, first: float, before: float, after: float) -> None:
        """Take a correction: the standing error of a label was one thing and is another."""
        waiting = self._waiting.get(int(serial))
        if waiting is not None:
            self._latest.move(first, after - waiting[1])
            waiting[1] = after
        elif before != after:
            self._settled.move(first, after - before, self._weight(serial))

    def withdrawn(self, serial: float, first: float, standing: float) -> None:
        """Take a label out of the counts."""
        if int(serial) in self._waiting:
            self._stop_waiting(int(serial))
        else:
            self._settled.add(first, standing, -self._weight(serial))

    def flips(self, in_curves: float = inf) -> Flips:
        """Return how first labels differ from what the curves hold.

        Parameters
        ----------
        in_curves : float
            Effective labels behind the curves. Among them are the latest, most of which have not been corrected yet:
            they differ less from what stands. By default none of these is.

        Notes
        -----
        Exactly 0 where nothing was ever corrected.
        """
        settled, latest = self._settled.scaled(1.0 / self._scale), self._latest
        older = max(0.0, in_curves - latest.labels)
        # Weighted as in the curves, but neither counts for more labels than there were.
        if older <= settled.labels:
            return settled.scaled(older / settled.labels if older else 0.0).plus(latest).flips
        return settled.plus(latest.scaled(settled.labels / older)).flips

    def _weight(self, serial: float) -> float:
        weight: float = self._scale * 2.0 ** (
            -max(0.0, self.serial - len(self._waiting) - 1 - serial) / self._half_life
        )
        return weight

    def state(self) -> list[object]:
        """Return everything as JSON values, exact."""
        waiting = [[serial, *label] for serial, label in self._waiting.items()]
        return [list(self._settled.all), self._scale, self.serial, waiting]

    def load(self, state: list[object]) -> None:
        """Take a former :meth:`state` back; former releases counted otherwise: of theirs, the latest labels alone."""
        *counted, scale, serial, waiting = state
        assert isinstance(waiting, list)
        assert isinstance(scale, float)
        assert isinstance(serial, int)
        is_former = len(counted) > 1
        counts = counted[0]
        assert isinstance(counts, list)
        self._settled = _Counts() if is_former else _Counts(*counts)
        self._scale, self.serial = scale, serial
        self._waiting = {number: label[-2:] for number, *label in waiting}
        self._latest = _Counts()
        for first, standing in self._waiting.values():
            self._latest.add(first, standing)
