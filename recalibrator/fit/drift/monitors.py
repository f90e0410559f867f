"""The panel of detectors: what each watches, what it compares with, and what its alarm means.

Traffic and labels flow in, alarms flow out. An alarm of agreement or of errors means that outcomes have changed (the
labels before are discounted and all is fitted anew); one of u that the mix of queries has (the traffic before is
forgotten); one of errors given agreement that labels are bad or both models have changed alike: which of the two,
trusted people are asked (see :mod:`recalibrator.fit.label_quality.state_machine`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recalibrator.fit.arrays import Floats, pack, unpack
from recalibrator.fit.drift.cusum import Detector, Watch
from recalibrator.fit.estimate.agreement import Chances
from schemas.status import DriftState, DriftStatus

Meaning = Literal["outcomes", "traffic", "labels"]

_AGREEMENT = Watch("agreement", "P(both answers equal | u) on unlabelled pairs", False, 1.6, 8.0, True, 1_500)
_MIDDLE = Watch("uncertainty_median", "share of queries with u above its former median", False, 1.35, 9.5, True, 3_000)
_TAIL = Watch("uncertainty_tail", "share of queries with u in its former top fifth", False, 1.35, 9.5, True, 3_000)
_ERRORS = Watch("label_residual", "errors of labelled queries against g(u) as routed", True, 1.7, 8.5, True, 400)
_ALIKE = Watch("error_given_agreement", "errors of labelled queries with equal answers", True, 1.6, 5.0, False, 400)
_KIND = Watch("right_given_disagreement", "right small answers where the large differs", True, 2.5, 10.0, False, 400)

_SUSPECTED = np.log([[[1.0 / _KIND.odds]], [[_ALIKE.odds]]])
_REFERENCE_QUERIES = 2_000


@dataclass(frozen=True, slots=True)
class Alarm:
    """A detector has fired: which, what it means, and when the change began."""

    detector: str
    meaning: Meaning
    began_us: int
    by_labels: bool = False
    agreeing: bool = True
    """Of labels: whether errors are too many where answers agree, or too few where they differ."""


class Panel:
    """The six detectors of one workload and their references.

    Parameters
    ----------
    cells : int
    watch_mix : bool
        Whether changes of the mix of queries raise alarms.
    """

    def __init__(self, cells: int, *, watch_mix: bool = True) -> None:
        self._cells, self._watch_mix = cells, watch_mix
        self._agreement, self._errors = Detector(_AGREEMENT), Detector(_ERRORS)
        self._alike, self._kind = Detector(_ALIKE), Detector(_KIND)
        self._quantiles = ((0.5, Detector(_MIDDLE)), (0.8, Detector(_TAIL)))
        self._expected: NDArray[np.float64] | None = None
        self._error_given: NDArray[np.float64] | None = None
        self._first_odds = 1.0
        self._gains: Floats | None = None
        self._reference = np.zeros(cells)
        self._cuts: list[tuple[int, float]] = []

    @property
    def detectors(self) -> tuple[Detector, ...]:
        """All of them, label-free ones first."""
        return (self._agreement, *(detector for _, detector in self._quantiles), self._errors, self._alike, self._kind)

    def expect(self, agreement: NDArray[np.float64], error_given: NDArray[np.float64], first_odds: float = 1.0) -> None:
        """Set what the next pairs and labels are compared with.

        Parameters
        ----------
        agreement : ndarray, shape (cells,)
            P(agree | u).
        error_given : ndarray, shape (2, cells)
            P(the small answer is wrong | u, the answers differ), and where they are equal, by first labels.
        first_odds : float
            Odds of an error by first labels over those by labels as they stand, for g(u) as routed.
        """
        self._expected, self._error_given, self._first_odds = agreement, error_given, first_odds
        self._gains = _gains(agreement, error_given, _SUSPECTED)

    @property
    def agreement(self) -> NDArray[np.float64] | None:
        """P(agree | u) as expected, shape (cells,); None before the first fit."""
        return self._expected

    def restart_label_channels(self) -> None:
        """Begin watching labels given agreement anew: a suspicion has ended."""
        self._alike.restart()
        self._kind.restart()

    def on_traffic(self, cell: NDArray[np.intp], counts: NDArray[np.int64], now_us: int) -> list[Alarm]:
        """Take one summary in.

        Parameters
        ----------
        cell : ndarray of int, shape (filled,)
            Cells with queries.
        counts : ndarray of int, shape (3, filled)
            Queries, pairs and agreeing pairs in each.
        now_us : int
        """
        alarms = []
        queries, pairs, agreeing = counts.astype(np.float64)
        if self._expected is not None and pairs.any():
            began = self._agreement.observe_many(self._expected[cell], pairs, agreeing, now_us)
            if began is not None:
                alarms.append(Alarm(_AGREEMENT.name, "outcomes", began))
        if not self._watch_mix:
            return alarms
        if self._cuts:
            return alarms + self._on_uncertainty(cell, queries, now_us)
        self._reference[cell] += queries
        if self._reference.sum() >= _REFERENCE_QUERIES:
            self._cut()
        return alarms

    def _on_uncertainty(self, cell: NDArray[np.intp], queries: NDArray[np.float64], now_us: int) -> list[Alarm]:
        alarms = []
        trials = float(queries.sum())
        for (cut, share), (_, detector) in zip(self._cuts, self._quantiles, strict=True):
            began = detector.observe_share(share, trials, float(queries[cell >= cut].sum()), now_us)
            if began is not None:
                alarms.append(Alarm(detector.watch.name, "traffic", began))
        if alarms:
            self._reference[:], self._cuts = 0.0, []
            for _, detector in self._quantiles:
                detector.restart()
        return alarms

    def _cut(self) -> None:
        """Find the cells at which the reference's quantiles lie, and the share of queries from there on."""
        total = self._reference.sum()
        above = np.cumsum(self._reference[::-1])[::-1] / total
        for quantile, _ in self._quantiles:
            cell = int(np.searchsorted(-above, -(1.0 - quantile), side="left"))
            cell = min(cell, self._cells - 1)
            self._cuts.append((cell, float(np.clip(above[cell], 0.01, 0.99))))

    def on_label(
        self, predicted: float | None, error: float, agree: bool | None, cell: int | None, routed_us: int, now_us: int
    ) -> list[Alarm]:
        """Take one requested label in: g(u) as routed, whether the small answer erred, whether both agreed, and u."""
        alarms = []
        # What was routed before the last alarm has been told already and must not tell it twice.
        fresh = self._errors.alarmed_us is None or routed_us > self._errors.alarmed_us
        if predicted is not None and fresh:
            scaled = self._first_odds * predicted
            predicted = scaled / (1.0 - predicted + scaled)
            began = self._errors.observe(min(0.98, max(0.02, predicted)), error, now_us)
            if began is not None:
                alarms.append(Alarm(_ERRORS.name, "outcomes", began, by_labels=True))
        if cell is None or self._gains is None:
            return alarms
        known, wrong = int(agree is not None), int(error)
        for detector, agreeing in ((self._alike, True), (self._kind, False)):
            if not known or agree is agreeing:
                began = detector.observe_ratio(self._gains.item(int(agreeing), known, wrong, cell), now_us)
                if began is not None:
                    alarms.append(Alarm(detector.watch.name, "labels", began, by_labels=True, agreeing=agreeing))
        return alarms

    @property
    def labels_suspected(self) -> bool:
        """Whether labels have lately come to contradict what was known given agreement."""
        return "drifted" in (self._alike.state, self._kind.state)

    @property
    def worst(self) -> DriftState:
        """The worst of all detectors' states."""
        states = [detector.state for detector in self.detectors]
        ranked: tuple[DriftState, ...] = ("drifted", "suspected")
        return next((state for state in ranked if state in states), "ok")

    def status(self, overruled_by: DriftState | None) -> DriftStatus:
        """Return all detectors and the worst of their states, unless something else is to be said first."""
        shown, worst = tuple(detector.status() for detector in self.detectors), self.worst
        return DriftStatus(state=overruled_by if overruled_by and worst == "ok" else worst, detectors=shown)

    def state(self) -> dict[str, Any]:
        """Return the panel as JSON values, exact."""
        return {
            "detectors": [detector.dump() for detector in self.detectors],
            "expected": None if self._expected is None else pack(self._expected),
            "error_given": None if self._error_given is None else pack(self._error_given),
            "first_odds": self._first_odds,
            "reference": pack(self._reference),
            "cuts": [list(cut) for cut in self._cuts],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take a former :meth:`state` back."""
        # Earlier releases had fewer detectors; those they had come first.
        for detector, values in zip(self.detectors, state["detectors"], strict=False):
            detector.load(values)
        expected = state["expected"]
        self._expected = None if expected is None else unpack(expected, np.zeros(self._cells))
        given = state.get("error_given")
        if self._expected is not None and given is not None:
            self.expect(self._expected, unpack(given, np.zeros((2, self._cells))), state["first_odds"])
        self._reference = unpack(state["reference"], np.zeros(self._cells))
        self._cuts = [(int(cell), float(share)) for cell, share in state["cuts"]]


def _gains(agreement: Floats, error_given: Floats, log_odds: Floats) -> Floats:
    """Return what one label adds to the log likelihood ratio of suspected errors, for every label there can be.

    Parameters
    ----------
    agreement : ndarray, shape (cells,)
    error_given : ndarray, shape (2, cells)
    log_odds : ndarray, shape (2, 1, 1)
        That are suspected where the answers differ, and where they are equal.

    Returns
    -------
    ndarray, shape (2, 2, 2, cells)
        By suspected kind, by whether the query is known to be of it (or may be), by whether the small answer is wrong.
    """
    shares = np.stack([1.0 - agreement, agreement])
    weight = np.stack([shares, np.ones_like(shares)], axis=1)
    rest = np.zeros_like(weight)
    np.multiply(shares, error_given, out=rest[::-1, 0])
    chances = Chances(rest, weight, error_given[:, None])
    before, after = rest + weight * error_given[:, None], chances.at(log_odds)
    gains: Floats = np.log(np.stack([(1.0 - after) / (1.0 - before), after / before], axis=2))
    return gains
