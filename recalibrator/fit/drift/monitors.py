"""The detectors of one workload: what each listens to, what its outcomes are compared with, what its alarm means.

An alarm of agreement or of errors means that outcomes have changed: earlier labels are discounted and all is fitted
anew. One of u means that the mix of queries has changed: earlier traffic is forgotten. One of errors given agreement
means bad labels, or that both models have changed alike; trusted people are asked which (see
:mod:`recalibrator.fit.label_quality.crowd`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalibrator.fit.codec import Floats, Ints, Kept, KeptEach
from recalibrator.fit.data.slips import Flips
from recalibrator.fit.drift.detector import Alarm, Channel, Cusum, CusumRules, Detector, Outcomes
from recalibrator.fit.drift.river_detector import RiverDetector
from recalibrator.fit.estimate.agreement import Chances, inside
from schemas.errors import ConfigError
from schemas.settings import WorkloadSettings
from schemas.settings_workload import DEFAULT_DETECTORS, DetectorName, RiverArguments, RiverName
from schemas.status import DriftState, DriftStatus

AGREEMENT = Channel("P(both answers equal | u) on unlabelled pairs", needs_labels=False, meaning="outcomes")
MEDIAN = Channel("share of queries with u above its former median", needs_labels=False, meaning="traffic")
TAIL = Channel("share of queries with u in its former top fifth", needs_labels=False, meaning="traffic")
ERRORS = Channel("errors of labelled queries against g(u) as routed", needs_labels=True, meaning="outcomes")
ALIKE = Channel("errors of labelled queries with equal answers", needs_labels=True, meaning="labels")
APART = Channel("right small answers where the large differs", needs_labels=True, meaning="labels", agreeing=False)

ALIKE_RULES = CusumRules(1.6, 5.0, both_ways=False)
_APART_RULES = CusumRules(2.5, 10.0, both_ways=False)
_MIX_RULES = CusumRules(1.35, 9.5, both_ways=True)

DETECTORS: Mapping[DetectorName, Callable[[str], Detector]] = {
    "agreement": lambda name: Cusum(name, AGREEMENT, CusumRules(1.6, 8.0, both_ways=True)),
    "uncertainty_median": lambda name: Cusum(name, MEDIAN, _MIX_RULES),
    "uncertainty_tail": lambda name: Cusum(name, TAIL, _MIX_RULES),
    "label_residual": lambda name: Cusum(name, ERRORS, CusumRules(1.7, 8.5, both_ways=True)),
    "error_given_agreement": lambda name: Cusum(name, ALIKE, ALIKE_RULES),
    "right_given_disagreement": lambda name: Cusum(name, APART, _APART_RULES),
}
"""What makes each detector that settings can name."""

_SUSPECTED = np.log([[[1.0 / _APART_RULES.odds]], [[ALIKE_RULES.odds]]])
_QUANTILES = ((MEDIAN, 0.5), (TAIL, 0.8))
_REFERENCE_LEAST, _REFERENCE_MOST = 1_000.0, 30_000.0
"""Queries that u is compared with, at least and at most."""
_LEAST_PREDICTED = 0.02
_TRIED = 1_000
_NEVER = Flips()
"""What first labels are where nobody corrects any."""


class Predicted(NamedTuple):
    """g(u) as routed, and the effective labels that this map was fitted to."""

    error_probability: float
    labels: float = inf


class DriftMonitors:
    """The detectors of one workload and their references: ours by name, and river's with their arguments.

    Raises
    ------
    ConfigError
        If river is not installed, or refuses the arguments.
    """

    _detectors: KeptEach[Detector]
    _reported_us: Kept[dict[str, int]]
    _expected: Kept[Floats | None] = None
    _error_given: Kept[Floats | None] = None
    _flips: Kept[Flips]
    _bounds: Kept[Floats | None] = None
    _pairs: Kept[float] = inf
    _reference: Kept[Floats]

    def __init__(
        self,
        cells: int,
        names: Sequence[DetectorName] = DEFAULT_DETECTORS,
        river: Mapping[RiverName, RiverArguments] | None = None,
        *,
        watch_mix: bool = True,
    ) -> None:
        self._cells, self._watch_mix = cells, watch_mix
        rivers = (RiverDetector(kind, arguments, ERRORS) for kind, arguments in (river or {}).items())
        self.detectors: tuple[Detector, ...] = (*(DETECTORS[name](name) for name in names), *rivers)
        self._detectors = {one.name: one for one in self.detectors}
        self._by_channel = {
            channel: tuple(one for one in self.detectors if one.channel is channel)
            for channel in (AGREEMENT, MEDIAN, TAIL, ERRORS, ALIKE, APART)
        }
        self._given_agreement = tuple((channel, self._by_channel[channel]) for channel in (ALIKE, APART))
        self._reported_us = {}
        self._flips = Flips()
        self._given: _GivenAgreement | None = None
        self._reference = np.zeros(cells)

    def expect(
        self,
        agreement: Floats,
        error_given: Floats,
        flips: Flips = _NEVER,
        *,
        bounds: Floats | None = None,
        pairs: float = inf,
    ) -> None:
        """Set what the next pairs and labels are compared with.

        ``agreement``, shape (cells,), is P(agree | u), estimated from so many ``pairs``, labelled and unlabelled;
        ``bounds``, shape (2, cells), the least and the greatest that count as expected. ``error_given``, shape
        (2, cells), is P(the small answer is wrong | u, the answers differ), and where they are equal, by labels as they
        stand; ``flips`` say how first labels differ from those.
        """
        self._expected, self._error_given, self._flips = agreement, error_given, flips
        self._bounds, self._pairs = bounds, pairs
        # Too few errors are suspected where answers differ, too many where they are equal.
        suspected = np.stack([inside(one) for one in flips.range(error_given)])
        self._given = _GivenAgreement(agreement, suspected, _SUSPECTED)

    @property
    def agreement(self) -> Floats | None:
        """P(agree | u) as expected, shape (cells,); None before the first fit."""
        return self._expected

    def _outcome(self, predicted: Predicted, error: float, now_us: int) -> Outcomes:
        """Return one label as an outcome of g(u).

        A map reads 0 or 1 where labels held one kind alone: how near to it the truth lies is unknown.
        """
        least, most = self._flips.range(predicted.error_probability)
        cut = min(1.0 - _LEAST_PREDICTED, max(_LEAST_PREDICTED, self._flips.first(predicted.error_probability)))
        bounds = min(least, cut), max(most, cut)
        return Outcomes(cut, 1.0, error, now_us, None, bounds, predicted.labels)

    def begin_anew(self, reference: Floats, now_us: int) -> None:
        """Compare with another world from now on; labels of queries that were routed before say nothing of it.

        ``reference``, shape (cells,): queries of that world by u.
        """
        self._reference = reference * min(1.0, _REFERENCE_MOST / max(1.0, float(reference.sum())))
        for detector in self.detectors:
            # How u scatters is remembered: a season is back each day, and would be an alarm each day.
            detector.restart()
            self._reported_us[detector.name] = now_us

    def restart_label_channels(self) -> None:
        """Restart the detectors of labels given agreement: a suspicion has ended."""
        for detector in (*self._by_channel[ALIKE], *self._by_channel[APART]):
            detector.restart()

    def on_pairs(self, cell: Ints, counts: NDArray[np.int64], now_us: int) -> list[Alarm]:
        """Take in how many queries of one summary both models answered.

        ``counts``, shape (2, filled): pairs and agreeing pairs in each of these cells.
        """
        pairs, agreeing = counts.astype(np.float64)
        if self._expected is None or not pairs.any():
            return []
        bounds = None if self._bounds is None else (self._bounds[0, cell], self._bounds[1, cell])
        seen = Outcomes(self._expected[cell], pairs, agreeing, now_us, bounds=bounds, known=self._pairs)
        return _update(self._by_channel[AGREEMENT], seen)

    def on_mix(self, cell: Ints, queries: Floats, now_us: int) -> list[Alarm]:
        """Take in how the u of one summary's queries is distributed.

        ``queries``, shape (filled,): in each of these cells.
        """
        if not self._watch_mix:
            return []
        known = float(self._reference.sum())
        alarms = self._on_uncertainty(cell, queries, known, now_us) if known >= _REFERENCE_LEAST else []
        detectors = (*self._by_channel[MEDIAN], *self._by_channel[TAIL])
        if alarms:
            self._reference[:] = 0.0
            for detector in detectors:
                detector.restart()
            return alarms
        # What was judged is what later queries are compared with, as in a self-starting chart (Hawkins, 1987), unless
        # it is suspected: a change would hide itself.
        if any(one.drift_state == "suspected" for one in detectors):
            return []
        self._reference[cell] += queries
        if (total := float(self._reference.sum())) > _REFERENCE_MOST:
            self._reference *= _REFERENCE_MOST / total
        return []

    def _on_uncertainty(self, cell: NDArray[np.intp], queries: Floats, known: float, now_us: int) -> list[Alarm]:
        """Compare queries with the reference: how many lie above its median, and in its top fifth."""
        trials = float(queries.sum())
        above = np.cumsum(self._reference[::-1])[::-1] / known
        for channel, quantile in _QUANTILES:
            cut = min(int(np.searchsorted(-above, -(1.0 - quantile), side="left")), self._cells - 1)
            share = float(above[cut])
            cut_share = min(0.99, max(0.01, share))
            bounds = min(share, cut_share), max(share, cut_share)
            hits = float(queries[cell >= cut].sum())
            seen = Outcomes(cut_share, trials, hits, now_us, bounds=bounds, known=known)
            if alarms := _update(self._by_channel[channel], seen):
                return alarms
        return []

    def on_label(
        self,
        predicted: Predicted | None,
        error: float,
        agree: bool | None,
        cell: int | None,
        routed_us: int,
        now_us: int,
    ) -> list[Alarm]:
        """Take one requested label in: g(u) as routed, whether the small answer erred, whether both agreed, and u."""
        alarms = list[Alarm]()
        if predicted is not None:
            seen = self._outcome(predicted, error, now_us)
            for detector in self._by_channel[ERRORS]:
                if routed_us <= self._reported_us.get(detector.name, routed_us - 1):
                    continue  # what was routed before its last alarm is part of what it has reported
                alarm = detector.update(seen)
                if alarm is not None:
                    alarms.append(alarm)
                    self._reported_us[detector.name] = now_us
        if cell is None or self._given is None:
            return alarms
        for channel, detectors in self._given_agreement:
            if agree is None or agree is channel.agreeing:
                # Of a query that one model answered, pairs alone say what to expect, and no refit learns from it:
                # their error stays. Too many errors are believed at once, on the safe side; too few are not.
                behind = self._pairs if agree is None and not channel.agreeing else inf
                given = self._given.outcome(channel, error, cell, now_us, behind, known=agree is not None)
                alarms += _update(detectors, given)
        return alarms

    @property
    def labels_suspected(self) -> bool:
        """Whether labels have lately come to contradict what was known given agreement."""
        return any(one.drift_state == "drifted" for one in (*self._by_channel[ALIKE], *self._by_channel[APART]))

    @property
    def worst(self) -> DriftState:
        """The worst of all detectors' states."""
        states = {detector.drift_state for detector in self.detectors}
        ranked: tuple[DriftState, ...] = ("drifted", "suspected")
        return next((state for state in ranked if state in states), "ok")

    def status(self, overruled_by: DriftState | None) -> DriftStatus:
        """Return all detectors and the worst of their states, unless another state comes first."""
        shown, worst = tuple(detector.status() for detector in self.detectors), self.worst
        return DriftStatus(state=overruled_by if overruled_by and worst == "ok" else worst, detectors=shown)

    def restored(self) -> None:
        """Compute what follows from the references."""
        if self._expected is not None and self._error_given is not None:
            self.expect(self._expected, self._error_given, self._flips, bounds=self._bounds, pairs=self._pairs)


