"""The outlook: everything known now, as curves over u that are ready to be weighed.

The label window, the current traffic and the serving threshold flow in; corrected curves of both models, their
standard errors and the map g flow out. A pure function of what the windows hold, whatever order it came in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalibrator.core.estimate.agreement import Shift, Tilt, fit_tilt, shift_by
from recalibrator.core.estimate.curve import fit_map
from recalibrator.core.estimate.rectify import Rectifier, rectify
from recalibrator.core.estimate.smooth import Floats, kernel_mass, kernel_sums
from recalibrator.core.estimate.stratify import CellSums, Stratified, cell_sums, stratify
from recalibrator.core.observe.cells import Grid
from recalibrator.core.observe.traffic import AGREEING, PAIRS, TrafficWindow, distribution
from recalibrator.core.observe.window import (
    COUNTS,
    ERROR,
    GROUP,
    LABEL_PROBABILITY,
    ONE,
    PAIR,
    ROUTED_US,
    LabelWindow,
    weights,
)
from recalibrator.core.tuning import Tuning
from schemas.calibration import CalibrationMap

_TRAFFIC_WANTED = 1_000.0
_DEGRADED_MOST = 0.2
"""Beyond this share the large model is away, which is the router's business: no threshold mends an outage."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of the answer that one way of serving gives, shape (cells,) each.

    Parameters
    ----------
    value, size : ndarray
        E[z | u] and E[d | u].
    spread : ndarray
        What each cell adds to the variance of a sum over current traffic.
    """

    value: Floats
    size: Floats
    spread: Floats


@dataclass(frozen=True, slots=True)
class Failed:
    """Queries without u, which always escalate: their share of traffic, E[z], E[d] and the squared error of E[z]."""

    share: float
    value: float
    size: float
    variance: float


@dataclass(frozen=True, slots=True)
class Support:
    """How much evidence there is.

    Parameters
    ----------
    labels, pairs : int
        Contributions that count, and those of them where both models ran.
    effective_labels, effective_pairs : float
        Kish's sample sizes after weighting.
    window_us : tuple of int or None
        First and last routing time.
    error_given_agreement : float or None
        P(the small answer is wrong | both answers are equal).
    """

    labels: int
    pairs: int
    effective_labels: float
    effective_pairs: float
    window_us: tuple[int, int] | None
    error_given_agreement: float | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is expected of each way of serving at each u, now.

    Parameters
    ----------
    traffic : ndarray, shape (cells,)
        Share of current queries in each cell, summing to 1 less the failed share.
    traffic_queries : float
        Queries behind it.
    kept, escalated : Expected
    failed : Failed
    rectifier, tilt, shift
        The corrections that are in the curves, for their standard errors.
    map : CalibrationMap
    support : Support
    """

    traffic: Floats
    traffic_queries: float
    kept: Expected
    escalated: Expected
    failed: Failed
    rectifier: Rectifier
    tilt: Tilt
    shift: Shift
    map: CalibrationMap
    support: Support


def look_out(
    window: LabelWindow, traffic: TrafficWindow, serving_threshold: float | None, changed_us: int | None, tuning: Tuning
) -> Outlook:
    """Estimate the outlook.

    Parameters
    ----------
    window : LabelWindow
    traffic : TrafficWindow
    serving_threshold : float or None
        On u; the rectifier works on either side of it. None before the first version.
    changed_us : int or None
        When a detector believes that the world changed; labels routed before then count for little.
    tuning : Tuning
    """
    grid, target, facts = window.grid, window.target, window.facts
    group, counting, newer = facts[:, GROUP].astype(np.intp), facts[:, COUNTS] > 0.0, window.newer()
    old = np.zeros(len(facts), dtype=bool) if changed_us is None else facts[:, ROUTED_US] < changed_us
    slow = _discounted(weights(newer, counting, tuning.half_life_slow), old, counting, tuning)
    fast = np.where(old, 0.0, weights(newer, counting, tuning.half_life_fast))
    sums = cell_sums(group, slow, window.outcomes, grid.cells)
    curves = stratify(sums, target, tuning)
    pairs, agreeing = (traffic.counts[name].astype(np.float64) for name in (PAIRS, AGREEING))
    tilt = fit_tilt(curves.agreement, pairs, agreeing, grid.standard_logits, tuning.tilt_ridge)
    shift = shift_by(tilt, curves.agreement, grid.standard_logits, sums, target, tuning)
    rectifier = rectify(
        cell_sums(group, fast, window.outcomes, grid.cells),
        curves.small.value + shift.small_value,
        curves.large.value + shift.large_value,
        target,
        _last_kept(grid, serving_threshold),
        tuning.drift_scale,
    )
    shares, failed_share = _traffic(window, traffic, group, fast)
    kept, escalated = _expected(curves, shift, rectifier, shares, traffic.degraded_share, tuning.bandwidth_cells)
    half_map = _discounted(weights(newer, counting, tuning.half_life_map), old, counting, tuning)
    return Outlook(
        traffic=shares,
        traffic_queries=max(traffic.recent["queries"], 1.0) if traffic.recent["queries"] else float(len(facts)),
        kept=kept,
        escalated=escalated,
        failed=Failed(failed_share, curves.failed_value, curves.failed_size, curves.failed_variance),
        rectifier=rectifier,
        tilt=tilt,
        shift=shift,
        map=_map(window, half_map, group, shift.error, shares, tuning),
        support=_support(window, slow, counting, sums),
    )


