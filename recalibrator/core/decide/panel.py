"""The panel of detectors: what each watches, what it compares with, and what its alarm means.

Traffic and labels flow in, alarms flow out. An alarm of agreement or of errors means that outcomes have changed (the
labels before are discounted and all is fitted anew); one of u that the mix of queries has (the traffic before is
forgotten); one of errors among agreeing answers that labels are bad or both models fail alike: people are told, and the
labels are believed, since a common failure would go unseen otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recalibrator.core.decide.drift import Detector, Watch
from recalibrator.core.observe.columns import pack, unpack
from schemas.status import DriftState, DriftStatus

Meaning = Literal["outcomes", "traffic", "labels"]

_AGREEMENT = Watch("agreement", "P(both answers equal | u) on unlabelled pairs", False, 1.6, 9.0, True, 1_500)
_MIDDLE = Watch("uncertainty_median", "share of queries with u above its former median", False, 1.35, 9.5, True, 3_000)
_TAIL = Watch("uncertainty_tail", "share of queries with u in its former top fifth", False, 1.35, 9.5, True, 3_000)
_ERRORS = Watch("label_residual", "errors of labelled queries against g(u) as routed", True, 1.7, 8.5, True, 400)
_ALIKE = Watch("error_given_agreement", "errors of labelled queries with equal answers", True, 4.0, 10.0, False, 400)

_REFERENCE_QUERIES = 2_000


@dataclass(frozen=True, slots=True)
class Alarm:
    """A detector has fired: which, what it means, and when the change began."""

    detector: str
    meaning: Meaning
    began_us: int


class Panel:
    """The five detectors of one workload and their references.

    Parameters
    ----------
    cells : int
    """

    def __init__(self, cells: int) -> None:
        self._cells = cells
        self._agreement, self._errors, self._alike = Detector(_AGREEMENT), Detector(_ERRORS), Detector(_ALIKE)
        self._quantiles = ((0.5, Detector(_MIDDLE)), (0.8, Detector(_TAIL)))
        self._expected: NDArray[np.float64] | None = None
        self._error_given_agreement: float | None = None
        self._reference = np.zeros(cells)
        self._cuts: list[tuple[int, float]] = []

    @property
    def detectors(self) -> tuple[Detector, ...]:
        """All of them, label-free ones first."""
        return (self._agreement, *(detector for _, detector in self._quantiles), self._errors, self._alike)

    def expect(self, agreement: NDArray[np.float64], error_given_agreement: float | None) -> None:
        """Set what the next pairs and labels are compared with: what the version in force was fitted on."""
        self._expected = agreement
        self._error_given_agreement = error_given_agreement

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
        self, predicted: float | None, error: float, agree: bool | None, routed_us: int, now_us: int
    ) -> list[Alarm]:
        """Take one requested label in: g(u) as routed, whether the small answer erred, whether both agreed."""
        alarms = []
        # What was routed before the last alarm has been told already and must not tell it twice.
        fresh = self._errors.alarmed_us is None or routed_us > self._errors.alarmed_us
        if predicted is not None and fresh:
            began = self._errors.observe(min(0.98, max(0.02, predicted)), error, now_us)
            if began is not None:
                alarms.append(Alarm(_ERRORS.name, "outcomes", began))
        if agree and self._error_given_agreement is not None:
            expected = min(0.9, max(0.01, self._error_given_agreement))
            began = self._alike.observe(expected, error, now_us)
            if began is not None:
                alarms.append(Alarm(_ALIKE.name, "labels", began))
        return alarms

    @property
    def labels_suspected(self) -> bool:
        """Whether errors among agreeing answers have lately become too many."""
        return self._alike.state == "drifted"

    def status(self, overruled_by: DriftState | None) -> DriftStatus:
        """Return all detectors and the worst of their states, unless something else is to be said first."""
        shown = tuple(detector.status() for detector in self.detectors)
        ranked: tuple[DriftState, ...] = ("drifted", "suspected")
        worst = next((state for state in ranked if any(one.state == state for one in shown)), "ok")
        return DriftStatus(state=overruled_by if overruled_by and worst == "ok" else worst, detectors=shown)

    def state(self) -> dict[str, Any]:
        """Return the panel as JSON values, exact."""
        return {
            "detectors": [detector.dump() for detector in self.detectors],
            "expected": None if self._expected is None else pack(self._expected),
            "error_given_agreement": self._error_given_agreement,
            "reference": pack(self._reference),
            "cuts": [list(cut) for cut in self._cuts],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take a former :meth:`state` back."""
        for detector, values in zip(self.detectors, state["detectors"], strict=True):
            detector.load(values)
        expected = state["expected"]
        self._expected = None if expected is None else unpack(expected, np.zeros(self._cells))
        self._error_given_agreement = state["error_given_agreement"]
        self._reference = unpack(state["reference"], np.zeros(self._cells))
        self._cuts = [(int(cell), float(share)) for cell, share in state["cuts"]]
