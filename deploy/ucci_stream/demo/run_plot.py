"""The picture of a demo run: micro-F1 and escalation over the stream, versions, drift and kill marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from schemas.entities import count_pairs
from ucci_stream.demo.scenario import PlannedQuery, Scenario
from ucci_stream.demo.summary import Observations, Terms
from ucci_stream.offline.pictures import GOAL, INK, MAIN, MUTED, over_time, write

_WINDOW = 800

Counts = NDArray[np.float64]


def plot_run(stream: Sequence[PlannedQuery], seen: Observations, scenario: Scenario, terms: Terms, path: Path) -> Path:
    """Draw the run and write it as PNG or SVG, by the path's ending."""
    figure, top, bottom = over_time((10.0, 6.2))
    served, static = _served_counts(stream, seen), _static_counts(stream, terms.static_thresholds[0.0])
    index = np.arange(len(stream))
    top.plot(index, _rolling_f1(static[:, :3]), color=GOAL, lw=1.4, label="static calibration")
    bottom.plot(index, _rolling_mean(static[:, 3]), color=GOAL, lw=1.4)
    top.plot(index, _rolling_f1(served[:, :3]), color=MAIN, lw=2.0, label="this service")
    bottom.plot(index, _rolling_mean(served[:, 3]), color=MAIN, lw=2.0)
    top.axhline(terms.target, color=MUTED, lw=1.0, ls="--", label=f"target {terms.target}")
    top.set_ylabel(f"micro-F1, last {_WINDOW} queries")
    bottom.set_xlabel("query")
    bottom.set_ylim(bottom=0.0)
    _mark(top, bottom, stream, seen, scenario)
    top.legend(loc="lower left", frameon=False)
    top.margins(x=0.01)
    top.set_title("Traffic changes at each dotted line; each tick is a calibration version", loc="left")
    return write(figure, path)


def _mark(top, bottom, stream, seen, scenario) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Mark the drift, the kill and the versions; matplotlib's axes carry no useful types."""
    order = np.array(sorted(result.seen_s for result in seen.results.values()))
    for axes in (top, bottom):
        for start in scenario.starts[1:]:
            axes.axvline(start, color=INK, lw=1.0, ls=":")
    for start, one in zip(scenario.starts, scenario.stretches, strict=True):
        top.annotate(
            one.title,
            (start, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(6, -12),
            textcoords="offset points",
            color=INK,
        )
    if seen.killed_s is not None:
        killed = int(np.searchsorted(order, seen.killed_s))
        for axes in (top, bottom):
            axes.axvline(killed, color=GOAL, lw=1.0, ls=(0, (1, 3)))
        top.annotate(
            "router killed",
            (killed, 0.0),
            xycoords=("data", "axes fraction"),
            xytext=(6, 6),
            textcoords="offset points",
            color=GOAL,
        )
    for version in seen.versions:
        at = int(np.searchsorted(order, version.published_s))
        bottom.axvline(min(at, len(stream) - 1), ymax=0.08, color=INK, lw=1.2)


def _served_counts(stream: Sequence[PlannedQuery], seen: Observations) -> Counts:
    """Return true positives, predicted, gold and escalated of the served answers, one row a query."""
    rows = np.zeros((len(stream), 4))
    for row, query in zip(rows, stream, strict=True):
        result = seen.results.get(query.query_id)
        if result is not None:
            row[:3] = count_pairs(result.routed.entities, query.recorded.gold)
            row[3] = result.routed.decision.escalated
    return rows


def _static_counts(stream: Sequence[PlannedQuery], threshold: float) -> Counts:
    rows = np.zeros((len(stream), 4))
    for row, query in zip(rows, stream, strict=True):
        u = query.recorded.small.uncertainty
        up = u is None or u > threshold
        answer = query.recorded.large if up else query.recorded.small
        row[:] = answer.true_positives, answer.predicted, query.recorded.gold_count, up
    return rows


def _rolling_sum(values: Counts) -> Counts:
    total = np.concatenate((np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)))
    last = np.arange(1, len(values) + 1)
    return np.asarray(total[last] - total[np.maximum(0, last - _WINDOW)])


def _rolling_f1(counts: Counts) -> Counts:
    """Return micro-F1 over the last window, NaN while it is less than half full."""
    hits, predicted, gold = _rolling_sum(counts).T
    with np.errstate(invalid="ignore", divide="ignore"):
        score = 2.0 * hits / (predicted + gold)
    score[: _WINDOW // 2] = np.nan
    return np.asarray(score)


def _rolling_mean(values: Counts) -> Counts:
    count = np.minimum(np.arange(1, len(values) + 1), _WINDOW)
    mean = _rolling_sum(values) / count
    mean[: _WINDOW // 2] = np.nan
    return np.asarray(mean)
