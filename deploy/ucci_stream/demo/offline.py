"""The calibration that the paper's user starts from: fitted once, offline, on labelled recordings. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.isotonic import IsotonicRegression

from schemas.calibration import ESCALATE_ALL, CalibrationMap
from ucci_demo.recorded.traffic import RecordedQuery


def offline_calibration(queries: Sequence[RecordedQuery], target: float) -> tuple[CalibrationMap, float]:
    """Fit g by isotonic regression and choose the cheapest threshold that meets the target (paper, section 4).

    Parameters
    ----------
    queries : sequence of RecordedQuery
        Both models' answers and the gold entities are known.
    target : float
        micro-F1 to reach on these very queries, without a margin, as the paper does.

    Returns
    -------
    map : CalibrationMap
    uncertainty_threshold : float
        The largest u that meets the target; all escalate where none does.
    """
    answered = [(q.small.uncertainty, q) for q in queries if q.small.valid and q.small.uncertainty is not None]
    ordered = sorted(answered, key=lambda pair: pair[0])
    uncertainty = np.array([u for u, _ in ordered])
    model = IsotonicRegression(out_of_bounds="clip").fit(uncertainty, [not q.small.exact for _, q in ordered])
    fitted = CalibrationMap(
        uncertainty=tuple(model.X_thresholds_.tolist()),
        error_probability=tuple(np.clip(model.y_thresholds_, 0.0, 1.0).tolist()),
    )
    gold = sum(q.gold_count for q in queries)
    hits = sum(q.large.true_positives for q in queries)
    named = sum(q.large.predicted for q in queries)
    threshold = ESCALATE_ALL
    # Query after query is kept instead of escalated, in order of u.
    for index, (u, query) in enumerate(ordered):
        hits += query.small.true_positives - query.large.true_positives
        named += query.small.predicted - query.large.predicted
        is_last_of_ties = index + 1 == len(ordered) or ordered[index + 1][0] > u
        if is_last_of_ties and 2.0 * hits >= target * (named + gold):
            threshold = float(u)
    return fitted, threshold
