"""How often corrections turn a label over, so that first labels can be compared with curves of labels as they stand.

Detectors see a query's first label, since they cannot wait for corrections; curves are fitted to labels as they stand.
Where people correct themselves, first labels hold other errors than standing ones, on a stationary stream too. So it is
estimated from the latest labels how often a first label says wrong of what will stand as right, and the other way
round; what a label is held against is moved by both shares.

Corrections come later than the slips that they mend, so the latest labels hold slips of which nobody knows yet. Taken
as they are, they would hide that people have begun to slip. As with late reports of diseases (Lawless, 1994), each
label counts by the share of corrections that come within its age, which the delays of former corrections tell.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from recalibrator.fit.arrays import Floats

_PRIOR_LABELS = 2.0
"""Never corrected, of each kind: a handful of labels must not make a share extreme."""

_LATEST_LABELS = 500
"""Labels that are remembered: what is corrected after as many others came is too late to say how people slip now."""

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


class _Label(NamedTuple):
    """One remembered label: its error at first and as it stands, and after how many others it was turned over."""

    first: float
    standing: float
    turned_after: float = 0.0


class Revisions:
    """The latest labels, by what they said first and what they say now.

    Parameters
    ----------
    half_life : float
        In labels, of what they count for.
    latest : int
        Labels remembered.

    Examples
    --------
    >>> revisions = Revisions(half_life=1e9)
    >>> for wrong in (1.0, 1.0, 0.0, 0.0):
    ...     revisions.first(wrong)
    >>> revisions.flips()
    Flips(to_right=0.0, to_wrong=0.0)
    >>> revisions.moved(serial=1, after=0.0)
    >>> 0.2 < revisions.flips().to_right < 0.3
    True
    """

    def __init__(self, half_life: float, latest: int = _LATEST_LABELS) -> None:
        self._half_life, self._kept = half_life, latest
        self._latest: dict[int, _Label] = {}
        self.serial = 0

    def first(self, error: float) -> None:
        """Take the first label of a query; it gets the next serial number."""
        self._latest[self.serial] = _Label(error, error)
        self.serial += 1
        if len(self._latest) > self._kept:
            del self._latest[next(iter(self._latest))]

    def moved(self, serial: float, after: float) -> None:
        """Take a correction: another error of a label stands now, unless it is the same."""
        label = self._latest.get(int(serial))
        if label is not None and label.standing != after:
            self._latest[int(serial)] = label._replace(standing=after, turned_after=float(self.serial - int(serial)))

    def withdrawn(self, serial: float) -> None:
        """Forget a label."""
        self._latest.pop(int(serial), None)

    def flips(self) -> Flips:
        """Return how first labels differ from what will stand.

        Notes
        -----
        Exactly 0 where none of the latest labels was corrected.
        """
        # Every refit asks, and mostly there is nothing to compute.
        if not any(label.first != label.standing for label in self._latest.values()):
            return Flips()
        first, standing, turned_after = np.array(list(self._latest.values()), dtype=np.float64).T
        slips = first != standing
        age = self.serial - np.fromiter(self._latest, np.float64)
        weight = 0.5 ** (age / self._half_life)
        # What was turned over is known to be a slip, however young it is.
        known = weight * np.where(slips, 1.0, 1.0 - np.exp(-age / turned_after[slips].mean()))
        stands = (standing == 0.0, standing == 1.0)
        return Flips(*(float(weight[slips & one].sum() / (known[one].sum() + _PRIOR_LABELS)) for one in stands))

    def state(self) -> list[object]:
        """Return everything as JSON values, exact."""
        return [self.serial, [[serial, *label] for serial, label in self._latest.items()]]

    def load(self, state: list[object]) -> None:
        """Take a former :meth:`state` back; former releases counted otherwise: of theirs, the latest labels alone."""
        *former, serial, latest = state
        assert isinstance(serial, int)
        assert isinstance(latest, list)
        self.serial = serial
        # They did not note when a label was turned over.
        self._latest = {
            number: _Label(label[-2], label[-1], 1.0) if former else _Label(*label) for number, *label in latest
        }
