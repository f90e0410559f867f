"""How wrong labels are for a while: slips that are corrected later, and those of a careless crowd, which are not."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np

from recalibrator.fit.codec import Bytes, Floats, Kept
from recalibrator.fit.data import label_columns as at
from recalibrator.fit.data.label_columns import Standing

_LEAST_TRUE = 0.02
"""Of the faults that the crowd reports where answers differ: some are always true."""


class Slips(NamedTuple):
    """What a careless crowd's labels count for, between which routing times.

    A share c of the labels says of anything that it is wrong (or, where they flatter, that it is right). Which ones
    nobody knows, but of an outcome that the crowd reports with probability x, and true labels with probability r, each
    label is worth r / x of one: a posterior, no verdict (importance weights; Horvitz and Thompson, 1952).
    """

    began_us: int
    #: None: they still do.
    ended_us: int | None
    #: Whether slips report errors, rather than hide them.
    too_many: bool
    #: Shape (cells,): c(u).
    share: Floats
    #: Shape (3, cells): r(u) by relation: one model answered, the answers differ, they are equal.
    error: Floats

    def covers(self, routed_us: Any) -> Any:
        """Whether queries that were routed then are labelled so."""
        return (routed_us >= self.began_us) & (routed_us < (np.inf if self.ended_us is None else self.ended_us))

    @property
    def reported(self) -> Floats:
        """P(the label says wrong), shape (3, cells)."""
        error, share = self.error, self.share
        return np.asarray(error + share * (1.0 - error) if self.too_many else error * (1.0 - share))

    def truth(self, group: int, error: float) -> float:
        """Return the probability that the small answer of a group is wrong, its label being what it is."""
        true, said = self.error.item(group), self.reported.item(group)
        if self.too_many:
            return error * true / said
        return 1.0 - (1.0 - error) * (1.0 - true) / (1.0 - said)

    def weights(self, table: Floats) -> Floats:
        """Return what each label is worth, shape (labels,): 1 where nothing slips."""
        cells, found = len(self.share), np.ones(len(table))
        standing, group = table[:, at.STANDING], table[:, at.GROUP].astype(np.intp)
        # What somebody has since corrected is no slip.
        crowd = ((standing == Standing.COUNTED) | (standing == Standing.ANSWERED)) & (table[:, at.REVISION] <= 1.0)
        rows = np.flatnonzero(crowd & self.covers(table[:, at.ROUTED_US]) & (group < 3 * cells))
        group, wrong = group[rows], table[rows, at.ERROR] > 0.0
        true, said = self.error.reshape(-1)[group], self.reported.reshape(-1)[group]
        found[rows] = np.where(wrong, true / said, (1.0 - true) / (1.0 - said))
        # Where the answers differ, one of them is wrong anyhow: a slip shows by both being so.
        apart = (group >= cells) & (group < 2 * cells)
        if self.too_many and apart.any():
            both = wrong[apart] & (table[rows[apart], at.HITS_LARGE] < table[rows[apart], at.SIZE_LARGE])
            said_both, slip = float(both.mean()), float(self.share[group[apart] - cells].mean())
            true_both = max(_LEAST_TRUE * said_both, (said_both - slip) / (1.0 - slip))
            if 0.0 < said_both < 1.0:
                found[rows[apart]] = np.where(both, true_both / said_both, (1.0 - true_both) / (1.0 - said_both))
        return found


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
    """How often corrections turn a label over: the latest labels, by what they said first and what they say now.

    Detectors see a query's first label, since they cannot wait for corrections; curves are fitted to labels as they
    stand. Where people correct themselves, first labels hold other errors than standing ones, on a stationary stream
    too: what a label is held against is moved by how often a first label says wrong of what will stand as right, and
    the other way round.

    Corrections come later than the slips they correct, so the latest labels hold slips of which nobody knows yet. Taken
    as they are, they would hide that people have begun to slip. As with late reports of diseases (Lawless, 1994), each
    label counts by the share of corrections that come within its age, which the delays of former corrections tell.

    A withdrawal does not say whether its label was wrong. Who withdraws labels whatever they say leaves as many errors
    among those that stand, in proportion. What is withdrawn beyond that proportion may be slips or may not: the chance
    that a first label says wrong is known as a range.

    What they count for has a ``half_life``, in labels; where corrections take longer, as many labels as come meanwhile:
    nobody can know sooner how people slip. ``latest`` is how many labels are remembered.

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

    def moved(self, serial: float, after: float | None) -> None:
        """Take a correction: another error of a label stands now, unless it is the same; None where it is withdrawn."""
        number = int(serial)
        place, delay = number % self._kept, float(self.serial - number)
        before, is_turned = int(self._standing[place]), bool(self._turned_after[place])
        if delay > self._kept or before >= _UNKNOWN or before == after:
            return
        # What was changed twice says again what it said first.
        self._turned_after[place] = 0.0 if is_turned or after is None else delay
        self._standing[place] = _WITHDRAWN + (before ^ is_turned) if after is None else after
        self._delays = [*self._delays, delay][-_LATEST_DELAYS:]

    def flips(self) -> Flips:
        """Return how first labels differ from what will stand; exactly 0 if none was corrected or withdrawn lately."""
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
