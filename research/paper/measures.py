"""What a routing is scored by: micro-F1, both costs, calibration error. Arrays in, numbers out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from research.paper.workloads import Floats, Mask, Workload

SMALL_COST, LARGE_COST = 1.0, 3.02
"""Measured latency in units of the small model's (paper, section 6.1)."""
BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """One bin of a reliability diagram: mean forecast, observed rate and share of the queries."""

    forecast: float
    observed: float
    share: float


def micro_f1(workload: Workload, escalated: Mask) -> float:
    """Return micro-F1 of the served answers, 2 TP / (predicted + gold).

    ``escalated``: ndarray of bool, shape (queries,); the large answer is served.
    """
    (small_top, small_bottom), (large_top, large_bottom) = workload.pairs("small"), workload.pairs("large")
    bottom = np.where(escalated, large_bottom, small_bottom).sum()
    return float(np.where(escalated, large_top, small_top).sum() / bottom) if bottom else 1.0


def field_f1(workload: Workload, escalated: Mask) -> Floats:
    """Return micro-F1 of the served answers, a number a field."""
    chosen = escalated[:, None]
    hits = np.where(chosen, workload.large.true_positives, workload.small.true_positives).sum(axis=0)
    named = np.where(chosen, workload.large.predicted, workload.small.predicted).sum(axis=0)
    return np.asarray(2.0 * hits / (named + workload.gold.sum(axis=0)))


def paper_cost(rate: float | Floats, large: float = LARGE_COST) -> float | Floats:
    """Return the paper's mean cost of a query at an escalation rate: small if kept, large if escalated (section 3)."""
    return SMALL_COST + rate * (large - SMALL_COST)


def sequential_cost(rate: float | Floats, large: float = LARGE_COST) -> float | Floats:
    """Return what a cascade pays on average: the small call always, the large one when escalated."""
    return SMALL_COST + rate * large


def reliability(forecast: Floats, event: Mask, *, by: str = "count", bins: int = BINS) -> list[Bin]:
    """Return the bins of a reliability diagram.

    ``forecast``: ndarray of float, shape (queries,); in [0, 1]. ``event``: ndarray of bool, shape (queries,). ``by``:
    ``count``: edges at quantiles of the forecast (the paper's deciles), equal forecasts stay together; ``width``: edges
    equally spaced on [0, 1].
    """
    shares = np.arange(1, bins) / bins
    edges = np.quantile(forecast, shares) if by == "count" else shares
    place = np.searchsorted(np.unique(edges), forecast, side="left")
    filled = [place == one for one in np.unique(place)]
    return [Bin(float(forecast[at].mean()), float(event[at].mean()), float(at.mean())) for at in filled]


def calibration_error(forecast: Floats, event: Mask, *, by: str = "count", bins: int = BINS) -> float:
    """Return the expected calibration error: the mean gap of forecast and rate over bins, weighted by their share."""
    return sum(one.share * abs(one.forecast - one.observed) for one in reliability(forecast, event, by=by, bins=bins))
