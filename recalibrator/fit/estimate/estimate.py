"""The estimate: everything known now, as curves over u that are ready to be weighed.

The curves of both models, corrected by agreement and by recent labels, their standard errors and the map g: a pure
function of the labels, of the current traffic and of what is believed to have changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from recalibrator.fit.codec import Floats
from recalibrator.fit.data import label_columns as at
from recalibrator.fit.data.decayed_sums import (
    FAST,
    FAST_QUERIES,
    FAST_SQUARE,
    SLOW,
    SLOW_SQUARE,
    SLOW_SQUARE_PAIR,
    SUMS,
    DecayedSums,
    decayed_sums,
)
from recalibrator.fit.data.label_columns import Standing
from recalibrator.fit.data.label_table import LabelTable, Span
from recalibrator.fit.data.traffic_window import AGREEING, COUNT, PAIRS, TrafficWindow, distribution
from recalibrator.fit.estimate.agreement import Shift, Tilt, error_given_agreement, fit_tilt, inside, shift_by
from recalibrator.fit.estimate.calibration_map import ErrorCells, MapFitter
from recalibrator.fit.estimate.outcome_curves import (
    CellSums,
    Smoothed,
    Stratified,
    cell_sums,
    smooth_outcomes,
    stratify,
)
from recalibrator.fit.estimate.rectifier import Change, Rectifier, rectify
from recalibrator.fit.estimate.smoothing import kernel_mean
from recalibrator.fit.method_constants import MethodConstants
from recalibrator.grid import Grid
from schemas.calibration import CalibrationMap, LabelShares
from schemas.status import SilentSide

EXPECTED_LEAST = 30.0
"""Labels that a side should have had before its silence means anything: by chance alone fewer than an eighth of them
come once in 10^10 times (Poisson)."""

EXPECTED_LATELY = 24.0
"""The same of the labels that came last: one side's silence shows before the window is full of it (10^8 times)."""

SHARE = 1.0 / 8.0
"""Of these, below which the side counts as silent."""


def silent_side(
    labels: LabelTable, traffic: TrafficWindow, shares: LabelShares, threshold: float | None
) -> SilentSide | None:
    """Return the side of the threshold on u from which hardly a label has come for the recent queries, or None.

    People who label where they happen to look, which is often where something was escalated, say nothing of the answers
    that were kept. No estimate of what is served can notice that by itself: the labels there are look as they always
    do. A side should have as many labels for each one asked for, by the shares in force, as the other side has; and its
    share of those that came last, whenever their queries were routed: labels of one side may take longer.
    """
    if threshold is None or traffic.begins_us is None:
        return None
    # The cells below the threshold are kept; it lies on an edge, which is not to depend on the last bit.
    kept_cells = int(np.searchsorted(labels.grid.edges, threshold * (1.0 + 1e-12), side="right"))
    recent = labels.table[:, at.ROUTED_US] >= traffic.begins_us
    standing, group = labels.table[recent, at.STANDING], labels.table[recent, at.GROUP]
    group = group[(standing != Standing.UNREQUESTED) & (group < labels.groups - 1)]
    is_kept = np.mod(group, labels.grid.cells) < kept_cells
    came = {"kept": is_kept, "escalated": ~is_kept}
    counts = traffic.counts[COUNT]
    asked = {
        "kept": float(counts[:kept_cells].sum()) * shares.kept,
        "escalated": float(counts[kept_cells:].sum()) * shares.escalated,
    }
    sides: tuple[tuple[SilentSide, SilentSide], ...] = (("kept", "escalated"), ("escalated", "kept"))
    for side, other in sides:
        if asked[side] <= 0.0 or asked[other] <= 0.0:
            continue
        expected = came[other].sum() * asked[side] / asked[other]
        if expected >= EXPECTED_LEAST and came[side].sum() < SHARE * expected:
            return side
        latest = ceil(EXPECTED_LATELY * (asked[side] + asked[other]) / asked[side])
        if latest <= len(is_kept) and came[side][-latest:].sum() < SHARE * EXPECTED_LATELY:
            return side
    return None


_TRAFFIC_WANTED = 1_000.0


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of the answer that one way of serving gives, shape (cells,) each."""

    #: ``value`` and ``size``: E[z | u] and E[d | u].
    value: Floats
    size: Floats
    #: What each cell adds to the variance of a sum over current traffic.
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
    """How much evidence there is."""

    #: ``labels`` and ``pairs``: contributions that count, and those of them where both models ran.
    labels: int
    pairs: int
    #: ``effective_labels`` and ``effective_pairs``: Kish's sample sizes after weighting.
    effective_labels: float
    effective_pairs: float
    #: First and last routing time.
    window_us: tuple[int, int] | None
    #: P(the small answer is wrong | both answers are equal).
    error_given_agreement: float | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is expected of each way of serving at each u, now."""

    #: Shape (cells,): share of current queries in each cell, summing to 1 less the failed share.
    traffic: Floats
    #: Queries behind it, those of unknown u left out of account.
    traffic_queries: float
    kept: Expected
    escalated: Expected
    failed: Failed
    #: ``rectifier``, ``tilt`` and ``shift``: the corrections that are in the curves, for their standard errors.
    rectifier: Rectifier
    tilt: Tilt
    shift: Shift
    map: CalibrationMap
    support: Support
    #: Shape (2, cells): P(the small answer is wrong | u, the answers differ), and where they are equal; labels are
    #: held against it.
    error_given: Floats