def _last_kept(grid: Grid, threshold: float | None) -> int:
    if threshold is None or threshold >= 1.0:
        return grid.cells - 1
    return -1 if threshold < 0.0 else grid.index(threshold)


def _discounted(weight: Floats, old: NDArray[np.bool_], counting: NDArray[np.bool_], tuning: Tuning) -> Floats:
    """Let all labels from before a change together weigh no more than a prior that new labels use up."""
    total = float(weight[old].sum())
    fresh = float(np.count_nonzero(counting & ~old))
    allowed = max(tuning.old_labels_least, tuning.old_labels_most - fresh)
    return np.where(old, weight * (allowed / total), weight) if total > allowed else weight


def _traffic(
    window: LabelWindow, traffic: TrafficWindow, group: NDArray[np.intp], weight: Floats
) -> tuple[Floats, float]:
    """Return the share of current queries by cell, and that without u.

    Labels stand in, by inverse propensity, where traffic is unknown.
    """
    cells = window.grid.cells
    propensity = np.maximum(window.facts[:, LABEL_PROBABILITY], 1e-3)
    labelled = np.bincount(group, weight / propensity, 3 * cells + 1)
    shares = distribution(traffic, labelled[:-1].reshape(3, cells).sum(axis=0), _TRAFFIC_WANTED)
    whole = float(labelled.sum())
    failed = float(labelled[-1]) / whole if whole > 0.0 else 0.0
    if traffic.recent["queries"] > 0.0:
        failed = traffic.failed_share
    return shares * (1.0 - failed), failed


def _expected(
    curves: Stratified, shift: Shift, rectifier: Rectifier, shares: Floats, degraded_share: float, width: int
) -> tuple[Expected, Expected]:
    """Correct both curves and blend in that some calls of the large model end with the small answer."""
    degraded = min(_DEGRADED_MOST, degraded_share)
    # A cell's mean borrows from its neighbours and lends to them: traffic is smoothed as the labels are.
    near_square = np.square(kernel_sums(shares[None, :], width)[0] / kernel_mass(len(shares), width))
    kept = Expected(
        curves.small.value + shift.small_value + rectifier.small,
        np.maximum(curves.small.size + shift.small_size, 0.0),
        near_square * curves.small.variance / curves.small.density,
    )
    value = curves.large.value + shift.large_value + rectifier.large
    size = np.maximum(curves.large.size + shift.large_size, 0.0)
    escalated = Expected(
        (1.0 - degraded) * value + degraded * kept.value,
        (1.0 - degraded) * size + degraded * kept.size,
        near_square * curves.large.variance / curves.large.density,
    )
    return kept, escalated


def _map(
    window: LabelWindow, weight: Floats, group: NDArray[np.intp], shift: Floats, shares: Floats, tuning: Tuning
) -> CalibrationMap:
    cells = window.grid.cells
    count, wrong = (
        np.bincount(group, mass, 3 * cells + 1)[:-1].reshape(3, cells).sum(axis=0)
        for mass in (weight, weight * window.outcomes[:, ERROR])
    )
    return fit_map(window.grid, wrong, count, shift, shares, tuning.map_prior_labels)


def _support(window: LabelWindow, weight: Floats, counting: NDArray[np.bool_], sums: CellSums) -> Support:
    facts, ran = window.facts, window.outcomes[:, PAIR]
    times = facts[counting, ROUTED_US]
    agreeing = float(sums.by_relation[2, :, ONE].sum())
    return Support(
        labels=len(times),
        pairs=int(ran[counting].sum()),
        effective_labels=kish(weight),
        effective_pairs=kish(weight * ran),
        window_us=(int(times.min()), int(times.max())) if len(times) else None,
        error_given_agreement=float(sums.by_relation[2, :, ERROR].sum()) / agreeing if agreeing > 0.0 else None,
    )


def kish(weight: Floats) -> float:
    """Return the number of equally weighted observations with the same variance: (Σw)² / Σw² (Kish, 1965).

    Examples
    --------
    >>> kish(np.array([1.0, 1.0, 0.0])), kish(np.zeros(2))
    (2.0, 0.0)
    """
    squares = float(weight @ weight)
    return float(weight.sum()) ** 2 / squares if squares > 0.0 else 0.0