def _update(detectors: Iterable[Detector], seen: Outcomes) -> list[Alarm]:
    return [alarm for one in detectors if (alarm := one.update(seen)) is not None]


def check_detectors(workloads: Mapping[str, WorkloadSettings]) -> None:
    """Check that river is installed where a workload names its detectors, and that they run with their arguments.

    Raises
    ------
    ConfigError
        With one line for each fault.
    """
    faults = []
    for workload, settings in workloads.items():
        for kind, arguments in settings.river.items():
            try:
                detector = RiverDetector(kind, arguments, ERRORS)
                # Some of river's arguments are wrong only together, which shows once its window is full.
                for at_us in range(_TRIED + int(arguments.get("window_size", 0))):
                    detector.update(Outcomes(0.0, 1.0, 0.0, at_us))
            except ConfigError as error:
                faults += [f"workloads.{workload}.{fault}" for fault in error.faults]
            except (TypeError, ValueError, ArithmeticError) as error:
                faults.append(f"workloads.{workload}.river.{kind}: {error}")
    if faults:
        raise ConfigError(faults)


class _GivenAgreement:
    """What every label there can be says of suspected errors given agreement.

    ``error_given``, shape (2, 2, cells), as each of them has it, where the answers differ and where they are equal;
    ``log_odds``, shape (2, 1, 1), suspected there.
    """

    def __init__(self, agreement: Floats, error_given: Floats, log_odds: Floats) -> None:
        # By suspected kind, and by whether the query is known to be of it or may be: shape (2, 2, cells).
        weight, rest = np.ones((2, 2, len(agreement))), np.zeros((2, 2, len(agreement)))
        np.subtract(1.0, agreement, out=weight[0, 0])
        weight[1, 0] = agreement
        np.multiply(weight[::-1, 0], error_given[(0, 1), (1, 0)], out=rest[:, 0])
        given = error_given[(0, 1), (0, 1)][:, None]
        self._before, after = rest + weight * given, Chances(rest, weight, given).at(log_odds)
        # The third axis: whether the small answer is wrong.
        self._gains = np.empty((2, 2, 2, len(agreement)))
        np.divide(1.0 - after, 1.0 - self._before, out=self._gains[:, :, 0])
        np.divide(after, self._before, out=self._gains[:, :, 1])
        np.log(self._gains, out=self._gains)

    def outcome(self, channel: Channel, error: float, cell: int, at_us: int, behind: float, *, known: bool) -> Outcomes:
        """Return one label as the outcome of a channel; ``known``: whether agreement is.

        ``behind``: effective observations behind what is expected.
        """
        kind, said = int(channel.agreeing), int(known)
        right, wrong = self._gains[kind, said, :, cell].tolist()
        gain = right + error * (wrong - right)
        return Outcomes(self._before.item(kind, said, cell), 1.0, error, at_us, gain, None, behind)