class Circumstances(NamedTuple):
    """What is believed of the world when an estimate is made."""

    #: On u; the rectifier works on either side of it. None before the first version.
    serving_threshold: float | None
    #: From when on the world is believed to be another: what recent labels add is measured on those since.
    changed_us: int | None = None
    #: Whether labels routed before then are to count for little.
    discounted: bool = True
    #: Whether they are to count for little in ``error_given`` too.
    settled: bool = True
    #: Whether nothing has changed lately, and nothing is suspected to.
    is_quiet: bool = False
    #: Whether few labels are known of a new mix of queries.
    is_new_mix: bool = False
    #: The side of the serving threshold from which hardly a label comes.
    silent_side: SilentSide | None = None
    #: Whether nobody is asked for labels any more.
    is_label_free: bool = False
    #: When the queries were routed whose labels count; None: whenever.
    spans: tuple[Span, ...] | None = None


def estimate_outcomes(
    labels: LabelTable,
    traffic: TrafficWindow,
    fitter: MapFitter,
    circumstances: Circumstances,
    constants: MethodConstants,
) -> Estimate:
    """Estimate what is expected of each way of serving."""
    changed_us, grid, target = circumstances.changed_us, labels.grid, labels.target
    # The tilt is that of the current traffic. Labels of queries routed before it knew nothing of what it says and would
    # cancel it, all the more when labels are late or have stopped coming.
    current_us = inf if traffic.begins_us is None else max(traffic.begins_us, changed_us or 0)
    decayed = decayed_sums(labels, constants, changed_us, circumstances.spans, current_us)
    groups = _discounted(decayed, constants, circumstances.discounted)
    sums = cell_sums(groups[SLOW], groups[SLOW_SQUARE])
    smoothed = smooth_outcomes(sums, constants)
    split = _last_kept(grid, circumstances.serving_threshold)
    curves = stratify(sums, smoothed, target, constants)
    absent = _unlabelled(labels, traffic, constants.labels_present, is_label_free=circumstances.is_label_free)
    tilt, shift = _tilt(curves, smoothed, labels, traffic, constants, absent)
    silent = tuple(1.0 if side == circumstances.silent_side else absent for side in ("kept", "escalated"))
    typical = constants.unseen_scale if circumstances.is_new_mix else constants.drift_scale
    change = Change(typical, constants.unseen_scale, silent)
    rectifier = rectify(
        cell_sums(groups[FAST], groups[FAST_SQUARE]),
        (curves.small.value, curves.large.value),
        shift.value,
        decayed.current[:, :-1].reshape(2, 3, -1).sum(axis=1),
        target=target,
        split=split,
        change=change,
    )
    shares, failed_share = _traffic(groups[FAST_QUERIES], traffic)
    kept, escalated = _expected(curves, shift, rectifier, shares, constants.bandwidth_cells)
    return Estimate(
        traffic=shares,
        traffic_queries=max(traffic.recent["queries"], 1.0) if traffic.recent["queries"] else float(len(labels)),
        kept=kept,
        escalated=escalated,
        failed=Failed(failed_share, *curves.failed),
        rectifier=rectifier,
        tilt=tilt,
        shift=shift,
        map=fitter(_error_cells(grid, sums, shift.error, shares)),
        support=_support(decayed, groups, sums),
        error_given=inside(shift.error_given)
        if circumstances.settled or decayed.before is None
        else error_given_agreement(decayed.before + decayed.since, constants),
    )


def errors_before(labels: LabelTable, instant_us: int, constants: MethodConstants) -> Floats:
    """Return P(the small answer is wrong | u, the answers differ), and where they are equal, by labels until then."""
    before = decayed_sums(labels, constants, instant_us).before
    assert before is not None
    return error_given_agreement(before, constants)


def _tilt(
    curves: Stratified,
    smoothed: Smoothed,
    labels: LabelTable,
    traffic: TrafficWindow,
    constants: MethodConstants,
    unlabelled: float,
) -> tuple[Tilt, Shift]:
    """Fit the agreement tilt to recent unlabelled pairs; returns what it does to each curve, too."""
    place = labels.grid.standard_logits
    pairs, agreeing = (traffic.counts[name].astype(np.float64) for name in (PAIRS, AGREEING))
    tilt = fit_tilt(curves.agreement, pairs, agreeing, place, constants.tilt_ridge)
    return tilt, shift_by(tilt, curves.agreement, place, smoothed, labels.target, unlabelled=unlabelled)


