"""The rival: river's detectors on the same series, in place of the evidence by which the product says that one moved.

Each category of each series has a detector of its own. ADWIN sees one input a query: 1 where the query
is of the category, else 0, those of a summary in a drawn order, since a summary holds counts. KSWIN, which takes a
thousand times as long for an input, sees the category's share of each summary. Everything else is the product's: the
counts, which changes are material, when one began, the order of what is named, its segment, and what it explains.

ADWIN bounds the probability of a false alarm by ``delta``, KSWIN that of one look by ``alpha``. Over several series
river corrects neither: both are divided by the number of detectors here (Bonferroni), and ADWIN stands there with
river's own default as well.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from river import drift

from recalibrator.fit.arrays import Bools
from recalibrator.fit.movement.causes import Compared, material, named_traits
from recalibrator.fit.movement.dispersion import dispersion
from recalibrator.fit.movement.evidence import log_bayes_factor
from recalibrator.fit.movement.monitor import MovementMonitor
from recalibrator.fit.movement.series_table import CATEGORIES
from schemas.movement import MovedTrait
from schemas.traffic import TrafficSummary

DETECTORS = 400
"""By which a bound on false alarms is divided: about as many categories as the benchmark's series have."""

_LEAST_BEFORE, _LEAST_BLOCKS = 200, 8


@dataclass(frozen=True, slots=True)
class Rival:
    """One of river's detectors as configured.

    Parameters
    ----------
    name : str
    build : callable
        Returns a fresh detector.
    by_summary : bool
        Whether it sees shares of summaries rather than queries one by one.
    """

    name: str
    build: Callable[[], Any]
    by_summary: bool = False


RIVALS = (
    Rival("river ADWIN, delta .002", lambda: drift.ADWIN(delta=0.002)),
    Rival(f"river ADWIN, delta .04 / {DETECTORS}", lambda: drift.ADWIN(delta=0.04 / DETECTORS)),
    Rival(
        f"river KSWIN, alpha .005 / {DETECTORS}",
        lambda: drift.KSWIN(alpha=0.005 / DETECTORS, seed=1),
        by_summary=True,
    ),
)
"""``.04`` is the false share that the product's own bound allows by 100,000 queries."""


class RiverMonitor(MovementMonitor):
    """The product's monitors with a detector of river's for each category of each series.

    Parameters
    ----------
    rival : Rival
    """

    def __init__(self, rival: Rival) -> None:
        self._rival = rival
        self._rng = np.random.default_rng(7)
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        self._detectors: dict[tuple[int, int], Any] = {}
        self._fired: set[int] = set()
        self._counted = np.zeros((0, CATEGORIES), dtype=np.int64)

    @property
    def detector_bytes(self) -> float:
        """Mean size of one detector, as pickled."""
        sizes = [len(pickle.dumps(one)) for one in self._detectors.values()]
        return float(np.mean(sizes)) if sizes else 0.0

    @property
    def detectors(self) -> int:
        """How many there are."""
        return len(self._detectors)

    def fingerprint(self) -> list[bytes]:
        """Return the state of all detectors, comparable."""
        return [pickle.dumps(pickle.loads(pickle.dumps(one))) for one in self._detectors.values()]

    def restart(self) -> None:
        """Go on with copies of all detectors, as a process does that has kept them."""
        self._detectors = pickle.loads(pickle.dumps(self._detectors))

    def on_traffic(self, summary: TrafficSummary) -> None:
        """Take one summary in, and feed it to the detectors."""
        super().on_traffic(summary)
        self._feed_open()

    def _close_block(self) -> None:
        self._feed_open()
        super()._close_block()
        self._counted = np.zeros((0, CATEGORIES), dtype=np.int64)

    def _feed_open(self) -> None:
        """Feed what was counted since the last time."""
        counts = self._table.open[..., 0]
        seen = counts.copy()
        seen[: len(self._counted)] -= self._counted
        self._counted = counts
        for at in np.flatnonzero(seen.sum(axis=1) > 0).tolist():
            self._feed(at, seen[at])

    def _feed(self, at: int, seen: Any) -> None:
        drawn = None
        if not self._rival.by_summary:
            drawn = self._rng.permutation(np.repeat(np.arange(CATEGORIES), seen))
        for place in range(len(self._table.categories[at])):
            detector = self._detectors.get((at, place))
            if detector is None:
                detector = self._detectors[at, place] = self._rival.build()
            inputs = [float(seen[place] / seen.sum())] if drawn is None else (drawn == place).astype(float).tolist()
            for value in inputs:
                detector.update(value)
                if detector.drift_detected:
                    self._fired.add(at)

    def _test(self) -> None:
        if self._table.filled < _LEAST_BLOCKS:
            self._fired.clear()
            return
        before, after, sizes = self._table.splits()
        allowed = (sizes[0] >= _LEAST_BEFORE) & material(before, after, sizes)
        flagged = self._flagged(len(self._table)) & allowed.any(axis=1)
        if not flagged.any():
            # What fired and is not material counts as noise.
            self._fired.clear()
            return
        factors = np.where(allowed, log_bayes_factor(before, after), -np.inf)
        strongest = int(np.where(flagged, factors.max(axis=1), -np.inf).argmax())
        self._begin_movement(int(factors[strongest].argmax()), dispersion(*self._table.scatter()))

    def _flagged(self, size: int) -> Bools:
        found = np.zeros(size, dtype=np.bool_)
        found[[at for at in self._fired if at < size]] = True
        return found

    def _moved_traits(self, compared: Compared) -> list[MovedTrait]:
        return named_traits(compared, self._flagged(len(compared.series)) & material(*compared.queries))

    def _settle(self, moved: Any) -> None:
        super()._settle(moved)
        self._fired.clear()
