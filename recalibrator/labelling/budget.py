"""The label budget: how many labels a workload gets, and how much narrower the interval would be with more."""

from __future__ import annotations

import math
from dataclasses import dataclass

from schemas.status import WorkloadStatus

_SECONDS_PER_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class LabelBudget:
    """How many labels a workload asks for, gets and would need."""

    #: Labels asked for since traffic was first seen.
    requested: int
    #: The mean since then; None without traffic.
    requested_per_day: float | None
    #: Of the requested ones, in [0, 1]; None before the first request.
    received_share: float | None

    pending: int
    #: Seconds from routing to label.
    delay_p50_s: float | None
    delay_p90_s: float | None
    #: Labels behind the estimate, weighted by age and by the traffic that they stand for.
    effective: float
    #: Upper minus lower end of the 95 % interval of the estimated micro-F1; None where none is quoted.
    interval_width: float | None

    interval_width_with_twice_the_labels: float | None


def label_budget(status: WorkloadStatus) -> LabelBudget:
    """Return the label budget of a workload.

    The standard error of a mean over n labels goes with 1/√n, and the interval's width with it: twice as many labels
    narrow it to 1/√2 ≈ 0.71 of what it is.

    Examples
    --------
    >>> from schemas.calibration import Interval, Target
    >>> from schemas.status import DriftStatus
    >>> quality = Interval(estimate=0.91, lower=0.90, upper=0.92)
    >>> status = WorkloadStatus(workload="w", state="active", sentence="", target=Target(micro_f1=0.9),
    ...                         drift=DriftStatus(state="ok"), micro_f1=quality)
    >>> round(label_budget(status).interval_width_with_twice_the_labels, 4)
    0.0141
    """
    labels, quality = status.labels, status.micro_f1
    days = 0.0
    if labels.since is not None and status.updated_at is not None:
        days = (status.updated_at - labels.since).total_seconds() / _SECONDS_PER_DAY
    width = None if quality is None else quality.upper - quality.lower
    return LabelBudget(
        requested=labels.requested,
        requested_per_day=labels.requested / days if days > 0.0 else None,
        received_share=1.0 - labels.pending / labels.requested if labels.requested else None,
        pending=labels.pending,
        delay_p50_s=labels.delay_s.p50,
        delay_p90_s=labels.delay_s.p90,
        effective=labels.effective,
        interval_width=width,
        interval_width_with_twice_the_labels=None if width is None else width / math.sqrt(2.0),
    )