def _unlabelled(labels: LabelTable, traffic: TrafficWindow, enough: float, *, is_label_free: bool) -> float:
    """Return the share of the labels that the current traffic should have and has not, in [0, 1].

    Some are always on their way: a share of ``enough`` of those asked for counts as all.
    """
    # The last labels do not grow old by newer ones: nothing but this says that they are not of today.
    if is_label_free:
        return 1.0
    begins_us, asked = traffic.begins_us, traffic.recent["labels_requested"]
    if begins_us is None or asked <= 0.0:
        return 0.0
    return max(0.0, 1.0 - labels.labels_since(begins_us) / (enough * asked))


def _last_kept(grid: Grid, threshold: float | None) -> int:
    if threshold is None or threshold >= 1.0:
        return grid.cells - 1
    return -1 if threshold < 0.0 else grid.index(threshold)


def _discounted(decayed: DecayedSums, constants: MethodConstants, discounted: bool) -> Floats:
    """Let all labels from before a change together weigh no more than a prior that new labels use up.

    Shape (``SUMS``, groups): before and since taken together; what is recent was routed since the change.
    """
    before = decayed.before
    if before is None:
        return decayed.since
    allowed = max(constants.old_labels_least, constants.old_labels_most - decayed.fresh) if discounted else inf
    total = float(before[SLOW][at.ONE].sum())
    slow = min(1.0, allowed / total) if total > 0.0 else 1.0
    share = np.zeros(SUMS)
    share[SLOW] = slow
    share[[SLOW_SQUARE, SLOW_SQUARE_PAIR]] = slow * slow
    return before * share[:, None] + decayed.since


def _traffic(labelled: Floats, traffic: TrafficWindow) -> tuple[Floats, float]:
    """Return the share of current queries by cell, and that without u.

    Labels stand in, by inverse propensity, where traffic is unknown.
    """
    shares = distribution(traffic, labelled[:-1].reshape(3, -1).sum(axis=0), _TRAFFIC_WANTED)
    whole = float(labelled.sum())
    failed = float(labelled[-1]) / whole if whole > 0.0 else 0.0
    if traffic.recent["queries"] > 0.0:
        failed = traffic.failed_share
    return shares * (1.0 - failed), failed


def _expected(
    curves: Stratified, shift: Shift, rectifier: Rectifier, shares: Floats, width: int
) -> tuple[Expected, Expected]:
    """Correct both curves.

    Calls that fail are left out: they mostly mean overload, and buying back with more calls what failed calls lose
    would feed the overload (see :func:`degraded`, for the status alone).
    """
    # A cell's mean borrows from its neighbours and lends to them: traffic is smoothed as the labels are.
    near_square = np.square(kernel_mean(shares, width))
    kept, escalated = (
        Expected(
            curve.value + shift.value[model] + rectifier.value[model],
            np.maximum(curve.size + shift.size[model], 0.0),
            near_square * curve.variance / curve.density,
        )
        for model, curve in enumerate((curves.small, curves.large))
    )
    return kept, escalated


def degraded(estimate: Estimate, share: float) -> Estimate:
    """Return what is served while a share of the large model's calls, in [0, 1], ends with the small answer.

    For the status, which says what is served; thresholds are chosen without it.
    """
    kept, large = estimate.kept, estimate.escalated
    escalated = replace(
        large,
        value=(1.0 - share) * large.value + share * kept.value,
        size=(1.0 - share) * large.size + share * kept.size,
    )
    return replace(estimate, escalated=escalated)


def _error_cells(grid: Grid, sums: CellSums, shift: Floats, shares: Floats) -> ErrorCells:
    """Return what g is fitted to, with the errors moved by the agreement tilt."""
    count, wrong = sums.by_cell[:, at.ONE], sums.by_cell[:, at.ERROR]
    return ErrorCells(grid.logits, np.minimum(np.maximum(wrong + shift * count, 0.0), count), count, shares)


def _support(decayed: DecayedSums, groups: Floats, sums: CellSums) -> Support:
    agreeing = float(sums.by_relation[2, :, at.ONE].sum())
    return Support(
        labels=decayed.labels,
        pairs=decayed.pairs,
        effective_labels=kish(groups[SLOW][at.ONE], groups[SLOW_SQUARE]),
        effective_pairs=kish(groups[SLOW][at.PAIR], groups[SLOW_SQUARE_PAIR]),
        window_us=decayed.window_us,
        error_given_agreement=float(sums.by_relation[2, :, at.ERROR].sum()) / agreeing if agreeing > 0.0 else None,
    )


def kish(weight: Floats, square: Floats) -> float:
    """Return the number of equally weighted observations with the same variance: (Σw)² / Σw² (Kish, 1965).

    Examples
    --------
    >>> kish(np.array([1.0, 1.0]), np.array([1.0, 1.0])), kish(np.zeros(2), np.zeros(2))
    (2.0, 0.0)
    """
    squares = float(square.sum())
    return float(weight.sum()) ** 2 / squares if squares > 0.0 else 0.0
