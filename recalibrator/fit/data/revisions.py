"""How often corrections turn a label over, so that first labels can be compared with curves of labels as they stand.

Detectors see a query's first label, since they cannot wait for corrections; curves are fitted to labels as they stand.
Where people correct themselves, first labels hold other errors than standing ones, on a stationary stream too. So it is
estimated from the latest labels how often a first label says wrong of what will stand as right, and the other way
round; what a label is held against is moved by both shares.

Corrections come later than the slips they correct, so the latest labels hold slips of which nobody knows yet. Taken
as they are, they would hide that people have begun to slip. As with late reports of diseases (Lawless, 1994), each
label counts by the share of corrections that come within its age, which the delays of former corrections tell.

A withdrawal does not say whether its label was wrong. Who withdraws labels whatever they say leaves as many errors
among those that stand, in proportion. What is withdrawn beyond that proportion may be slips or may not: the chance that
a first label says wrong is known as a range.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from recalibrator.fit.arrays import Bytes, Floats
from recalibrator.fit.codec import Kept

_PRIOR_LABELS = 2.0
"""Never corrected, of each kind: a handful of labels must not make a share extreme."""

_LATEST_LABELS = 4_096
"""Labels that are remembered. Curves forget at a half-life of 4,000: what is corrected later, most of them hold as it
was said first, as detectors see it."""

_LATEST_DELAYS = 20
"""Corrections by which it is known how long they take."""

_UNKNOWN, _WITHDRAWN = 2, 3
"""No label stands: it was never seen; or it was withdrawn and had said right first, or (one above) wrong."""

Chance = TypeVar("Chance", float, Floats)


class Flips(NamedTuple):
    """How first labels differ from those that stand."""

    #: Share of the answers that stand as right which the first label called wrong.
    to_right: float = 0.0
    #: Share of those that stand as wrong which it called right.
    to_wrong: float = 0.0
    #: ``perhaps_right`` and ``perhaps_wrong``: of both, what comes on top where those withdrawn beyond proportion were
    #: slips.
    perhaps_right: float = 0.0
    perhaps_wrong: float = 0.0

    def first(self, error: Chance) -> Chance:
        """Return the chance that the first label says wrong, from the chance that wrong is what stands.

        Examples
        --------
        >>> Flips(to_right=0.1, to_wrong=0.2).first(0.5)
        0.45
        """
        return error * (1.0 - self.to_wrong) + (1.0 - error) * self.to_right

    def range(self, error: Chance) -> tuple[Chance, Chance]:
        """Return the least and the greatest that this chance may be, by what is withdrawn.

        Examples
        --------
        >>> Flips(perhaps_right=0.1).range(0.5)
        (0.5, 0.55)
        """
        first = self.first(error)
        return first - error * self.perhaps_wrong, first + (1.0 - error) * self.perhaps_right


class Revisions:
    """The latest labels, by what they said first and what they say now.

    Parameters
    ----------
    half_life : float
        In labels, of what they count for; where corrections take longer, as many labels as come meanwhile: nobody can
        know sooner how people slip.
    latest : int
        Labels remembered.

    Examples
    --------
    >>> revisions = Revisions(half_life=1e9)
    >>> for wrong in (1.0, 1.0, 0.0, 0.0):
    ...     revisions.first(wrong)
    >>> revisions.flips()
    Flips(to_right=0.0, to_wrong=0.0, perhaps_right=0.0, perhaps_wrong=0.0)
    >>> revisions.moved(serial=1, after=0.0)
    >>> 0.2 < revisions.flips().to_right < 0.3
    True
    """

    _standing: Kept[Bytes]
    _turned_after: Kept[Floats]
    _delays: Kept[list[float]]
    serial: Kept[int] = 0

    def __init__(self, half_life: float, latest: int = _LATEST_LABELS) -> None:
        self._half_life, self._kept = half_life, latest
        # A ring: the label of a serial number has its place by the remainder.
        self._standing = np.full(latest, _UNKNOWN, np.uint8)
        self._turned_after = np.zeros(latest)
        self._delays = []

    def first(self, error: float) -> None:
        """Take the first label of a query; it gets the next serial number."""
        place = self.serial % self._kept
        self._standing[place], self._turned_after[place] = error, 0.0
        self.serial += 1

    def moved(self, serial: float, after: float) -> None:
        """Take a correction: another error of a label stands now, unless it is the same."""
        number = int(serial)
        place, delay = number % self._kept, float(self.serial - number)
        if delay > self._kept or self._standing[place] >= _UNKNOWN or self._standing[place] == after:
            return
        # What was changed twice says again what it said first.
        self._turned_after[place] = 0.0 if self._turned_after[place] else delay
        self._standing[place] = after
        self._delays = [*self._delays, delay][-_LATEST_DELAYS:]

    def withdrawn(self, serial: float) -> None:
        """Take a withdrawal."""
        number = int(serial)
        place, delay = number % self._kept, float(self.serial - number)
        if delay <= self._kept and self._standing[place] < _UNKNOWN:
            self._standing[place] = _WITHDRAWN + (int(self._standing[place]) ^ bool(self._turned_after[place]))
            self._turned_after[place] = 0.0
            self._delays = [*self._delays, delay][-_LATEST_DELAYS:]

    def flips(self) -> Flips:
        """Return how first labels differ from what will stand.

        Notes
        -----
        Exactly 0 where none of the latest labels was corrected or withdrawn.
        """
        slips = self._turned_after > 0.0
        # Every refit asks, and mostly there is nothing to compute.
        if not (slips.any() or (self._standing >= _WITHDRAWN).any()):
            return Flips()
        delay = sum(self._delays) / len(self._delays)
        latest = self.serial - 1
        age = (latest - np.arange(self._kept)) % self._kept + 1.0
        weight = 0.5 ** (age / max(self._half_life, delay))
        # What was changed is known to be a slip, however young it is.
        known = weight * np.where(slips, 1.0, 1.0 - np.exp(-age / delay))
        stand = [float(known[self._standing == one].sum()) + _PRIOR_LABELS for one in range(_UNKNOWN)]
        slipped = [float(weight[slips & (self._standing == one)].sum()) for one in range(_UNKNOWN)]
        gone = [float(weight[self._standing == _WITHDRAWN + one].sum()) for one in range(_UNKNOWN)]
        # Those that said right first may have been slips about wrong answers, and the other way round.
        perhaps = [max(0.0, gone[1 - one] - gone[one] * stand[1 - one] / stand[one]) for one in range(_UNKNOWN)]
        return Flips(
            *(slip / all_of for slip, all_of in zip(slipped, stand, strict=True)),
            *(slip / (slip + all_of) for slip, all_of in zip(perhaps, stand, strict=True)),
        )
